/* The file has a line a choice, added at its end under a lock:
 *     KEY = 16 hexadecimal digits (8 times) CRC-32C of what stands before, 8 digits
 * so that nothing is ever written over, and a line that was cut off is known by its sum. */
#include "device/choices.h"

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

#include "core/crc32c.h"
#include "core/error.h"
#include "core/folder.h"
#include "core/log.h"

enum { LINE = CHOICE_KEY + 17 * CHOICE_WORDS + 32, PATH_SIZE = 1024 };

struct entry {
    char key[CHOICE_KEY];
    struct choice choice;
};

struct choices {
    char folder[PATH_SIZE], path[PATH_SIZE + 256];
    bool keeps, warned;
    long read_bytes; /* of the file, so far */
    struct entry *entries;
    int count, room;
};

/* ---- In memory. */
static struct entry *entry_find(const struct choices *choices, const char *key)
{
    for (int i = 0; i < choices->count; i++)
        if (strcmp(choices->entries[i].key, key) == 0)
            return &choices->entries[i];
    return NULL;
}

/* The last one said counts. */
static void entry_put(struct choices *choices, const char *key, const struct choice *choice)
{
    struct entry *entry = entry_find(choices, key);
    if (entry == NULL) {
        if (choices->count == choices->room) {
            choices->room = choices->room > 0 ? 2 * choices->room : 64;
            choices->entries =
                realloc(choices->entries, (size_t)choices->room * sizeof *choices->entries);
            ENSURE(choices->entries != NULL, "no memory for choices");
        }
        entry = &choices->entries[choices->count++];
        snprintf(entry->key, sizeof entry->key, "%s", key);
    }
    entry->choice = *choice;
}

/* ---- The file. */
static void warn_once(struct choices *choices, const char *what)
{
    if (!choices->warned)
        log_warn("%s: %s; fastest algorithms are measured again where it has none", choices->path,
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

/* Reads its parts and writes them again: what gives the same line was not damaged. */
static bool line_read(struct choices *choices, const char *line)
{
    char key[CHOICE_KEY], again[LINE];
    struct choice choice;
    const char *equals = strstr(line, " = ");
    if (equals == NULL || equals - line >= CHOICE_KEY)
        return false;
    snprintf(key, sizeof key, "%.*s", (int)(equals - line), line);
    const char *next = equals + 2;
    for (int i = 0; i < CHOICE_WORDS; i++) {
        char *end;
        choice.words[i] = strtoull(next, &end, 16);
        next = end;
    }
    line_write(again, key, &choice);
    if (strcmp(line, again) != 0)
        return false;
    entry_put(choices, key, &choice);
    return true;
}

/* What is new in the file; true when its last line is whole. */
static bool file_read(struct choices *choices, int file)
{
    char line[LINE];
    bool whole = true;
    const int copy = dup(file);
    FILE *stream = copy >= 0 ? fdopen(copy, "r") : NULL;
    if (stream == NULL) {
        if (copy >= 0)
            close(copy);
        warn_once(choices, strerror(errno));
        return true;
    }
    if (fseek(stream, choices->read_bytes, SEEK_SET) != 0)
        warn_once(choices, strerror(errno));
    while (fgets(line, sizeof line, stream) != NULL) {
        whole = strchr(line, '\n') != NULL;
        if (!line_read(choices, line) && strcmp(line, "\n") != 0)
            warn_once(choices, "damaged lines are ignored (delete the file to be rid of them)");
    }
    choices->read_bytes = ftell(stream);
    fclose(stream);
    return whole;
}

/* Does not wait for ever: a process that was stopped may hold the lock, and some file systems have
 * none. Without it two may measure the same. */
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

/* The file, locked; -1: there is none. */
static int file_open(struct choices *choices)
{
    if (!choices->keeps)
        return -1;
    struct error unmade = {0}; /* shows when the file is opened */
    folder_make(choices->folder, "", &unmade);
    const int file = open(choices->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0) {
        warn_once(choices, strerror(errno));
        choices->keeps = false;
        return -1;
    }
    file_lock(file);
    return file;
}

static void file_add(struct choices *choices, int file, bool whole, const char *key,
                     const struct choice *choice)
{
    char line[LINE + 1] = "\n";
    const int start = whole ? 0 : 1; /* a line that was cut off ends here */
    const int length = start + line_write(line + start, key, choice);
    errno = 0;
    if (write(file, line, (size_t)length) != length)
        warn_once(choices, errno != 0 ? strerror(errno) : "cannot be written");
    choices->read_bytes += length;
}

/* ---- */
struct choices *choices_open(const char *folder, const char *of)
{
    char name[200];
    size_t length = 0;
    struct choices *choices = calloc(1, sizeof *choices);
    ENSURE(choices != NULL, "no memory for choices");
    for (const char *letter = of; *letter != '\0' && length < sizeof name - 1; letter++)
        name[length++] = isalnum((unsigned char)*letter) ? *letter : '-';
    name[length] = '\0';
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

static bool fastest_find(const struct choice *candidates, int count, choice_time *time,
                         void *context, struct choice *chosen)
{
    double least = INFINITY;
    for (int i = 0; i < count; i++) {
        const double seconds = time(context, i);
        if (seconds < least) {
            least = seconds;
            *chosen = candidates[i];
        }
    }
    return least < INFINITY;
}

bool choices_make(struct choices *choices, const char *key, const struct choice *candidates,
                  int count, choice_time *time, choice_usable *usable, void *context,
                  struct choice *chosen)
{
    ENSURE(strlen(key) < CHOICE_KEY && strpbrk(key, "=\n") == NULL, "key '%s' of a choice", key);
    const int file = file_open(choices);
    const bool whole = file < 0 || file_read(choices, file);
    const struct entry *known = entry_find(choices, key);
    bool found = known != NULL && usable(context, &known->choice);
    if (found) {
        *chosen = known->choice;
    } else {
        found = fastest_find(candidates, count, time, context, chosen);
        if (found) {
            entry_put(choices, key, chosen);
            if (file >= 0)
                file_add(choices, file, whole, key, chosen);
        }
    }
    if (file >= 0)
        close(file); /* and the lock with it */
    return found;
}
