// SPDX-License-Identifier: BSD-3-Clause
#include "core/open_file.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/allocate.h"
#include "core/file.h"

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
