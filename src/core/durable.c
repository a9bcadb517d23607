// SPDX-License-Identifier: BSD-3-Clause
/* Durable files. The order write, sync file, rename, sync directory guarantees that a name refers
 * to a complete file, also after a crash of the machine. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* fallocate */
#endif
#include "core/durable.h"

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
#include <unistd.h>

#include "core/output_file.h"

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
                     strerror(number));
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
