// SPDX-License-Identifier: BSD-3-Clause
/* Values that host and device exchange in each step. The host uploads the step's parameters; the
 * device returns the gradient's norm and the loss scale. A GPU runs behind the host, so values in
 * transfer are kept in small rings of pinned memory, and the host reads the result of a step only
 * when RESULTS_AHEAD later steps have been queued. */
#ifndef VITTRAIN_TRAIN_STEP_IO_H
#define VITTRAIN_TRAIN_STEP_IO_H

#include "core/arena.h"
#include "device/device.h"

enum { PARAMS_SLOTS = 8, RESULTS_AHEAD = 2, RESULT_SLOTS = RESULTS_AHEAD + 1 };

struct step_result {
    double norm_squared;             /* of the gradient, multiplied by the squared loss scale */
    double samples, counted;         /* of the global batch; those in the loss, 0 if all are */
    struct loss_scaler used, scaler; /* of this step, of the next step */
};

struct step_io {
    struct device *device;
    /* Device memory. */
    struct step_params *params;
    struct loss_scaler *scaler; /* NULL: no loss scaling */
    struct loss_sums *sums;     /* of all steps since step_io_take_sums */
    /* Pinned memory. */
    struct step_io_slots {
        struct step_params params[PARAMS_SLOTS];
        struct step_result results[RESULT_SLOTS];
        struct loss_sums sums;
    } * slots;
    struct event *uploaded[PARAMS_SLOTS];
    int next_params; /* slot */
    struct event *returned[RESULT_SLOTS];
    int64_t number[RESULT_SLOTS]; /* of the step */
    int first, count;             /* slot of the oldest result in transfer; results in transfer */
    int ahead;                    /* results that may stay in transfer; 0 on a CPU */
    struct step_result result;    /* of the newest step that the host has read */
};

/* Allocates pinned memory. wait: read each result at once. Returns false and an error without
 * memory. */
MUST_CHECK bool step_io_open(struct step_io *io, struct device *device, bool wait,
                             struct error *error);
/* Nothing may be in transfer. Does nothing on a zeroed struct. */
void step_io_close(struct step_io *io);
/* Takes the device memory from the arena. scaled: with a loss scaler. */
void step_io_allocate(struct step_io *io, struct arena *arena, bool scaled);

/* Queues the upload of the parameters. Waits only if PARAMS_SLOTS uploads are in transfer. */
void step_io_upload_params(struct step_io *io, struct stream *stream,
                           const struct step_params *params);

/* Queues the download of a step's result. norm_squared: device. samples: of the global batch. */
void step_io_queue_result(struct step_io *io, struct stream *stream, int64_t number,
                          const double *norm_squared, double samples);
/* Reads the oldest result into io->result and sets *number if more than `ahead` are in transfer;
 * all: if any is. Returns false if no result was read. */
bool step_io_take_result(struct step_io *io, bool all, int64_t *number);

/* Waits for the stream, returns the sums of this rank and sets them to zero. */
struct loss_sums step_io_take_sums(struct step_io *io, struct stream *stream);

#endif
