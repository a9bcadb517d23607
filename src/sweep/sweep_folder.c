/* The folder of a sweep: made, found again, read, and locked. Several tasks may work on a sweep;
 * who does holds the lock of the task's number, so that trials whose task has died can be told from
 * those that run. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "checkpoint/run_folder.h"
#include "config/options.h"
#include "core/atomic_file.h"
#include "core/folder.h"
#include "core/text_file.h"
#include "sweep/sweep.h"

static const char above[] = "sweeps";

/* ---- texts */

static void path_in(const char *folder, const char *name, char path[SWEEP_PATH])
{
    snprintf(path, SWEEP_PATH, "%s/%s", folder, name);
}

/* The whole file; NULL: there is none. The caller frees it. */
static char *text_read(const char *folder, const char *name)
{
    char path[SWEEP_PATH];
    path_in(folder, name, path);
    return text_file_read(path, NULL);
}

static bool text_write(const char *folder, const char *name, const char *text, struct error *error)
{
    char path[SWEEP_PATH];
    path_in(folder, name, path);
    return atomic_file_write(path, text, error);
}

static char *words_text(const struct sweep_words *words)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    ENSURE(file != NULL, "no memory for %d words", words->count);
    for (int i = 0; i < words->count; i++)
        fprintf(file, "%s\n", words->word[i]);
    ENSURE(fclose(file) == 0, "no memory for %d words", words->count);
    return text;
}

/* Takes the text over. */
static void words_take(struct sweep_words *words, char *text)
{
    for (char *word = strtok(text, "\n"); word != NULL && words->count < SWEEP_WORDS;
         word = strtok(NULL, "\n"))
        words->word[words->count++] = word;
}

/* ---- a new one, or one that was cut off */

static bool words_write(const struct sweep *sweep, const char *name,
                        const struct sweep_words *words, struct error *error)
{
    char *text = words_text(words);
    bool good = text_write(sweep->folder, name, text, error);
    free(text);
    return good;
}

/* The options last: a folder that has them is whole. */
static bool folder_fill(const struct sweep *sweep, struct error *error)
{
    static const char advice[] = "choose another sweep.dir";
    char *base = options_to_text(&sweep->options);
    bool good = folder_make(sweep->folder, advice, error) &&
                words_write(sweep, "keys.txt", &sweep->keys, error) &&
                words_write(sweep, "command.txt", &sweep->command, error) &&
                text_write(sweep->folder, "base.ini", base, error);
    free(base);
    return good;
}

/* Is this the folder of the same sweep? */
static bool folder_equals(const struct sweep *sweep, const char *folder)
{
    char *base = text_read(folder, "base.ini"), *keys = text_read(folder, "keys.txt");
    char *own_base = options_to_text(&sweep->options), *own_keys = words_text(&sweep->keys);
    bool equal =
        base != NULL && keys != NULL && strcmp(base, own_base) == 0 && strcmp(keys, own_keys) == 0;
    free(base);
    free(keys);
    free(own_base);
    free(own_keys);
    return equal;
}

/* Trials that have not ended, or have not begun. */
static bool folder_is_open(const struct sweep *sweep, const char *folder)
{
    struct sweep other = *sweep;
    struct sweep_table table;
    struct error ignored = {0};
    snprintf(other.folder, sizeof other.folder, "%s", folder);
    if (!sweep_table_read(&other, &table, &ignored))
        return false;
    int64_t left = sweep->trials - table.count + sweep_table_count(&table, SWEEP_RUNNING);
    sweep_table_free(&table);
    return left > 0;
}

/* The newest of the same sweep that is not at its end: names end with their date. */
static bool folder_find(struct sweep *sweep)
{
    DIR *entries = opendir(above);
    char found[OPTION_TEXT] = "";
    if (entries == NULL)
        return false;
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        char path[OPTION_TEXT];
        snprintf(path, sizeof path, "%s/%.255s", above, entry->d_name);
        if (run_folder_is_of(entry->d_name, sweep->options.run.name) && strcmp(path, found) > 0 &&
            folder_equals(sweep, path) && folder_is_open(sweep, path))
            snprintf(found, sizeof found, "%s", path);
    }
    closedir(entries);
    snprintf(sweep->folder, sizeof sweep->folder, "%s", found);
    return found[0] != '\0';
}

static void folder_name(struct sweep *sweep)
{
    char date[32], stem[OPTION_TEXT];
    time_t now = time(NULL);
    struct tm parts;
    strftime(date, sizeof date, "%Y%m%d-%H%M%S", localtime_r(&now, &parts));
    snprintf(stem, sizeof stem, "%s/%.900s-%s", above, sweep->options.run.name, date);
    snprintf(sweep->folder, sizeof sweep->folder, "%s", stem);
    for (int i = 2; access(sweep->folder, F_OK) == 0; i++)
        snprintf(sweep->folder, sizeof sweep->folder, "%.1000s-%d", stem, i);
}

bool sweep_folder_begin(struct sweep *sweep, struct error *error)
{
    const char *wanted = sweep->options.sweep.dir;
    char path[SWEEP_PATH];
    if (wanted[0] == '\0') {
        if (folder_find(sweep))
            return words_write(sweep, "command.txt", &sweep->command, error);
        folder_name(sweep);
        return folder_fill(sweep, error);
    }
    snprintf(sweep->folder, sizeof sweep->folder, "%s", wanted);
    path_in(wanted, "base.ini", path);
    if (access(path, F_OK) != 0)
        return folder_fill(sweep, error);
    if (folder_equals(sweep, wanted))
        return words_write(sweep, "command.txt", &sweep->command, error);
    return error_set(error, ERROR_USAGE,
                     "sweep: %s holds another sweep: go on with it by `vittrain sweep %s`, or "
                     "choose another sweep.dir",
                     wanted, wanted);
}

bool sweep_folder_read(struct sweep *sweep, struct error *error)
{
    char path[SWEEP_PATH];
    path_in(sweep->folder, "base.ini", path);
    char *keys = text_read(sweep->folder, "keys.txt");
    if (keys == NULL || access(path, F_OK) != 0)
        return error_set(error, ERROR_USAGE,
                         "sweep: %s is no folder of a sweep (it has no base.ini): give a deck and "
                         "key=a,b,c",
                         sweep->folder);
    options_default(&sweep->options);
    if (!options_read_file(path, &sweep->options, error))
        return false;
    words_take(&sweep->keys, keys);
    char *command = text_read(sweep->folder, "command.txt");
    if (sweep->command.count == 0 && command != NULL)
        words_take(&sweep->command, command);
    return true;
}

/* ---- locks */

static int lock_open(const struct sweep *sweep, const char *name)
{
    char path[SWEEP_PATH];
    path_in(sweep->folder, name, path);
    return open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
}

static int task_lock_open(const struct sweep *sweep, int64_t task)
{
    char name[48];
    snprintf(name, sizeof name, ".task-%lld.lock", (long long)task);
    return lock_open(sweep, name);
}

static bool lock_fail(const struct sweep *sweep, struct error *error)
{
    return error_set(error, ERROR_FILE, "sweep: no lock in %s: %s", sweep->folder, strerror(errno));
}

bool sweep_task_hold(struct sweep *sweep, struct error *error)
{
    sweep->lock = task_lock_open(sweep, sweep->task);
    if (sweep->lock < 0)
        return lock_fail(sweep, error);
    if (flock(sweep->lock, LOCK_EX | LOCK_NB) == 0)
        return true;
    if (errno != EWOULDBLOCK)
        return lock_fail(sweep, error);
    return error_set(error, ERROR_USAGE,
                     "sweep: another process is at work on %s: find it (fuser %s/.task-%lld.lock)",
                     sweep->folder, sweep->folder, (long long)sweep->task);
}

bool sweep_task_lives(const struct sweep *sweep, int64_t task)
{
    int lock = task_lock_open(sweep, task);
    if (lock < 0)
        return false;
    bool lives = flock(lock, LOCK_EX | LOCK_NB) != 0;
    close(lock);
    return lives;
}

int sweep_table_lock(const struct sweep *sweep, struct error *error)
{
    int lock = lock_open(sweep, ".lock");
    if (lock >= 0 && flock(lock, LOCK_EX) == 0)
        return lock;
    lock_fail(sweep, error);
    if (lock >= 0)
        close(lock);
    return -1;
}

void sweep_table_unlock(int lock)
{
    close(lock);
}
