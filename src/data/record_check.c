// SPDX-License-Identifier: BSD-3-Clause
/* Checks records in several threads; each claims CLAIM records at a time. */
#include "data/record_check.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "config/options.h"
#include "core/integer.h"
#include "core/log.h"
#include "core/thread.h"

enum { THREADS = 8, CLAIM = 64, NAME_SIZE = 8192 };

struct check {
    const struct dataset *dataset;
    const struct options *options;
    record_check_one *check;
    size_t count;
    atomic_size_t claimed, oriented;
    uint8_t *broken; /* [count] */
    pthread_mutex_t mutex;
    size_t first; /* the first broken record and its error; guarded by mutex */
    struct error reason;
};

static void *check_some(void *argument)
{
    struct check *check = argument;
    struct check_scratch scratch = {0};
    for (size_t begin; (begin = atomic_fetch_add(&check->claimed, CLAIM)) < check->count;)
        for (size_t i = begin; i < check->count && i < begin + CLAIM; i++) {
            struct error reason = {0};
            if (check->check(check->dataset, (int64_t)i, check->options, &scratch, &reason))
                continue;
            check->broken[i] = 1;
            pthread_mutex_lock(&check->mutex);
            if (i < check->first) {
                check->first = i;
                check->reason = reason;
            }
            pthread_mutex_unlock(&check->mutex);
        }
    atomic_fetch_add(&check->oriented, scratch.oriented);
    free(scratch.file.data);
    image_pixels_free(&scratch.pixels);
    return NULL;
}

static void report_orientations(const struct check *check)
{
    const size_t oriented = atomic_load(&check->oriented);
    if (oriented == 0)
        return;
    if (check->options->data.exif)
        log_info("data: %zu of %zu files are turned by their EXIF orientation", oriented,
                 check->count);
    else
        log_warn("data: %zu of %zu files have an EXIF orientation, which is ignored; data.exif=on "
                 "turns them",
                 oriented, check->count);
}

/* Set the error for broken records, or log their number and that of EXIF orientations. */
static bool check_report(const struct check *check, struct error *error)
{
    /* The files of a held-out split are those of the training split: log them once. */
    static bool is_logged;
    char name[NAME_SIZE];
    size_t skipped = 0;
    for (size_t i = 0; i < check->count; i++)
        skipped += check->broken[i];
    const bool again = check->dataset->held_out && is_logged;
    if (!again)
        report_orientations(check);
    is_logged = true;
    if (skipped == 0)
        return true;
    check->dataset->format->name_record(check->dataset, (int64_t)check->first, name, sizeof name);
    if (!check->options->data.skip_broken)
        return error_set(error, ERROR_DATA,
                         "%zu of %zu files cannot be used, the first: %.512s: %.512s; "
                         "data.skip_broken=on skips them",
                         skipped, check->count, name, check->reason.text);
    if (again)
        return true;
    log_warn("data: %zu of %zu files are skipped, the first: %.512s: %.512s", skipped, check->count,
             name, check->reason.text);
    return true;
}

bool record_check(const struct dataset *dataset, size_t count, const struct options *options,
                  record_check_one *check_one, uint8_t *broken, struct error *error)
{
    struct check check = {.dataset = dataset,
                          .options = options,
                          .check = check_one,
                          .count = count,
                          .broken = broken,
                          .first = SIZE_MAX};
    pthread_mutex_init(&check.mutex, NULL);
    threads_run("check", smaller(THREADS, 1 + (int64_t)count / CLAIM), check_some, &check);
    pthread_mutex_destroy(&check.mutex);
    return check_report(&check, error);
}

bool record_check_decode(struct check_scratch *scratch, size_t bytes,
                         const struct image_header *header, const struct options *options,
                         struct error *error)
{
    const struct image_request request = {.area = {0, 0, header->width, header->height},
                                          .scale = 1,
                                          .accept_truncated =
                                              options->data.truncated == TRUNCATED_ACCEPT};
    return image_file_decode(scratch->file.data, bytes, header, &request, &scratch->pixels, error);
}
