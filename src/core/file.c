// SPDX-License-Identifier: BSD-3-Clause
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* fallocate */
#endif
#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "core/error.h"
#include "core/folder.h"

/* Durable files. The order write, sync file, rename, sync directory guarantees that a name refers
 * to a complete file, also after a crash of the machine. */

static const char *errno_advice(int number)
{
    switch (number) {
    case ENOSPC:
    case EDQUOT:
        return "free some space there or write to another folder";
    case EFBIG:
        return "raise the limit on the size of files (ulimit -f)";
    case EMFILE:
        return "raise it";
    case EACCES:
    case EPERM:
    case EROFS:
        return "make it writable or write to another folder";
    case ELOOP:
        return "remove the link or write to another folder";
    case EBUSY:
        return "wait until it ends";
    case ENOENT:
    case ENOTDIR:
        return "create the folder or write to another one";
    default:
        return "check the disk or write to another folder";
    }
}

/* As strerror, with specific texts for the errors of output_file_open and output_file_create. */
static const char *reason_text(int number)
{
    switch (number) {
    case ELOOP:
        return "it is a symbolic link, which is not followed";
    case EBUSY:
        return "another process is writing it";
    default:
        return strerror(number);
    }
}

bool durable_failed(struct error *error, const char *doing, const char *path, int number)
{
    return error_set(error, ERROR_FILE, "cannot %s %s: %s; %s", doing, path, reason_text(number),
                     errno_advice(number));
}

int durable_create(const char *path, struct error *error)
{
    signal(SIGXFSZ, SIG_IGN);
    int descriptor = output_file_create(path);
    if (descriptor < 0)
        durable_failed(error, "create", path, errno);
    return descriptor;
}

int durable_open(const char *path, struct error *error)
{
    signal(SIGXFSZ, SIG_IGN);
    int descriptor = output_file_open(path, O_WRONLY);
    if (descriptor < 0)
        durable_failed(error, "open", path, errno);
    else
        flock(descriptor, LOCK_SH | LOCK_NB); /* for output_file_clean, where locks are supported */
    return descriptor;
}

static bool has_free_space(int descriptor, int64_t bytes)
{
    struct stat file;
    struct statvfs disk;
    if (fstat(descriptor, &file) != 0 || fstatvfs(descriptor, &disk) != 0)
        return true; /* unknown: a write will fail */
    double available = (double)disk.f_bavail * (double)disk.f_frsize;
    return (double)bytes <= available + (double)file.st_blocks * 512;
}

bool durable_reserve(int descriptor, const char *path, int64_t bytes, struct error *error)
{
    int failed;
    do
        failed = fallocate(descriptor, 0, 0, bytes) == 0 ? 0 : errno;
    while (failed == EINTR);
    /* posix_fallocate would write to every block if the file system (NFS before 4.2, older Lustre)
     * cannot reserve space. */
    if (failed == EOPNOTSUPP || failed == ENOSYS)
        failed = has_free_space(descriptor, bytes) ? 0 : ENOSPC;
    if (failed == 0)
        return true;
    char doing[64];
    snprintf(doing, sizeof doing, "reserve %.1f MB for", (double)bytes / 1e6);
    return durable_failed(error, doing, path, failed);
}

bool durable_write(int descriptor, const char *path, const void *data, size_t bytes, int64_t offset,
                   struct error *error)
{
    const char *from = data;
    while (bytes > 0) {
        ssize_t done = pwrite(descriptor, from, bytes, offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return durable_failed(error, "write", path, done < 0 ? errno : EIO);
        from += done;
        bytes -= (size_t)done;
        offset += done;
    }
    return true;
}

bool durable_sync(int descriptor, const char *path, struct error *error)
{
    if (fsync(descriptor) != 0)
        return durable_failed(error, "sync", path, errno);
    return true;
}

bool durable_close(int descriptor, const char *path, struct error *error)
{
    if (close(descriptor) != 0)
        return durable_failed(error, "close", path, errno);
    return true;
}

static bool sync_directory_of(const char *path, struct error *error)
{
    char *copy = strdup(path);
    if (copy == NULL)
        return error_set(error, ERROR_MEMORY, "no memory for the name %s", path);
    const char *directory = dirname(copy);
    int descriptor = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* EINVAL: the file system does not support it, as some network file systems */
    bool good = descriptor >= 0 && (fsync(descriptor) == 0 || errno == EINVAL);
    if (!good)
        durable_failed(error, "sync the folder", directory, errno);
    if (descriptor >= 0)
        close(descriptor);
    free(copy);
    return good;
}

bool durable_rename(const char *from, const char *to, struct error *error)
{
    struct stat there;
    /* As root, rename would replace /dev/null. */
    if (lstat(to, &there) == 0 && !S_ISREG(there.st_mode) && !S_ISLNK(there.st_mode))
        return error_set(error, ERROR_FILE,
                         "cannot replace %s: it is a %s, not a file; write to another name", to,
                         S_ISDIR(there.st_mode) ? "folder" : "device or pipe");
    if (rename(from, to) != 0)
        return durable_failed(error, "rename to", to, errno);
    return sync_directory_of(to, error);
}

bool durable_commit(int descriptor, const char *part, const char *path, struct error *error)
{
    /* A duplicate keeps the lock of durable_create until the file has its final name. */
    int lock = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    bool good = lock >= 0 || durable_failed(error, "write", part, errno);
    good = good && durable_sync(descriptor, part, error);
    good = durable_close(descriptor, part, error) && good && durable_rename(part, path, error);
    if (!good)
        unlink(part);
    if (lock >= 0)
        close(lock);
    return good;
}

size_t durable_pread(int descriptor, void *data, size_t bytes, int64_t offset)
{
    size_t done = 0;
    while (done < bytes) {
        const ssize_t got =
            pread(descriptor, (char *)data + done, bytes - done, (off_t)(offset + (int64_t)done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got == 0)
            errno = 0;
        if (got <= 0)
            break;
        done += (size_t)got;
    }
    return done;
}

bool durable_unreadable(struct error *error, enum error_kind kind, const char *path, int number)
{
    const bool limited = number == EMFILE || number == ENFILE || number == ENOMEM;
    return error_set(error, limited ? ERROR_MEMORY : kind, "cannot read %s: %s", path,
                     number == EINVAL ? "it is not a regular file" : strerror(number));
}

bool durable_read(int descriptor, const char *path, void *data, size_t bytes, int64_t offset,
                  struct error *error)
{
    const size_t done = durable_pread(descriptor, data, bytes, offset);
    if (done == bytes)
        return true;
    if (errno != 0)
        return durable_unreadable(error, ERROR_CHECKPOINT, path, errno);
    return error_set(error, ERROR_CHECKPOINT, "%s is truncated: it ends at byte %lld", path,
                     (long long)offset + (long long)done);
}

/* ---- Atomic replacement of small files. */

bool atomic_file_open(struct atomic_file *file, const char *path, struct error *error)
{
    ENSURE(strlen(path) < sizeof file->path, "path of %zu characters", strlen(path));
    snprintf(file->path, sizeof file->path, "%s", path);
    snprintf(file->part, sizeof file->part, "%s.part", path);
    int descriptor = durable_create(file->part, error);
    file->stream = descriptor >= 0 ? fdopen(descriptor, "w") : NULL;
    ENSURE_MEMORY(descriptor < 0 || file->stream != NULL, "no memory for %s", path);
    return file->stream != NULL;
}

bool atomic_file_commit(struct atomic_file *file, struct error *error)
{
    int descriptor = fcntl(fileno(file->stream), F_DUPFD_CLOEXEC, 0);
    bool good = descriptor >= 0 && !ferror(file->stream) && fflush(file->stream) == 0;
    int reason = errno;

    if (fclose(file->stream) != 0 && good) {
        good = false;
        reason = errno;
    }
    file->stream = NULL;
    if (good)
        return durable_commit(descriptor, file->part, file->path, error);
    durable_failed(error, "write", file->part, reason);
    if (descriptor >= 0)
        close(descriptor);
    unlink(file->part);
    return false;
}

void atomic_file_discard(struct atomic_file *file)
{
    fclose(file->stream);
    file->stream = NULL;
    unlink(file->part);
}

bool atomic_file_write(const char *path, const char *text, struct error *error)
{
    struct atomic_file file;

    if (!atomic_file_open(&file, path, error))
        return false;
    fputs(text, file.stream);
    return atomic_file_commit(&file, error);
}

/* ---- Output files. */

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

/* ---- Reading of regular files. */

int text_file_descriptor(const char *path, int64_t *bytes)
{
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return -1;
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(file);
        errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
        return -1;
    }
    *bytes = status.st_size;
    return file;
}

static FILE *stream_open(const char *path)
{
    int64_t bytes;
    const int file = text_file_descriptor(path, &bytes);
    if (file < 0)
        return NULL;
    FILE *stream = fdopen(file, "r");
    ENSURE_MEMORY(stream != NULL, "no memory for %s", path);
    return stream;
}

char *text_file_read(const char *path, size_t *length)
{
    FILE *stream = stream_open(path);
    char *text = NULL;
    size_t size = 0, used = 0;
    bool has_memory;
    if (stream == NULL)
        return NULL;
    do {
        size = size == 0 ? 1 << 14 : 2 * size;
        char *larger = realloc(text, size);
        has_memory = larger != NULL;
        if (has_memory) {
            text = larger;
            used += fread(text + used, 1, size - 1 - used, stream);
        }
    } while (has_memory && used == size - 1);
    const int reason = has_memory && !ferror(stream) ? 0 : errno;
    fclose(stream);
    if (reason != 0) {
        free(text);
        errno = reason;
        return NULL;
    }
    text[used] = '\0';
    if (length != NULL)
        *length = used;
    return text;
}

bool text_file_number(const char *path, const char *word, unsigned long long *number)
{
    char line[256], name[128];
    bool found = false;
    FILE *file = stream_open(path);
    if (file == NULL)
        return false;
    while (!found && fgets(line, sizeof line, file) != NULL)
        found = word[0] == '\0'
                    ? sscanf(line, "%llu", number) == 1
                    : sscanf(line, "%127s %llu", name, number) == 2 && strcmp(name, word) == 0;
    fclose(file);
    return found;
}
