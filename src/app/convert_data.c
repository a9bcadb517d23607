// SPDX-License-Identifier: BSD-3-Clause
/* The command `convert data` packs the data set of the options. */
#include <string.h>

#include "app/app.h"
#include "config/options.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/text.h"
#include "data/packed.h"

static bool options_check_packing(const struct options *options, struct error *error)
{
    if (strcmp(options->data.format, "synthetic") == 0 && options->data.task == TASK_REGRESSION)
        return error_set(
            error, ERROR_USAGE,
            "convert data: data.task=regression has no images to pack; use another task");
    if (!text_ends_with(options->convert.output, ".h5"))
        return error_set(error, ERROR_USAGE,
                         "convert data: no output file; set convert.output=FILE.h5");
    const int kind = options->convert.kind;
    if ((kind == KIND_ENCODED || kind == KIND_RESTARTS) && options->convert.size > 0)
        return error_set(error, ERROR_USAGE,
                         "convert.size=%lld: image files are not resized; leave it out or set "
                         "convert.kind=decoded",
                         (long long)options->convert.size);
    return true;
}

/* Read a split of the packed data back and log its size and checksum. */
static void split_log(const struct options *given, enum data_split split, const char *name)
{
    struct options options = *given;
    struct dataset dataset;
    struct error none = {0};
    snprintf(options.data.format, sizeof options.data.format, "packed");
    snprintf(options.data.root, sizeof options.data.root, "%s", given->convert.output);
    options.debug.fraction = 1;
    options.data.val = split == SPLIT_VALIDATION ? VALIDATION_VAL : VALIDATION_TEST;
    if (!dataset_open(&dataset, &options, split, &none))
        return;
    log_info("  %-10s %10lld records, sum %08lx", name, (long long)dataset.count,
             (unsigned long)dataset.sum);
    dataset_close(&dataset);
}

static void result_log(const struct options *options, int64_t bytes, double seconds)
{
    char took[32];
    clock_format(seconds, took, sizeof took);
    log_info("%s: %.1f MB in %s, %.0f MB/s", options->convert.output, (double)bytes / 1e6, took,
             (double)bytes / 1e6 / seconds);
    split_log(options, SPLIT_TRAIN, "train");
    if (options->data.val == VALIDATION_VAL || options->data.val == VALIDATION_FRACTION)
        split_log(options, SPLIT_VALIDATION, "validation");
    if (options->data.val != VALIDATION_NONE)
        split_log(options, SPLIT_TEST, "test");
    log_info("train with data.format=packed data.root=%s", options->convert.output);
}

void convert_data(const struct options *options, struct comm *world, struct error *error)
{
    const double begin = clock_now();
    int64_t bytes;
    options_check_packing(options, error);
    const struct packed_plan plan = {
        .name = options->convert.output,
        .decode = options->convert.kind == KIND_DECODED ||
                  (options->convert.kind == KIND_AUTO && options->convert.size > 0),
        .as_source = options->convert.kind == KIND_AUTO && options->convert.size == 0,
        .restarts = options->convert.kind == KIND_RESTARTS,
        .most_pixels = options->data.max_pixels,
        .size = options->convert.size,
        .file_bytes = options->convert.file_size,
        .shuffle = options->convert.shuffle};
    if (comm_agree(world, error) && packed_write(options, &plan, world, &bytes, error) &&
        world->rank == 0)
        result_log(options, bytes, clock_now() - begin);
}
