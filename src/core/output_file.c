// SPDX-License-Identifier: BSD-3-Clause
#include "core/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/folder.h"

enum { PATH_SIZE = 4096, DAY_SECONDS = 24 * 3600 };

int output_file_open(const char *path, int flags)
{
    struct stat status;
    int file = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0666);
    if (file < 0)
        return -1;
    if (fstat(file, &status) == 0 && S_ISREG(status.st_mode))
        return file;
    close(file);
    errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
    return -1;
}

FILE *output_file_stream(const char *path, const char *mode)
{
    const int flags = mode[0] == 'r'   ? O_RDONLY
                      : mode[0] == 'w' ? O_WRONLY | O_CREAT | O_TRUNC
                                       : O_WRONLY | O_CREAT | O_APPEND;
    int file = output_file_open(path, flags);
    if (file < 0)
        return NULL;
    FILE *stream = fdopen(file, mode);
    if (stream == NULL) {
        int reason = errno;
        close(file);
        errno = reason;
    }
    return stream;
}

static int file_lock(int file)
{
    int failed;
    do
        failed = flock(file, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    while (failed == EINTR);
    return failed;
}

/* True if the path still refers to the open file. */
static bool is_same_file(int file, const char *path)
{
    struct stat here, there;
    return fstat(file, &here) == 0 && lstat(path, &there) == 0 && here.st_dev == there.st_dev &&
           here.st_ino == there.st_ino;
}

/* Create and lock the file. Return -1 and set errno to EBUSY if another process has locked it. */
static int try_create(const char *path)
{
    struct stat status;
    if (lstat(path, &status) == 0 && S_ISLNK(status.st_mode))
        unlink(path);
    int file = output_file_open(path, O_RDWR | O_CREAT);
    if (file < 0)
        return -1;
    /* Truncated only under the lock: another process may be writing it. */
    const bool is_own = file_lock(file) != EWOULDBLOCK && is_same_file(file, path);
    if (is_own && ftruncate(file, 0) == 0)
        return file;
    int reason = is_own ? errno : EBUSY;
    close(file);
    errno = reason;
    return -1;
}

int output_file_create(const char *path)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    for (int tries = 0; tries < OUTPUT_FILE_WAIT * 50; tries++) {
        int file = try_create(path);
        if (file >= 0 || errno != EBUSY)
            return file;
        nanosleep(&pause, NULL);
    }
    errno = EBUSY;
    return -1;
}

/* True if no living process writes the file. The lock is kept until the file is closed. */
static bool is_abandoned(int file)
{
    struct stat status;
    int failed = file_lock(file);
    if (failed == 0 || failed == EWOULDBLOCK)
        return failed == 0;
    return fstat(file, &status) == 0 && time(NULL) - status.st_mtime > DAY_SECONDS;
}

void output_file_clean(const char *folder, bool (*is_temporary)(const char *name))
{
    DIR *entries = NULL;
    for (const char *name; (name = folder_next(&entries, folder)) != NULL;) {
        char path[PATH_SIZE];
        if (!is_temporary(name) ||
            snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
            continue;
        int file = output_file_open(path, O_RDWR);
        if (file < 0)
            continue;
        if (is_abandoned(file) && is_same_file(file, path))
            unlink(path);
        close(file);
    }
}
