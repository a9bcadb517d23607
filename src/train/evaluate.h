// SPDX-License-Identifier: BSD-3-Clause
/* Evaluation: every sample of a split exactly once on any number of ranks. */
#ifndef VITTRAIN_TRAIN_EVALUATE_H
#define VITTRAIN_TRAIN_EVALUATE_H

#include "checkpoint/run_folder.h"
#include "record/evaluation.h"
#include "train/session.h"
#include "train/split_loader.h"
#include "train/step.h"

/* Called with each batch of this rank after its forward pass, for predictions. probabilities:
 * [batch->count, classes]; with targets, the outputs [batch->count, classes, height, width] in the
 * units of the data, or before the softmax or sigmoid. Collective: called on all ranks for each
 * batch, also after an error. May set the error. */
struct evaluation_visitor {
    void (*visit)(void *self, const struct batch *batch, const int32_t *predicted,
                  const float *probabilities, struct error *error);
    void *self;
    bool counts; /* the evaluation has accuracies and a confusion matrix, too */
};

/* Collective. Evaluates the model on a split that was started without training. The weights'
 * compute copies must be up to date. visitor: or NULL; with one that does not count, the evaluation
 * has the loss only. control: stops at the batch where a signal requests it; NULL: signals have no
 * effect. Overwrites activations and sets the loss sums to zero. The caller calls evaluation_free.
 */
MUST_CHECK bool evaluation_run(struct session *session, struct split_loader *feed,
                               const struct evaluation_visitor *visitor, struct control *control,
                               struct evaluation *evaluation, struct error *error);

/* ---- Pictures of an evaluation for the report: thumbnails of the misclassified samples with the
 * highest probabilities, or, if the targets are planes, input, target, prediction and error of
 * samples side by side. */

/* Initially zero. */
struct pictures {
    const struct session *session;
    const struct dataset *dataset;
    struct image_source source;  /* size of the batches' images */
    struct wrong_sample *wrong;  /* [count] the highest probability first; or NULL */
    struct plane_sample *planes; /* [samples, shown]; zero: drawn by another rank; or NULL */
    int count;
    int64_t shown;     /* outputs of a sample */
    int64_t evaluated; /* samples of all ranks in the batches before */
};

/* Start new pictures of an evaluation of this split. Return false if there are none. */
bool pictures_begin(struct pictures *pictures, const struct session *session,
                    const struct split_loader *feed);

/* Add the samples of a batch: an evaluation_visitor whose self is the pictures. */
void pictures_visit(void *self, const struct batch *batch, const int32_t *predicted,
                    const float *predictions, struct error *error);

/* Collective. Write the pictures of all ranks to FOLDER/misclassified.json or planes.json on rank
 * 0, unless the error is set. No file without pictures. */
void pictures_write(struct pictures *pictures, const struct run_folder *folder, const char *split,
                    struct error *error);
void pictures_free(struct pictures *pictures);

#endif
