/* Reads deck.ini as `train` writes it, a key a line. The reader of decks refuses keys that it does
 * not know; the deck of an older or a newer program may have such. */
#include "report/deck.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/option.h"
#include "config/options.h"
#include "core/text_file.h"

static struct record_setting *setting_find(const struct record *record, const char *key)
{
    for (int i = 0; i < record->deck_count; i++)
        if (strcmp(record->deck[i].key, key) == 0)
            return &record->deck[i];
    return NULL;
}

static char *text_join(char *text, const char *more)
{
    size_t length = text != NULL ? strlen(text) : 0;
    text = realloc(text, length + strlen(more) + 1);
    ENSURE(text != NULL, "no memory for a run's deck");
    memcpy(text + length, more, strlen(more) + 1);
    return text;
}

static void setting_add(struct record *record, const char *section, const char *name,
                        const char *value)
{
    struct record_setting *setting;
    char key[sizeof setting->key];
    snprintf(key, sizeof key, "%.30s.%.30s", section, name);
    setting = setting_find(record, key);
    if (setting == NULL) {
        size_t count = (size_t)record->deck_count + 1;
        record->deck = realloc(record->deck, count * sizeof *record->deck);
        ENSURE(record->deck != NULL, "no memory for a run's deck");
        setting = &record->deck[record->deck_count++];
        *setting = (struct record_setting){0};
        memcpy(setting->key, key, sizeof key);
        const struct option_entry *entry = option_find(key);
        setting->preset = entry != NULL ? entry->preset : NULL;
    }
    setting->value = text_join(setting->value, value);
}

/* "key = value", or "key += value": more of a long text. */
static void line_read(struct record *record, char *line, char *section, size_t size)
{
    line[strcspn(line, "\r\n")] = '\0';
    char *equals = strchr(line, '=');
    if (line[0] == '[') {
        snprintf(section, size, "%.*s", (int)strcspn(line + 1, "]"), line + 1);
        return;
    }
    if (equals == NULL || line[0] == ';' || line[0] == '#')
        return;
    const char *value = equals + 1 + strspn(equals + 1, " ");
    if (equals > line && equals[-1] == '+')
        equals--;
    while (equals > line && equals[-1] == ' ')
        equals--;
    *equals = '\0';
    setting_add(record, section, line, value);
}

/* Do two texts give the option the same value, as 0.10 and 1e-1 do? */
static bool same_value(const struct record_setting *setting)
{
    static struct options one, other; /* large */
    struct error ignored = {0};
    char texts[2][OPTION_TEXT];
    const struct option_entry *entry = option_find(setting->key);
    if (entry == NULL || setting->preset == NULL)
        return false;
    if (!option_read(entry, "", setting->value, &one, &ignored) ||
        !option_read(entry, "", setting->preset, &other, &ignored))
        return strcmp(setting->value, setting->preset) == 0;
    option_write(entry, &one, texts[0], sizeof texts[0]);
    option_write(entry, &other, texts[1], sizeof texts[1]);
    return strcmp(texts[0], texts[1]) == 0;
}

void deck_open(struct record *record)
{
    char path[sizeof record->path + 16], section[64] = "", *line = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/deck.ini", record->path);
    FILE *file = text_file_open(path);
    if (file == NULL) {
        lines_add(&record->missing, "deck.ini: cannot be read: %s", strerror(errno));
        return;
    }
    while (getline(&line, &size, file) >= 0)
        line_read(record, line, section, sizeof section);
    free(line);
    fclose(file);
    record->settings = calloc((size_t)record->deck_count + 1, sizeof(struct record_setting *));
    ENSURE(record->settings != NULL, "no memory for a run's deck");
    for (int i = 0; i < record->deck_count; i++)
        if (!same_value(&record->deck[i]))
            record->settings[record->setting_count++] = &record->deck[i];
    if (record->deck_count == 0)
        lines_add(&record->missing, "deck.ini: empty");
}

void deck_free(struct record *record)
{
    for (int i = 0; i < record->deck_count; i++)
        free(record->deck[i].value);
    free(record->deck);
    free(record->settings);
}

const char *record_option(const struct record *record, const char *key)
{
    const struct record_setting *setting = setting_find(record, key);
    return setting != NULL ? setting->value : NULL;
}
