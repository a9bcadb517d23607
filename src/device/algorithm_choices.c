// SPDX-License-Identifier: BSD-3-Clause
/* The file has one line per choice, appended under a lock:
 *     KEY = 16 hexadecimal digits (8 times) CRC-32C of the preceding text, 8 digits
 * Lines are never overwritten, and the checksum detects truncated lines. */
#include "device/algorithm_choices.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

enum { LINE = CHOICE_KEY + 17 * CHOICE_WORDS + 32, PATH_SIZE = 1024, OF_SIZE = 256, TIMES = 1024 };

struct entry {
    char key[CHOICE_KEY];
    struct choice choice;
    bool used;    /* in use by this process */
    bool adopted; /* contained in an adopted text */
};

struct choices {
    char folder[PATH_SIZE], path[PATH_SIZE + 256], of[OF_SIZE];
    bool keeps, warned;
    int file;        /* open and locked in choices_make, which a measurement may call; else -1 */
    bool whole;      /* the last line read or written is complete */
    long read_bytes; /* bytes of the file read so far */
    struct entry *entries;
    int count;
    size_t room;
};

/* ---- Entries in memory */
static struct entry *entry_find(const struct choices *choices, const char *key)
{
    for (int i = 0; i < choices->count; i++)
        if (strcmp(choices->entries[i].key, key) == 0)
            return &choices->entries[i];
    return NULL;
}

/* Return the entry of `key`; create it if necessary. */
static struct entry *entry_make(struct choices *choices, const char *key)
{
    struct entry *entry = entry_find(choices, key);
    if (entry == NULL) {
        choices->entries = allocate_more(choices->entries, &choices->room, (size_t)choices->count,
                                         sizeof *choices->entries);
        entry = &choices->entries[choices->count++];
        *entry = (struct entry){.used = false};
        snprintf(entry->key, sizeof entry->key, "%s", key);
    }
    return entry;
}

/* ---- The file */
static void warn_once(struct choices *choices, const char *what)
{
    if (!choices->warned)
        log_warn("%s: %s; algorithms that it does not contain are measured again", choices->path,
                 what);
    choices->warned = true;
}

static int line_write(char *line, const char *key, const struct choice *choice)
{
    int length = snprintf(line, LINE, "%s =", key);
    for (int i = 0; i < CHOICE_WORDS; i++)
        length +=
            snprintf(line + length, (size_t)(LINE - length), " %016" PRIx64, choice->words[i]);
    const uint32_t sum = crc32c_update(0, line, (size_t)length);
    return length + snprintf(line + length, (size_t)(LINE - length), " %08" PRIx32 "\n", sum);
}

/* Parse a line and format it again: the line is valid if the bytes are equal. */
static bool line_read(const char *line, char key[CHOICE_KEY], struct choice *choice)
{
    char again[LINE];
    const char *equals = strstr(line, " = ");
    if (equals == NULL || equals - line >= CHOICE_KEY)
        return false;
    snprintf(key, CHOICE_KEY, "%.*s", (int)(equals - line), line);
    const char *next = equals + 2;
    for (int i = 0; i < CHOICE_WORDS; i++) {
        char *end;
        choice->words[i] = strtoull(next, &end, 16);
        next = end;
    }
    const int length = line_write(again, key, choice);
    return strncmp(line, again, (size_t)length) == 0;
}

/* Read the lines added since the last call, including own ones: the last line of a key wins, but an
 * entry in use does not change. */
static void file_read(struct choices *choices)
{
    char line[LINE], key[CHOICE_KEY];
    struct choice choice;
    const int copy = dup(choices->file);
    FILE *stream = copy >= 0 ? fdopen(copy, "r") : NULL;
    if (stream == NULL) {
        if (copy >= 0)
            close(copy);
        warn_once(choices, strerror(errno));
        return;
    }
    if (fseek(stream, choices->read_bytes, SEEK_SET) != 0)
        warn_once(choices, strerror(errno));
    while (fgets(line, sizeof line, stream) != NULL) {
        choices->whole = strchr(line, '\n') != NULL;
        if (line_read(line, key, &choice)) {
            struct entry *entry = entry_make(choices, key);
            if (!entry->used && !entry->adopted)
                entry->choice = choice;
        } else if (strcmp(line, "\n") != 0)
            warn_once(choices, "damaged lines are ignored; delete the file to remove them");
    }
    choices->read_bytes = ftell(stream);
    fclose(stream);
}

/* Lock the file, but give up after a while: a stopped process may hold the lock, and some file
 * systems do not support locks. Without the lock two processes may measure the same key. */
static void file_lock(int file)
{
    enum { TRIES = 600 };
    const struct timespec pause = {0, 50000000};
    for (int i = 0; i < TRIES && flock(file, LOCK_EX | LOCK_NB) != 0; i++) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return;
        nanosleep(&pause, NULL);
    }
}

/* Open and lock the file if choices are stored. */
static void file_open(struct choices *choices)
{
    if (!choices->keeps)
        return;
    struct error unmade = {0}; /* ignored: open fails then */
    error_defer(folder_make(choices->folder, "", &unmade));
    choices->file = open(choices->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    choices->keeps = choices->file >= 0;
    if (choices->keeps)
        file_lock(choices->file);
    else
        warn_once(choices, strerror(errno));
}

static void file_add(struct choices *choices, const char *key, const struct choice *choice)
{
    char line[LINE + 1] = "\n";
    const int start = choices->whole ? 0 : 1; /* ends a truncated line */
    const int length = start + line_write(line + start, key, choice);
    errno = 0;
    if (write(choices->file, line, (size_t)length) != length)
        warn_once(choices, errno != 0 ? strerror(errno) : "cannot be written");
    choices->whole = true;
}

/* ---- */
struct choices *choices_open(const char *folder, const char *of)
{
    char name[200];
    size_t length = 0;
    struct choices *choices = allocate(1, sizeof *choices);
    for (const char *letter = of; *letter != '\0' && length < sizeof name - 1; letter++)
        name[length++] = isalnum((unsigned char)*letter) ? *letter : '-';
    name[length] = '\0';
    snprintf(choices->of, sizeof choices->of, "%s", of);
    choices->file = -1;
    choices->whole = true;
    choices->keeps = folder[0] != '\0' && strlen(folder) < PATH_SIZE;
    snprintf(choices->folder, sizeof choices->folder, "%s", folder);
    snprintf(choices->path, sizeof choices->path, "%s/products-%s", choices->folder, name);
    return choices;
}

void choices_close(struct choices *choices)
{
    if (choices != NULL)
        free(choices->entries);
    free(choices);
}

bool choices_find(struct choices *choices, const char *key, choice_usable *usable, void *context,
                  struct choice *chosen)
{
    struct entry *entry = entry_find(choices, key);
    if (entry == NULL || !usable(context, &entry->choice))
        return false;
    entry->used = true;
    *chosen = entry->choice;
    return true;
}

void choices_put(struct choices *choices, const char *key, const struct choice *choice)
{
    struct entry *entry = entry_make(choices, key);
    entry->adopted = false;
    entry->used = true;
    entry->choice = *choice;
}

bool choices_make(struct choices *choices, const char *key, const struct choice *candidates,
                  int count, choice_time *time, choice_usable *usable, void *context,
                  struct choice *chosen)
{
    double least = INFINITY;
    char times[TIMES] = "";
    size_t length = 0;
    int best = 0;
    ENSURE(strlen(key) < CHOICE_KEY && strpbrk(key, "=\n") == NULL, "invalid key of a choice: '%s'",
           key);
    if (choices_find(choices, key, usable, context, chosen))
        return true;
    const bool opens = choices->file < 0;
    if (opens)
        file_open(choices);
    if (choices->file >= 0)
        file_read(choices);
    bool found = choices_find(choices, key, usable, context, chosen);
    for (int i = 0; i < count && !found; i++) {
        const double seconds = time(context, i);
        if (length < TIMES)
            length += (size_t)snprintf(times + length, TIMES - length, " %.1f", 1e6 * seconds);
        if (seconds < least) {
            least = seconds;
            *chosen = candidates[i];
            best = i;
        }
    }
    if (least < INFINITY) {
        log_detail("algorithm of %s: candidate %d of %d; us:%s", key, best, count, times);
        found = true;
        choices_put(choices, key, chosen);
        if (choices->file >= 0)
            file_add(choices, key, chosen);
    }
    if (opens && choices->file >= 0) {
        close(choices->file); /* releases the lock */
        choices->file = -1;
    }
    return found;
}

/* ---- As text: one line that identifies the GPU and library, then lines as in the file */
char *choices_export(const struct choices *choices)
{
    char *text = allocate(OF_SIZE + 1 + (size_t)choices->count * LINE, 1);
    size_t length = (size_t)sprintf(text, "%s\n", choices->of);
    for (int i = 0; i < choices->count; i++) {
        const struct entry *entry = &choices->entries[i];
        if (entry->used || entry->adopted)
            length += (size_t)line_write(text + length, entry->key, &entry->choice);
    }
    return text;
}

bool choices_are_new(const struct choices *choices)
{
    for (int i = 0; i < choices->count; i++) {
        const struct entry *entry = &choices->entries[i];
        if (entry->used && !entry->adopted)
            return true;
    }
    return false;
}

bool choices_adopt(struct choices *choices, const char *text)
{
    char key[CHOICE_KEY];
    struct choice choice;
    bool changed = false;
    const size_t head = strcspn(text, "\n");
    if (text[0] == '\0')
        return false;
    if (head != strlen(choices->of) || strncmp(text, choices->of, head) != 0) {
        log_info("algorithms of matrix products for %.*s do not apply to %s: results agree up to "
                 "rounding, not bit for bit",
                 (int)head, text, choices->of);
        return false;
    }
    for (const char *line = text + head; *line != '\0'; line += strcspn(line, "\n")) {
        line++;
        if (!line_read(line, key, &choice))
            continue;
        struct entry *entry = entry_make(choices, key);
        changed |= entry->used && memcmp(&entry->choice, &choice, sizeof choice) != 0;
        entry->adopted = true;
        entry->choice = choice;
    }
    return changed;
}
