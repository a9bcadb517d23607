// SPDX-License-Identifier: BSD-3-Clause
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* fallocate */
#endif
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"

/* Seconds to wait for another process that writes the file. */
enum { CREATE_WAIT = 10 };

/* Durable files. The order write, sync file, rename, sync directory guarantees that a name refers
 * to a complete file, also after a crash of the machine. */

/* Errors of output files: the reason, if not that of strerror, and the advice. */
static const struct failure {
    int number;
    const char *reason, *advice;
} failures[] = {
    {ENOSPC, NULL, "free some space there or write to another folder"},
    {EDQUOT, NULL, "free some space there or write to another folder"},
    {EFBIG, NULL, "raise the limit on the size of files (ulimit -f)"},
    {EMFILE, NULL, "raise the limit (ulimit -n)"},
    {EACCES, NULL, "make it writable or write to another folder"},
    {EPERM, NULL, "make it writable or write to another folder"},
    {EROFS, NULL, "make it writable or write to another folder"},
    {ELOOP, "it is a symbolic link, which is not followed",
     "remove the link or write to another folder"},
    {EBUSY, "another process is writing it", "wait until it ends"},
    {ENOENT, NULL, "create the folder or write to another one"},
    {ENOTDIR, NULL, "create the folder or write to another one"},
    {0, NULL, "check the disk or write to another folder"},
};

bool durable_failed(struct error *error, const char *doing, const char *path, int number)
{
    const struct failure *failure = failures;
    while (failure->number != 0 && failure->number != number)
        failure++;
    return error_set(error, ERROR_FILE, "cannot %s %s: %s; %s", doing, path,
                     failure->reason != NULL ? failure->reason : strerror(number), failure->advice);
}

/* Open a regular file and set its size; -1 and errno on failure. */
static int regular_open(const char *path, int flags, int64_t *bytes)
{
    struct stat status = {0};
    int file = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    if (file < 0)
        return -1;
    if (fstat(file, &status) == 0 && S_ISREG(status.st_mode)) {
        *bytes = status.st_size;
        return file;
    }
    close(file);
    errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
    return -1;
}

int output_file_open(const char *path, int flags)
{
    int64_t bytes;
    return regular_open(path, flags | O_NOFOLLOW, &bytes);
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

int durable_create(const char *path, struct error *error)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    signal(SIGXFSZ, SIG_IGN);
    int descriptor = try_create(path);
    for (int tries = 0; tries < CREATE_WAIT * 50 && descriptor < 0 && errno == EBUSY; tries++) {
        nanosleep(&pause, NULL);
        descriptor = try_create(path);
    }
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
    return fsync(descriptor) == 0 || durable_failed(error, "sync", path, errno);
}

static bool sync_directory_of(const char *path, struct error *error)
{
    OWNED char *copy = allocate_copy(path);
    const char *directory = dirname(copy);
    int descriptor = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* EINVAL: the file system does not support it, as some network file systems */
    bool good = descriptor >= 0 && (fsync(descriptor) == 0 || errno == EINVAL);
    if (!good)
        durable_failed(error, "sync the folder", directory, errno);
    if (descriptor >= 0)
        close(descriptor);
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
    if (close(descriptor) != 0)
        good = durable_failed(error, "close", part, errno);
    good = good && durable_rename(part, path, error);
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

/* Return a stream of an open file; NULL if the descriptor is negative. */
static FILE *stream_of(int descriptor, const char *mode, const char *path)
{
    FILE *stream = descriptor >= 0 ? fdopen(descriptor, mode) : NULL;
    ENSURE_MEMORY(descriptor < 0 || stream != NULL, "no memory for %s", path);
    return stream;
}

bool atomic_file_open(struct atomic_file *file, const char *path, struct error *error)
{
    ENSURE(strlen(path) < sizeof file->path, "path of %zu characters", strlen(path));
    snprintf(file->path, sizeof file->path, "%s", path);
    snprintf(file->part, sizeof file->part, "%s.part", path);
    file->stream = stream_of(durable_create(file->part, error), "w", path);
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

FILE *output_file_stream(const char *path, const char *mode)
{
    const int flags = mode[0] == 'r' ? O_RDONLY : O_WRONLY | O_CREAT | O_APPEND;
    return stream_of(output_file_open(path, flags), mode, path);
}

/* ---- Reading of regular files. */

int text_file_descriptor(const char *path, int64_t *bytes)
{
    return regular_open(path, O_RDONLY, bytes);
}

char *text_file_read(const char *path, size_t *length)
{
    int64_t bytes;
    FILE *stream = stream_of(text_file_descriptor(path, &bytes), "r", path);
    char *text = NULL;
    size_t size = 0, used = 0;
    if (stream == NULL)
        return NULL;
    do {
        size = size == 0 ? 1 << 14 : 2 * size;
        text = allocate_resized(text, size);
        used += fread(text + used, 1, size - 1 - used, stream);
    } while (used == size - 1);
    const int reason = ferror(stream) ? errno : 0;
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
    int64_t bytes;
    bool found = false;
    FILE *file = stream_of(text_file_descriptor(path, &bytes), "r", path);
    if (file == NULL)
        return false;
    while (!found && fgets(line, sizeof line, file) != NULL)
        found = word[0] == '\0'
                    ? sscanf(line, "%llu", number) == 1
                    : sscanf(line, "%127s %llu", name, number) == 2 && strcmp(name, word) == 0;
    fclose(file);
    return found;
}

/* ---- Folders. */

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
    OWNED char *part = allocate_copy(path);
    if (is_root(path))
        return error_set(error, ERROR_USAGE,
                         "%s: the root of the file system cannot be a folder for output; %s", path,
                         advice);
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
    char other[NAME_MAX + 1];
    DIR *entries = NULL;
    const size_t tail = text_ends_with(name, ending) ? strlen(ending) : 0;
    OWNED char *stem = allocate_text("%.*s", (int)(strlen(name) - tail), name);
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
    OWNED char *name = allocate_text("%s/.lock", path);
    const int lock = output_file_open(name, O_RDONLY);
    if (lock < 0)
        return FOLDER_USE_UNKNOWN;
    const bool held = flock(lock, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(lock);
    return held ? FOLDER_IN_USE : FOLDER_FREE;
}

void folder_remove(const char *path)
{
    DIR *entries = NULL;
    for (const char *name; (name = folder_next(&entries, path)) != NULL;) {
        OWNED char *entry = allocate_text("%s/%s", path, name);
        if (remove(entry) != 0)
            folder_remove(entry);
    }
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
    char folder[PATH_MAX];
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

/* ---- Files that are open as far as the limit allows. */

struct open_file {
    char *path;
    int descriptor;                  /* -1: closed */
    int users;                       /* threads that read it */
    bool is_described, has_stamp;    /* by another rank; after its first use */
    struct file_stamp stamp;         /* of the first use */
    struct open_file *older, *newer; /* in the order of their last use, while it is open */
};

/* The open files: a ring. `newer` of this element is the oldest file. */
static struct open_file ring = {.older = &ring, .newer = &ring};
static rlim_t open_count;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void open_file_raise_limit(void)
{
    /* Libraries that close all descriptors before they start a program need time for each. */
    const rlim_t most = (rlim_t)1 << 20;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= most)
        return;
    limit.rlim_cur = limit.rlim_max < most ? limit.rlim_max : most;
    setrlimit(RLIMIT_NOFILE, &limit); /* if this fails, the limit is as before */
}

static void ring_add(struct open_file *file)
{
    file->newer = &ring;
    file->older = ring.older;
    file->older->newer = ring.older = file;
}

static void ring_remove(struct open_file *file)
{
    file->older->newer = file->newer;
    file->newer->older = file->older;
}

static void descriptor_close(struct open_file *file)
{
    ring_remove(file);
    close(file->descriptor);
    file->descriptor = -1;
    open_count--;
}

/* Close files that are not in use until there is room for one more. */
static void room_make(void)
{
    struct rlimit limit = {.rlim_cur = 0};
    getrlimit(RLIMIT_NOFILE, &limit);
    for (struct open_file *file = ring.newer, *next; file != &ring; file = next) {
        next = file->newer;
        if (open_count < limit.rlim_cur / 2)
            return;
        if (file->users == 0)
            descriptor_close(file);
    }
}

struct open_file *open_file_new(const char *path, struct file_stamp *stamp)
{
    struct open_file *file = allocate(1, sizeof *file);
    file->path = allocate_copy(path);
    file->descriptor = -1;
    const int descriptor = open_file_take(file);
    if (descriptor >= 0 && file_stamp_read(descriptor, stamp)) {
        open_file_give(file);
        return file;
    }
    const int reason = errno;
    open_file_close(file);
    errno = reason;
    return NULL;
}

struct open_file *open_file_described(const char *path)
{
    struct open_file *file = allocate(1, sizeof *file);
    file->path = allocate_copy(path);
    file->descriptor = -1;
    file->is_described = true;
    return file;
}

const char *open_file_path(const struct open_file *file)
{
    return file->path;
}

bool open_file_holds(struct open_file *file, int descriptor, const struct file_stamp *described)
{
    if (!file->is_described)
        return file_stamp_holds(descriptor, described);
    pthread_mutex_lock(&mutex);
    if (!file->has_stamp)
        file->has_stamp = file_stamp_read(descriptor, &file->stamp);
    const bool same = file->has_stamp && file->stamp.bytes == described->bytes;
    pthread_mutex_unlock(&mutex);
    return same && file_stamp_holds(descriptor, &file->stamp);
}

int open_file_take(struct open_file *file)
{
    int64_t bytes;
    pthread_mutex_lock(&mutex);
    if (file->descriptor >= 0) {
        ring_remove(file);
    } else {
        room_make();
        file->descriptor = text_file_descriptor(file->path, &bytes);
        open_count += file->descriptor >= 0;
    }
    const int descriptor = file->descriptor, reason = errno;
    if (descriptor >= 0) {
        ring_add(file);
        file->users++;
    }
    pthread_mutex_unlock(&mutex);
    errno = reason;
    return descriptor;
}

void open_file_give(struct open_file *file)
{
    pthread_mutex_lock(&mutex);
    file->users--;
    pthread_mutex_unlock(&mutex);
}

void open_file_close(struct open_file *file)
{
    if (file == NULL)
        return;
    pthread_mutex_lock(&mutex);
    if (file->descriptor >= 0)
        descriptor_close(file);
    pthread_mutex_unlock(&mutex);
    free(file->path);
    free(file);
}

bool file_stamp_read(int descriptor, struct file_stamp *stamp)
{
    struct stat status;
    if (fstat(descriptor, &status) != 0)
        return false;
    *stamp = (struct file_stamp){.inode = status.st_ino,
                                 .bytes = status.st_size,
                                 .seconds = status.st_mtim.tv_sec,
                                 .nanoseconds = status.st_mtim.tv_nsec};
    return true;
}

bool file_stamp_holds(int descriptor, const struct file_stamp *stamp)
{
    struct file_stamp now;
    return file_stamp_read(descriptor, &now) && now.inode == stamp->inode &&
           now.bytes == stamp->bytes && now.seconds == stamp->seconds &&
           now.nanoseconds == stamp->nanoseconds;
}
