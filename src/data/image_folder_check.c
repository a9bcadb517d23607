/* Checks files before training: format and size in the first bytes, or the whole image. Threads
 * hide the latency of disks and networks. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/options.h"
#include "core/log.h"
#include "data/image_file.h"
#include "data/image_folder.h"

enum { THREADS = 8, FIRST_BYTES = 4096, CLAIM = 64, PATH_SIZE = 8192 };

struct check {
    const struct image_folder *self;
    bool decode, accept_truncated;
    atomic_size_t claimed;
    uint8_t *broken; /* [records] */
    pthread_mutex_t mutex;
    size_t first; /* the first broken record and its error; guarded by mutex */
    struct error reason;
};

/* Buffers of one thread. */
struct check_scratch {
    struct byte_buffer file;
    struct image_pixels pixels;
};

int folder_open_file(const char *path, size_t *bytes, struct error *error)
{
    struct stat status;
    /* O_NONBLOCK: opening a pipe must not block */
    const int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0) {
        error_set(error, ERROR_DATA, "%s", strerror(errno));
        return -1;
    }
    if (fstat(descriptor, &status) != 0)
        error_set(error, ERROR_DATA, "%s", strerror(errno));
    else if (!S_ISREG(status.st_mode))
        error_set(error, ERROR_DATA, "is not a regular file");
    else {
        *bytes = (size_t)status.st_size;
        return descriptor;
    }
    close(descriptor);
    return -1;
}

bool folder_read(int descriptor, uint8_t *to, size_t offset, size_t bytes, struct error *error)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = pread(descriptor, to + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return error_set(error, ERROR_DATA, "cannot be read: %s",
                             got == 0 ? "it was truncated" : strerror(errno));
        done += (size_t)got;
    }
    return true;
}

/* Read until the header is complete, four times as much in each round. */
static bool read_header(int descriptor, size_t bytes, int64_t most_pixels, struct byte_buffer *file,
                        struct image_header *header, struct error *error)
{
    bool incomplete = true;
    for (size_t most = FIRST_BYTES; incomplete; most *= 4) {
        const size_t wanted = bytes < most ? bytes : most;
        if (!byte_buffer_reserve(file, wanted, error) ||
            !folder_read(descriptor, file->data, 0, wanted, error))
            return false;
        file->count = wanted;
        if (image_file_header(file->data, wanted, wanted == bytes, most_pixels, header, &incomplete,
                              error))
            return true;
    }
    return false;
}

static bool decode_all(int descriptor, size_t bytes, bool accept_truncated,
                       const struct image_header *header, struct check_scratch *scratch,
                       struct error *error)
{
    const struct image_request request = {.area = {0, 0, header->width, header->height},
                                          .scale = 1,
                                          .accept_truncated = accept_truncated};
    return byte_buffer_reserve(&scratch->file, bytes, error) &&
           folder_read(descriptor, scratch->file.data, 0, bytes, error) &&
           image_file_decode(scratch->file.data, bytes, header, &request, &scratch->pixels, error);
}

static bool check_file(const struct check *check, const char *path, struct check_scratch *scratch,
                       struct error *error)
{
    struct image_header header;
    size_t bytes;
    const int descriptor = folder_open_file(path, &bytes, error);
    if (descriptor < 0)
        return false;
    const bool good =
        read_header(descriptor, bytes, check->self->most_pixels, &scratch->file, &header, error) &&
        (!check->decode ||
         decode_all(descriptor, bytes, check->accept_truncated, &header, scratch, error));
    close(descriptor);
    return good;
}

static void note_broken(struct check *check, size_t record, const struct error *reason)
{
    check->broken[record] = 1;
    pthread_mutex_lock(&check->mutex);
    if (record < check->first) {
        check->first = record;
        check->reason = *reason;
    }
    pthread_mutex_unlock(&check->mutex);
}

static void *check_some(void *argument)
{
    struct check *check = argument;
    struct check_scratch scratch = {0};
    const size_t count = check->self->record_count;
    char path[PATH_SIZE];
    for (size_t begin; (begin = atomic_fetch_add(&check->claimed, CLAIM)) < count;)
        for (size_t i = begin; i < count && i < begin + CLAIM; i++) {
            struct error reason = {0};
            folder_path(check->self, (int64_t)i, path, sizeof path);
            if (!check_file(check, path, &scratch, &reason))
                note_broken(check, i, &reason);
        }
    free(scratch.file.data);
    image_pixels_free(&scratch.pixels);
    return NULL;
}

/* This thread checks files, too, so the check completes even if no other thread starts. */
static void check_all(struct check *check)
{
    pthread_t threads[THREADS - 1];
    int started = 0;
    while (started < THREADS - 1 && (size_t)started * CLAIM < check->self->record_count &&
           pthread_create(&threads[started], NULL, check_some, check) == 0)
        started++;
    check_some(check);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

/* Remove the broken records; return how many were removed. */
static int64_t leave_out(struct image_folder *self, const uint8_t *broken)
{
    const size_t before = self->record_count;
    size_t kept = 0;
    for (size_t i = 0; i < before; i++)
        if (!broken[i])
            self->records[kept++] = self->records[i];
    self->record_count = kept;
    return (int64_t)(before - kept);
}

static bool judge(struct image_folder *self, const struct options *options,
                  const struct check *check, int64_t *left_out, struct error *error)
{
    char path[PATH_SIZE];
    const size_t count = self->record_count;
    if (check->first == SIZE_MAX)
        return true;
    folder_path(self, (int64_t)check->first, path, sizeof path);
    *left_out = leave_out(self, check->broken);
    if (options->data.skip_broken) {
        log_warn("data: %lld of %zu files are skipped, the first: %.512s: %.512s",
                 (long long)*left_out, count, path, check->reason.text);
        return true;
    }
    return error_set(error, ERROR_DATA,
                     "%lld of %zu files cannot be used, the first: %.512s: %.512s; "
                     "data.skip_broken=on skips them",
                     (long long)*left_out, count, path, check->reason.text);
}

bool folder_check(struct image_folder *self, const struct options *options, int64_t *left_out,
                  struct error *error)
{
    struct check check = {.self = self,
                          .decode = options->data.check == CHECK_FULL,
                          .accept_truncated = options->data.truncated == TRUNCATED_ACCEPT,
                          .first = SIZE_MAX};
    *left_out = 0;
    if (options->data.check == CHECK_NONE || self->record_count == 0)
        return true;
    check.broken = calloc(self->record_count, 1);
    if (check.broken == NULL)
        return error_set(error, ERROR_MEMORY, "no memory to check %zu files", self->record_count);
    pthread_mutex_init(&check.mutex, NULL);
    check_all(&check);
    pthread_mutex_destroy(&check.mutex);
    const bool good = judge(self, options, &check, left_out, error);
    free(check.broken);
    return good;
}
