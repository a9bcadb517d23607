// SPDX-License-Identifier: BSD-3-Clause
/* The command `convert`. One rank converts a checkpoint to weights or weights to a checkpoint, with
 * a few MiB of memory. */
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
#include "core/memory.h"
#include "core/text.h"
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
            "convert needs two files, a checkpoint (.h5) and weights (.safetensors), in "
            "the order input, output");
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
        error_defer(convert_to_weights(checkpoint, out, error));
    else
        checkpoint_make(in, out, options, error);
    if (error->kind != ERROR_NONE || stat(out, &file) != 0)
        return;
    char took[32];
    clock_format(clock_now() - begin, took, sizeof took);
    log_info("%s: %.1f MB from %s in %s; peak memory %.1f MiB", out, (double)file.st_size / 1e6, in,
             took, mib(resident_peak()));
}

static void convert_run(const struct options *options, const struct command_line *line,
                        struct comm *world, struct error *error)
{
    comm_set_timeout(0); /* the other ranks wait */
    if (world->rank == 0 && files_check(line, error))
        convert_files(options, line->operand[0], line->operand[1], error);
    comm_agree(world, error);
}

const struct command command_convert = {
    .name = "convert",
    .synopsis = "convert CHECKPOINT.h5 WEIGHTS.safetensors | convert WEIGHTS.safetensors "
                "CHECKPOINT.h5 [DECK.ini ...] [section.key=value ...]",
    .summary = "convert checkpoints to weights and back",
    .detail =
        "Writes the weights of a checkpoint of any strategy as safetensors; their EMA if there is "
        "one. Or writes a checkpoint at step 0 with given weights, for the "
        "model, optimizer and data of the options (model.classes: that of the weights, unless "
        "given); checkpoint.resume=FILE starts training from it. Both run on one rank with a few "
        "MiB of memory for any size of model.",
    .run = convert_run};
