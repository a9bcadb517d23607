// SPDX-License-Identifier: BSD-3-Clause
/* Each plane, the values of one channel of a record, is summed in fp64 in a fixed order; the sums
 * of planes are added exactly (device/exact_sum.h). The first finite value of each channel is
 * subtracted from all of its values, so that the variance of values far from zero is accurate. */
#include "data/dataset.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"
#include "comm/comm.h"
#include "device/exact_sum.h"

enum { LANES = 8, LOGGED = 8 /* channels in the log */ };

/* A pass has at most ROUNDS rounds, of at least ROUND_SAMPLES samples of all ranks. */
enum { ROUNDS = 32, ROUND_SAMPLES = 256 };

/* Sums over one channel: of positive sums of planes, of the absolute values of negative ones, and
 * of squares. All members consist of int64_t, so that one all-reduce adds them. */
struct channel_sums {
    struct exact_sum above, below, squares;
    int64_t values, missing;
};

struct share {
    struct dataset *dataset;
    float origin[2 * IMAGE_CHANNELS]; /* [planes]: subtracted from all values */
    int64_t end;                      /* of the round */
    atomic_llong next;                /* next sample to read */
    pthread_mutex_t mutex;
    struct channel_sums *sums; /* [planes]; guarded by mutex */
    struct error error;        /* guarded by mutex */
};

/* Number of planes of a record that are measured: channels, then targets. */
static int64_t plane_count(const struct dataset *dataset)
{
    return dataset->channels + (dataset->target_normalised ? dataset->target.count : 0);
}

/* Return the values of a plane of a record, and their number. */
static const float *plane_values(const struct dataset *dataset, const float *values, int64_t plane,
                                 int64_t *count)
{
    const int64_t pixels = dataset->height * dataset->width, target = plane - dataset->channels;
    *count = target < 0 ? pixels : dataset->target.height * dataset->target.width;
    return target < 0 ? values + plane * pixels
                      : values + dataset->channels * pixels + target * *count;
}

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

static bool sample_add(const struct share *share, int64_t sample, struct channel_sums *sums,
                       float *values, struct error *error)
{
    struct dataset *dataset = share->dataset;
    struct error reason = {0};
    int64_t count;
    if (!dataset_read(dataset, sample, values, error))
        return false;
    for (int64_t p = 0; p < plane_count(dataset); p++) {
        const float *plane = plane_values(dataset, values, p, &count);
        if (plane_add(&sums[p], plane, count, (double)share->origin[p]))
            continue;
        error_set(&reason, ERROR_DATA,
                  "%s %" PRId64 " has an infinite or too large value; mark missing values as NaN",
                  p < dataset->channels ? "channel" : "target",
                  p < dataset->channels ? p : p - dataset->channels);
        return dataset_name_error(dataset, sample, &reason, error);
    }
    return true;
}

/* Return the number of int64_t in the sums of all planes. */
static size_t sums_words(const struct dataset *dataset)
{
    return (size_t)plane_count(dataset) * sizeof(struct channel_sums) / sizeof(int64_t);
}

static void *reader_run(void *argument)
{
    struct share *share = argument;
    const size_t words = sums_words(share->dataset);
    OWNED float *values = allocate(dataset_record_bytes(share->dataset), 1);
    OWNED struct channel_sums *sums = allocate(words, sizeof(int64_t));
    struct error error = {0};
    int64_t sample = -1;
    while (!comm_stop_wanted() && (sample = atomic_fetch_add(&share->next, 1)) < share->end &&
           sample_add(share, sample, sums, values, &error))
        ;
    if (sample < share->end) /* after an error, stop the other threads */
        atomic_store(&share->next, share->end);
    pthread_mutex_lock(&share->mutex);
    for (size_t w = 0; w < words; w++)
        ((int64_t *)share->sums)[w] += ((const int64_t *)sums)[w];
    if (share->error.kind == ERROR_NONE)
        share->error = error;
    pthread_mutex_unlock(&share->mutex);
    return NULL;
}

/* origin: what was subtracted from the values. */
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

/* Log the statistics of the channels or of the targets. sums: [mean->count] */
static void values_log(const char *what, const char *missing_are, const struct channel_sums *sums,
                       const struct channel_values *mean, const struct channel_values *std)
{
    const struct channel_values *const lists[] = {mean, std};
    struct text_stream text;
    FILE *out = text_stream_open(&text);
    int64_t missing = 0, values = 0, empty = 0;
    for (int64_t c = 0; c < mean->count; c++) {
        missing += sums[c].missing;
        values += sums[c].values;
        empty += sums[c].values == 0;
    }
    for (int s = 0; s < 2; s++) {
        fputs(s == 0 ? "mean" : "; standard deviation", out);
        for (int c = 0; c < mean->count && c < LOGGED; c++)
            fprintf(out, "%s%.6g", c > 0 ? ", " : " ", lists[s]->value[c]);
        if (mean->count > LOGGED)
            fprintf(out, ", ... (%d channels)", mean->count);
    }
    OWNED char *line = text_stream_close(&text);
    log_info("%s: %s", what, line);
    if (missing > 0)
        log_info("missing values: %lld of %lld (%.3g %%); they %s", (long long)missing,
                 (long long)(missing + values), 100 * (double)missing / (double)(missing + values),
                 missing_are);
    if (empty > 0)
        log_warn("%lld of %d channels have no values in the training samples", (long long)empty,
                 mean->count);
}

/* Collective. Set the sums and the statistics; mean.count is 0 after a signal. Each rank reads its
 * share in rounds, after which the ranks compare errors and signals. */
static bool records_measure(struct share *share, struct comm *world, int threads,
                            struct value_statistics *statistics, struct error *error)
{
    struct dataset *dataset = share->dataset;
    const int64_t channels = dataset->channels, targets = plane_count(dataset) - channels;
    const int64_t count = dataset->count, begin = count * world->rank / world->size;
    const int64_t samples = count * (world->rank + 1) / world->size - begin;
    const int64_t rounds = smaller(ROUNDS, 1 + count / ROUND_SAMPLES);
    const size_t words = sums_words(share->dataset);
    int64_t stop = 0;
    memset(share->sums, 0, words * sizeof(int64_t));
    statistics->mean.count = 0;
    /* The origin of each plane is its first finite value in sample 0, or 0. */
    OWNED float *values = allocate(dataset_record_bytes(dataset), 1);
    const bool is_read = dataset_read(dataset, 0, values, error);
    for (int64_t p = 0; is_read && p < plane_count(dataset); p++) {
        int64_t i = 0, pixels;
        const float *plane = plane_values(dataset, values, p, &pixels);
        while (i < pixels - 1 && !isfinite(plane[i]))
            i++;
        share->origin[p] = isfinite(plane[i]) ? plane[i] : 0;
    }
    bool good = comm_agree(world, error);
    for (int64_t round = 0; good && stop == 0 && round < rounds; round++) {
        atomic_store(&share->next, begin + samples * round / rounds);
        share->end = begin + samples * (round + 1) / rounds;
        threads_run("statistics", threads, reader_run, share);
        *error = share->error;
        good = comm_agree(world, error);
        stop = comm_stop_wanted();
        comm_all_reduce(world, &stop, 1, COMM_INT64, COMM_MAX);
    }
    if (!good || stop != 0)
        return good;
    comm_all_reduce(world, share->sums, (int64_t)words, COMM_INT64, COMM_SUM);
    statistics->mean.count = statistics->std.count = (int)channels;
    statistics->target_mean.count = statistics->target_std.count = (int)targets;
    for (int64_t c = 0; c < channels; c++)
        channel_finish(&share->sums[c], (double)share->origin[c] + dataset->channel_origin[c],
                       &statistics->mean.value[c], &statistics->std.value[c]);
    for (int64_t t = 0; t < targets; t++)
        channel_finish(&share->sums[channels + t],
                       (double)share->origin[channels + t] +
                           (dataset->residual ? 0 : dataset->target_origin[t]),
                       &statistics->target_mean.value[t], &statistics->target_std.value[t]);
    return true;
}

bool statistics_compute(struct dataset *records, struct comm *world, int threads,
                        struct value_statistics *statistics, struct error *error)
{
    const double begin = clock_now();
    struct dataset fields = window_fields(records);
    struct share share = {.dataset = &fields,
                          .sums = allocate(sums_words(&fields), sizeof(int64_t))};
    pthread_mutex_init(&share.mutex, NULL);
    bool good = records_measure(&share, world, threads, statistics, error);
    if (good && statistics->mean.count > 0) {
        error_defer(dataset_set_origins(records, statistics, error));
        good = comm_agree(world, error);
        fields = window_fields(records);
        if (good && dataset_has_origins(records))
            good = records_measure(&share, world, threads, statistics, error);
    }
    const bool is_complete = good && statistics->mean.count > 0;
    if (is_complete) {
        OWNED char *what = allocate_text("statistics of %lld training samples (%.1f s)",
                                         (long long)fields.count, clock_now() - begin);
        values_log(what, "become the mean of their channel", share.sums, &statistics->mean,
                   &statistics->std);
    }
    if (is_complete && statistics->target_mean.count > 0)
        values_log(records->residual ? "statistics of target - last input (data.residual)"
                                     : "statistics of their targets",
                   "are left out of losses and metrics", share.sums + fields.channels,
                   &statistics->target_mean, &statistics->target_std);
    pthread_mutex_destroy(&share.mutex);
    free(share.sums);
    records->is_finite = is_complete;
    return good;
}
