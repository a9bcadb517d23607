/* What files of weights contain besides tensors: architecture, class names, and the preprocessing
 * of images in evaluation. In memory, and as a JSON object of texts: the member `__metadata__` of
 * a safetensors file, or the data set `metadata` of a checkpoint. Keys are those of timm's
 * pretrained_cfg if it has one. Layout: docs/checkpoint.md. */
#ifndef VITTRAIN_CHECKPOINT_MODEL_METADATA_H
#define VITTRAIN_CHECKPOINT_MODEL_METADATA_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"
#include "config/data_options.h"
#include "config/model_options.h"
#include "core/error.h"

struct model;
struct options;

enum { METADATA_WORD = 64 };

/* A member that the file lacks is zero, empty or auto. */
struct model_metadata {
    char program[METADATA_WORD];       /* "vittrain 0.1.0" */
    struct model_options model;        /* name and shape */
    struct eval_options eval;          /* resize and crop in evaluation */
    struct option_list mean, std;      /* of pixels from 0 to 1: one for each channel, or for all */
    char interpolation[METADATA_WORD]; /* of the resize: "bilinear", "bicubic", ... */
    char **class_name;                 /* [class_count], or NULL */
    int64_t class_count;
};

/* Return the JSON object for a model of this run as text, to be freed by the caller. class_name:
 * [class_count], or NULL. */
char *model_metadata_describe(const struct options *options, const struct model *model,
                              char **class_name, int64_t class_count);

/* Parse a JSON object. Values that cannot be parsed or are not valid are left out: weights from
 * elsewhere must not fail for their description. `text` may be NULL. Always call
 * model_metadata_free. */
void model_metadata_parse(const char *text, struct model_metadata *metadata);

/* Collective. Rank 0 reads the metadata of a safetensors file or a checkpoint; a file without is
 * not an error. If a safetensors file names no architecture, timm's config.json in the same folder
 * is read instead. Always call model_metadata_free. */
MUST_CHECK bool model_metadata_read(const char *path, struct comm *world,
                                    struct model_metadata *metadata, struct error *error);

/* Not collective. The JSON object of a file as text, to be freed by the caller; *text is NULL if it
 * has none. */
MUST_CHECK bool model_metadata_read_text(const char *path, char **text, struct error *error);

/* Set the options that describe the model and the preprocessing in evaluation. Those that the
 * metadata lack become defaults. Does nothing if the architecture is unknown. */
void model_metadata_apply(const struct model_metadata *metadata, struct options *options);

/* Return the interpolation; INTERPOLATION_AUTO if it is unknown or not supported. */
enum interpolation_choice model_metadata_interpolation(const struct model_metadata *metadata);

void model_metadata_free(struct model_metadata *metadata);

#endif
