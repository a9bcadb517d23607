// SPDX-License-Identifier: BSD-3-Clause
/* Creation of folders, names in a folder, and the cache folder. */
#include "core/folder.h"
#include "core/file.h"
#include "core/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_SIZE = 4096 };

/* Create one folder if it does not exist. Some file systems fail for an existing folder with other
 * errors than EEXIST, so stat decides. Sets errno. */
static bool make_one(const char *path)
{
    struct stat status;
    if (mkdir(path, 0777) == 0)
        return true;
    int reason = errno;
    bool there = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
    errno = reason == EEXIST ? ENOTDIR : reason;
    return there;
}

static bool is_root(const char *path)
{
    struct stat folder, root;
    return stat(path, &folder) == 0 && stat("/", &root) == 0 && folder.st_dev == root.st_dev &&
           folder.st_ino == root.st_ino;
}

bool folder_make(const char *path, const char *advice, struct error *error)
{
    char part[PATH_SIZE];
    if (is_root(path))
        return error_set(error, ERROR_USAGE,
                         "%s: the root of the file system cannot be a folder for output; %s", path,
                         advice);
    if (strlen(path) >= sizeof part)
        return error_set(error, ERROR_USAGE,
                         "cannot create the folder %.64s...: the name is too long; %s", path,
                         advice);
    snprintf(part, sizeof part, "%s", path);
    bool made = true;
    for (char *slash = strchr(part, '/'); made && slash != NULL; slash = strchr(slash + 1, '/')) {
        if (slash == part)
            continue;
        *slash = '\0';
        made = make_one(part);
        if (made)
            *slash = '/';
    }
    return (made && make_one(part)) ||
           error_set(error, ERROR_FILE, "%s: cannot create the folder: %s; %s", part,
                     strerror(errno), advice);
}

const char *folder_next(DIR **entries, const char *path)
{
    struct dirent *entry;
    if (*entries == NULL)
        *entries = opendir(path);
    if (*entries == NULL)
        return NULL;
    do
        entry = readdir(*entries);
    while (entry != NULL && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
    if (entry != NULL)
        return entry->d_name;
    closedir(*entries);
    *entries = NULL;
    return NULL;
}

bool folder_nearest(const char *folder, const char *name, const char *ending, char *nearest,
                    size_t size)
{
    char stem[PATH_SIZE], other[NAME_MAX + 1];
    DIR *entries = NULL;
    const size_t tail = text_ends_with(name, ending) ? strlen(ending) : 0;
    snprintf(stem, sizeof stem, "%.*s", (int)(strlen(name) - tail), name);
    nearest[0] = '\0';
    for (const char *entry; (entry = folder_next(&entries, folder)) != NULL;) {
        const char *const candidates[] = {other, nearest, NULL};
        if (!text_ends_with(entry, ending))
            continue;
        snprintf(other, sizeof other, "%.*s", (int)(strlen(entry) - strlen(ending)), entry);
        if (text_nearest(stem, candidates) == other)
            snprintf(nearest, size, "%s", other);
    }
    return nearest[0] != '\0';
}

bool folder_make_temporary(char *path, size_t size)
{
    const char *parent = getenv("TMPDIR");
    snprintf(path, size, "%s/vittrain-XXXXXX",
             parent != NULL && parent[0] != '\0' ? parent : "/tmp");
    return mkdtemp(path) != NULL;
}

enum folder_use folder_use(const char *path)
{
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s/.lock", path);
    const int lock = output_file_open(name, O_RDONLY);
    if (lock < 0)
        return FOLDER_USE_UNKNOWN;
    const bool held = flock(lock, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(lock);
    return held ? FOLDER_IN_USE : FOLDER_FREE;
}

void folder_remove(const char *path)
{
    char entry[PATH_SIZE];
    DIR *entries = NULL;
    for (const char *name; (name = folder_next(&entries, path)) != NULL;)
        if (snprintf(entry, sizeof entry, "%s/%s", path, name) < (int)sizeof entry &&
            remove(entry) != 0)
            folder_remove(entry);
    remove(path);
}

void folder_cache(char *path, size_t size)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    struct stat status;
    path[0] = '\0';
    if (cache != NULL && cache[0] == '/')
        snprintf(path, size, "%s/vittrain", cache);
    else if (home != NULL && home[0] == '/' && stat(home, &status) == 0)
        snprintf(path, size, "%s/.cache/vittrain", home);
}

bool folder_installed(const char *name, char *path, size_t size)
{
    enum { LEVELS_UP = 3 };
    char folder[PATH_SIZE];
    const ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[length > 0 ? length : 0] = '\0';
    for (int level = 0; level < LEVELS_UP && strrchr(folder, '/') != NULL; level++) {
        static const char *const below[] = {"", "/share/vittrain"};
        *strrchr(folder, '/') = '\0';
        for (int i = 0; i < 2; i++) {
            snprintf(path, size, "%s%s/%s", folder, below[i], name);
            if (access(path, R_OK) == 0)
                return true;
        }
    }
    snprintf(path, size, "%s/%s", VITTRAIN_DATA_DIR, name);
    return access(path, R_OK) == 0;
}
