// SPDX-License-Identifier: BSD-3-Clause
/* Each plane, the values of one channel of a record, is summed in fp64 in a fixed order; the sums
 * of planes are added exactly (device/exact_sum.h). The first finite value of each channel is
 * subtracted from all of its values, so that the variance of values far from zero is accurate. */
#include "data/statistics.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/thread.h"
#include "device/exact_sum.h"

enum { LANES = 8, LOGGED = 8 /* channels in the log */ };

/* Sums over one channel: of positive sums of planes, of the absolute values of negative ones, and
 * of squares. All members consist of int64_t, so that one all-reduce adds them. */
struct channel_sums {
    struct exact_sum above, below, squares;
    int64_t values, missing;
};

struct share {
    struct dataset *dataset;
    const float *origin; /* [channels]: subtracted from all values */
    int64_t end;
    atomic_llong next; /* next sample to read */
};

struct reader {
    struct share *share;
    pthread_t thread;
    struct channel_sums *sums; /* [channels] */
    struct error error;
};

/* Sums of a plane in separate lanes, so that the compiler can vectorise the additions. */
struct plane_sums {
    double total[LANES], squares[LANES];
    int64_t present[LANES];
};

static inline void lanes_add(struct plane_sums *sums, const float *values, int lanes, double origin)
{
    for (int lane = 0; lane < lanes; lane++) {
        const bool is_present = !isnan(values[lane]);
        const double distance = is_present ? (double)values[lane] - origin : 0;
        sums->total[lane] += distance;
        sums->squares[lane] += distance * distance;
        sums->present[lane] += is_present;
    }
}

/* Add a plane to the sums of its channel. Return false if a value is infinite, or if the sum of
 * squares exceeds the range of exact sums. */
static bool plane_add(struct channel_sums *sums, const float *values, int64_t count, double origin)
{
    struct plane_sums plane = {.total = {0}};
    double *total = plane.total, *squares = plane.squares;
    int64_t *present = plane.present, i = 0;
    for (; i + LANES <= count; i += LANES)
        lanes_add(&plane, values + i, LANES, origin);
    lanes_add(&plane, values + i, (int)(count - i), origin);
    for (int lane = 1; lane < LANES; lane++) {
        total[0] += total[lane];
        squares[0] += squares[lane];
        present[0] += present[lane];
    }
    exact_add(total[0] > 0 ? &sums->above : &sums->below, fabs(total[0]));
    exact_add(&sums->squares, squares[0]);
    sums->values += present[0];
    sums->missing += count - present[0];
    return squares[0] < 0x1p275;
}

static bool sample_add(struct reader *reader, int64_t sample, float *values)
{
    const struct share *share = reader->share;
    struct dataset *dataset = share->dataset;
    const int64_t plane = dataset->height * dataset->width;
    struct error reason = {0};
    int32_t label;
    if (!dataset_read(dataset, sample, values, &label, &reader->error))
        return false;
    for (int64_t c = 0; c < dataset->channels; c++)
        if (!plane_add(&reader->sums[c], values + c * plane, plane, (double)share->origin[c])) {
            error_set(&reason, ERROR_DATA,
                      "channel %" PRId64 " has an infinite or too large value; mark missing values "
                      "as NaN",
                      c);
            return dataset_name_error(dataset, sample, &reason, &reader->error);
        }
    return true;
}

static void *reader_run(void *argument)
{
    struct reader *reader = argument;
    struct share *share = reader->share;
    float *values = malloc(dataset_record_bytes(share->dataset));
    int64_t sample = -1;
    ENSURE_MEMORY(values != NULL, "no memory for a record");
    while ((sample = atomic_fetch_add(&share->next, 1)) < share->end &&
           sample_add(reader, sample, values))
        ;
    if (sample < share->end) /* after an error, stop the other threads */
        atomic_store(&share->next, share->end);
    free(values);
    return NULL;
}

/* Set the origin of each channel to its first finite value in sample 0, or to 0. */
static bool origin_read(struct dataset *dataset, float *origin, struct error *error)
{
    const int64_t plane = dataset->height * dataset->width;
    float *values = malloc(dataset_record_bytes(dataset));
    int32_t label;
    ENSURE_MEMORY(values != NULL, "no memory for a record");
    const bool good = dataset_read(dataset, 0, values, &label, error);
    for (int64_t c = 0; good && c < dataset->channels; c++) {
        int64_t i = 0;
        while (i < plane - 1 && !isfinite(values[c * plane + i]))
            i++;
        origin[c] = isfinite(values[c * plane + i]) ? values[c * plane + i] : 0;
    }
    free(values);
    return good;
}

/* Add the samples from share->next to share->end to the sums of the first reader. */
static void share_read(struct share *share, struct reader *readers, int threads)
{
    const size_t words = (size_t)share->dataset->channels * sizeof(struct channel_sums) / 8;
    for (int t = 0; t < threads; t++) {
        readers[t].share = share;
        readers[t].sums = calloc(words, 8);
        ENSURE_MEMORY(readers[t].sums != NULL, "no memory for sums");
        if (t > 0 && thread_start(&readers[t].thread, "statistics", reader_run, &readers[t]) != 0)
            readers[t].share = NULL; /* the other threads read all samples */
    }
    reader_run(&readers[0]);
    for (int t = 1; t < threads; t++) {
        if (readers[t].share != NULL)
            pthread_join(readers[t].thread, NULL);
        for (size_t w = 0; w < words; w++)
            ((int64_t *)readers[0].sums)[w] += ((const int64_t *)readers[t].sums)[w];
        if (readers[0].error.kind == ERROR_NONE)
            readers[0].error = readers[t].error;
        free(readers[t].sums);
    }
}

static void channel_finish(const struct channel_sums *sums, double origin, double *mean,
                           double *std)
{
    const double count = (double)sums->values;
    const double offset =
        sums->values == 0 ? 0
                          : (exact_sum_value(&sums->above) - exact_sum_value(&sums->below)) / count;
    const double variance =
        sums->values == 0 ? 0 : exact_sum_value(&sums->squares) / count - offset * offset;
    *mean = sums->values == 0 ? 0 : origin + offset;
    *std = variance > 0 ? sqrt(variance) : 1;
}

static void list_write(const struct channel_values *list, char *text, size_t size)
{
    size_t used = 0;
    for (int c = 0; c < list->count && c < LOGGED; c++)
        used +=
            (size_t)snprintf(text + used, size - used, "%s%.6g", c > 0 ? ", " : "", list->value[c]);
    if (list->count > LOGGED)
        snprintf(text + used, size - used, ", ... (%d channels)", list->count);
}

static void statistics_log(const struct dataset *dataset, const struct channel_sums *sums,
                           const struct channel_values *mean, const struct channel_values *std,
                           double seconds)
{
    char means[256], deviations[256];
    int64_t missing = 0, values = 0, empty = 0;
    for (int64_t c = 0; c < dataset->channels; c++) {
        missing += sums[c].missing;
        values += sums[c].values;
        empty += sums[c].values == 0;
    }
    list_write(mean, means, sizeof means);
    list_write(std, deviations, sizeof deviations);
    log_info("statistics of %lld training samples (%.1f s): mean %s; standard deviation %s",
             (long long)dataset->count, seconds, means, deviations);
    if (missing > 0)
        log_info("missing values: %lld of %lld (%.3g %%); they become the mean of their channel",
                 (long long)missing, (long long)(missing + values),
                 100 * (double)missing / (double)(missing + values));
    if (empty > 0)
        log_warn("%lld of %lld channels have no values in the training samples", (long long)empty,
                 (long long)dataset->channels);
}

bool statistics_compute(struct dataset *dataset, struct comm *world, int threads,
                        struct channel_values *mean, struct channel_values *std,
                        struct error *error)
{
    const double begin = clock_now();
    float origin[IMAGE_CHANNELS];
    struct share share = {.dataset = dataset,
                          .origin = origin,
                          .end = dataset->count * (world->rank + 1) / world->size};
    struct reader *readers = calloc((size_t)threads, sizeof *readers);
    ENSURE_MEMORY(readers != NULL, "no memory for %d threads", threads);
    atomic_init(&share.next, dataset->count * world->rank / world->size);
    error_defer(origin_read(dataset, origin, error));
    if (comm_agree(world, error)) {
        share_read(&share, readers, threads);
        *error = readers[0].error;
    }
    const bool good = comm_agree(world, error);
    if (good) {
        struct channel_sums *sums = readers[0].sums;
        comm_all_reduce(world, sums, dataset->channels * (int64_t)sizeof *sums / 8, COMM_INT64,
                        COMM_SUM);
        mean->count = std->count = (int)dataset->channels;
        for (int64_t c = 0; c < dataset->channels; c++)
            channel_finish(&sums[c], (double)origin[c], &mean->value[c], &std->value[c]);
        statistics_log(dataset, sums, mean, std, clock_now() - begin);
    }
    free(readers[0].sums);
    free(readers);
    return good;
}
