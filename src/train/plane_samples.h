// SPDX-License-Identifier: BSD-3-Clause
/* Samples of an evaluation whose targets are planes, as pictures for the report: input, target,
 * prediction and error side by side. */
#ifndef VITTRAIN_TRAIN_PLANE_SAMPLES_H
#define VITTRAIN_TRAIN_PLANE_SAMPLES_H

#include "checkpoint/run_folder.h"
#include "train/evaluate.h"

enum { PLANE_SAMPLES = 4, PLANE_OUTPUTS = 2, PLANE_SIDE = 96 };

struct plane_samples {
    const struct session *session;
    const struct dataset *dataset;
    int64_t evaluated; /* samples of all ranks in the batches before */
    int64_t shown;     /* outputs of a sample */
    struct plane_sample {
        uint32_t record;
        int64_t output;
        double low, high, error; /* values of the first and last colour; largest error */
        bool has_input;          /* else the first panel is empty */
        int64_t height, width;   /* of the picture */
        uint8_t pixels[PLANE_SIDE * (4 * (PLANE_SIDE + 4)) * 3];
    } * sample; /* [PLANE_SAMPLES, shown]; zero: another rank drew it, or there is none */
};

/* Starts a new list. */
void plane_samples_begin(struct plane_samples *list, const struct session *session,
                         const struct dataset *dataset);

/* Draws those of the pictures whose samples are in the batch: an evaluation_visitor whose self is
 * the list. */
void plane_samples_visit(void *self, const struct batch *batch, const int32_t *predicted,
                         const float *predictions, struct error *error);

/* Collective. Writes the samples of all ranks to FOLDER/planes.json on rank 0, unless the error is
 * set. Nothing if there was no evaluation of planes. */
void plane_samples_write(const struct plane_samples *list, const struct run_folder *folder,
                         const char *split, struct error *error);
void plane_samples_free(struct plane_samples *list);

#endif
