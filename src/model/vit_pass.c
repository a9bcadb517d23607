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

/* A unit in a pass. */
struct unit_pass {
    struct vit *vit;
    const struct vit_shape *shape;
    const struct model_pass *pass;
    int unit;
    struct vit_block *block; /* of a block; of the head: the attention pool */
    int64_t rows;            /* tokens of all samples */
    int64_t kept, kept_rows; /* tokens per sample after the attention; of all samples */
    bool overwrite;          /* gradients, instead of adding to them */
};

#define UNIT_RUN(at, operation, ...) MODEL_RUN((at)->vit, (at)->pass, operation, __VA_ARGS__)

static struct unit_pass unit_of(struct model *model, const struct model_pass *pass, int unit)
{
    struct vit *vit = (struct vit *)model;
    const int64_t kept = vit_tokens_after(vit, unit);
    return (struct unit_pass){.vit = vit,
                              .shape = &vit->shape,
                              .pass = pass,
                              .unit = unit,
                              .block = unit > 0 ? &vit->blocks[unit - 1] : NULL,
                              .rows = pass->batch * vit->tokens,
                              .kept = kept,
                              .kept_rows = pass->batch * kept,
                              .overwrite = pass->flat->buffers[unit].overwrites};
}

/* ---- weights, dropouts, norms and linear layers of units */

/* A tensor of the unit and its gradient. NULL if the unit has no such tensor; the gradient also if
 * it is frozen. */
static const void *weight_of(const struct unit_pass *at, enum vit_tensor which)
{
    const int slot = at->vit->slot[at->unit][which];
    return slot < 0 ? NULL : flat_weight(at->pass->flat, at->unit, slot);
}

static float *gradient_of(const struct unit_pass *at, enum vit_tensor which)
{
    const int slot = at->vit->slot[at->unit][which];
    return slot < 0 ? NULL : flat_gradient(at->pass->flat, at->unit, slot);
}

/* Dropout number `layer`, or none in evaluations. */
static struct dropout dropout_of(const struct model_pass *pass, double rate, uint32_t layer)
{
    return (struct dropout){.rate = pass->training ? (float)rate : 0,
                            .seed = pass->seed,
                            .layer = layer,
                            .params = pass->params};
}

/* Elementwise dropout number `site` of a block; see vit_shape.drop_elements for the rates. The
 * attention pool has none. */
static struct dropout block_dropout(const struct unit_pass *at, uint32_t site)
{
    const struct vit_shape *shape = at->shape;
    double rate = shape->dropout;
    if (at->unit > (int)shape->depth)
        return (struct dropout){.rate = 0};
    if (shape->drop_elements && site == DROPOUT_PROJECTION)
        rate = shape->drop_path;
    if (shape->drop_elements && site == DROPOUT_HIDDEN)
        rate = 0;
    /* Two consecutive dropouts equal one whose keep rate is the product of both. */
    if (shape->drop_elements && site == DROPOUT_OUT)
        rate = 1 - (1 - shape->dropout) * (1 - shape->drop_path);
    return dropout_of(at->pass, rate, (uint32_t)(at->unit - 1) * DROPOUTS_PER_BLOCK + site);
}

/* Stochastic depth (Huang et al. 2016) of a branch: the rate grows linearly with depth. */
static struct dropout block_drop_path(const struct unit_pass *at, uint32_t site)
{
    const struct vit_shape *shape = at->shape;
    double depth = (double)(shape->depth > 1 ? shape->depth - 1 : 1);
    bool none = shape->drop_elements || at->unit > (int)shape->depth;
    double rate = none ? 0 : shape->drop_path * (at->unit - 1) / depth;
    return dropout_of(at->pass, rate, (uint32_t)(at->unit - 1) * DROPOUTS_PER_BLOCK + site);
}

/* Run the norm with tensors `weight` and `weight + 1` (bias) of the unit, or its backward pass. */
static void norm_run(const struct unit_pass *at, enum vit_tensor weight, int64_t rows,
                     const void *x, void *y, float *mean, float *rstd)
{
    UNIT_RUN(at, norm_forward, .rows = rows, .width = at->shape->dim,
             .epsilon = at->shape->norm_epsilon, .x = x, .gamma = weight_of(at, weight),
             .beta = weight_of(at, weight + 1), .y = y, .mean = at->pass->training ? mean : NULL,
             .rstd = at->pass->training ? rstd : NULL);
}

static void norm_gradient(const struct unit_pass *at, enum vit_tensor weight, int64_t rows,
                          const void *x, const float *mean, const float *rstd, const void *dy,
                          const void *add, float *add_sums, void *dx)
{
    UNIT_RUN(at, norm_backward, .rows = rows, .width = at->shape->dim, .x = x,
             .gamma = weight_of(at, weight), .dy = dy, .mean = mean, .rstd = rstd, .add = add,
             .dx = dx, .dgamma = gradient_of(at, weight), .dbeta = gradient_of(at, weight + 1),
             .add_sums = add_sums, .overwrite = at->overwrite);
}

/* Arguments of the linear layer with tensors `weight` and `weight + 1` (bias) of the unit, for
 * `tokens` rows per sample. The caller sets what else the layer needs. */
static struct linear_forward linear_layer(const struct unit_pass *at, enum vit_tensor weight,
                                          int64_t tokens, const void *x, void *y)
{
    const struct unit *unit = &at->vit->model.units[at->unit];
    const struct unit_tensor *tensor = &unit->tensors[at->vit->slot[at->unit][weight]];
    return (struct linear_forward){.type = at->vit->model.compute,
                                   .rows = at->pass->batch * tokens,
                                   .in = tensor->count / tensor->shape[0],
                                   .out = tensor->shape[0],
                                   .rows_per_sample = tokens,
                                   .x = x,
                                   .weight = weight_of(at, weight),
                                   .bias = weight_of(at, weight + 1),
                                   .y = y};
}

static struct linear_backward linear_gradient(const struct unit_pass *at, enum vit_tensor weight,
                                              int64_t tokens, const void *x, const void *dy,
                                              void *dx)
{
    const struct linear_forward layer = linear_layer(at, weight, tokens, x, NULL);
    return (struct linear_backward){.type = layer.type,
                                    .rows = layer.rows,
                                    .in = layer.in,
                                    .out = layer.out,
                                    .rows_per_sample = tokens,
                                    .x = x,
                                    .weight = layer.weight,
                                    .dy = dy,
                                    .dx = dx,
                                    .dweight = gradient_of(at, weight),
                                    .dbias = gradient_of(at, weight + 1),
                                    .overwrite = at->overwrite};
}

static void linear_run(const struct unit_pass *at, struct linear_forward layer)
{
    at->vit->model.device->backend->linear_forward(at->pass->stream, &layer);
}

static void linear_gradient_run(const struct unit_pass *at, struct linear_backward layer)
{
    at->vit->model.device->backend->linear_backward(at->pass->stream, &layer);
}

/* Return where another operation must add the column sums of the layer's dy, the gradient of the
 * bias, and remove it from the layer's arguments. Return NULL if the layer computes it. possible:
 * whether an operation that writes or reads dy can. */
static float *bias_gradient_move(const struct unit_pass *at, struct linear_backward *layer,
                                 bool possible)
{
    float *dbias = layer->dbias;
    if (!possible || !at->vit->model.device->backend->sums_gradients)
        return NULL;
    layer->dbias = NULL;
    return dbias;
}

/* bias_gradient_move if dy is vit->dx, which the backward pass of the norm with this weight adds to
 * its result. */
static float *residual_bias_gradient_move(const struct unit_pass *at, enum vit_tensor weight,
                                          struct linear_backward *layer)
{
    return bias_gradient_move(at, layer,
                              layer->dy == at->vit->dx && gradient_of(at, weight) != NULL);
}

/* ---- stem and blocks */

static void stem_forward(const struct unit_pass *at)
{
    const struct vit *vit = at->vit;
    const struct vit_shape *shape = at->shape;
    const int64_t batch = at->pass->batch;
    UNIT_RUN(at, patches, .batch = batch, .channels = shape->channels,
             .height = vit->model.image.height, .width = vit->model.image.width, .pad = shape->pad,
             .patch = shape->patch, .images = (void *)(uintptr_t)at->pass->images,
             .rows = vit->patch_rows);
    linear_run(
        at, linear_layer(at, VIT_PATCH_WEIGHT, vit->patches, vit->patch_rows, vit->patch_tokens));
    UNIT_RUN(at, tokens_forward, .batch = batch, .tokens = vit->tokens, .width = shape->dim,
             .registers = shape->registers, .unplaced = vit->unplaced, .patches = vit->patch_tokens,
             .class_token = weight_of(at, VIT_CLASS_TOKEN),
             .register_tokens = weight_of(at, VIT_REGISTERS),
             .position = weight_of(at, VIT_POSITION), .x = vit->embedded);
    if (shape->embed_norm)
        norm_run(at, VIT_NORM1_WEIGHT, at->rows, vit->embedded, vit->x, vit->embed_mean,
                 vit->embed_rstd);
    UNIT_RUN(at, dropout_apply, .rows = at->rows, .width = shape->dim,
             .rows_per_sample = vit->tokens, .x = vit->x, .y = vit->x,
             .dropout = dropout_of(at->pass, shape->dropout, 0));
}

static void stem_backward(const struct unit_pass *at)
{
    const struct vit *vit = at->vit;
    const struct vit_shape *shape = at->shape;
    UNIT_RUN(at, dropout_apply, .rows = at->rows, .width = shape->dim,
             .rows_per_sample = vit->tokens, .x = vit->dx, .y = vit->dx,
             .dropout = dropout_of(at->pass, shape->dropout, 0));
    if (shape->embed_norm)
        norm_gradient(at, VIT_NORM1_WEIGHT, at->rows, vit->embedded, vit->embed_mean,
                      vit->embed_rstd, vit->dx, NULL, NULL, vit->dx);
    UNIT_RUN(at, tokens_backward, .batch = at->pass->batch, .tokens = vit->tokens,
             .width = shape->dim, .registers = shape->registers, .unplaced = vit->unplaced,
             .class_token = shape->class_token, .dx = vit->dx, .dpatches = vit->patch_tokens,
             .dclass_token = gradient_of(at, VIT_CLASS_TOKEN),
             .dregister_tokens = gradient_of(at, VIT_REGISTERS),
             .dposition = gradient_of(at, VIT_POSITION), .overwrite = at->overwrite);
    linear_gradient_run(at, linear_gradient(at, VIT_PATCH_WEIGHT, vit->patches, vit->patch_rows,
                                            vit->patch_tokens, NULL));
}

/* middle = residual + drop(scale1 * proj(attention(qkv))) */
static void attention_out(const struct unit_pass *at, const void *residual)
{
    const struct vit_block *block = at->block;
    const int64_t head_dim = at->shape->dim / at->shape->heads;
    UNIT_RUN(at, attention_forward, .batch = at->pass->batch, .tokens = at->vit->tokens,
             .queries = at->kept, .heads = at->shape->heads, .head_dim = head_dim,
             .scale = 1 / sqrtf((float)head_dim), .qkv = block->qkv, .out = block->attention,
             .lse = at->pass->training ? block->lse : NULL,
             .dropout = block_dropout(at, DROPOUT_ATTENTION));
    struct linear_forward projection =
        linear_layer(at, VIT_PROJ_WEIGHT, at->kept, block->attention, block->middle);
    projection.residual = residual;
    projection.scale = weight_of(at, VIT_SCALE1);
    projection.pre = block->branch1;
    projection.dropout = block_dropout(at, DROPOUT_PROJECTION);
    projection.drop_path = block_drop_path(at, DROPOUT_PROJECTION);
    linear_run(at, projection);
}

/* Normalise the queries and keys of each head in place; training keeps their inputs, means and
 * reciprocal standard deviations. With `backward`, replace their gradients by those of the norms'
 * inputs. */
static void qk_norm(const struct unit_pass *at, bool backward)
{
    const struct vit_shape *shape = at->shape;
    const struct vit_block *block = at->block;
    const size_t size = type_size(at->vit->model.compute);
    const int64_t width = shape->dim / shape->heads, rows = at->rows * shape->heads;
    for (int key = 0; key < 2 && shape->qk_norm; key++) {
        const enum vit_tensor weight = key ? VIT_K_NORM_WEIGHT : VIT_Q_NORM_WEIGHT;
        char *x = (char *)block->qkv + (size_t)(key * shape->dim) * size;
        char *dx = (char *)at->vit->dqkv + (size_t)(key * shape->dim) * size;
        const bool keeps = at->pass->training;
        void *kept = keeps ? (char *)block->qk + (size_t)(key * rows * width) * size : NULL;
        float *mean = keeps ? block->qk_mean + key * rows : NULL;
        float *rstd = keeps ? block->qk_rstd + key * rows : NULL;
        if (backward)
            UNIT_RUN(at, norm_backward, .rows = rows, .width = width, .group = shape->heads,
                     .stride = 3 * shape->dim, .x = kept, .gamma = weight_of(at, weight), .dy = dx,
                     .mean = mean, .rstd = rstd, .dx = dx, .dgamma = gradient_of(at, weight),
                     .dbeta = gradient_of(at, weight + 1), .overwrite = at->overwrite);
        else
            UNIT_RUN(at, norm_forward, .rows = rows, .width = width, .group = shape->heads,
                     .stride = 3 * shape->dim, .epsilon = shape->norm_epsilon, .x = x,
                     .gamma = weight_of(at, weight), .beta = weight_of(at, weight + 1), .y = x,
                     .kept = kept, .mean = mean, .rstd = rstd);
    }
}

/* Rotate queries and keys; with `inverse` rotate their gradients back. */
static void heads_rotate(const struct unit_pass *at, void *qkv, bool inverse)
{
    const struct vit_shape *shape = at->shape;
    if (shape->position == POSITION_ROTARY)
        UNIT_RUN(at, rotary, .batch = at->pass->batch, .tokens = at->vit->tokens,
                 .grid = {at->vit->grid[0], at->vit->grid[1]}, .heads = shape->heads,
                 .head_dim = shape->dim / shape->heads, .temperature = 100, .inverse = inverse,
                 .qkv = qkv);
}

/* middle = x + drop(scale1 * proj(attention(qkv(norm1(x))))) */
static void attention_branch(const struct unit_pass *at, const void *x)
{
    const struct vit *vit = at->vit;
    const struct vit_block *block = at->block;
    const void *residual = x;
    norm_run(at, VIT_NORM1_WEIGHT, at->rows, x, block->norm1, block->mean1, block->rstd1);
    linear_run(at, linear_layer(at, VIT_QKV_WEIGHT, vit->tokens, block->norm1, block->qkv));
    qk_norm(at, false);
    heads_rotate(at, block->qkv, false);
    if (at->kept < vit->tokens) { /* only the class token */
        UNIT_RUN(at, pool_forward, .batch = at->pass->batch, .tokens = vit->tokens,
                 .width = at->shape->dim, .x = x, .y = vit->selected);
        residual = vit->selected;
    }
    attention_out(at, residual);
}

/* Apply the dropout of the hidden layer in place. */
static void hidden_dropout(const struct unit_pass *at, void *hidden)
{
    const struct dropout dropout = block_dropout(at, DROPOUT_HIDDEN);
    if (dropout.rate > 0)
        UNIT_RUN(at, dropout_apply, .rows = at->kept_rows, .width = at->shape->hidden,
                 .rows_per_sample = at->kept, .x = hidden, .y = hidden, .dropout = dropout);
}

/* hidden = gelu(fc1(norm2(middle))); with SwiGLU silu(a) * b, where a and b are the halves of fc1's
 * output */
static void mlp_hidden(const struct unit_pass *at)
{
    const struct vit_block *block = at->block;
    const bool swiglu = at->shape->swiglu;
    norm_run(at, VIT_NORM2_WEIGHT, at->kept_rows, block->middle, block->norm2, block->mean2,
             block->rstd2);
    struct linear_forward fc1 = linear_layer(at, VIT_FC1_WEIGHT, at->kept, block->norm2,
                                             swiglu ? block->pre : block->hidden);
    if (!swiglu) {
        fc1.pre = block->pre;
        fc1.gelu_tanh = at->shape->gelu_tanh;
        fc1.dropout = block_dropout(at, DROPOUT_HIDDEN);
    }
    linear_run(at, fc1);
    if (swiglu) {
        UNIT_RUN(at, glu_forward, .rows = at->kept_rows, .width = at->shape->hidden,
                 .x = block->pre, .y = block->hidden);
        hidden_dropout(at, block->hidden);
    }
}

/* out = middle + drop(scale2 * fc2(hidden)) */
static void mlp_out(const struct unit_pass *at)
{
    const struct vit_block *block = at->block;
    struct linear_forward fc2 =
        linear_layer(at, VIT_FC2_WEIGHT, at->kept, block->hidden, block->out);
    fc2.residual = block->middle;
    fc2.scale = weight_of(at, VIT_SCALE2);
    fc2.pre = block->branch2;
    fc2.dropout = block_dropout(at, DROPOUT_OUT);
    fc2.drop_path = block_drop_path(at, DROPOUT_OUT);
    linear_run(at, fc2);
}

/* Return the gradient of a branch's output before LayerScale and dropout, from that of the block's
 * sum in vit->dx: vit->dx itself if the branch has neither. The gradient of the LayerScale factors
 * is added to theirs. */
static const void *branch_gradient(const struct unit_pass *at, uint32_t site)
{
    const struct vit *vit = at->vit;
    const bool last = site == DROPOUT_OUT;
    const enum vit_tensor which = last ? VIT_SCALE2 : VIT_SCALE1;
    const void *scale = weight_of(at, which);
    const struct dropout dropout = block_dropout(at, site), drop_path = block_drop_path(at, site);
    if (scale != NULL)
        UNIT_RUN(at, scale_backward, .rows = at->kept_rows, .width = at->shape->dim,
                 .rows_per_sample = at->kept, .pre = last ? at->block->branch2 : at->block->branch1,
                 .dy = vit->dx, .scale = scale, .dx = vit->dbranch,
                 .dscale = gradient_of(at, which), .overwrite = at->overwrite, .dropout = dropout,
                 .drop_path = drop_path);
    else if (dropout.rate > 0 || drop_path.rate > 0)
        UNIT_RUN(at, dropout_apply, .rows = at->kept_rows, .width = at->shape->dim,
                 .rows_per_sample = at->kept, .x = vit->dx, .y = vit->dbranch, .dropout = dropout,
                 .drop_path = drop_path);
    else
        return vit->dx;
    return vit->dbranch;
}

/* vit->dx: in, the gradient of `out`; out, the gradient of `middle`. */
static void mlp_branch_backward(const struct unit_pass *at)
{
    const struct vit *vit = at->vit;
    const struct vit_shape *shape = at->shape;
    const struct vit_block *block = at->block;
    struct linear_backward fc1 =
        linear_gradient(at, VIT_FC1_WEIGHT, at->kept, block->norm2,
                        shape->swiglu ? block->pre : vit->dhidden, vit->dbranch);
    struct linear_backward fc2 = linear_gradient(at, VIT_FC2_WEIGHT, at->kept, block->hidden,
                                                 branch_gradient(at, DROPOUT_OUT), vit->dhidden);
    fc2.pre = shape->swiglu ? NULL : block->pre;
    fc2.gelu_tanh = shape->gelu_tanh;
    fc2.dx_sums = bias_gradient_move(at, &fc1, fc2.pre != NULL);
    float *dx_sums = residual_bias_gradient_move(at, VIT_NORM2_WEIGHT, &fc2);
    fc2.dropout = block_dropout(at, DROPOUT_HIDDEN);
    linear_gradient_run(at, fc2);
    if (shape->swiglu) {
        hidden_dropout(at, vit->dhidden);
        UNIT_RUN(at, glu_backward, .rows = at->kept_rows, .width = shape->hidden, .x = block->pre,
                 .dy = vit->dhidden, .dx = block->pre);
    }
    linear_gradient_run(at, fc1);
    norm_gradient(at, VIT_NORM2_WEIGHT, at->kept_rows, block->middle, block->mean2, block->rstd2,
                  vit->dbranch, vit->dx, dx_sums, vit->dx);
}

/* vit->dx: the gradient of `middle`. Writes vit->dqkv, and its column sums unless dqkv_sums is
 * NULL. Return where the norm that follows must add the column sums of vit->dx, or NULL.
 * norm_follows: whether there is one. */
static float *attention_out_backward(const struct unit_pass *at, float *dqkv_sums,
                                     bool norm_follows)
{
    const struct vit *vit = at->vit;
    const struct vit_block *block = at->block;
    const int64_t head_dim = at->shape->dim / at->shape->heads;
    struct linear_backward projection =
        linear_gradient(at, VIT_PROJ_WEIGHT, at->kept, block->attention,
                        branch_gradient(at, DROPOUT_PROJECTION), vit->dattention);
    float *dx_sums =
        norm_follows ? residual_bias_gradient_move(at, VIT_NORM1_WEIGHT, &projection) : NULL;
    linear_gradient_run(at, projection);
    UNIT_RUN(at, attention_backward, .batch = at->pass->batch, .tokens = vit->tokens,
             .queries = at->kept, .heads = at->shape->heads, .head_dim = head_dim,
             .scale = 1 / sqrtf((float)head_dim), .qkv = block->qkv, .out = block->attention,
             .dout = vit->dattention, .lse = block->lse, .dqkv = vit->dqkv, .dqkv_sums = dqkv_sums,
             .overwrite = at->overwrite, .dropout = block_dropout(at, DROPOUT_ATTENTION));
    return dx_sums;
}

/* vit->dx: in, the gradient of `middle`; out, the gradient of the block's input x. */
static void attention_branch_backward(const struct unit_pass *at, const void *x)
{
    const struct vit *vit = at->vit;
    const struct vit_shape *shape = at->shape;
    const struct vit_block *block = at->block;
    const void *residual = vit->dx; /* gradient through the residual connection */
    struct linear_backward qkv =
        linear_gradient(at, VIT_QKV_WEIGHT, vit->tokens, block->norm1, vit->dqkv, vit->dbranch);
    const bool dqkv_changes = shape->position == POSITION_ROTARY || shape->qk_norm;
    float *dqkv_sums = bias_gradient_move(at, &qkv, !dqkv_changes);
    float *dx_sums = attention_out_backward(at, dqkv_sums, true);
    heads_rotate(at, vit->dqkv, true);
    qk_norm(at, true);
    linear_gradient_run(at, qkv);
    if (at->kept < vit->tokens) {
        UNIT_RUN(at, pool_backward, .batch = at->pass->batch, .tokens = vit->tokens,
                 .width = shape->dim, .dy = vit->dx, .dx = vit->dspread);
        residual = vit->dspread;
    }
    norm_gradient(at, VIT_NORM1_WEIGHT, at->rows, x, block->mean1, block->rstd1, vit->dbranch,
                  residual, dx_sums, vit->dx);
}

/* ---- head */

/* y = mean of the patches of each sample of x */
static void mean_forward(const struct unit_pass *at, const void *x, void *y)
{
    UNIT_RUN(at, pool_forward, .batch = at->pass->batch, .tokens = at->vit->tokens,
             .width = at->shape->dim, .first = at->vit->tokens - at->vit->patches, .mean = true,
             .x = x, .y = y);
}

static void mean_backward(const struct unit_pass *at, const void *dy, void *dx)
{
    UNIT_RUN(at, pool_backward, .batch = at->pass->batch, .tokens = at->vit->tokens,
             .width = at->shape->dim, .first = at->vit->tokens - at->vit->patches, .mean = true,
             .dy = dy, .dx = dx);
}

/* middle = proj(attention(q(latent), kv(x))); normed = middle + fc2(gelu(fc1(norm2(middle)))),
 * where x is vit->pooled. The attention operation reads queries, keys and values from one tensor
 * with a row per token. Each row has a copy of the query; only that of the first token is used. */
static void attention_pool_forward(const struct unit_pass *at)
{
    const struct vit *vit = at->vit;
    struct linear_forward q =
        linear_layer(at, VIT_Q_WEIGHT, 1, weight_of(at, VIT_LATENT), vit->query);
    q.rows = at->pass->batch > 0;
    linear_run(at, q);
    linear_run(at, linear_layer(at, VIT_QKV_WEIGHT, vit->tokens, vit->pooled, vit->kv));
    UNIT_RUN(at, tokens_forward, .batch = at->rows, .tokens = 3, .width = at->shape->dim,
             .unplaced = 3, .patches = vit->kv, .class_token = vit->query, .x = at->block->qkv);
    attention_out(at, NULL);
    mlp_hidden(at);
    mlp_out(at);
}

/* Gradients of q and the latent, from that of the query in vit->dqkv. It is nonzero only in the
 * first token of a sample. Each sample has a row, so that all gradients are sums over samples. */
static void query_backward(const struct unit_pass *at)
{
    const struct vit *vit = at->vit;
    const int64_t batch = at->pass->batch, width = at->shape->dim;
    UNIT_RUN(at, pool_forward, .batch = batch, .tokens = 3 * vit->tokens, .width = width,
             .x = vit->dqkv, .y = vit->dquery);
    /* Without patches: `patches` is not read. */
    UNIT_RUN(at, tokens_forward, .batch = batch, .tokens = 1, .width = width, .unplaced = 1,
             .patches = vit->kv, .class_token = weight_of(at, VIT_LATENT), .x = vit->dattention);
    linear_gradient_run(
        at, linear_gradient(at, VIT_Q_WEIGHT, 1, vit->dattention, vit->dquery, vit->dnormed));
    /* Without patches: `dpatches` is not written. */
    UNIT_RUN(at, tokens_backward, .batch = batch, .tokens = 1, .width = width, .unplaced = 1,
             .class_token = true, .dx = vit->dnormed, .dpatches = vit->kv,
             .dclass_token = gradient_of(at, VIT_LATENT), .overwrite = at->overwrite);
}

/* vit->dx: the gradient of `normed`. Writes the gradient of vit->pooled to vit->dbranch. */
static void attention_pool_backward(const struct unit_pass *at)
{
    const struct vit *vit = at->vit;
    mlp_branch_backward(at);
    attention_out_backward(at, NULL, false);
    query_backward(at);
    UNIT_RUN(at, tokens_backward, .batch = at->rows, .tokens = 3, .width = at->shape->dim,
             .unplaced = 3, .class_token = true, .dx = vit->dqkv, .dpatches = vit->kv,
             .overwrite = true);
    linear_gradient_run(
        at, linear_gradient(at, VIT_QKV_WEIGHT, vit->tokens, vit->pooled, vit->kv, vit->dbranch));
}

/* logits = head(N(mean(x))), head(pool(N(x))) with norm_first, head(N(class token)), or the
 * patches' rows of dense(N(x)), as images: the outputs of other tokens are not used. */
static void head_forward(const struct unit_pass *at)
{
    const struct vit *vit = at->vit;
    const struct vit_shape *shape = at->shape;
    const struct model_pass *pass = at->pass;
    const void *x = vit->blocks[shape->depth - 1].out;
    if (shape->norm_first) {
        norm_run(at, VIT_NORM1_WEIGHT, at->rows, x, vit->pooled, vit->head_mean, vit->head_rstd);
        if (shape->pool_map)
            attention_pool_forward(at);
        else if (!shape->dense)
            mean_forward(at, vit->pooled, vit->normed);
    } else {
        if (shape->pool_mean)
            mean_forward(at, x, vit->pooled);
        norm_run(at, VIT_NORM1_WEIGHT, pass->batch, shape->pool_mean ? vit->pooled : x, vit->normed,
                 vit->head_mean, vit->head_rstd);
    }
    linear_run(at, shape->dense
                       ? linear_layer(at, VIT_HEAD_WEIGHT, vit->tokens, vit->pooled, vit->dense)
                       : linear_layer(at, VIT_HEAD_WEIGHT, 1, vit->normed, pass->logits));
    if (shape->dense)
        UNIT_RUN(at, patches, .back = true, .batch = pass->batch, .channels = shape->classes,
                 .height = vit->model.image.height, .width = vit->model.image.width,
                 .patch = shape->patch, .first = vit->tokens - vit->patches, .rows = vit->dense,
                 .images = pass->logits);
}

static void head_backward(const struct unit_pass *at)
{
    const struct vit *vit = at->vit;
    const struct vit_shape *shape = at->shape;
    const struct model_pass *pass = at->pass;
    const void *x = vit->blocks[shape->depth - 1].out;
    if (shape->dense)
        UNIT_RUN(at, patches, .batch = pass->batch, .channels = shape->classes,
                 .height = vit->model.image.height, .width = vit->model.image.width,
                 .pad = PAD_NONE, .patch = shape->patch, .first = vit->tokens - vit->patches,
                 .images = pass->logits, .rows = vit->dense);
    linear_gradient_run(at, shape->dense
                                ? linear_gradient(at, VIT_HEAD_WEIGHT, vit->tokens, vit->pooled,
                                                  vit->dense, vit->dbranch)
                                : linear_gradient(at, VIT_HEAD_WEIGHT, 1, vit->normed, pass->logits,
                                                  shape->pool_map ? vit->dx : vit->dnormed));
    if (shape->norm_first) {
        if (shape->pool_map)
            attention_pool_backward(at);
        else if (!shape->dense)
            mean_backward(at, vit->dnormed, vit->dbranch);
        norm_gradient(at, VIT_NORM1_WEIGHT, at->rows, x, vit->head_mean, vit->head_rstd,
                      vit->dbranch, NULL, NULL, vit->dx);
        return;
    }
    norm_gradient(at, VIT_NORM1_WEIGHT, pass->batch, shape->pool_mean ? vit->pooled : x,
                  vit->head_mean, vit->head_rstd, vit->dnormed, NULL, NULL,
                  shape->pool_mean ? vit->dpooled : vit->dx);
    if (shape->pool_mean)
        mean_backward(at, vit->dpooled, vit->dx);
}

/* ---- units */

/* Input of a block: the stem's output for block 0, else the previous block's output. */
static const void *block_input(const struct unit_pass *at)
{
    return at->unit == 1 ? at->vit->x : at->vit->blocks[at->unit - 2].out;
}

/* Compute all activations of a block except its output. */
static void block_inner(const struct unit_pass *at)
{
    attention_branch(at, block_input(at));
    mlp_hidden(at);
    at->vit->inner_unit = at->unit;
}

void vit_forward(struct model *model, const struct model_pass *pass, int unit)
{
    const struct unit_pass at = unit_of(model, pass, unit);
    at.vit->batch = pass->batch;
    if (unit == 0) {
        stem_forward(&at);
    } else if (unit <= at.shape->depth) {
        block_inner(&at);
        mlp_out(&at);
    } else {
        head_forward(&at);
    }
}

void vit_backward(struct model *model, const struct model_pass *pass, int unit)
{
    const struct unit_pass at = unit_of(model, pass, unit);
    if (unit == 0) {
        stem_backward(&at);
    } else if (unit <= at.shape->depth) {
        if (model->recompute && at.vit->inner_unit != unit) {
            block_inner(&at);
            if (at.shape->layer_scale > 0) /* the gradient of LayerScale reads branch2 */
                mlp_out(&at);
        }
        mlp_branch_backward(&at);
        attention_branch_backward(&at, block_input(&at));
    } else {
        head_backward(&at);
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
