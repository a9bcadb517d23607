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

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/memory_checkpoint.h"

enum {
    ID_OF_RUN = 8, /* digits at the start of an id that remain when a run gets a new id */
    SHM_PATH = sizeof "/dev/shm/" + NAME_MAX
};

/* ---- ids ---- */

char *memory_folder(const char *id)
{
    return allocate_text("/dev/shm/vittrain-%u-%s", (unsigned)geteuid(), id);
}

/* Return the contents of RUN/.memory, to be freed by the caller: the id, and the inode of the run
 * folder, which differs in a copy of it but not in a moved folder. NULL and errno on failure. */
static char *memory_record(const char *run, const char *id)
{
    struct stat status;
    return stat(run, &status) != 0 ? NULL
                                   : allocate_text("%.*s\n%llu\n", MEMORY_ID - 1, id,
                                                   (unsigned long long)status.st_ino);
}

bool memory_id(const char *run, char id[MEMORY_ID], bool *unusable)
{
    OWNED char *path = allocate_text("%s/.memory", run);
    OWNED char *text = text_file_read(path, NULL);
    OWNED char *expected = memory_record(run, text != NULL ? text : "");
    const bool good = text != NULL && strspn(text, "0123456789abcdef") == MEMORY_ID - 1 &&
                      expected != NULL && strcmp(text, expected) == 0;
    if (unusable != NULL)
        *unusable = !good && (text != NULL || access(path, F_OK) == 0);
    snprintf(id, MEMORY_ID, "%s", good ? text : "");
    return good;
}

bool memory_id_write(const char *run, const char *id, struct error *error)
{
    OWNED char *path = allocate_text("%s/.memory", run);
    OWNED char *text = memory_record(run, id);
    return text != NULL ? atomic_file_write(path, text, error)
                        : error_set(error, ERROR_FILE, "cannot read %s: %s", run, strerror(errno));
}

void memory_id_remove(const char *run)
{
    OWNED char *path = allocate_text("%s/.memory", run);
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
    struct stat status;
    double bytes = 0;
    DIR *entries = NULL;
    for (const char *name; (name = folder_next(&entries, folder)) != NULL;) {
        OWNED char *path = allocate_text("%s/%s", folder, name);
        bytes += lstat(path, &status) == 0 ? (double)status.st_blocks * 512 : 0;
    }
    return bytes;
}

/* Set `path` to the next folder of this user in /dev/shm whose id begins with `begin`; false after
 * the last one. */
static bool folders_next(DIR **entries, const char *begin, char path[SHM_PATH])
{
    OWNED char *start = memory_folder(begin);
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
    OWNED char *begin = allocate_text("%.*s", ID_OF_RUN, earlier), *kept = memory_folder(id);
    char path[SHM_PATH];
    DIR *entries = NULL;
    while (folders_next(&entries, begin, path))
        if (strcmp(path, kept) != 0)
            folder_remove(path);
}

/* True if a process uses the folder. */
static bool folder_is_held(const char *folder)
{
    OWNED char *path = allocate_text("%s/" MEMORY_REACHED, folder);
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
    OWNED char *path = allocate_text("%s/" MEMORY_RUN, folder);
    char id[MEMORY_ID];
    DIR *entries = NULL;
    const ssize_t length = readlink(path, run, PATH_MAX - 1);
    run[length > 0 ? length : 0] = '\0';
    bool needed = run[0] != '/';
    OWNED char *parent =
        allocate_text("%.*s", needed ? 0 : (int)(strrchr(run, '/') + 1 - run), run);
    for (const char *name; (name = folder_next(&entries, parent)) != NULL;) {
        OWNED char *other = allocate_text("%s%s", parent, name);
        needed = needed || (memory_id(other, id, NULL) && text_ends_with(folder, id));
    }
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
