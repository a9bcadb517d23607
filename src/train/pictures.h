// SPDX-License-Identifier: BSD-3-Clause
/* Pictures of an evaluation for the report: thumbnails of the misclassified samples with the
 * highest probabilities, or, if the targets are planes, input, target, prediction and error of
 * samples side by side. */
#ifndef VITTRAIN_TRAIN_PICTURES_H
#define VITTRAIN_TRAIN_PICTURES_H

#include "checkpoint/run_folder.h"
#include "train/evaluate.h"

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

/* Start new pictures of an evaluation of this feed. Return false if there are none. */
bool pictures_begin(struct pictures *pictures, const struct session *session,
                    const struct data_feed *feed);

/* Add the samples of a batch: an evaluation_visitor whose self is the pictures. */
void pictures_visit(void *self, const struct batch *batch, const int32_t *predicted,
                    const float *predictions, struct error *error);

/* Collective. Write the pictures of all ranks to FOLDER/misclassified.json or planes.json on rank
 * 0, unless the error is set. No file without pictures. */
void pictures_write(struct pictures *pictures, const struct run_folder *folder, const char *split,
                    struct error *error);
void pictures_free(struct pictures *pictures);

#endif
