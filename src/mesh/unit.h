// SPDX-License-Identifier: BSD-3-Clause
/* A model is a list of units; a unit is a list of tensors stored one after another in one flat
 * buffer. A unit is the bucket of the gradient reduction, the object that is gathered and freed, a
 * group in the checkpoint, and a row of the memory plan. */
#ifndef VITTRAIN_MESH_UNIT_H
#define VITTRAIN_MESH_UNIT_H

#include <stdbool.h>
#include <stdint.h>

enum tensor_kind {
    TENSOR_PARAMETER, /* optimised */
    /* Running statistics of batch norm: checkpointed, not optimised. A step updates them through
     * their "gradient" (flat_running_weight). They follow all parameters of the unit. */
    TENSOR_STATE
};

enum initial_rule {
    INITIAL_ZERO,
    INITIAL_ONE,
    INITIAL_CONSTANT,         /* the value `initial_scale` */
    INITIAL_HALF_ONE,         /* 0 in the first half of the elements, 1 in the second */
    INITIAL_TRUNCATED_NORMAL, /* standard deviation `initial_scale`, clipped at +-2 as in timm */
    INITIAL_HALF_NORMAL, /* the same; standard deviation 1e-6 in the second half of the elements */
    INITIAL_NORMAL,      /* standard deviation `initial_scale` */
    INITIAL_DIRAC,   /* filters [out, in, height, width]: `in` identities, then INITIAL_NORMAL */
    INITIAL_COSINES, /* filters [out, in, height, width]: cosine functions and their negatives */
    INITIAL_UNIFORM, /* +-initial_scale */
    INITIAL_SINCOS   /* fixed sin-cos position embeddings of `grid`, [1, rows, width] */
};

enum { TENSOR_NAME = 64, TENSOR_DIMENSIONS = 4 };

struct unit_tensor {
    char name[TENSOR_NAME]; /* as timm or torchvision: "blocks.0.attn.qkv.weight" */
    int dimensions;
    int64_t shape[TENSOR_DIMENSIONS];
    int64_t count;  /* elements */
    int64_t offset; /* of the first element in the unit's flat buffer; a multiple of 16 */
    enum tensor_kind kind;
    int depth; /* for layer-wise decay: the unit's number, unless the model sets another */
    /* Weight decay. Models set false for norms, biases, class and register tokens, positions and
     * LayerScale. With optim.no_decay=off, model_apply_options sets true for all parameters. */
    bool decay;
    double rate_scale; /* factor of the learning rate; 1 without layer-wise decay */
    bool trainable;
    bool matrix; /* Muon orthogonalizes the update */
    bool adapts; /* LAMB, LARS: the step is multiplied by the tensor's trust ratio */
    enum initial_rule initial;
    double initial_scale;
    /* Position embeddings: rows and columns of patches; shape[1] counts class and register tokens,
     * if they have positions, and then the patches. Other tensors: 0. */
    int64_t grid[2];
    uint32_t index; /* number of the tensor in the model: key of its random initial values */
};

struct unit {
    char name[TENSOR_NAME]; /* "stem", "blocks.0", "head" */
    int depth;              /* for layer-wise decay: 0 is closest to the input */
    struct unit_tensor *tensors;
    int tensor_count;
    int64_t count; /* elements from the first tensor to the end of the last, gaps included */
};

/* Draws initial values of elements first..first + count - 1 of the tensor. `first` must be a
 * multiple of 4. The value of an element is a function of the seed, the tensor and the element's
 * index, so any rank can draw any part, and the weights do not depend on the mesh. */
void initial_draw(const struct unit_tensor *tensor, uint64_t seed, int64_t first, int64_t count,
                  float *values);

#endif
