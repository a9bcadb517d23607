// SPDX-License-Identifier: BSD-3-Clause
/* The Vision Transformer (Dosovitskiy et al. 2021) with pre-norm blocks. Tensors have timm's names,
 * so that weights can be exchanged with it. */
#ifndef VITTRAIN_MODEL_VIT_H
#define VITTRAIN_MODEL_VIT_H

#include "config/model_options.h"
#include "model/model.h"

struct vit_shape {
    int64_t image, channels, patch, dim, depth, heads, classes;
    int64_t image_width; /* 0: equal to `image`, the height */
    int64_t hidden;      /* 0 in the table of models: 4 * dim */
    double dropout, drop_path;
    bool qkv_bias, class_token, embed_norm, pool_mean, pool_map;
    bool qk_norm; /* layer norm of the queries and keys of each head */
    int64_t registers;
    enum position_choice position; /* POSITION_AUTO: learned */
    bool norm_first;               /* last norm before the mean; vit_open sets it with pool_map */
    double layer_scale;            /* initial value of LayerScale; 0: none */
    bool swiglu; /* SwiGLU in the blocks; `hidden` is then the width of its output */
    bool gelu_tanh;
    float norm_epsilon;
    /* true: as the reference's CIFAR model. Positions, class token and biases start at zero,
     * weights from a normal of 0.02; dropout follows the embedding, the attention weights and
     * (twice) the MLP; drop_path is elementwise dropout on both branches. false: as timm. Dropout
     * also follows the projection and the hidden layer; drop_path drops whole branches, with a rate
     * that grows with depth. */
    bool reference;
};

/* Describe a model of this shape. Returns NULL and sets the error if its numbers do not fit
 * together. device may be NULL. The caller closes the model. */
struct model *vit_open(const struct vit_shape *shape, struct device *device, enum data_type compute,
                       struct error *error);

/* Its `shape` is a struct vit_shape. */
extern const struct model_type vit_type;

/* The rest is private to vit.c (tensors), vit_activations.c (memory) and vit_pass.c (passes). */

/* The tensors of a unit. vit->slot maps each to its number in the unit, or to -1. */
enum vit_tensor {
    VIT_CLASS_TOKEN,
    VIT_REGISTERS,
    VIT_POSITION,
    VIT_PATCH_WEIGHT,
    VIT_PATCH_BIAS, /* stem */
    VIT_NORM1_WEIGHT,
    VIT_NORM1_BIAS, /* blocks; also the only norm of stem and head */
    VIT_LATENT,     /* attention pool, whose other tensors share the constants of a block */
    VIT_Q_WEIGHT,
    VIT_Q_BIAS,
    VIT_QKV_WEIGHT, /* attention pool: keys and values */
    VIT_QKV_BIAS,
    VIT_Q_NORM_WEIGHT,
    VIT_Q_NORM_BIAS,
    VIT_K_NORM_WEIGHT,
    VIT_K_NORM_BIAS,
    VIT_PROJ_WEIGHT,
    VIT_PROJ_BIAS,
    VIT_SCALE1,
    VIT_NORM2_WEIGHT,
    VIT_NORM2_BIAS,
    VIT_FC1_WEIGHT,
    VIT_FC1_BIAS,
    VIT_FC2_WEIGHT,
    VIT_FC2_BIAS,
    VIT_SCALE2,
    VIT_HEAD_WEIGHT,
    VIT_HEAD_BIAS, /* head */
    VIT_TENSORS
};

/* Activations of a block, [rows, ...] with rows = batch * tokens. All blocks share them in
 * evaluation, and all except `out` with model.recompute. */
struct vit_block {
    void *norm1, *qkv, *attention, *middle, *norm2, *pre, *hidden, *out;
    void *branch1, *branch2;  /* outputs of the branches before LayerScale; or NULL */
    void *qk;                 /* queries and keys before their norms, [2, rows, dim]; or NULL */
    float *qk_mean, *qk_rstd; /* [2, rows, heads]; or NULL */
    float *mean1, *rstd1, *lse, *mean2, *rstd2;
};

struct vit {
    struct model model; /* first: a struct model is a struct vit */
    struct vit_shape shape;
    int64_t grid[2]; /* rows and columns of patches */
    int64_t patches, tokens;
    int64_t unplaced;         /* tokens before the first one with a position embedding */
    int64_t batch;            /* of the last forward pass */
    int (*slot)[VIT_TENSORS]; /* [unit_count] */
    struct vit_block *blocks; /* [depth + 1]; the last one is the attention pool */
    int inner_unit;           /* unit that last wrote the shared activations */
    void *selected;           /* [batch, dim]: residual of the last block, class token only */
    void *patch_rows, *patch_tokens, *embedded, *x; /* stem; x feeds block 0 */
    float *embed_mean, *embed_rstd;
    void *pooled, *normed; /* head; pooled: input of the norm or, with norm_first, its output */
    void *query, *kv;      /* attention pool: [dim]; [rows, 2, dim], also its gradient */
    float *head_mean, *head_rstd;
    /* Gradients of activations. */
    void *dx, *dbranch, *dattention, *dspread, *dhidden, *dqkv, *dpooled, *dnormed;
    void *dquery; /* [batch, dim]: a row for each sample */
};

/* True if the head reads all patches (mean or attention pool), not only the class token. */
bool vit_pools(const struct vit_shape *shape);

/* Return the output width of fc1: twice `hidden` with SwiGLU. */
int64_t vit_fc1_width(const struct vit_shape *shape);

/* Tokens per sample in the output of a unit: 1 for the last block if the head reads only the class
 * token, and for the head. */
int64_t vit_tokens_after(const struct vit *vit, int unit);

void vit_activations(struct model *model, struct arena *arena, int64_t batch, bool training);
void vit_forward(struct model *model, const struct model_pass *pass, int unit);
void vit_backward(struct model *model, const struct model_pass *pass, int unit);
const void *vit_output(const struct model *model, int unit, int64_t *count);

#endif
