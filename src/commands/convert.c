// SPDX-License-Identifier: BSD-3-Clause
/* The command `convert`. One rank converts a checkpoint to weights or weights to a checkpoint, with
 * a few MiB of memory; all ranks pack data. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "app/app.h"
#include "checkpoint/convert.h"
#include "checkpoint/model_metadata.h"
#include "checkpoint/weights_file.h"
#include "config/command_line.h"
#include "config/options.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/resident.h"
#include "core/text.h"
#include "data/packed.h"
#include "model/model.h"
#include "train/optimizer.h"

static bool files_check(const struct command_line *line, struct error *error)
{
    struct stat in, out;
    const char *const *file = line->operand;
    if (line->operand_count > 0 && !weights_file_check(file[0], error))
        return false;
    if (line->operand_count != 2 ||
        !((text_ends_with(file[0], ".h5") && text_ends_with(file[1], ".safetensors")) ||
          (text_ends_with(file[0], ".safetensors") && text_ends_with(file[1], ".h5"))))
        return error_set(
            error, ERROR_USAGE,
            "convert needs two files, a checkpoint (.h5) and weights (.safetensors) in "
            "the order input, output; or the word data");
    if (stat(file[0], &in) == 0 && stat(file[1], &out) == 0 && in.st_dev == out.st_dev &&
        in.st_ino == out.st_ino)
        return error_set(error, ERROR_USAGE, "%s and %s are the same file: choose another name",
                         file[0], file[1]);
    return true;
}

/* Options that a run takes from the data set are taken from the weights, because the data set may
 * be missing. */
static void checkpoint_make(const char *weights, const char *checkpoint,
                            const struct options *given, struct error *error)
{
    struct options options = *given;
    if (options.model.classes == 0)
        options.model.classes = convert_classes(weights, error);
    if (options.model.image == 0 && options.augment.crop != CROP_CENTER &&
        options.augment.crop != CROP_RANDOM)
        options.model.image = options.augment.resize;
    struct model *model =
        error->kind == ERROR_NONE ? model_open(&options, NULL, TYPE_FP32, error) : NULL;
    if (model == NULL)
        return;
    char *deck = options_to_run_deck(&options);
    char *metadata = model_metadata_describe(&options, model, NULL);
    const struct convert_start start = {.model = options.model.name,
                                        .units = model->units,
                                        .unit_count = model->unit_count,
                                        .moments = optimizer_moments(&options),
                                        .averaged = options.optim.ema > 0,
                                        .seed = (uint64_t)options.run.seed,
                                        .deck = deck,
                                        .metadata = metadata};
    error_defer(convert_to_checkpoint(weights, checkpoint, &start, error));
    free(deck);
    free(metadata);
    model_close(model);
}

static void convert_files(const struct options *options, const char *in, const char *out,
                          struct error *error)
{
    double begin = clock_now();
    struct stat file;
    char checkpoint[WEIGHTS_PATH];
    snprintf(checkpoint, sizeof checkpoint, "%s", in);
    weights_file_hold(checkpoint);
    if (text_ends_with(in, ".h5"))
        error_defer(convert_to_weights(checkpoint, out, options->convert.average, error));
    else
        checkpoint_make(in, out, options, error);
    if (error->kind != ERROR_NONE || stat(out, &file) != 0)
        return;
    char took[32];
    clock_format(clock_now() - begin, took, sizeof took);
    log_info("%s: %.1f MB from %s in %s; peak memory %.1f MiB", out, (double)file.st_size / 1e6, in,
             took, mib(resident_peak()));
}

/* ---- convert data */

static bool options_check_packing(const struct options *options, struct error *error)
{
    if (strcmp(options->data.format, "synthetic") == 0 &&
        (options->data.task == TASK_REGRESSION || options->model.head == HEAD_DENSE))
        return error_set(error, ERROR_USAGE,
                         "convert data: packed data have one class for each image: leave out "
                         "data.task=regression and model.head=dense");
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

static void convert_data(const struct options *options, struct comm *world, struct error *error)
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

/* ---- the command */

static void convert_run(const struct options *options, const struct command_line *line,
                        struct comm *world, struct error *error)
{
    comm_set_timeout(0); /* the other ranks wait */
    if (line->operand_count == 1 && strcmp(line->operand[0], "data") == 0) {
        convert_data(options, world, error);
        return;
    }
    if (world->rank == 0 && files_check(line, error))
        convert_files(options, line->operand[0], line->operand[1], error);
    comm_agree(world, error);
}

const struct command command_convert = {
    .name = "convert",
    .synopsis = "convert CHECKPOINT.h5 WEIGHTS.safetensors | convert WEIGHTS.safetensors "
                "CHECKPOINT.h5 | convert data convert.output=FILE.h5 [DECK.ini ...] "
                "[section.key=value ...]",
    .summary = "convert checkpoints to weights and back, and pack data sets",
    .detail =
        "Writes the weights of a checkpoint of any strategy as safetensors; their EMA if there is "
        "one and convert.average=on. Or writes a checkpoint at step 0 with given weights, for the "
        "model, optimizer and data of the options (model.classes: that of the weights, unless "
        "given); checkpoint.resume=FILE starts training from it. Both run on one rank with a few "
        "MiB of memory for any size of model. `convert data` packs the data set of data.* into one "
        "or more files (convert.file_size), to be read with data.format=packed data.root=FILE.h5: "
        "image files unchanged, or pixels (convert.kind, convert.size). It runs on all ranks of "
        "mpirun; the files do not depend on their number. It packs the training and test splits; "
        "also the validation split with data.val=val or data.val=FRACTION; only the training split "
        "with data.val=none.",
    .run = convert_run};
