// SPDX-License-Identifier: BSD-3-Clause
/* Images per second of the input pipeline: the loader threads alone (reading, random numbers of the
 * augmentation), the device's transform alone, and both as in a step. Prints rows of the common CSV
 * (README.md). Takes the command line of `train`: bench_input [DECK.ini ...]
 * [section.key=value ...]; the default is the CIFAR recipe on the sample. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "commands/bench.h"
#include "data/loader.h"
#include "options/options.h"
#include "train/split_loader.h"

enum { SLOTS = 4, SECONDS = 3 };
enum { LOADING = 1, TRANSFORMING = 2 };

struct input_bench {
    struct bench_host host;
    struct options options;
    struct dataset dataset;
    struct sampler sampler;
    struct augment augment;
    struct crop crop;
    struct device *device;
    struct stream *stream;
    struct loader *loader;
    struct image_transform transform;
    int64_t side; /* of the output images */
};

static void *memory_take(struct input_bench *bench, size_t bytes, struct error *error)
{
    if (bytes == 0)
        return NULL;
    return bench->device->backend->allocate(bench->device, bytes, error);
}

/* Return model.image if set, else the size after resizing, else the stored size. */
static int64_t output_side(const struct options *options, const struct dataset *dataset)
{
    if (options->model.image > 0)
        return options->model.image;
    return options->augment.resize > 0 ? options->augment.resize : dataset->width;
}

static bool open_all(struct input_bench *bench, struct error *error)
{
    const struct options *options = &bench->options;
    if (!dataset_open(&bench->dataset, options, SPLIT_TRAIN, NULL, error))
        return false;
    const struct dataset *dataset = &bench->dataset;
    bench->side = output_side(options, dataset);
    bench->device = device_cpu.open(0, (int)options->run.threads, error);
    if (bench->device == NULL)
        return false;
    bench->stream = device_cpu.stream_open(bench->device);
    sampler_open(&bench->sampler, (uint64_t)options->run.seed, dataset->count, options->train.batch,
                 1, true, true, 0, 1);
    split_loader_use_blocks(&bench->sampler, options, dataset);
    const struct image_size image = {bench->side, bench->side};
    if (!crop_open(&bench->crop, options, dataset->encoded, image, true, error) ||
        !augment_open(&bench->augment, options, bench->side, bench->side, true, error))
        return false;
    bench->loader = loader_open(&bench->dataset, &bench->sampler, &bench->augment, &bench->crop,
                                bench->device, (int)options->data.workers, SLOTS, error);
    const bool made = bench->crop.active; /* the host produces images of the final size */
    static const float mean[4] = {0.5f, 0.5f, 0.5f, 0.5f}, std[4] = {0.5f, 0.5f, 0.5f, 0.5f};
    bench->transform =
        (struct image_transform){.type = TYPE_BF16,
                                 .batch = options->train.batch,
                                 .channels = dataset->channels,
                                 .source_height = made ? bench->side : dataset->height,
                                 .source_width = made ? bench->side : dataset->width,
                                 .height = bench->side,
                                 .width = bench->side,
                                 .mean = mean,
                                 .std = std};
    int64_t elements = options->train.batch * dataset->channels * bench->side * bench->side;
    bench->transform.images = memory_take(bench, (size_t)elements * 2, error);
    bench->transform.scratch =
        memory_take(bench, image_transform_scratch(&bench->transform), error);
    return error->kind == ERROR_NONE;
}

static void close_all(struct input_bench *bench)
{
    loader_close(bench->loader);
    device_cpu.release(bench->device, bench->transform.images);
    if (bench->transform.scratch != NULL)
        device_cpu.release(bench->device, bench->transform.scratch);
    sampler_close(&bench->sampler);
    device_cpu.stream_close(bench->stream);
    device_cpu.close(bench->device);
    dataset_close(&bench->dataset);
}

static void batch_transform(struct input_bench *bench, const struct batch *batch)
{
    bench->transform.source = batch->pixels;
    bench->transform.plans = batch->plans;
    device_cpu.image_transform(bench->stream, &bench->transform);
    device_cpu.stream_synchronize(bench->stream);
}

/* CPU time of all threads of this process, which other programs hardly affect. */
static double processor_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Images per second over some seconds. Without LOADING one batch is transformed repeatedly. */
static double input_measure(struct input_bench *bench, int work, double *of_processor_time)
{
    double begin = clock_now(), waited = 0, before = processor_seconds();
    int64_t images = 0;
    loader_start(bench->loader, 0, 0, INT32_MAX);
    while (clock_now() - begin < SECONDS) {
        struct batch *batch = loader_next(bench->loader, &waited);
        ENSURE(batch->error.kind == ERROR_NONE, "%s", batch->error.text);
        do {
            if (work & TRANSFORMING)
                batch_transform(bench, batch);
            images += batch->count;
        } while (!(work & LOADING) && clock_now() - begin < SECONDS);
        loader_give_back(bench->loader, batch);
    }
    const double processor = processor_seconds() - before, seconds = clock_now() - begin;
    loader_stop(bench->loader);
    *of_processor_time = (double)images / processor;
    return (double)images / seconds;
}

static void row_print(const struct input_bench *bench, const char *name, const char *of,
                      double value)
{
    char model[64], metric[96], source[32] = "files";
    struct device_limits limits;
    device_cpu.limits(bench->device, &limits);
    if (!bench->dataset.encoded)
        snprintf(source, sizeof source, "%lld", (long long)bench->dataset.width);
    snprintf(model, sizeof model, "%s to %lld pixels", source, (long long)bench->side);
    snprintf(metric, sizeof metric, "%s (%lld workers)%s", name,
             (long long)bench->options.data.workers, of);
    bench_row_print(&bench->host, &(struct bench_row){.work = "input",
                                                      .model = model,
                                                      .batch = (double)bench->options.train.batch,
                                                      .precision = "bf16",
                                                      .strategy = "none",
                                                      .threads = limits.threads,
                                                      .metric = metric,
                                                      .value = value,
                                                      .unit = "images/s"});
}

int main(int argc, char **argv)
{
    static struct input_bench bench;
    struct command_line line;
    struct error error = {0};
    if (!options_parse(argc, argv, &bench.options, &line, &error) || !open_all(&bench, &error)) {
        log_error(&error);
        return (int)error.kind;
    }
    ENSURE(sampler_steps(&bench.sampler) > 0, "fewer samples than a batch");
    bench_host_read(&bench.host);
    bench_header_print();
    static const char *const names[] = {NULL, "loader", "transform", "loader and transform"};
    for (int work = LOADING; work <= (LOADING | TRANSFORMING); work++) {
        double of_processor_time, speed = input_measure(&bench, work, &of_processor_time);
        row_print(&bench, names[work], "", speed);
        row_print(&bench, names[work], " in processor time", of_processor_time);
    }
    close_all(&bench);
    return 0;
}
