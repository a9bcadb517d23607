// SPDX-License-Identifier: BSD-3-Clause
/* A small model on a device, set up as for a step on one rank, for tests of whole models. */
#ifndef VITTRAIN_TEST_VIT_FIXTURE_H
#define VITTRAIN_TEST_VIT_FIXTURE_H

#include "device/grains.h"
#include "mesh/flat.h"
#include "mesh/mesh.h"
#include "model/convnet.h"
#include "model/model.h"
#include "model/vit.h"
#include "options/options.h"
#include "vector_file.h"

struct vit_fixture {
    struct options options;
    struct device *device;
    struct grains *grains; /* NULL: without */
    struct stream *stream;
    struct event *ready;
    struct comm *world;
    bool borrows_world;
    struct mesh mesh;
    struct model *model;
    struct flat_model flat;
    struct arena arena;
    size_t activations_mark;
    void *memory, *workspace;
    int64_t batch;  /* capacity in samples */
    float *staging; /* device, fp32: inputs and outputs */
    int64_t staging_count;
    void *images, *logits; /* device, compute type */
    int32_t *labels;       /* device */
    const float *targets;  /* device: the loss is squared; NULL: that of the labels */
    struct loss_sums *sums;
    bool training;             /* of the next pass: with dropout */
    double running_weight;     /* of the next pass */
    uint32_t step;             /* keys dropout */
    struct step_params *place; /* device */
};

/* Fixtures opened from here on compute in grains of `samples`; 0: without grains. A pass must be
 * one subtree of base/sum_tree.h. */
void vit_fixture_set_grain(int64_t samples);

/* Open everything for a batch of random samples. words: options as on the command line, or "". Ends
 * the test program on failure. */
void vit_fixture_open(struct vit_fixture *fixture, const struct vit_shape *shape,
                      enum data_type compute, int64_t batch, const char *words);
/* Collective. Open a convolutional model instead of a ViT, on the ranks of a world, which is not
 * closed with it, or if that is NULL on this rank alone. */
void vit_fixture_open_convnet(struct vit_fixture *fixture, struct comm *world,
                              const struct convnet_shape *shape, enum data_type compute,
                              int64_t batch, const char *words);
void vit_fixture_close(struct vit_fixture *fixture);

/* Small shapes with dropout and drop path. */
enum vit_fixture_kind {
    SHAPE_TOKEN, /* a class token, so that the last block computes fewer tokens */
    SHAPE_MEAN,  /* mean pooling */
    SHAPE_PARTS, /* register tokens, LayerScale, GELU by tanh */
    SHAPE_DENSE, /* those, not square, and outputs for each pixel, compared as one classifier's */
    SHAPE_MAP,   /* attention pooling */
    SHAPE_SWIGLU,
    SHAPE_ROTARY,    /* register tokens, LayerScale, GELU by tanh, rotary positions */
    SHAPE_WIDE,      /* those, not square, with norms of queries and keys */
    SHAPE_REFERENCE, /* the course project's CIFAR model */
    SHAPE_KINDS
};
struct vit_shape vit_fixture_shape_of(enum vit_fixture_kind kind, int64_t depth);

/* A small convolutional model of the registry. ResNets have a stem, the block that halves the
 * image, and the head. */
struct convnet_shape vit_fixture_small_convnet(const char *name);

/* The shape in a vector file's metadata. */
struct vit_shape vit_fixture_shape(const struct vector_file *file);
struct convnet_shape vit_fixture_convnet_shape(const struct vector_file *file);

/* Load all tensors PREFIX/NAME of a vector file. */
void vit_fixture_load(struct vit_fixture *fixture, const struct vector_file *file,
                      const char *prefix);

/* Lay out activations for training or for evaluation. */
void vit_fixture_set_training(struct vit_fixture *fixture, bool training);

/* Upload the step parameters; vit_fixture_run does so for its pass. */
void vit_fixture_set_place(struct vit_fixture *fixture, const struct step_params *place);

/* Copy images and labels of the batch from host memory. */
void vit_fixture_set_batch(struct vit_fixture *fixture, const float *images, const int32_t *labels);

/* Run samples first .. first + count of the batch: forward, add the loss to the sums; if
 * `backward`, add the gradients of the loss divided by the batch. */
void vit_fixture_run(struct vit_fixture *fixture, int64_t first, int64_t count, double smoothing,
                     bool backward);

/* Zero gradients and sums. */
void vit_fixture_zero(struct vit_fixture *fixture);
/* Fill the memory of gradients with NaN. */
void vit_fixture_poison(struct vit_fixture *fixture);
/* The squared norm computed by flat_norm. */
double vit_fixture_norm(struct vit_fixture *fixture);

/* The sum of losses so far. */
double vit_fixture_loss(struct vit_fixture *fixture);

/* vit_fixture_zero, vit_fixture_run over the whole batch, and the gradient's norm. */
void vit_fixture_train(struct vit_fixture *fixture, double smoothing);

/* Copies in host memory (fp32); the caller frees them. logits: of the last run's `count` samples.
 */
float *vit_fixture_logits(struct vit_fixture *fixture, int64_t count);
float *vit_fixture_gradient(struct vit_fixture *fixture, int unit, int tensor);
float *vit_fixture_weight(struct vit_fixture *fixture, int unit, int tensor);
float *vit_fixture_average(struct vit_fixture *fixture, int unit, int tensor);
/* The gradients of all tensors, in order; *count: their number. */
float *vit_fixture_gradients(struct vit_fixture *fixture, int64_t *count);
void vit_fixture_set_weight(struct vit_fixture *fixture, int unit, int tensor, const float *values);

#endif
