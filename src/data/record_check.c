// SPDX-License-Identifier: BSD-3-Clause
/* Checks records on all ranks, in several threads. Block b of records is checked by rank b modulo
 * the number of ranks; a thread claims one block at a time. */
#include "data/record_check.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/file.h"
#include "base/log.h"
#include "base/thread.h"
#include "comm/comm.h"
#include "options/options.h"

enum {
    THREADS = 8,
    BLOCK = 64, /* most records in a block */
    NAME_SIZE = 8192,
    FIRST_BYTES = 4096 /* read first for the header of an image */
};

struct check {
    const struct dataset *dataset;
    const struct options *options;
    record_check_one *check;
    size_t count, block;
    atomic_size_t claimed;
    uint8_t *broken;       /* [count] */
    pthread_mutex_t mutex; /* guards the members below */
    struct check_counts counts;
    int64_t first; /* the first broken record and its error */
    struct error reason;
};

static void *check_some(void *argument)
{
    struct check *check = argument;
    struct check_scratch scratch = {0};
    const size_t turn = check->block * (size_t)check->dataset->ranks;
    const size_t own = check->block * (size_t)check->dataset->rank;
    for (size_t begin; (begin = atomic_fetch_add(&check->claimed, 1) * turn + own) < check->count;)
        for (size_t i = begin; i < check->count && i < begin + check->block; i++) {
            struct error reason = {0};
            if (check->check(check->dataset, (int64_t)i, check->options, &scratch, &reason))
                continue;
            check->broken[i] = 1;
            scratch.counts.unusable++;
            pthread_mutex_lock(&check->mutex);
            if ((int64_t)i < check->first) {
                check->first = (int64_t)i;
                check->reason = reason;
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
        char name[NAME_SIZE];
        struct check_scratch scratch = {0};
        struct error own = {0};
        dataset->format->name_record(dataset, check->first, name, sizeof name);
        if (check->check(dataset, check->first, check->options, &scratch, &own))
            error_set(error, ERROR_DATA,
                      "ranks find different data: rank %zu cannot use %.512s: %.512s; use the same "
                      "data on all nodes",
                      finder, name, check->reason.text);
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
    char name[NAME_SIZE];
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
    check->dataset->format->name_record(check->dataset, check->first, name, sizeof name);
    if (!options->data.skip_broken)
        return error_set(error, ERROR_DATA,
                         "%lld of %zu files cannot be used, the first: %.512s: %.512s; "
                         "data.skip_broken=on skips them",
                         unusable, check->count, name, check->reason.text);
    if (!again)
        log_warn("data: %lld of %zu files are skipped, the first: %.512s: %.512s", unusable,
                 check->count, name, check->reason.text);
    return true;
}

bool record_check(const struct dataset *dataset, const struct options *options,
                  record_check_one *check_one, uint8_t **broken, struct error *error)
{
    const int64_t count = dataset->count, each = round_up_division(count, dataset->ranks);
    const int64_t block = integer_clamp(each / THREADS, 1, BLOCK);
    struct check check = {.dataset = dataset,
                          .options = options,
                          .check = check_one,
                          .count = (size_t)count,
                          .block = (size_t)block,
                          .broken = allocate((size_t)round_up(count, sizeof(int64_t)), 1),
                          .first = INT64_MAX};
    pthread_mutex_init(&check.mutex, NULL);
    threads_run("check", smaller(THREADS, 1 + each / block), check_some, &check);
    pthread_mutex_destroy(&check.mutex);
    const bool good = findings_share(&check, dataset->comm, error) && check_report(&check, error);
    *broken = good && check.counts.unusable > 0 ? check.broken : NULL;
    if (*broken == NULL)
        free(check.broken);
    return good;
}

bool record_check_is_full(const struct options *options)
{
    return options->data.check == CHECK_FULL || options->data.skip_broken;
}

bool record_read(int descriptor, uint8_t *to, size_t offset, size_t bytes, struct error *error)
{
    return durable_pread(descriptor, to, bytes, (int64_t)offset) == bytes ||
           error_set(error, ERROR_DATA, "cannot be read: %s",
                     errno == 0 ? "it was truncated" : strerror(errno));
}

bool record_check_header(int descriptor, size_t offset, size_t bytes, int64_t most_pixels,
                         struct byte_buffer *file, struct image_header *header, struct error *error)
{
    /* Read until the header is complete, four times as much in each round. */
    bool incomplete = true;
    for (size_t most = FIRST_BYTES; incomplete; most *= 4) {
        const size_t wanted = bytes < most ? bytes : most;
        if (!byte_buffer_reserve(file, wanted, error) ||
            !record_read(descriptor, file->data, offset, wanted, error))
            return false;
        file->count = wanted;
        if (image_file_header(file->data, wanted, wanted == bytes, most_pixels, header, &incomplete,
                              error))
            return true;
    }
    return false;
}

bool record_check_image(int descriptor, size_t offset, size_t bytes, const struct options *options,
                        struct check_scratch *scratch, struct error *error)
{
    struct byte_buffer *file = &scratch->file;
    struct image_header header;
    if (!record_check_header(descriptor, offset, bytes, options->data.max_pixels, file, &header,
                             error))
        return false;
    if (record_check_is_full(options)) {
        const struct image_request request = {.area = {0, 0, header.width, header.height},
                                              .scale = 1,
                                              .accept_truncated =
                                                  options->data.truncated == TRUNCATED_ACCEPT};
        if (!byte_buffer_reserve(file, bytes, error) ||
            !record_read(descriptor, file->data, offset, bytes, error) ||
            !image_file_decode(file->data, bytes, &header, &request, &scratch->pixels, error))
            return false;
    }
    scratch->counts.oriented += header.orientation > 1;
    scratch->counts.alpha += header.has_alpha;
    return true;
}
