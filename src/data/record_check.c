// SPDX-License-Identifier: BSD-3-Clause
/* Reads image files, and checks them before training on all ranks, in several threads, which hide
 * the latency of disks and networks. Block b of records is checked by rank b modulo the number of
 * ranks; a thread claims one block at a time. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/file.h"
#include "base/log.h"
#include "base/thread.h"
#include "comm/comm.h"
#include "data/dataset.h"
#include "image/image_file.h"
#include "options/options.h"

enum {
    THREADS = 8,
    BLOCK = 64,        /* most records in a block */
    FIRST_BYTES = 4096 /* read first for the header of an image */
};

/* Number of records with an EXIF orientation above 1, with alpha, and that cannot be used. */
struct check_counts {
    int64_t oriented, alpha, unusable;
};

/* Buffers and counts of one thread. */
struct check_scratch {
    struct byte_buffer file;
    struct image_pixels pixels;
    struct check_counts counts;
};

struct check {
    const struct dataset *dataset;
    const struct options *options;
    size_t count, block;
    atomic_size_t claimed;
    uint8_t *broken;       /* [count] */
    pthread_mutex_t mutex; /* guards the members below */
    struct check_counts counts;
    int64_t first; /* the first broken record and its error */
    struct error reason;
};

/* Read the first bytes of an image file. */
static bool file_read(const struct record_place *place, size_t bytes, struct byte_buffer *to,
                      struct error *error)
{
    if (!byte_buffer_reserve(to, bytes, error))
        return false;
    to->count = durable_pread(place->descriptor, to->data, bytes, place->offset);
    return to->count == bytes || error_set(error, ERROR_DATA, "cannot be read: %s",
                                           errno == 0 ? "it was truncated" : strerror(errno));
}

static bool verify(const struct dataset *dataset, int64_t record, struct error *error)
{
    return dataset->format->verify == NULL || dataset->format->verify(dataset, record, error);
}

bool dataset_load(const struct dataset *dataset, int64_t index, struct byte_buffer *bytes,
                  struct error *error)
{
    struct record_place place = {.is_own = false};
    struct error reason = {0};
    const int64_t record = dataset_record(dataset, index);
    const bool good = dataset->format->locate(dataset, record, &place, &reason) &&
                      file_read(&place, place.bytes, bytes, &reason) &&
                      verify(dataset, record, &reason);
    if (place.is_own)
        close(place.descriptor);
    return good || dataset_name_error(dataset, index, &reason, error);
}

/* data.skip_broken=on decodes all images before training, so that all ranks have the same list of
 * records. */
static bool check_is_full(const struct options *options)
{
    return options->data.check == CHECK_FULL || options->data.skip_broken;
}

/* Check format and size of an image in its first bytes; with data.check=full decode it. Count its
 * orientation and alpha. The error does not name it. */
static bool check_record(const struct check *check, int64_t record, struct check_scratch *scratch,
                         struct error *error)
{
    const struct options *options = check->options;
    struct byte_buffer *file = &scratch->file;
    struct record_place place;
    struct image_header header = {.width = 0};
    bool incomplete = true;
    if (!check->dataset->format->locate(check->dataset, record, &place, error))
        return false;
    bool good = verify(check->dataset, record, error); /* before errors of other bytes */
    /* Read until the header is complete, four times as much in each round. */
    for (size_t most = FIRST_BYTES; good && incomplete; most *= 4) {
        const size_t wanted = place.bytes < most ? place.bytes : most;
        good = file_read(&place, wanted, file, error) &&
               (image_file_header(file->data, wanted, wanted == place.bytes,
                                  options->data.max_pixels, &header, &incomplete, error) ||
                incomplete);
    }
    if (good && check_is_full(options)) {
        const struct image_request request = {.area = {0, 0, header.width, header.height},
                                              .scale = 1};
        good =
            file_read(&place, place.bytes, file, error) &&
            image_file_decode(file->data, place.bytes, &header, &request, &scratch->pixels, error);
    }
    if (place.is_own)
        close(place.descriptor);
    scratch->counts.oriented += good && header.orientation > 1;
    scratch->counts.alpha += good && header.has_alpha;
    return good;
}

static void *check_some(void *argument)
{
    struct check *check = argument;
    struct check_scratch scratch = {0};
    const size_t turn = check->block * (size_t)check->dataset->ranks;
    const size_t own = check->block * (size_t)check->dataset->rank;
    for (size_t begin; (begin = atomic_fetch_add(&check->claimed, 1) * turn + own) < check->count;)
        for (size_t i = begin; i < check->count && i < begin + check->block; i++) {
            struct error reason = {0};
            if (check_record(check, (int64_t)i, &scratch, &reason))
                continue;
            check->broken[i] = 1;
            scratch.counts.unusable++;
            pthread_mutex_lock(&check->mutex);
            if ((int64_t)i < check->first) {
                check->first = (int64_t)i;
                error_clear(&check->reason);
                dataset_name_error(check->dataset, check->first, &reason, &check->reason);
            }
            pthread_mutex_unlock(&check->mutex);
        }
    pthread_mutex_lock(&check->mutex);
    check->counts.oriented += scratch.counts.oriented;
    check->counts.alpha += scratch.counts.alpha;
    check->counts.unusable += scratch.counts.unusable;
    pthread_mutex_unlock(&check->mutex);
    free(scratch.file.data);
    image_pixels_free(&scratch.pixels);
    return NULL;
}

/* Collective. Add up what the ranks have found. It is an error if rank 0 can use the record that
 * another rank cannot use. */
static bool findings_share(struct check *check, struct comm *comm, struct error *error)
{
    const struct dataset *dataset = check->dataset;
    if (dataset->ranks == 1)
        return true;
    comm_all_reduce(comm, &check->counts, sizeof check->counts / sizeof(int64_t), COMM_INT64,
                    COMM_SUM);
    comm_all_reduce(comm, &check->first, 1, COMM_INT64, COMM_MIN);
    if (check->counts.unusable == 0)
        return true;
    const size_t finder = (size_t)check->first / check->block % (size_t)dataset->ranks;
    comm_broadcast(comm, &check->reason, sizeof check->reason, COMM_BYTE, (int)finder);
    if (comm->rank == 0 && finder != 0) {
        struct check_scratch scratch = {0};
        struct error own = {0};
        if (check_record(check, check->first, &scratch, &own))
            error_set(
                error, ERROR_DATA,
                "ranks find different data: rank %zu cannot use %.1024s; use the same data on "
                "all nodes",
                finder, check->reason.text);
        free(scratch.file.data);
        image_pixels_free(&scratch.pixels);
    }
    if (!comm_share_error(comm, error))
        return false;
    /* At most one rank has set a byte, so the sums of words have no carries. */
    comm_all_reduce(comm, check->broken, round_up_division((int64_t)check->count, sizeof(int64_t)),
                    COMM_INT64, COMM_SUM);
    return true;
}

/* Set the error for broken records, or log their number, and those of EXIF orientations and alpha.
 * One warning of alpha is for all splits. The files of a held-out split are those of the training
 * split. */
static bool check_report(const struct check *check, struct error *error)
{
    static bool is_logged, alpha_is_logged;
    const struct options *options = check->options;
    const long long oriented = check->counts.oriented, alpha = check->counts.alpha;
    const long long unusable = check->counts.unusable;
    const bool again = check->dataset->held_out && is_logged;
    if (oriented > 0 && !again && options->data.exif)
        log_info("data: %lld of %zu files are turned by their EXIF orientation", oriented,
                 check->count);
    else if (oriented > 0 && !again)
        log_warn("data: %lld of %zu files have an EXIF orientation, which is ignored; data.exif=on "
                 "turns them",
                 oriented, check->count);
    if (alpha > 0 && !alpha_is_logged)
        log_warn("data: %lld of %zu files have a band of alpha, which is dropped; "
                 "data.format=arrays reads it",
                 alpha, check->count);
    alpha_is_logged |= alpha > 0;
    is_logged = true;
    if (unusable == 0)
        return true;
    if (!options->data.skip_broken)
        return error_set(error, ERROR_DATA,
                         "%lld of %zu files cannot be used, the first: %.1024s; "
                         "data.skip_broken=on skips them",
                         unusable, check->count, check->reason.text);
    if (!again)
        log_warn("data: %lld of %zu files are skipped, the first: %.1024s", unusable, check->count,
                 check->reason.text);
    return true;
}

bool record_check(struct dataset *dataset, const struct options *options, const void *entries,
                  size_t bytes, void **kept, struct error *error)
{
    const int64_t count = dataset->count, each = round_up_division(count, dataset->ranks);
    const int64_t block = integer_clamp(each / THREADS, 1, BLOCK);
    if (options->data.check == CHECK_NONE && !check_is_full(options))
        return true;
    OWNED uint8_t *broken = allocate((size_t)round_up(count, sizeof(int64_t)), 1);
    struct check check = {.dataset = dataset,
                          .options = options,
                          .count = (size_t)count,
                          .block = (size_t)block,
                          .broken = broken,
                          .first = INT64_MAX};
    pthread_mutex_init(&check.mutex, NULL);
    threads_run("check", smaller(THREADS, 1 + each / block), check_some, &check);
    pthread_mutex_destroy(&check.mutex);
    if (!findings_share(&check, dataset->comm, error) || !check_report(&check, error))
        return false;
    if (check.counts.unusable == 0)
        return true;
    *kept = allocate((size_t)count, bytes);
    dataset->count = 0;
    for (int64_t i = 0; i < count; i++)
        if (!broken[i])
            memcpy((char *)*kept + (size_t)dataset->count++ * bytes,
                   (const char *)entries + (size_t)i * bytes, bytes);
    return true;
}
