// SPDX-License-Identifier: BSD-3-Clause
/* Forward and backward pass of the Vision Transformer, unit by unit. Each block keeps the
 * activations that its backward pass reads, or recomputes them there (model.recompute). A block:
 *   norm1 = N(x);  middle = x + drop(scale1 * proj(attention(qkv(norm1))));
 *   norm2 = N(middle);  out = middle + drop(scale2 * fc2(gelu(fc1(norm2))))
 * If the head reads only the class token, the last block computes only that token after the
 * attention. */
#include "model/vit.h"

#include <math.h>

/* Numbers of the dropouts of block 0, which key their random numbers. Number 0 is the embedding's.
 */
enum {
    DROPOUT_ATTENTION = 1,
    DROPOUT_PROJECTION,
    DROPOUT_HIDDEN,
    DROPOUT_OUT,
    DROPOUTS_PER_BLOCK = 4
};

/* ---- weights, dropouts, norms and linear layers of units */

/* A tensor of a unit and its gradient. NULL if the unit has no such tensor; the gradient also if it
 * is frozen. */
static const void *vit_weight(const struct vit *vit, const struct model_pass *pass, int unit,
                              enum vit_tensor which)
{
    int slot = vit->slot[unit][which];
    return slot < 0 ? NULL : flat_weight(pass->flat, unit, slot);
}

static float *vit_gradient(const struct vit *vit, const struct model_pass *pass, int unit,
                           enum vit_tensor which)
{
    int slot = vit->slot[unit][which];
    return slot < 0 ? NULL : flat_gradient(pass->flat, unit, slot);
}

/* Dropout number `layer`, or none in evaluations. */
static struct dropout vit_dropout(const struct model_pass *pass, double rate, uint32_t layer)
{
    return (struct dropout){.rate = pass->training ? (float)rate : 0,
                            .seed = pass->seed,
                            .layer = layer,
                            .params = pass->params};
}

/* Elementwise dropout number `site` of a block; see vit_shape.drop_elements for the rates. The
 * attention pool has none. */
static struct dropout vit_block_dropout(const struct vit *vit, const struct model_pass *pass,
                                        int unit, uint32_t site)
{
    const struct vit_shape *shape = &vit->shape;
    double rate = shape->dropout;
    if (unit > (int)shape->depth)
        return (struct dropout){.rate = 0};
    if (shape->drop_elements && site == DROPOUT_PROJECTION)
        rate = shape->drop_path;
    if (shape->drop_elements && site == DROPOUT_HIDDEN)
        rate = 0;
    /* Two consecutive dropouts equal one whose keep rate is the product of both. */
    if (shape->drop_elements && site == DROPOUT_OUT)
        rate = 1 - (1 - shape->dropout) * (1 - shape->drop_path);
    return vit_dropout(pass, rate, (uint32_t)(unit - 1) * DROPOUTS_PER_BLOCK + site);
}

/* Stochastic depth (Huang et al. 2016) of a branch: the rate grows linearly with depth. */
static struct dropout vit_block_drop_path(const struct vit *vit, const struct model_pass *pass,
                                          int unit, uint32_t site)
{
    const struct vit_shape *shape = &vit->shape;
    double depth = (double)(shape->depth > 1 ? shape->depth - 1 : 1);
    bool none = shape->drop_elements || unit > (int)shape->depth;
    double rate = none ? 0 : shape->drop_path * (unit - 1) / depth;
    return vit_dropout(pass, rate, (uint32_t)(unit - 1) * DROPOUTS_PER_BLOCK + site);
}

/* Run the norm with tensors `weight` and `weight + 1` (bias) of a unit, or its backward pass. */
static void vit_norm(const struct vit *vit, const struct model_pass *pass, int unit,
                     enum vit_tensor weight, int64_t rows, const void *x, void *y, float *mean,
                     float *rstd)
{
    MODEL_RUN(vit, pass, norm_forward, .rows = rows, .width = vit->shape.dim,
              .epsilon = vit->shape.norm_epsilon, .x = x,
              .gamma = vit_weight(vit, pass, unit, weight),
              .beta = vit_weight(vit, pass, unit, weight + 1), .y = y,
              .mean = pass->training ? mean : NULL, .rstd = pass->training ? rstd : NULL);
}

static void vit_norm_gradient(const struct vit *vit, const struct model_pass *pass, int unit,
                              enum vit_tensor weight, int64_t rows, const void *x,
                              const float *mean, const float *rstd, const void *dy, const void *add,
                              float *add_sums, void *dx)
{
    MODEL_RUN(vit, pass, norm_backward, .rows = rows, .width = vit->shape.dim, .x = x,
              .gamma = vit_weight(vit, pass, unit, weight), .dy = dy, .mean = mean, .rstd = rstd,
              .add = add, .dx = dx, .dgamma = vit_gradient(vit, pass, unit, weight),
              .dbeta = vit_gradient(vit, pass, unit, weight + 1), .add_sums = add_sums,
              .overwrite = flat_overwrites_gradient(pass->flat, unit));
}

/* Arguments of a linear layer with tensors `weight` and `weight + 1` (bias) of a unit. The caller
 * sets x, y and what else the layer needs. */
static struct linear_forward vit_linear(const struct vit *vit, const struct model_pass *pass,
                                        int unit, enum vit_tensor weight, int64_t tokens,
                                        int64_t in, int64_t out)
{
    return (struct linear_forward){.type = vit->model.compute,
                                   .rows = pass->batch * tokens,
                                   .in = in,
                                   .out = out,
                                   .rows_per_sample = tokens,
                                   .weight = vit_weight(vit, pass, unit, weight),
                                   .bias = vit_weight(vit, pass, unit, weight + 1)};
}

static struct linear_backward vit_linear_gradient(const struct vit *vit,
                                                  const struct model_pass *pass, int unit,
                                                  enum vit_tensor weight, int64_t tokens,
                                                  int64_t in, int64_t out)
{
    return (struct linear_backward){.type = vit->model.compute,
                                    .rows = pass->batch * tokens,
                                    .in = in,
                                    .out = out,
                                    .rows_per_sample = tokens,
                                    .weight = vit_weight(vit, pass, unit, weight),
                                    .dweight = vit_gradient(vit, pass, unit, weight),
                                    .dbias = vit_gradient(vit, pass, unit, weight + 1),
                                    .overwrite = flat_overwrites_gradient(pass->flat, unit)};
}

/* Run such a layer, or its backward pass, with nothing else. */
static void vit_linear_run(const struct vit *vit, const struct model_pass *pass, int unit,
                           enum vit_tensor weight, int64_t tokens, int64_t in, int64_t out,
                           const void *x, void *y)
{
    struct linear_forward layer = vit_linear(vit, pass, unit, weight, tokens, in, out);
    layer.x = x;
    layer.y = y;
    vit->model.device->backend->linear_forward(pass->stream, &layer);
}

static void vit_linear_gradient_run(const struct vit *vit, const struct model_pass *pass, int unit,
                                    enum vit_tensor weight, int64_t tokens, int64_t in, int64_t out,
                                    const void *x, const void *dy, void *dx)
{
    struct linear_backward layer = vit_linear_gradient(vit, pass, unit, weight, tokens, in, out);
    layer.x = x;
    layer.dy = dy;
    layer.dx = dx;
    vit->model.device->backend->linear_backward(pass->stream, &layer);
}

/* Return where another operation must add the column sums of the layer's dy, the gradient of the
 * bias, and remove it from the layer's arguments. Return NULL if the layer computes it. possible:
 * whether an operation that writes or reads dy can. */
static float *vit_move_bias_gradient(const struct vit *vit, struct linear_backward *layer,
                                     bool possible)
{
    float *dbias = layer->dbias;
    if (!possible || !vit->model.device->backend->sums_gradients)
        return NULL;
    layer->dbias = NULL;
    return dbias;
}

/* vit_move_bias_gradient if dy is vit->dx, which the backward pass of the norm with this weight
 * adds to its result. */
static float *vit_move_residual_bias_gradient(const struct vit *vit, const struct model_pass *pass,
                                              int unit, enum vit_tensor weight,
                                              struct linear_backward *layer)
{
    return vit_move_bias_gradient(
        vit, layer, layer->dy == vit->dx && vit_gradient(vit, pass, unit, weight) != NULL);
}

/* ---- stem and blocks */

static void stem_forward(struct vit *vit, const struct model_pass *pass)
{
    const struct vit_shape *shape = &vit->shape;
    MODEL_RUN(vit, pass, patches_forward, .batch = pass->batch, .channels = shape->channels,
              .height = vit->model.image.height, .width = vit->model.image.width,
              .patch = shape->patch, .images = pass->images, .rows = vit->patch_rows);
    vit_linear_run(vit, pass, 0, VIT_PATCH_WEIGHT, vit->patches,
                   shape->channels * shape->patch * shape->patch, shape->dim, vit->patch_rows,
                   vit->patch_tokens);
    MODEL_RUN(vit, pass, tokens_forward, .batch = pass->batch, .tokens = vit->tokens,
              .width = shape->dim, .registers = shape->registers, .unplaced = vit->unplaced,
              .patches = vit->patch_tokens,
              .class_token = vit_weight(vit, pass, 0, VIT_CLASS_TOKEN),
              .register_tokens = vit_weight(vit, pass, 0, VIT_REGISTERS),
              .position = vit_weight(vit, pass, 0, VIT_POSITION), .x = vit->embedded);
    if (shape->embed_norm)
        vit_norm(vit, pass, 0, VIT_NORM1_WEIGHT, pass->batch * vit->tokens, vit->embedded, vit->x,
                 vit->embed_mean, vit->embed_rstd);
    MODEL_RUN(vit, pass, dropout_apply, .rows = pass->batch * vit->tokens, .width = shape->dim,
              .rows_per_sample = vit->tokens, .x = vit->x, .y = vit->x,
              .dropout = vit_dropout(pass, shape->dropout, 0));
}

static void stem_backward(struct vit *vit, const struct model_pass *pass)
{
    const struct vit_shape *shape = &vit->shape;
    MODEL_RUN(vit, pass, dropout_apply, .rows = pass->batch * vit->tokens, .width = shape->dim,
              .rows_per_sample = vit->tokens, .x = vit->dx, .y = vit->dx,
              .dropout = vit_dropout(pass, shape->dropout, 0));
    if (shape->embed_norm)
        vit_norm_gradient(vit, pass, 0, VIT_NORM1_WEIGHT, pass->batch * vit->tokens, vit->embedded,
                          vit->embed_mean, vit->embed_rstd, vit->dx, NULL, NULL, vit->dx);
    MODEL_RUN(vit, pass, tokens_backward, .batch = pass->batch, .tokens = vit->tokens,
              .width = shape->dim, .registers = shape->registers, .unplaced = vit->unplaced,
              .class_token = shape->class_token, .dx = vit->dx, .dpatches = vit->patch_tokens,
              .dclass_token = vit_gradient(vit, pass, 0, VIT_CLASS_TOKEN),
              .dregister_tokens = vit_gradient(vit, pass, 0, VIT_REGISTERS),
              .dposition = vit_gradient(vit, pass, 0, VIT_POSITION),
              .overwrite = flat_overwrites_gradient(pass->flat, 0));
    vit_linear_gradient_run(vit, pass, 0, VIT_PATCH_WEIGHT, vit->patches,
                            shape->channels * shape->patch * shape->patch, shape->dim,
                            vit->patch_rows, vit->patch_tokens, NULL);
}

/* The residual input of a block: x, or its rows of the class token. */
static const void *block_residual(struct vit *vit, const struct model_pass *pass, int unit,
                                  const void *x)
{
    if (vit_tokens_after(vit, unit) == vit->tokens)
        return x;
    MODEL_RUN(vit, pass, pool_forward, .batch = pass->batch, .tokens = vit->tokens,
              .width = vit->shape.dim, .x = x, .y = vit->selected);
    return vit->selected;
}

/* middle = residual + drop(scale1 * proj(attention(qkv))) */
static void attention_out(struct vit *vit, const struct model_pass *pass, int unit,
                          const void *residual)
{
    const struct vit_shape *shape = &vit->shape;
    const struct device_backend *backend = vit->model.device->backend;
    struct vit_block *block = &vit->blocks[unit - 1];
    int64_t head_dim = shape->dim / shape->heads, kept = vit_tokens_after(vit, unit);
    MODEL_RUN(vit, pass, attention_forward, .batch = pass->batch, .tokens = vit->tokens,
              .queries = kept, .heads = shape->heads, .head_dim = head_dim,
              .scale = 1 / sqrtf((float)head_dim), .qkv = block->qkv, .out = block->attention,
              .lse = pass->training ? block->lse : NULL,
              .dropout = vit_block_dropout(vit, pass, unit, DROPOUT_ATTENTION));
    struct linear_forward projection =
        vit_linear(vit, pass, unit, VIT_PROJ_WEIGHT, kept, shape->dim, shape->dim);
    projection.x = block->attention;
    projection.residual = residual;
    projection.scale = vit_weight(vit, pass, unit, VIT_SCALE1);
    projection.pre = block->branch1;
    projection.y = block->middle;
    projection.dropout = vit_block_dropout(vit, pass, unit, DROPOUT_PROJECTION);
    projection.drop_path = vit_block_drop_path(vit, pass, unit, DROPOUT_PROJECTION);
    backend->linear_forward(pass->stream, &projection);
}

/* Normalise the queries and keys of each head in place. Training keeps their inputs, means and
 * reciprocal standard deviations. */
static void qk_norm(struct vit *vit, const struct model_pass *pass, int unit)
{
    const struct vit_shape *shape = &vit->shape;
    struct vit_block *block = &vit->blocks[unit - 1];
    const size_t size = type_size(vit->model.compute);
    const int64_t head_rows = pass->batch * vit->tokens * shape->heads;
    for (int key = 0; key < 2 && shape->qk_norm; key++) {
        const enum vit_tensor weight = key ? VIT_K_NORM_WEIGHT : VIT_Q_NORM_WEIGHT;
        char *x = (char *)block->qkv + (size_t)(key * shape->dim) * size;
        struct norm_forward args = {.type = vit->model.compute,
                                    .rows = head_rows,
                                    .width = shape->dim / shape->heads,
                                    .group = shape->heads,
                                    .stride = 3 * shape->dim,
                                    .epsilon = shape->norm_epsilon,
                                    .x = x,
                                    .gamma = vit_weight(vit, pass, unit, weight),
                                    .beta = vit_weight(vit, pass, unit, weight + 1),
                                    .y = x};
        if (pass->training) {
            args.kept = (char *)block->qk + (size_t)(key * head_rows * args.width) * size;
            args.mean = block->qk_mean + key * head_rows;
            args.rstd = block->qk_rstd + key * head_rows;
        }
        vit->model.device->backend->norm_forward(pass->stream, &args);
    }
}

/* Replace the gradients of the normalised queries and keys by the gradients of the norms' inputs.
 */
static void qk_norm_gradient(struct vit *vit, const struct model_pass *pass, int unit)
{
    const struct vit_shape *shape = &vit->shape;
    struct vit_block *block = &vit->blocks[unit - 1];
    const size_t size = type_size(vit->model.compute);
    const int64_t width = shape->dim / shape->heads;
    const int64_t head_rows = pass->batch * vit->tokens * shape->heads;
    for (int key = 0; key < 2 && shape->qk_norm; key++) {
        const enum vit_tensor weight = key ? VIT_K_NORM_WEIGHT : VIT_Q_NORM_WEIGHT;
        char *dy = (char *)vit->dqkv + (size_t)(key * shape->dim) * size;
        MODEL_RUN(vit, pass, norm_backward, .rows = head_rows, .width = width,
                  .group = shape->heads, .stride = 3 * shape->dim,
                  .x = (char *)block->qk + (size_t)(key * head_rows * width) * size,
                  .gamma = vit_weight(vit, pass, unit, weight), .dy = dy,
                  .mean = block->qk_mean + key * head_rows,
                  .rstd = block->qk_rstd + key * head_rows, .dx = dy,
                  .dgamma = vit_gradient(vit, pass, unit, weight),
                  .dbeta = vit_gradient(vit, pass, unit, weight + 1),
                  .overwrite = flat_overwrites_gradient(pass->flat, unit));
    }
}

/* Rotate queries and keys; with `inverse` rotate their gradients back. */
static void heads_rotate(const struct vit *vit, const struct model_pass *pass, void *qkv,
                         bool inverse)
{
    const struct vit_shape *shape = &vit->shape;
    if (shape->position == POSITION_ROTARY)
        MODEL_RUN(vit, pass, rotary, .batch = pass->batch, .tokens = vit->tokens,
                  .grid = {vit->grid[0], vit->grid[1]}, .heads = shape->heads,
                  .head_dim = shape->dim / shape->heads, .temperature = 100, .inverse = inverse,
                  .qkv = qkv);
}

/* middle = x + drop(scale1 * proj(attention(qkv(norm1(x))))) */
static void attention_branch(struct vit *vit, const struct model_pass *pass, int unit,
                             const void *x)
{
    const struct vit_shape *shape = &vit->shape;
    struct vit_block *block = &vit->blocks[unit - 1];
    vit_norm(vit, pass, unit, VIT_NORM1_WEIGHT, pass->batch * vit->tokens, x, block->norm1,
             block->mean1, block->rstd1);
    vit_linear_run(vit, pass, unit, VIT_QKV_WEIGHT, vit->tokens, shape->dim, 3 * shape->dim,
                   block->norm1, block->qkv);
    qk_norm(vit, pass, unit);
    heads_rotate(vit, pass, block->qkv, false);
    attention_out(vit, pass, unit, block_residual(vit, pass, unit, x));
}

/* Apply the dropout of the hidden layer in place. */
static void hidden_dropout(struct vit *vit, const struct model_pass *pass, int unit, void *hidden)
{
    int64_t kept = vit_tokens_after(vit, unit);
    const struct dropout dropout = vit_block_dropout(vit, pass, unit, DROPOUT_HIDDEN);
    if (dropout.rate > 0)
        MODEL_RUN(vit, pass, dropout_apply, .rows = pass->batch * kept, .width = vit->shape.hidden,
                  .rows_per_sample = kept, .x = hidden, .y = hidden, .dropout = dropout);
}

/* hidden = gelu(fc1(norm2(middle))); with SwiGLU silu(a) * b, where a and b are the halves of fc1's
 * output */
static void mlp_hidden(struct vit *vit, const struct model_pass *pass, int unit)
{
    const struct vit_shape *shape = &vit->shape;
    const struct device_backend *backend = vit->model.device->backend;
    struct vit_block *block = &vit->blocks[unit - 1];
    int64_t kept = vit_tokens_after(vit, unit);
    vit_norm(vit, pass, unit, VIT_NORM2_WEIGHT, pass->batch * kept, block->middle, block->norm2,
             block->mean2, block->rstd2);
    struct linear_forward fc1 =
        vit_linear(vit, pass, unit, VIT_FC1_WEIGHT, kept, shape->dim, vit_fc1_width(shape));
    fc1.x = block->norm2;
    if (shape->swiglu) {
        fc1.y = block->pre;
        backend->linear_forward(pass->stream, &fc1);
        MODEL_RUN(vit, pass, glu_forward, .rows = pass->batch * kept, .width = shape->hidden,
                  .x = block->pre, .y = block->hidden);
        hidden_dropout(vit, pass, unit, block->hidden);
        return;
    }
    fc1.pre = block->pre;
    fc1.gelu_tanh = shape->gelu_tanh;
    fc1.y = block->hidden;
    fc1.dropout = vit_block_dropout(vit, pass, unit, DROPOUT_HIDDEN);
    backend->linear_forward(pass->stream, &fc1);
}

/* out = middle + drop(scale2 * fc2(hidden)) */
static void mlp_out(struct vit *vit, const struct model_pass *pass, int unit)
{
    const struct vit_shape *shape = &vit->shape;
    struct vit_block *block = &vit->blocks[unit - 1];
    struct linear_forward fc2 = vit_linear(vit, pass, unit, VIT_FC2_WEIGHT,
                                           vit_tokens_after(vit, unit), shape->hidden, shape->dim);
    fc2.x = block->hidden;
    fc2.residual = block->middle;
    fc2.scale = vit_weight(vit, pass, unit, VIT_SCALE2);
    fc2.pre = block->branch2;
    fc2.y = block->out;
    fc2.dropout = vit_block_dropout(vit, pass, unit, DROPOUT_OUT);
    fc2.drop_path = vit_block_drop_path(vit, pass, unit, DROPOUT_OUT);
    vit->model.device->backend->linear_forward(pass->stream, &fc2);
}

/* Return the gradient of a branch's output before LayerScale and dropout: `dx` if the branch has
 * neither. The gradient of the LayerScale factors is added to theirs. */
static const void *branch_gradient(struct vit *vit, const struct model_pass *pass, int unit,
                                   uint32_t site, const void *dx)
{
    const struct vit_block *block = &vit->blocks[unit - 1];
    const bool last = site == DROPOUT_OUT;
    int64_t kept = vit_tokens_after(vit, unit);
    const enum vit_tensor which = last ? VIT_SCALE2 : VIT_SCALE1;
    const void *scale = vit_weight(vit, pass, unit, which);
    const struct dropout dropout = vit_block_dropout(vit, pass, unit, site);
    const struct dropout drop_path = vit_block_drop_path(vit, pass, unit, site);
    if (scale != NULL)
        MODEL_RUN(vit, pass, scale_backward, .rows = pass->batch * kept, .width = vit->shape.dim,
                  .rows_per_sample = kept, .pre = last ? block->branch2 : block->branch1, .dy = dx,
                  .scale = scale, .dx = vit->dbranch,
                  .dscale = vit_gradient(vit, pass, unit, which),
                  .overwrite = flat_overwrites_gradient(pass->flat, unit), .dropout = dropout,
                  .drop_path = drop_path);
    else if (dropout.rate > 0 || drop_path.rate > 0)
        MODEL_RUN(vit, pass, dropout_apply, .rows = pass->batch * kept, .width = vit->shape.dim,
                  .rows_per_sample = kept, .x = dx, .y = vit->dbranch, .dropout = dropout,
                  .drop_path = drop_path);
    else
        return dx;
    return vit->dbranch;
}

/* vit->dx: in, the gradient of `out`; out, the gradient of `middle`. */
static void mlp_branch_backward(struct vit *vit, const struct model_pass *pass, int unit)
{
    const struct vit_shape *shape = &vit->shape;
    const struct device_backend *backend = vit->model.device->backend;
    struct vit_block *block = &vit->blocks[unit - 1];
    int64_t kept = vit_tokens_after(vit, unit);
    struct linear_backward fc1 = vit_linear_gradient(vit, pass, unit, VIT_FC1_WEIGHT, kept,
                                                     shape->dim, vit_fc1_width(shape));
    struct linear_backward fc2 =
        vit_linear_gradient(vit, pass, unit, VIT_FC2_WEIGHT, kept, shape->hidden, shape->dim);
    fc2.x = block->hidden;
    fc2.dy = branch_gradient(vit, pass, unit, DROPOUT_OUT, vit->dx);
    fc2.pre = shape->swiglu ? NULL : block->pre;
    fc2.gelu_tanh = shape->gelu_tanh;
    fc2.dx = vit->dhidden;
    fc2.dx_sums = vit_move_bias_gradient(vit, &fc1, fc2.pre != NULL);
    float *dx_sums = vit_move_residual_bias_gradient(vit, pass, unit, VIT_NORM2_WEIGHT, &fc2);
    fc2.dropout = vit_block_dropout(vit, pass, unit, DROPOUT_HIDDEN);
    backend->linear_backward(pass->stream, &fc2);
    if (shape->swiglu) {
        hidden_dropout(vit, pass, unit, vit->dhidden);
        MODEL_RUN(vit, pass, glu_backward, .rows = pass->batch * kept, .width = shape->hidden,
                  .x = block->pre, .dy = vit->dhidden, .dx = block->pre);
    }
    fc1.x = block->norm2;
    fc1.dy = shape->swiglu ? block->pre : vit->dhidden;
    fc1.dx = vit->dbranch;
    backend->linear_backward(pass->stream, &fc1);
    vit_norm_gradient(vit, pass, unit, VIT_NORM2_WEIGHT, pass->batch * kept, block->middle,
                      block->mean2, block->rstd2, vit->dbranch, vit->dx, dx_sums, vit->dx);
}

/* vit->dx: the gradient of `middle`. Writes vit->dqkv, and its column sums unless dqkv_sums is
 * NULL. Return where the norm that follows must add the column sums of vit->dx, or NULL.
 * norm_follows: whether there is one. */
static float *attention_out_backward(struct vit *vit, const struct model_pass *pass, int unit,
                                     float *dqkv_sums, bool norm_follows)
{
    const struct vit_shape *shape = &vit->shape;
    const struct device_backend *backend = vit->model.device->backend;
    struct vit_block *block = &vit->blocks[unit - 1];
    int64_t head_dim = shape->dim / shape->heads, kept = vit_tokens_after(vit, unit);
    struct linear_backward projection =
        vit_linear_gradient(vit, pass, unit, VIT_PROJ_WEIGHT, kept, shape->dim, shape->dim);
    projection.x = block->attention;
    projection.dy = branch_gradient(vit, pass, unit, DROPOUT_PROJECTION, vit->dx);
    projection.dx = vit->dattention;
    float *dx_sums = norm_follows ? vit_move_residual_bias_gradient(vit, pass, unit,
                                                                    VIT_NORM1_WEIGHT, &projection)
                                  : NULL;
    backend->linear_backward(pass->stream, &projection);
    MODEL_RUN(vit, pass, attention_backward, .batch = pass->batch, .tokens = vit->tokens,
              .queries = kept, .heads = shape->heads, .head_dim = head_dim,
              .scale = 1 / sqrtf((float)head_dim), .qkv = block->qkv, .out = block->attention,
              .dout = vit->dattention, .lse = block->lse, .dqkv = vit->dqkv, .dqkv_sums = dqkv_sums,
              .overwrite = projection.overwrite,
              .dropout = vit_block_dropout(vit, pass, unit, DROPOUT_ATTENTION));
    return dx_sums;
}

/* vit->dx: in, the gradient of `middle`; out, the gradient of the block's input x. */
static void attention_branch_backward(struct vit *vit, const struct model_pass *pass, int unit,
                                      const void *x)
{
    const struct vit_shape *shape = &vit->shape;
    const struct device_backend *backend = vit->model.device->backend;
    struct vit_block *block = &vit->blocks[unit - 1];
    int64_t kept = vit_tokens_after(vit, unit);
    struct linear_backward qkv = vit_linear_gradient(vit, pass, unit, VIT_QKV_WEIGHT, vit->tokens,
                                                     shape->dim, 3 * shape->dim);
    bool dqkv_changes = shape->position == POSITION_ROTARY || shape->qk_norm;
    float *dqkv_sums = vit_move_bias_gradient(vit, &qkv, !dqkv_changes);
    float *dx_sums = attention_out_backward(vit, pass, unit, dqkv_sums, true);
    heads_rotate(vit, pass, vit->dqkv, true);
    qk_norm_gradient(vit, pass, unit);
    qkv.x = block->norm1;
    qkv.dy = vit->dqkv;
    qkv.dx = vit->dbranch;
    backend->linear_backward(pass->stream, &qkv);
    const void *residual = vit->dx; /* gradient through the residual connection */
    if (kept < vit->tokens) {
        MODEL_RUN(vit, pass, pool_backward, .batch = pass->batch, .tokens = vit->tokens,
                  .width = shape->dim, .dy = vit->dx, .dx = vit->dspread);
        residual = vit->dspread;
    }
    vit_norm_gradient(vit, pass, unit, VIT_NORM1_WEIGHT, pass->batch * vit->tokens, x, block->mean1,
                      block->rstd1, vit->dbranch, residual, dx_sums, vit->dx);
}

/* y = mean of the patches of each sample of x */
static void mean_forward(struct vit *vit, const struct model_pass *pass, const void *x, void *y)
{
    MODEL_RUN(vit, pass, pool_forward, .batch = pass->batch, .tokens = vit->tokens,
              .width = vit->shape.dim, .first = vit->tokens - vit->patches, .mean = true, .x = x,
              .y = y);
}

static void mean_backward(struct vit *vit, const struct model_pass *pass, const void *dy, void *dx)
{
    MODEL_RUN(vit, pass, pool_backward, .batch = pass->batch, .tokens = vit->tokens,
              .width = vit->shape.dim, .first = vit->tokens - vit->patches, .mean = true, .dy = dy,
              .dx = dx);
}

/* middle = proj(attention(q(latent), kv(x))); normed = middle + fc2(gelu(fc1(norm2(middle)))).
 * The attention operation reads queries, keys and values from one tensor with a row per token. Each
 * row has a copy of the query; only that of the first token is used. */
static void attention_pool_forward(struct vit *vit, const struct model_pass *pass, int unit,
                                   const void *x)
{
    const struct vit_shape *shape = &vit->shape;
    const struct device_backend *backend = vit->model.device->backend;
    struct linear_forward q = vit_linear(vit, pass, unit, VIT_Q_WEIGHT, 1, shape->dim, shape->dim);
    q.rows = pass->batch > 0;
    q.x = vit_weight(vit, pass, unit, VIT_LATENT);
    q.y = vit->query;
    backend->linear_forward(pass->stream, &q);
    vit_linear_run(vit, pass, unit, VIT_QKV_WEIGHT, vit->tokens, shape->dim, 2 * shape->dim, x,
                   vit->kv);
    MODEL_RUN(vit, pass, tokens_forward, .batch = pass->batch * vit->tokens, .tokens = 3,
              .width = shape->dim, .unplaced = 3, .patches = vit->kv, .class_token = vit->query,
              .x = vit->blocks[unit - 1].qkv);
    attention_out(vit, pass, unit, NULL);
    mlp_hidden(vit, pass, unit);
    mlp_out(vit, pass, unit);
}

/* Gradients of q and the latent, from that of the query in vit->dqkv. It is nonzero only in the
 * first token of a sample. Each sample has a row, so that all gradients are sums over samples. */
static void query_backward(struct vit *vit, const struct model_pass *pass, int unit)
{
    const struct vit_shape *shape = &vit->shape;
    MODEL_RUN(vit, pass, pool_forward, .batch = pass->batch, .tokens = 3 * vit->tokens,
              .width = shape->dim, .x = vit->dqkv, .y = vit->dquery);
    /* Without patches: `patches` is not read. */
    MODEL_RUN(vit, pass, tokens_forward, .batch = pass->batch, .tokens = 1, .width = shape->dim,
              .unplaced = 1, .patches = vit->kv,
              .class_token = vit_weight(vit, pass, unit, VIT_LATENT), .x = vit->dattention);
    vit_linear_gradient_run(vit, pass, unit, VIT_Q_WEIGHT, 1, shape->dim, shape->dim,
                            vit->dattention, vit->dquery, vit->dnormed);
    /* Without patches: `dpatches` is not written. */
    MODEL_RUN(vit, pass, tokens_backward, .batch = pass->batch, .tokens = 1, .width = shape->dim,
              .unplaced = 1, .class_token = true, .dx = vit->dnormed, .dpatches = vit->kv,
              .dclass_token = vit_gradient(vit, pass, unit, VIT_LATENT),
              .overwrite = flat_overwrites_gradient(pass->flat, unit));
}

/* vit->dx: the gradient of `normed`. Writes the gradient of x to vit->dbranch. */
static void attention_pool_backward(struct vit *vit, const struct model_pass *pass, int unit,
                                    const void *x)
{
    const struct vit_shape *shape = &vit->shape;
    mlp_branch_backward(vit, pass, unit);
    attention_out_backward(vit, pass, unit, NULL, false);
    query_backward(vit, pass, unit);
    MODEL_RUN(vit, pass, tokens_backward, .batch = pass->batch * vit->tokens, .tokens = 3,
              .width = shape->dim, .unplaced = 3, .class_token = true, .dx = vit->dqkv,
              .dpatches = vit->kv, .overwrite = true);
    vit_linear_gradient_run(vit, pass, unit, VIT_QKV_WEIGHT, vit->tokens, shape->dim,
                            2 * shape->dim, x, vit->kv, vit->dbranch);
}

/* logits = the patches' rows of dense(N(x)), as images. The outputs of other tokens are not used.
 */
static void dense_forward(struct vit *vit, const struct model_pass *pass, int unit)
{
    const struct vit_shape *shape = &vit->shape;
    vit_linear_run(vit, pass, unit, VIT_HEAD_WEIGHT, vit->tokens, shape->dim, vit_head_width(shape),
                   vit->pooled, vit->dense);
    MODEL_RUN(vit, pass, patches_backward, .batch = pass->batch, .channels = shape->classes,
              .height = vit->model.image.height, .width = vit->model.image.width,
              .patch = shape->patch, .first = vit->tokens - vit->patches, .rows = vit->dense,
              .images = pass->logits);
}

/* Writes the gradient of N(x) to vit->dbranch. */
static void dense_backward(struct vit *vit, const struct model_pass *pass, int unit)
{
    const struct vit_shape *shape = &vit->shape;
    MODEL_RUN(vit, pass, patches_forward, .batch = pass->batch, .channels = shape->classes,
              .height = vit->model.image.height, .width = vit->model.image.width,
              .patch = shape->patch, .first = vit->tokens - vit->patches, .images = pass->logits,
              .rows = vit->dense);
    vit_linear_gradient_run(vit, pass, unit, VIT_HEAD_WEIGHT, vit->tokens, shape->dim,
                            vit_head_width(shape), vit->pooled, vit->dense, vit->dbranch);
}

/* logits = head(N(mean(x))), head(pool(N(x))) with norm_first, or head(N(class token)) */
static void head_forward(struct vit *vit, const struct model_pass *pass, int unit)
{
    const struct vit_shape *shape = &vit->shape;
    const void *x = vit->blocks[shape->depth - 1].out;
    if (shape->norm_first) {
        vit_norm(vit, pass, unit, VIT_NORM1_WEIGHT, pass->batch * vit->tokens, x, vit->pooled,
                 vit->head_mean, vit->head_rstd);
        if (shape->dense) {
            dense_forward(vit, pass, unit);
            return;
        }
        if (shape->pool_map)
            attention_pool_forward(vit, pass, unit, vit->pooled);
        else
            mean_forward(vit, pass, vit->pooled, vit->normed);
    } else {
        if (shape->pool_mean)
            mean_forward(vit, pass, x, vit->pooled);
        vit_norm(vit, pass, unit, VIT_NORM1_WEIGHT, pass->batch, shape->pool_mean ? vit->pooled : x,
                 vit->normed, vit->head_mean, vit->head_rstd);
    }
    vit_linear_run(vit, pass, unit, VIT_HEAD_WEIGHT, 1, shape->dim, shape->classes, vit->normed,
                   pass->logits);
}

static void head_backward(struct vit *vit, const struct model_pass *pass, int unit)
{
    const struct vit_shape *shape = &vit->shape;
    const void *x = vit->blocks[shape->depth - 1].out;
    if (shape->dense)
        dense_backward(vit, pass, unit);
    else
        vit_linear_gradient_run(vit, pass, unit, VIT_HEAD_WEIGHT, 1, shape->dim, shape->classes,
                                vit->normed, pass->logits,
                                shape->pool_map ? vit->dx : vit->dnormed);
    if (shape->norm_first) {
        if (shape->pool_map)
            attention_pool_backward(vit, pass, unit, vit->pooled);
        else if (!shape->dense)
            mean_backward(vit, pass, vit->dnormed, vit->dbranch);
        vit_norm_gradient(vit, pass, unit, VIT_NORM1_WEIGHT, pass->batch * vit->tokens, x,
                          vit->head_mean, vit->head_rstd, vit->dbranch, NULL, NULL, vit->dx);
        return;
    }
    vit_norm_gradient(vit, pass, unit, VIT_NORM1_WEIGHT, pass->batch,
                      shape->pool_mean ? vit->pooled : x, vit->head_mean, vit->head_rstd,
                      vit->dnormed, NULL, NULL, shape->pool_mean ? vit->dpooled : vit->dx);
    if (shape->pool_mean)
        mean_backward(vit, pass, vit->dpooled, vit->dx);
}

/* Input of a block: the stem's output for block 0, else the previous block's output. */
static const void *block_input(const struct vit *vit, int unit)
{
    return unit == 1 ? vit->x : vit->blocks[unit - 2].out;
}

/* Compute all activations of a block except its output. */
static void block_inner(struct vit *vit, const struct model_pass *pass, int unit)
{
    attention_branch(vit, pass, unit, block_input(vit, unit));
    mlp_hidden(vit, pass, unit);
    vit->inner_unit = unit;
}

void vit_forward(struct model *model, const struct model_pass *pass, int unit)
{
    struct vit *vit = (struct vit *)model;
    vit->batch = pass->batch;
    if (unit == 0) {
        stem_forward(vit, pass);
    } else if (unit <= vit->shape.depth) {
        block_inner(vit, pass, unit);
        mlp_out(vit, pass, unit);
    } else {
        head_forward(vit, pass, unit);
    }
}

void vit_backward(struct model *model, const struct model_pass *pass, int unit)
{
    struct vit *vit = (struct vit *)model;
    if (unit == 0) {
        stem_backward(vit, pass);
    } else if (unit <= vit->shape.depth) {
        if (model->recompute && vit->inner_unit != unit) {
            block_inner(vit, pass, unit);
            if (vit->shape.layer_scale > 0) /* the gradient of LayerScale reads branch2 */
                mlp_out(vit, pass, unit);
        }
        mlp_branch_backward(vit, pass, unit);
        attention_branch_backward(vit, pass, unit, block_input(vit, unit));
    } else {
        head_backward(vit, pass, unit);
    }
}

const void *vit_output(const struct model *model, int unit, int64_t *count)
{
    const struct vit *vit = (const struct vit *)model;
    if (unit > vit->shape.depth)
        return NULL;
    *count = vit->batch * vit_tokens_after(vit, unit) * vit->shape.dim;
    return unit == 0 ? vit->x : vit->blocks[unit - 1].out;
}
