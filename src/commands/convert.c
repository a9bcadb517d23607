// SPDX-License-Identifier: BSD-3-Clause
/* The command `convert`. One rank converts a checkpoint to weights or weights to a checkpoint, with
 * a few MiB of memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sensors.h"
#include "base/text.h"
#include "checkpoint/checkpoint_file.h"
#include "checkpoint/model_metadata.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/weights_file.h"
#include "commands/app.h"
#include "mesh/unit.h"
#include "model/model.h"
#include "options/command_line.h"
#include "options/options.h"
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

/* ---- checkpoint to weights ---- */

/* Write the parameters of a checkpoint to a safetensors file, bit for bit; or its EMA, if it has
 * one. The tensors have the same order in both files. The file equals that of safetensors_write. */
static void weights_make(const char *checkpoint, const char *weights, struct error *error)
{
    struct checkpoint_contents contents;
    struct safetensors_output output;
    int descriptor = -1;
    if (checkpoint_file_read(checkpoint, &contents, error) &&
        (descriptor = open(checkpoint, O_RDONLY | O_CLOEXEC)) < 0)
        durable_unreadable(error, ERROR_CHECKPOINT, checkpoint, errno);
    if (descriptor >= 0 &&
        safetensors_output_open(&output, weights, contents.units, (int)contents.unit_count,
                                contents.metadata, error)) {
        const enum flat_vector kind = contents.averaged ? FLAT_AVERAGE : FLAT_MASTER;
        OWNED float *memory = allocate(VECTOR_BLOCK, sizeof *memory);
        struct checkpoint_block block = {.u = 0};
        while (error->kind == ERROR_NONE && checkpoint_next(&contents, &block)) {
            const struct unit *unit = &contents.units[block.u];
            const int64_t begin = block.piece->begin;
            if (block.kind != kind ||
                !checkpoint_block_read(descriptor, checkpoint, &contents, &block, memory, error))
                continue;
            for (int t = 0; t < unit->tensor_count; t++) {
                const struct unit_tensor *tensor = &unit->tensors[t];
                int64_t length;
                const int64_t first = vector_overlap(tensor->offset, tensor->count, begin,
                                                     block.piece->count, &length);
                if (length > 0)
                    safetensors_output_append(&output, memory + (first - begin), length, error);
            }
        }
        error_defer(safetensors_output_close(&output, error));
    }
    if (descriptor >= 0)
        close(descriptor);
    checkpoint_contents_free(&contents);
}

/* ---- weights to checkpoint ---- */

/* Read the elements of a block of the parameters. Those between tensors are not changed. */
static void block_gather(struct safetensors_input *input, const struct checkpoint_block *block,
                         uint64_t seed, float *memory, struct error *error)
{
    const int64_t begin = block->piece->begin;
    for (int s = 0; s < input->source_count; s++) {
        struct safetensors_source *source = &input->source[s];
        const struct unit_tensor *tensor = source->tensor;
        int64_t length;
        const int64_t first =
            vector_overlap(tensor->offset, tensor->count, begin, block->piece->count, &length);
        if (source->u != block->u || length == 0)
            continue;
        if (source->kind == SOURCE_NONE)
            initial_draw(tensor, seed, first - tensor->offset, length, memory + (first - begin));
        else
            safetensors_input_read(input, source, first - tensor->offset, length,
                                   memory + (first - begin), error);
    }
}

/* Write the file. Moments are zero, and an EMA equals the parameters. */
static void contents_write(struct checkpoint_contents *contents, struct safetensors_input *input,
                           const char *checkpoint, uint64_t seed, struct error *error)
{
    OWNED char *part = allocate_text("%s.part", checkpoint);
    const int descriptor = durable_create(part, error);
    if (descriptor < 0)
        return;
    OWNED float *memory = allocate(VECTOR_BLOCK, sizeof *memory);
    struct checkpoint_block block = {.u = 0};
    bool good = checkpoint_frame_write(descriptor, part, contents, true, error);
    while (good && checkpoint_next(contents, &block)) {
        memset(memory, 0, block.bytes);
        if (block.kind == FLAT_MASTER || block.kind == FLAT_AVERAGE)
            block_gather(input, &block, seed, memory, error);
        block.piece->crc[block.kind] = crc32c_update(0, memory, block.bytes);
        good = error->kind == ERROR_NONE &&
               durable_write(descriptor, part, memory, block.bytes, block.offset, error);
    }
    if (good && checkpoint_tables_write(descriptor, part, contents, error)) {
        error_defer(durable_commit(descriptor, part, checkpoint, error));
    } else {
        close(descriptor);
        unlink(part);
    }
}

/* Return the metadata of the weights, or those of the model if the weights name no architecture.
 * NULL after an error. */
static char *metadata_choose(const char *weights, const struct options *options,
                             const struct model *model, struct error *error)
{
    struct model_metadata metadata;
    char *text;
    if (!model_metadata_read_text(weights, &text, error))
        return NULL;
    model_metadata_parse(text, &metadata);
    if (metadata.options.model.name[0] == '\0') {
        free(text);
        text = model_metadata_describe(options, model, NULL);
    }
    model_metadata_free(&metadata);
    return text;
}

/* Return the number of classes of the head (head.weight); 0 if it has no head or on error. */
static int64_t classes_count(const char *weights, struct error *error)
{
    struct safetensors_header header;
    const int descriptor = safetensors_header_open(weights, &header, error);
    const struct safetensors_entry *head = safetensors_find(&header, "head.weight");
    const int64_t classes = head != NULL && head->dimensions == 2 ? head->shape[0] : 0;
    safetensors_header_free(&header);
    if (descriptor >= 0)
        close(descriptor);
    return classes;
}

/* Write a checkpoint at step 0. Tensors are checked, resized or initialised as by safetensors_read.
 * Options that a run takes from the data set are taken from the weights, because the data set may
 * be missing. */
static void checkpoint_make(const char *weights, const char *checkpoint,
                            const struct options *given, struct error *error)
{
    struct options options = *given;
    if (options.model.classes == 0)
        options.model.classes = classes_count(weights, error);
    if (options.model.image == 0 && options.augment.crop != CROP_CENTER &&
        options.augment.crop != CROP_RANDOM)
        options.model.image = options.augment.resize;
    struct model *model =
        error->kind == ERROR_NONE ? model_open(&options, NULL, TYPE_FP32, error) : NULL;
    if (model == NULL)
        return;
    const uint64_t seed = (uint64_t)options.run.seed;
    struct safetensors_input input;
    struct checkpoint_contents contents;
    safetensors_input_list(&input, weights, model->units, model->unit_count, true);
    checkpoint_contents_open(&contents, model->units, model->unit_count, &options, "fp32");
    contents.state = training_state_begin(0, seed);
    contents.moments = optimizer_moments(&options);
    contents.averaged = options.optim.ema > 0;
    contents.replica = contents.shard = 1;
    free(checkpoint_contents_divide(&contents));
    if (safetensors_input_open(&input, error) &&
        (contents.metadata = metadata_choose(weights, &options, model, error)) != NULL)
        contents_write(&contents, &input, checkpoint, seed, error);
    safetensors_input_close(&input);
    checkpoint_contents_free(&contents);
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
        weights_make(checkpoint, out, error);
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
