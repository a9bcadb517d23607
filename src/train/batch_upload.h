// SPDX-License-Identifier: BSD-3-Clause
/* The input of a pass on the device: images in the compute type, labels, and the targets of mixed
 * samples. On a GPU a batch is uploaded by a stream of its own while the previous batch is
 * computed: to one of two slots in turn, from pinned memory that returns to the loader after the
 * upload. On a CPU there is one slot, and an upload is a copy that has ended when it returns. */
#ifndef VITTRAIN_TRAIN_BATCH_UPLOAD_H
#define VITTRAIN_TRAIN_BATCH_UPLOAD_H

#include "base/arena.h"
#include "data/loader.h"
#include "device/device.h"
#include "device/image.h"

enum { INPUT_SLOTS = 2 };

/* The uploaded images. 0 x 0: the model's size, to which the host has resized them. */
struct image_source {
    enum dataset_type type;
    int64_t channels, height, width;
    int64_t rows;               /* of a stored image */
    struct target_shape target; /* count 0: labels */
    int64_t kept_bytes;         /* limit of the decoded chunks in memory */
};

struct batch_upload {
    struct device *device;
    struct stream *stream; /* uploads */
    int count, newest;     /* slots; the one that holds the newest batch */
    struct input_slot {
        void *pixels;
        struct pixel_plan *plans;
        struct mix_plan *mixes;
        int32_t *labels;
        struct event *uploaded, *used; /* the upload has ended; the batch is no longer read */
        struct loader *loader;         /* of the batch in transfer, or NULL */
        struct batch *batch;
    } slot[INPUT_SLOTS];
    enum data_type type; /* compute */
    struct image_size image;
    int64_t channels, classes;
    float smoothing; /* of labels, where samples are mixed */
    float mean[IMAGE_CHANNELS], std[IMAGE_CHANNELS];
    float target_mean[IMAGE_CHANNELS], target_std[IMAGE_CHANNELS];
    uint8_t *scratch;
    void *images;         /* [batch, channels, height, width] compute type */
    int32_t *labels;      /* [batch] */
    float *targets;       /* [batch, classes]; NULL: no samples are mixed */
    float *target_values; /* [batch, shape of the source's targets]: (target - mean) / std; NaN: no
                           * target; NULL: labels */
    size_t image_bytes, target_bytes; /* of a sample in images, in target_values */
};

void batch_upload_open(struct batch_upload *input, struct device *device);
/* Does nothing on a zeroed struct. */
void batch_upload_close(struct batch_upload *input);

/* Replaces a size of 0 x 0 by the model's. */
struct image_source batch_upload_source(const struct batch_upload *input,
                                        const struct image_source *source);

/* Bytes of an uploaded record of a known size. */
size_t image_source_bytes(const struct image_source *source);

/* Takes device memory from the arena for passes of at most `batch` samples. mixes: with targets. */
void batch_upload_allocate(struct batch_upload *input, struct arena *arena, int64_t batch,
                           const struct image_source *source, bool mixes);

/* Queues the upload of a batch and batch_upload_transform. The loader gets the batch back when the
 * upload has ended (here, or in a later call, or in batch_upload_finish). loader NULL: the batch
 * must live until the stream is synchronized. augmented: with the batch's pixel plans and mixed
 * samples. */
void batch_upload_start(struct batch_upload *input, struct stream *stream, struct batch *batch,
                        const struct image_source *source, bool augmented, struct loader *loader);

/* Queues the transform of the newest slot's `count` samples to images, labels and targets. */
void batch_upload_transform(struct batch_upload *input, struct stream *stream, int64_t count,
                            const struct image_source *source, bool augmented);

/* Queues the transform of the newest batch again, with mirrored images. Changes the plans of
 * the batch, which must live until the stream is synchronized. */
void batch_upload_mirror(struct batch_upload *input, struct stream *stream, struct batch *batch,
                         const struct image_source *source);

/* Waits for all uploads and returns the batches to their loaders. */
void batch_upload_finish(struct batch_upload *input);

/* ---- Values that host and device exchange in each step. The host uploads the step's parameters;
 * the device returns the gradient's norm and the loss scale. A GPU runs behind the host, so values
 * in transfer are kept in small rings of pinned memory, and the host reads the result of a step
 * only when RESULTS_AHEAD later steps have been queued. */

enum { PARAMS_SLOTS = 8, RESULTS_AHEAD = 2, RESULT_SLOTS = RESULTS_AHEAD + 1 };

struct step_result {
    int64_t number;                  /* of the step */
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
    int first, count;          /* slot of the oldest result in transfer; results in transfer */
    int ahead;                 /* results that may stay in transfer; 0 on a CPU */
    struct step_result result; /* of the newest step that the host has read */
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
/* Reads the oldest result into io->result if more than `ahead` are in transfer; all: if any is.
 * Returns false if no result was read. */
bool step_io_take_result(struct step_io *io, bool all);

/* Waits for the stream, returns the sums of this rank and sets them to zero. */
struct loss_sums step_io_take_sums(struct step_io *io, struct stream *stream);

#endif
