// SPDX-License-Identifier: BSD-3-Clause
/* Weights that a user names: the file in a run folder; detection of formats that this program does
 * not read; and their metadata: architecture, class names, and the preprocessing of images in
 * evaluation. Files store them as a JSON object of strings: the member `__metadata__` of a
 * safetensors file, or the data set `metadata` of a checkpoint. Keys that timm's pretrained_cfg has
 * are used with the same meaning. Layout: docs/checkpoint.md. */
#ifndef VITTRAIN_CHECKPOINT_MODEL_METADATA_H
#define VITTRAIN_CHECKPOINT_MODEL_METADATA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "comm/comm.h"
#include "options/options.h"

struct model;
struct dataset;

enum { METADATA_FAULTS = 4 };

/* An invalid value in a file, and the option that replaces it. */
struct metadata_fault {
    char text[192];
    const char *option;
};

/* A member without a valid value in the file is zero, empty or auto. */
struct model_metadata {
    bool is_own; /* written by this program */
    /* Name and shape of the model, resize and crop in evaluation, interpolation, data.exif; of
     * arrays also what a sample is and the loss. All other options have their defaults. */
    struct options options;
    struct value_statistics statistics; /* for pixels from 0 to 1, or for float32 values */
    char **class_name;                  /* [class_count], or NULL */
    int64_t class_count;
    int64_t rows;
    float *row_weights;                           /* [rows]: weights by train.row_weight */
    char *grid;                                   /* of arrays (grid_write), or NULL */
    struct metadata_fault fault[METADATA_FAULTS]; /* the first ones; option NULL: none */
};

/* Return the JSON object for a model of this run as text, to be freed by the caller. The names of
 * classes, the weights of rows and the grid are those of the data set, which may be NULL. */
char *model_metadata_describe(const struct options *options, const struct model *model,
                              const struct dataset *dataset);

/* Parse a JSON object; `text` may be NULL. Values that cannot be parsed or are not valid are
 * faults. Always call model_metadata_free. */
void model_metadata_parse(const char *text, struct model_metadata *metadata);

/* Return false with ERROR_CHECKPOINT if a value of the file `path` is invalid and its option has
 * its default. `trains`: the weights initialize a training, which does not use their options of the
 * model. Return false with ERROR_USAGE if the number of attention heads is not that of the weights,
 * which no tensor shows. Metadata of an unknown architecture are not used and not checked. */
MUST_CHECK bool model_metadata_check(const struct model_metadata *metadata, const char *path,
                                     const struct options *options, bool trains,
                                     struct error *error);

/* Collective. Rank 0 reads the metadata of a safetensors file or a checkpoint and broadcasts them.
 * A file without metadata is not an error. If a safetensors file names no architecture, timm's
 * config.json in the same folder is read instead. Always call model_metadata_free. */
MUST_CHECK bool model_metadata_read(const char *path, struct comm *world,
                                    struct model_metadata *metadata, struct error *error);

/* Not collective. Return the JSON object of a file as text, to be freed by the caller; NULL without
 * one or on failure. */
char *model_metadata_text(const char *path, struct error *error);

/* Set the options of the model and of the preprocessing in evaluation from the metadata; those
 * without a value get their defaults. Does nothing if the architecture is unknown. */
void model_metadata_apply(const struct model_metadata *metadata, struct options *options);

void model_metadata_free(struct model_metadata *metadata);

/* ---- files */

enum { WEIGHTS_PATH = 4096 };

/* Collective. Write the path of a checkpoint or weights to `path`. A link to a checkpoint, such as
 * last.h5 of a running job, is replaced by its target, so that all readers open one file. For a run
 * folder or its folder of checkpoints this is the best checkpoint, else the best weights, the last
 * checkpoint, the last weights; the path is printed on stderr. An image is ERROR_USAGE.
 * `initial`: for model.init; then weights are preferred to checkpoints, and nothing is printed. */
MUST_CHECK bool weights_file_find(const char *name, bool initial, struct comm *world,
                                  char path[WEIGHTS_PATH], struct error *error);

/* Return false if the file cannot be opened for reading. `where` is the start of the error's text:
 * "model.init: ". Not collective. */
MUST_CHECK bool weights_file_exists(const char *where, const char *path, struct error *error);

/* Return false for a PyTorch file (.pth, .pt, .bin, .ckpt; a zip archive or a pickle). The error
 * contains the Python command that converts it to safetensors. All other files, and those that
 * cannot be opened, return true: the function that reads them reports errors. Not collective. */
MUST_CHECK bool weights_file_check(const char *path, struct error *error);

#endif
