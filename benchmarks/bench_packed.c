// SPDX-License-Identifier: BSD-3-Clause
/* Speed of loading decoded packed data, compared with copying the same bytes in memory. Loader
 * threads read records from the page cache, compare checksums and deliver batches; the same number
 * of threads copies the same records in the same order. Both alternate, so that other programs
 * affect both, and are also given per second of CPU time. Prints rows of the common CSV
 * (README.md): bench_packed data.root=FILE.h5 [section.key=value ...]; data.format=packed is
 * implied. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config/command_line.h"
#include "config/options.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/median.h"
#include "data/loader.h"
#include "tools/bench/bench.h"
#include "train/feed.h"

enum { SLOTS = 4, TURNS = 15 };
static const double TURN = 0.4; /* seconds */

struct packed_bench {
    struct bench_host host;
    struct options options;
    struct dataset dataset;
    struct sampler sampler;
    struct augment augment;
    struct crop crop;
    struct device *device;
    struct loader *loader;
    int64_t record_bytes;
    uint8_t *records; /* all records */
    uint8_t *batches; /* [SLOTS] */
};

struct copier {
    const struct packed_bench *bench;
    pthread_t thread;
    int number;
    int64_t copied; /* records */
};

static bool open_all(struct packed_bench *bench, struct error *error)
{
    const struct options *options = &bench->options;
    struct dataset *dataset = &bench->dataset;
    if (!dataset_open(dataset, options, SPLIT_TRAIN, error))
        return false;
    if (dataset->encoded)
        return error_set(error, ERROR_USAGE, "the data is not decoded");
    bench->device = device_cpu.open(0, 1, error);
    sampler_open(&bench->sampler, (uint64_t)options->run.seed, dataset->count, options->train.batch,
                 1, options->data.shuffle, true, 0, 1);
    feed_use_blocks(&bench->sampler, options, &bench->dataset);
    augment_open(&bench->augment, options, dataset->width, dataset->width, true);
    const struct image_size image = {dataset->width, dataset->width};
    if (bench->device == NULL || !crop_open(&bench->crop, options, false, image, true, error))
        return false;
    bench->loader = loader_open(dataset, &bench->sampler, &bench->augment, &bench->crop,
                                bench->device, (int)options->data.workers, SLOTS, error);
    bench->record_bytes = dataset->channels * dataset->height * dataset->width;
    bench->records = malloc((size_t)(dataset->count * bench->record_bytes));
    bench->batches = malloc((size_t)(SLOTS * options->train.batch * bench->record_bytes));
    ENSURE(bench->records != NULL && bench->batches != NULL, "no memory for all records");
    memset(bench->batches, 1, (size_t)(SLOTS * options->train.batch * bench->record_bytes));
    int32_t label;
    for (int64_t i = 0; i < dataset->count && error->kind == ERROR_NONE; i++)
        error_defer(
            dataset_read(dataset, i, bench->records + i * bench->record_bytes, &label, error));
    return error->kind == ERROR_NONE;
}

/* Records per second, and per second of CPU time. */
struct rate {
    double wall, cores;
};

static double cores_now(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static struct rate measure_loader(struct packed_bench *bench, uint32_t *epoch)
{
    const double cores = cores_now();
    double begin = clock_now(), waited = 0;
    int64_t records = 0;
    loader_start(bench->loader, (*epoch)++, 0, INT32_MAX);
    while (clock_now() - begin < TURN) {
        struct batch *batch = loader_next(bench->loader, &waited);
        ENSURE(batch->error.kind == ERROR_NONE, "%s", batch->error.text);
        records += batch->count;
        loader_give_back(bench->loader, batch);
    }
    const struct rate rate = {(double)records / (clock_now() - begin),
                              (double)records / (cores_now() - cores)};
    loader_stop(bench->loader);
    return rate;
}

static void *copy_some(void *argument)
{
    struct copier *copier = argument;
    const struct packed_bench *bench = copier->bench;
    const int64_t bytes = bench->record_bytes, threads = bench->options.data.workers;
    const int64_t places = SLOTS * bench->options.train.batch, count = bench->dataset.count;
    const uint32_t *order = bench->sampler.order[0].samples;
    const double begin = clock_now();
    for (int64_t i = copier->number; clock_now() - begin < TURN; i += threads) {
        memcpy(bench->batches + i % places * bytes,
               bench->records + (int64_t)order[i % count] * bytes, (size_t)bytes);
        copier->copied++;
    }
    return NULL;
}

static struct rate measure_copy(const struct packed_bench *bench)
{
    const double cores = cores_now();
    struct copier copiers[256] = {0};
    const int threads = (int)bench->options.data.workers;
    const double begin = clock_now();
    int64_t copied = 0;
    for (int i = 0; i < threads; i++) {
        copiers[i] = (struct copier){.bench = bench, .number = i};
        ENSURE(pthread_create(&copiers[i].thread, NULL, copy_some, &copiers[i]) == 0, "no thread");
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(copiers[i].thread, NULL);
        copied += copiers[i].copied;
    }
    return (struct rate){(double)copied / (clock_now() - begin),
                         (double)copied / (cores_now() - cores)};
}

static void row_print(const struct packed_bench *bench, const char *metric, double value,
                      const char *unit)
{
    char model[32];
    snprintf(model, sizeof model, "%lld pixels decoded", (long long)bench->dataset.width);
    bench_row_print(&bench->host, &(struct bench_row){.work = "packed input",
                                                      .model = model,
                                                      .batch = bench->options.train.batch,
                                                      .precision = "uint8",
                                                      .strategy = "none",
                                                      .threads = (int)bench->options.data.workers,
                                                      .metric = metric,
                                                      .value = value,
                                                      .unit = unit});
}

int main(int argc, char **argv)
{
    static const char *const commands[] = {"train", NULL};
    static struct packed_bench bench;
    struct command_line line;
    struct error error = {0};
    double loaded[2][TURNS], copied[2][TURNS], ratio[2][TURNS];
    uint32_t epoch = 0;
    if (!options_parse(argc, argv, commands, &bench.options, &line, &error) ||
        !options_set("data.format=packed", &bench.options, &error) || !open_all(&bench, &error)) {
        log_error(&error);
        return (int)error.kind;
    }
    ENSURE(sampler_steps(&bench.sampler) > 0, "fewer samples than a batch");
    for (int turn = 0; turn < TURNS; turn++) {
        const struct rate load = measure_loader(&bench, &epoch), copy = measure_copy(&bench);
        loaded[0][turn] = load.wall;
        loaded[1][turn] = load.cores;
        copied[0][turn] = copy.wall;
        copied[1][turn] = copy.cores;
        ratio[0][turn] = load.wall / copy.wall;
        ratio[1][turn] = load.cores / copy.cores;
    }
    const double gigabytes = (double)bench.record_bytes / 1e9;
    bench_host_read(&bench.host);
    bench_header_print();
    row_print(&bench, "loader", values_median(loaded[0], TURNS) * gigabytes, "GB/s");
    row_print(&bench, "memory copy", values_median(copied[0], TURNS) * gigabytes, "GB/s");
    row_print(&bench, "loader over memory copy", values_median(ratio[0], TURNS), "");
    row_print(&bench, "loader (a core)", values_median(loaded[1], TURNS) * gigabytes, "GB/s");
    row_print(&bench, "memory copy (a core)", values_median(copied[1], TURNS) * gigabytes, "GB/s");
    row_print(&bench, "loader over memory copy (a core)", values_median(ratio[1], TURNS), "");
    loader_close(bench.loader);
    sampler_close(&bench.sampler);
    device_cpu.close(bench.device);
    dataset_close(&bench.dataset);
    free(bench.records);
    free(bench.batches);
    return 0;
}
