// SPDX-License-Identifier: BSD-3-Clause
/* Weights, dropouts, norms and linear layers of a Vision Transformer's units, for its passes. */
#ifndef VITTRAIN_MODEL_VIT_LAYERS_H
#define VITTRAIN_MODEL_VIT_LAYERS_H

#include "model/vit.h"

/* Numbers of the dropouts of block 0, which key their random numbers. Number 0 is the embedding's.
 */
enum {
    DROPOUT_ATTENTION = 1,
    DROPOUT_PROJECTION,
    DROPOUT_HIDDEN,
    DROPOUT_OUT,
    DROPOUTS_PER_BLOCK = 4
};

/* A tensor of a unit and its gradient. NULL if the unit has no such tensor; the gradient also if it
 * is frozen. */
const void *vit_weight(const struct vit *vit, const struct model_pass *pass, int unit,
                       enum vit_tensor which);
float *vit_gradient(const struct vit *vit, const struct model_pass *pass, int unit,
                    enum vit_tensor which);

/* Dropout number `layer`, or none in evaluations. */
struct dropout vit_dropout(const struct model_pass *pass, double rate, uint32_t layer);

/* Elementwise dropout number `site` of a block; see vit_shape.drop_elements for the rates. The
 * attention pool has none. */
struct dropout vit_block_dropout(const struct vit *vit, const struct model_pass *pass, int unit,
                                 uint32_t site);

/* Stochastic depth (Huang et al. 2016) of a branch: the rate grows linearly with depth. */
struct dropout vit_block_drop_path(const struct vit *vit, const struct model_pass *pass, int unit,
                                   uint32_t site);

/* Run the norm with tensors `weight` and `weight + 1` (bias) of a unit, or its backward pass. */
void vit_norm(const struct vit *vit, const struct model_pass *pass, int unit,
              enum vit_tensor weight, int64_t rows, const void *x, void *y, float *mean,
              float *rstd);
void vit_norm_gradient(const struct vit *vit, const struct model_pass *pass, int unit,
                       enum vit_tensor weight, int64_t rows, const void *x, const float *mean,
                       const float *rstd, const void *dy, const void *add, float *add_sums,
                       void *dx);

/* Arguments of a linear layer with tensors `weight` and `weight + 1` (bias) of a unit. The caller
 * sets x, y and what else the layer needs. */
struct linear_forward vit_linear(const struct vit *vit, const struct model_pass *pass, int unit,
                                 enum vit_tensor weight, int64_t tokens, int64_t in, int64_t out);
struct linear_backward vit_linear_gradient(const struct vit *vit, const struct model_pass *pass,
                                           int unit, enum vit_tensor weight, int64_t tokens,
                                           int64_t in, int64_t out);

/* Return where another operation must add the column sums of the layer's dy, the gradient of the
 * bias, and remove it from the layer's arguments. Return NULL if the layer computes it. possible:
 * whether an operation that writes or reads dy can. */
float *vit_move_bias_gradient(const struct vit *vit, struct linear_backward *layer, bool possible);

/* vit_move_bias_gradient if dy is vit->dx, which the backward pass of the norm with this weight
 * adds to its result. */
float *vit_move_residual_bias_gradient(const struct vit *vit, const struct model_pass *pass,
                                       int unit, enum vit_tensor weight,
                                       struct linear_backward *layer);

#endif
