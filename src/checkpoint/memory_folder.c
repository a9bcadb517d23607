// SPDX-License-Identifier: BSD-3-Clause
/* The folders of runs in /dev/shm. Their names end with an id, which the file RUN/.memory names
 * while the folder may contain checkpoints. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/memory_checkpoint.h"
#include "core/file.h"
#include "core/log.h"
#include "core/text.h"

enum {
    MEMORY_RECORD = MEMORY_ID + 24,
    ID_OF_RUN = 8, /* digits at the start of an id that remain when a run gets a new id */
    SHM_PATH = sizeof "/dev/shm/" + NAME_MAX
};

/* ---- ids ---- */

void memory_folder(const char *id, char *path, size_t size)
{
    snprintf(path, size, "/dev/shm/vittrain-%u-%s", (unsigned)geteuid(), id);
}

/* The contents of RUN/.memory: the id, and the inode of the run folder, which differs in a copy of
 * it but not in a moved folder. */
static bool memory_record(const char *run, const char *id, char text[MEMORY_RECORD])
{
    struct stat status;
    const bool good = stat(run, &status) == 0;
    snprintf(text, MEMORY_RECORD, "%.*s\n%llu\n", MEMORY_ID - 1, id,
             good ? (unsigned long long)status.st_ino : 0);
    return good;
}

bool memory_id(const char *run, char id[MEMORY_ID], bool *unusable)
{
    char path[PATH_MAX], expected[MEMORY_RECORD];
    snprintf(path, sizeof path, "%s/.memory", run);
    char *text = text_file_read(path, NULL);
    const bool good = text != NULL && strspn(text, "0123456789abcdef") == MEMORY_ID - 1 &&
                      memory_record(run, text, expected) && strcmp(text, expected) == 0;
    if (unusable != NULL)
        *unusable = !good && (text != NULL || access(path, F_OK) == 0);
    snprintf(id, MEMORY_ID, "%s", good ? text : "");
    free(text);
    return good;
}

bool memory_id_write(const char *run, const char *id, struct error *error)
{
    char path[PATH_MAX], text[MEMORY_RECORD];
    snprintf(path, sizeof path, "%s/.memory", run);
    return memory_record(run, id, text)
               ? atomic_file_write(path, text, error)
               : error_set(error, ERROR_FILE, "cannot read %s: %s", run, strerror(errno));
}

void memory_id_remove(const char *run)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/.memory", run);
    unlink(path);
}

void memory_id_create(const char *earlier, char id[MEMORY_ID])
{
    uint32_t number[2];
    ENSURE(getrandom(number, sizeof number, 0) == sizeof number, "no random number");
    snprintf(id, MEMORY_ID, "%08x%08x", number[0], number[1]);
    memcpy(id, earlier, earlier[0] != '\0' ? ID_OF_RUN : 0);
}

/* ---- folders ---- */

bool memory_folder_is_own(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
           (status.st_mode & 077) == 0;
}

double memory_folder_bytes(const char *folder)
{
    char path[PATH_MAX];
    struct stat status;
    double bytes = 0;
    DIR *entries = NULL;
    for (const char *name; (name = folder_next(&entries, folder)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", folder, name);
        bytes += lstat(path, &status) == 0 ? (double)status.st_blocks * 512 : 0;
    }
    return bytes;
}

/* Set `path` to the next folder of this user in /dev/shm whose id begins with `begin`; false after
 * the last one. */
static bool folders_next(DIR **entries, const char *begin, char path[SHM_PATH])
{
    char start[128];
    memory_folder(begin, start, sizeof start);
    for (const char *name; (name = folder_next(entries, "/dev/shm")) != NULL;) {
        snprintf(path, SHM_PATH, "/dev/shm/%s", name);
        if (strncmp(path, start, strlen(start)) == 0 &&
            strlen(path) == strlen(start) - strlen(begin) + MEMORY_ID - 1 &&
            memory_folder_is_own(path))
            return true;
    }
    return false;
}

void memory_folders_remove_others(const char *earlier, const char *id)
{
    char begin[ID_OF_RUN + 1], path[SHM_PATH], kept[128];
    DIR *entries = NULL;
    snprintf(begin, sizeof begin, "%.*s", ID_OF_RUN, earlier);
    memory_folder(id, kept, sizeof kept);
    while (folders_next(&entries, begin, path))
        if (strcmp(path, kept) != 0)
            folder_remove(path);
}

/* True if a process uses the folder. */
static bool folder_is_held(const char *folder)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/" MEMORY_REACHED, folder);
    const int file = output_file_open(path, O_RDWR);
    const bool held = file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0;
    if (file >= 0)
        close(file);
    return held;
}

/* Set `run` to the run folder; "": unknown. Return true if a run may resume from the folder: it is
 * unknown, or the run folder, or one next to it if it was renamed, has the id. */
static bool folder_is_needed(const char *folder, char run[PATH_MAX])
{
    char path[PATH_MAX], parent[PATH_MAX], id[MEMORY_ID];
    DIR *entries = NULL;
    snprintf(path, sizeof path, "%s/" MEMORY_RUN, folder);
    const ssize_t length = readlink(path, run, PATH_MAX - 1);
    run[length > 0 ? length : 0] = '\0';
    bool needed = run[0] != '/';
    snprintf(parent, sizeof parent, "%.*s", needed ? 0 : (int)(strrchr(run, '/') + 1 - run), run);
    for (const char *name; (name = folder_next(&entries, parent)) != NULL;)
        needed = needed || (snprintf(path, sizeof path, "%s%s", parent, name) < (int)sizeof path &&
                            memory_id(path, id, NULL) && text_ends_with(folder, id));
    return needed;
}

void memory_folders_remove_unneeded(void)
{
    char path[SHM_PATH], run[PATH_MAX];
    DIR *entries = NULL;
    while (folders_next(&entries, "", path))
        if (!folder_is_held(path) && !folder_is_needed(path, run)) {
            log_info("%s is removed: a killed run left it, and %s does not need it", path, run);
            folder_remove(path);
        }
}

void memory_folders_list(char *text, size_t size)
{
    char path[SHM_PATH], run[PATH_MAX];
    DIR *entries = NULL;
    size_t used = 0;
    text[0] = '\0';
    while (folders_next(&entries, "", path))
        if (!folder_is_held(path) && used < size) {
            folder_is_needed(path, run);
            used += (size_t)snprintf(text + used, size - used, "%s%s (%.1f MB, of %s)",
                                     used > 0 ? ", " : "", path, memory_folder_bytes(path) / 1e6,
                                     run[0] != '\0' ? run : "an unknown run");
        }
}
