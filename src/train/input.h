// SPDX-License-Identifier: BSD-3-Clause
/* The input of a pass on the device: images in the compute type, labels, and the targets of mixed
 * samples. On a GPU a batch is uploaded by a stream of its own while the previous batch is
 * computed: to one of two slots in turn, from pinned memory that returns to the loader after the
 * upload. On a CPU there is one slot, and an upload is a copy that has ended when it returns. */
#ifndef VITTRAIN_TRAIN_INPUT_H
#define VITTRAIN_TRAIN_INPUT_H

#include "core/arena.h"
#include "data/loader.h"
#include "device/device.h"
#include "device/image.h"

enum { INPUT_SLOTS = 2 };

/* The uploaded images. 0 x 0: the model's size, to which the host has resized them. */
struct image_source {
    enum dataset_type type;
    int64_t channels, height, width;
    struct target_shape target; /* count 0: labels */
    const float *row_weights;   /* of the data set (dataset.h), or NULL */
    int64_t kept_bytes;         /* limit of the decoded chunks in memory */
};

struct input {
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
    size_t target_bytes;  /* of the target values of a sample */
};

void input_open(struct input *input, struct device *device);
/* Does nothing on a zeroed struct. */
void input_close(struct input *input);

/* Replaces a size of 0 x 0 by the model's. */
struct image_source input_source(const struct input *input, const struct image_source *source);

/* Bytes of an uploaded record of a known size. */
size_t image_source_bytes(const struct image_source *source);

/* Takes device memory from the arena for passes of at most `batch` samples. mixes: with targets. */
void input_allocate(struct input *input, struct arena *arena, int64_t batch,
                    const struct image_source *source, bool mixes);

/* Queues the upload of a batch and input_transform. The loader gets the batch back when the upload
 * has ended (here, or in a later call, or in input_finish). loader NULL: the batch must live until
 * the stream is synchronized. augmented: with the batch's pixel plans and mixed samples. */
void input_upload(struct input *input, struct stream *stream, struct batch *batch,
                  const struct image_source *source, bool augmented, struct loader *loader);

/* Queues the transform of the newest slot's `count` samples to images, labels and targets. */
void input_transform(struct input *input, struct stream *stream, int64_t count,
                     const struct image_source *source, bool augmented);

/* Queues the transform of the newest batch again, with mirrored images. Changes the plans of
 * the batch, which must live until the stream is synchronized. */
void input_mirror(struct input *input, struct stream *stream, struct batch *batch,
                  const struct image_source *source);

/* Waits for all uploads and returns the batches to their loaders. */
void input_finish(struct input *input);

#endif
