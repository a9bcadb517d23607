// SPDX-License-Identifier: BSD-3-Clause
/* The misclassified samples of an evaluation with the highest probabilities, with thumbnails, for
 * the report. */
#ifndef VITTRAIN_TRAIN_MISCLASSIFIED_H
#define VITTRAIN_TRAIN_MISCLASSIFIED_H

#include "checkpoint/run_folder.h"
#include "train/evaluate.h"

struct misclassified {
    struct image_source source; /* size of the batches' images */
    int64_t classes;
    int count;
    struct misclassified_sample *sample; /* the highest probability first */
};

/* Starts a new list. source: size of the images that the loader delivers. */
void misclassified_begin(struct misclassified *list, const struct image_source *source,
                         int64_t classes);

/* Adds the samples of a batch: an evaluation_visitor whose self is the list. */
void misclassified_visit(void *list, const struct batch *batch, const int32_t *predicted,
                         const float *probabilities, struct error *error);

/* Collective. Writes the samples of all ranks to FOLDER/misclassified.json on rank 0. */
void misclassified_write(struct misclassified *list, const struct run_folder *folder,
                         struct comm *world, const struct dataset *dataset, const char *split,
                         struct error *error);
void misclassified_free(struct misclassified *list);

#endif
