// SPDX-License-Identifier: BSD-3-Clause
/* The command `convert`. One rank converts a checkpoint to weights, with a few MiB of memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
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
#include "commands/app.h"
#include "mesh/unit.h"
#include "options/options.h"

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
                                contents.text[TEXT_METADATA], error)) {
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
        safetensors_output_close(&output, error);
    }
    if (descriptor >= 0)
        close(descriptor);
    checkpoint_contents_free(&contents);
}

static void convert_run(const struct options *options, const struct command_line *line,
                        struct comm *world, struct error *error)
{
    const double begin = clock_now();
    const char *const *file = line->operand;
    struct stat status;
    char checkpoint[WEIGHTS_PATH], took[32];
    (void)options;
    comm_set_timeout(0); /* the other ranks wait */
    if (line->operand_count != 2 || !text_ends_with(file[0], ".h5") ||
        !text_ends_with(file[1], ".safetensors")) {
        error_set(
            error, ERROR_USAGE,
            "convert needs a checkpoint (.h5) and a name for its weights (.safetensors); to train "
            "from weights, set model.init");
    } else if (weights_file_find(file[0], false, world, checkpoint, error) && world->rank == 0) {
        weights_make(checkpoint, file[1], error);
        if (error->kind == ERROR_NONE && stat(file[1], &status) == 0) {
            clock_format(clock_now() - begin, took, sizeof took);
            log_info("%s: %.1f MB from %s in %s; peak memory %.1f MiB", file[1],
                     (double)status.st_size / 1e6, file[0], took, mib(process_memory("VmHWM:")));
        }
    }
    comm_agree(world, error);
}

const struct command command_convert = {
    .name = "convert",
    .synopsis = "convert CHECKPOINT.h5 WEIGHTS.safetensors",
    .summary = "write the weights of a checkpoint as safetensors",
    .detail =
        "Writes the weights of a checkpoint of any strategy as safetensors; their EMA if there is "
        "one. One rank converts, with a few MiB of memory for any size of model.",
    .run = convert_run};
