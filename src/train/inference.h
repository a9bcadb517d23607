// SPDX-License-Identifier: BSD-3-Clause
/* A trained model with a split of data, for commands that evaluate or predict. */
#ifndef VITTRAIN_TRAIN_INFERENCE_H
#define VITTRAIN_TRAIN_INFERENCE_H

#include "checkpoint/model_metadata.h"
#include "train/evaluate.h"
#include "train/session.h"

struct command_line;

struct inference {
    /* options: the deck of the training run, overridden by the command line; section mesh by the
     * command line only. `validation`: the data */
    struct session session;
    char split_name[8]; /* "val"; "": files */
    bool chose_best;    /* the split is held out, and the run chose its best checkpoint on it */
    struct model_metadata metadata; /* of the weights */
};

/* Collective. weights: a checkpoint, whose deck is overridden by `line`; a safetensors file, whose
 * metadata override `options` and are overridden by `line`; or a folder that holds one of them
 * (weights_file_find). files: [count] files, folders and lists of images (data/dataset.h), with
 * the names of classes in the metadata; count 0: the split predict.split. */
MUST_CHECK bool inference_open(struct inference *inference, const char *weights,
                               const char *const *files, int count, const struct options *options,
                               const struct command_line *line, struct comm *world,
                               struct error *error);

/* Fail if a number of the model's output is not finite. */
MUST_CHECK bool inference_check(const struct inference *inference, double number,
                                struct error *error);

void inference_close(struct inference *inference);

#endif
