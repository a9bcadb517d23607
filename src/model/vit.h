// SPDX-License-Identifier: BSD-3-Clause
/* The Vision Transformer (Dosovitskiy et al. 2021) with pre-norm blocks. Tensors have timm's names,
 * so that weights can be exchanged with it. */
#ifndef VITTRAIN_MODEL_VIT_H
#define VITTRAIN_MODEL_VIT_H

#include "model/model.h"
#include "options/option_types.h"

struct vit_shape {
    int64_t image, channels, patch, dim, depth, heads, classes;
    int64_t image_width; /* 0: equal to `image`, the height */
    int64_t hidden;      /* 0 in the table of models: 4 * dim */
    double dropout, drop_path;
    bool qkv_bias, class_token;
    bool embed_norm; /* layer norm after the position embeddings */
    bool pool_mean;  /* the head reads the mean of the patches */
    bool pool_map;   /* the head reads an attention pool; both false: the class token */
    bool qk_norm;    /* layer norm of the queries and keys of each head */
    bool dense;      /* the head has outputs for each pixel of each patch; instead of a pool */
    int64_t registers;
    enum position_choice position; /* POSITION_AUTO: learned */
    enum pad_choice pad;           /* PAD_AUTO: PAD_EDGE */
    bool norm_first;    /* last norm before the mean; vit_open sets it with pool_map and dense */
    double layer_scale; /* initial value of LayerScale; 0: none */
    bool swiglu;        /* SwiGLU in the blocks; `hidden` is then the width of its output */
    bool gelu_tanh;
    float norm_epsilon;
    /* Positions, tokens and the bias of the patch embedding start at zero, its weight from a
     * normal distribution with standard deviation 0.02; else as in timm. */
    bool initial_zero;
    /* drop_path is elementwise dropout of the output of both branches, which replaces the dropout
     * after the attention's projection and after the hidden layer; else it drops whole branches,
     * with a rate that grows with depth. */
    bool drop_elements;
};

/* Describe a model of this shape. Returns NULL and sets the error if the shape is invalid. device:
 * where the attention must fit; NULL: not checked. The caller closes the model. */
struct model *vit_open(const struct vit_shape *shape, struct device *device, enum data_type compute,
                       struct error *error);

/* Its `shape` is a struct vit_shape. */
extern const struct model_type vit_type;

/* The rest is private to vit.c (tensors, memory) and vit_pass.c (passes). */

/* The tensors of units. vit->slot maps each to its number in the unit, or to -1. */
enum vit_tensor {
    /* stem */
    VIT_CLASS_TOKEN,
    VIT_REGISTERS,
    VIT_POSITION,
    VIT_PATCH_WEIGHT,
    VIT_PATCH_BIAS,
    /* norm of the stem and of the head; first norm of a block */
    VIT_NORM1_WEIGHT,
    VIT_NORM1_BIAS,
    /* attention pool only; its other tensors have the constants of a block */
    VIT_LATENT,
    VIT_Q_WEIGHT,
    VIT_Q_BIAS,
    /* blocks and attention pool, where QKV are the keys and values only */
    VIT_QKV_WEIGHT,
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
    /* classifier */
    VIT_HEAD_WEIGHT,
    VIT_HEAD_BIAS,
    VIT_TENSORS
};

/* Activations of a block. rows = batch * tokens; kept = batch * vit_tokens_after(unit of the
 * block). All blocks share them in evaluation, and all except `out` with model.recompute.
 * The attention pool has kept = batch and uses only qkv, attention to hidden, lse, mean2 and rstd2;
 * its `out` is vit->normed. */
struct vit_block {
    void *norm1;                      /* [rows, dim] */
    void *qkv;                        /* [rows, 3, dim] */
    void *attention, *middle, *norm2; /* [kept, dim] */
    void *pre;                        /* [kept, hidden; twice with SwiGLU]: output of fc1 */
    void *hidden;                     /* [kept, hidden]: input of fc2 */
    void *out;                        /* [kept, dim] */
    void *branch1, *branch2;          /* [kept, dim]: branches before LayerScale; or NULL */
    /* In training: */
    void *qk;                 /* [2, rows, dim]: queries and keys before their norms; or NULL */
    float *qk_mean, *qk_rstd; /* [2, rows, heads]; or NULL */
    float *mean1, *rstd1;     /* [rows] */
    float *lse;               /* [batch, heads, kept / batch]: log-sum-exp of the attention */
    float *mean2, *rstd2;     /* [kept] */
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
    /* Stem; rows as in struct vit_block. */
    void *patch_rows;               /* [batch * patches, channels * patch * patch] */
    void *patch_tokens;             /* [batch * patches, dim] */
    void *embedded;                 /* [rows, dim]: input of the norm; without a norm equal to x */
    float *embed_mean, *embed_rstd; /* [rows], with embed_norm */
    void *x;                        /* [rows, dim]: input of block 0 */
    /* Head. */
    void *pooled; /* [batch, dim]: the mean; with norm_first [rows, dim]: output of the norm */
    void *normed; /* [batch, dim]: input of the classifier */
    void *dense;  /* [rows, width of the head]: output of a dense head, later its gradient */
    float *head_mean, *head_rstd; /* [batch], with norm_first [rows] */
    /* Attention pool. */
    void *query; /* [dim] */
    void *kv;    /* [rows, 2, dim]: keys and values, later their gradient */
    /* Gradients of activations. */
    void *dx, *dbranch, *dattention; /* [rows, dim] */
    void *dspread;                   /* [rows, dim], if the head reads only the class token */
    void *dhidden;                   /* [rows, hidden] */
    void *dqkv;                      /* [rows, 3, dim] */
    void *dpooled, *dnormed;         /* [batch, dim] */
    void *dquery;                    /* [batch, dim], one row for each sample */
};

/* Tokens per sample in the output of a unit: 1 for the last block if the head reads only the class
 * token, and for the head. */
int64_t vit_tokens_after(const struct vit *vit, int unit);

void vit_forward(struct model *model, const struct model_pass *pass, int unit);
void vit_backward(struct model *model, const struct model_pass *pass, int unit);
const void *vit_output(const struct model *model, int unit, int64_t *count);

#endif
