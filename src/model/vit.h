/* The vision transformer (Dosovitskiy et al. 2021), pre-norm: its shape, and inside the model room
 * its tensors and activations. Tensors are named as timm's, so that weights go back and forth. */
#ifndef VITTRAIN_MODEL_VIT_H
#define VITTRAIN_MODEL_VIT_H

#include "model/model.h"

/* All of it decided: no field means "default". */
struct vit_shape {
    int64_t image, channels, patch, dim, depth, heads, hidden, classes;
    double dropout, drop_path;
    bool qkv_bias, class_token, embed_norm, pool_mean;
    float norm_epsilon;
    /* As the reference's CIFAR model: positions, class token and biases start at zero, all products
     * at a normal of 0.02; dropout sits after the embedding, on attention and twice after the MLP,
     * and "drop path" is elementwise dropout on both branches. Otherwise as timm: dropout also
     * after the projection and the hidden layer, drop path drops whole branches, more in deeper
     * blocks. */
    bool reference;
};

/* Gives a model for this shape, or an error that says which numbers do not fit together. */
struct model *vit_open(const struct vit_shape *shape, struct device *device, enum data_type compute,
                       struct error *error);

/* Below: shared by vit.c (tensors), vit_activations.c and vit_pass.c (forward and backward). */

/* The tensors that a unit can have. A unit's slot holds the tensor's number, or -1. */
enum vit_tensor {
    VIT_CLASS_TOKEN,
    VIT_POSITION,
    VIT_PATCH_WEIGHT,
    VIT_PATCH_BIAS, /* stem */
    VIT_NORM1_WEIGHT,
    VIT_NORM1_BIAS, /* blocks; the stem's and the head's only norm */
    VIT_QKV_WEIGHT,
    VIT_QKV_BIAS,
    VIT_PROJ_WEIGHT,
    VIT_PROJ_BIAS,
    VIT_NORM2_WEIGHT,
    VIT_NORM2_BIAS,
    VIT_FC1_WEIGHT,
    VIT_FC1_BIAS,
    VIT_FC2_WEIGHT,
    VIT_FC2_BIAS,
    VIT_HEAD_WEIGHT,
    VIT_HEAD_BIAS, /* head */
    VIT_TENSORS
};

/* What a block's backward pass reads, [rows, ...] with rows = batch * tokens, and its output. In
 * evaluation all blocks share one of these; with model.recompute, all of it but the output. */
struct vit_block {
    void *norm1, *qkv, *attention, *middle, *norm2, *pre, *hidden, *out;
    float *mean1, *rstd1, *lse, *mean2, *rstd2;
};

struct vit {
    struct model model; /* first: a struct model is a struct vit */
    struct vit_shape shape;
    int64_t patches, tokens;
    int64_t batch;                                  /* of the last forward pass */
    int (*slot)[VIT_TENSORS];                       /* [unit_count] */
    struct vit_block *blocks;                       /* [depth] */
    int inner_unit;                                 /* whose values shared activations hold */
    void *selected;                                 /* [batch, dim]: the last block's residual */
    void *patch_rows, *patch_tokens, *embedded, *x; /* stem; x feeds block 0 */
    float *embed_mean, *embed_rstd;
    void *pooled, *normed; /* head */
    float *head_mean, *head_rstd;
    /* Gradients on their way. */
    void *dx, *dbranch, *dattention, *dspread, *dhidden, *dqkv, *dpooled, *dnormed;
};

/* How many tokens of a sample leave this unit. */
int64_t vit_tokens_after(const struct vit *vit, int unit);

void vit_activations(struct model *model, struct arena *arena, int64_t batch, bool training);
void vit_forward(struct model *model, const struct model_pass *pass, int unit);
void vit_backward(struct model *model, const struct model_pass *pass, int unit);
const void *vit_output(const struct model *model, int unit, int64_t *count);

#endif
