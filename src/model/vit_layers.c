// SPDX-License-Identifier: BSD-3-Clause
#include "model/vit_layers.h"

const void *vit_weight(const struct vit *vit, const struct model_pass *pass, int unit,
                       enum vit_tensor which)
{
    int slot = vit->slot[unit][which];
    return slot < 0 ? NULL : flat_weight(pass->flat, unit, slot);
}

float *vit_gradient(const struct vit *vit, const struct model_pass *pass, int unit,
                    enum vit_tensor which)
{
    int slot = vit->slot[unit][which];
    return slot < 0 ? NULL : flat_gradient(pass->flat, unit, slot);
}

struct dropout vit_dropout(const struct model_pass *pass, double rate, uint32_t layer)
{
    return (struct dropout){.rate = pass->training ? (float)rate : 0,
                            .seed = pass->seed,
                            .layer = layer,
                            .params = pass->params};
}

struct dropout vit_block_dropout(const struct vit *vit, const struct model_pass *pass, int unit,
                                 uint32_t site)
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

struct dropout vit_block_drop_path(const struct vit *vit, const struct model_pass *pass, int unit,
                                   uint32_t site)
{
    const struct vit_shape *shape = &vit->shape;
    double depth = (double)(shape->depth > 1 ? shape->depth - 1 : 1);
    bool none = shape->drop_elements || unit > (int)shape->depth;
    double rate = none ? 0 : shape->drop_path * (unit - 1) / depth;
    return vit_dropout(pass, rate, (uint32_t)(unit - 1) * DROPOUTS_PER_BLOCK + site);
}

void vit_norm(const struct vit *vit, const struct model_pass *pass, int unit,
              enum vit_tensor weight, int64_t rows, const void *x, void *y, float *mean,
              float *rstd)
{
    OPERATION_RUN(vit->model.device, pass->stream, norm_forward, .type = vit->model.compute,
                  .rows = rows, .width = vit->shape.dim, .epsilon = vit->shape.norm_epsilon, .x = x,
                  .gamma = vit_weight(vit, pass, unit, weight),
                  .beta = vit_weight(vit, pass, unit, weight + 1), .y = y,
                  .mean = pass->training ? mean : NULL, .rstd = pass->training ? rstd : NULL);
}

void vit_norm_gradient(const struct vit *vit, const struct model_pass *pass, int unit,
                       enum vit_tensor weight, int64_t rows, const void *x, const float *mean,
                       const float *rstd, const void *dy, const void *add, float *add_sums,
                       void *dx)
{
    OPERATION_RUN(vit->model.device, pass->stream, norm_backward, .type = vit->model.compute,
                  .rows = rows, .width = vit->shape.dim, .x = x,
                  .gamma = vit_weight(vit, pass, unit, weight), .dy = dy, .mean = mean,
                  .rstd = rstd, .add = add, .dx = dx,
                  .dgamma = vit_gradient(vit, pass, unit, weight),
                  .dbeta = vit_gradient(vit, pass, unit, weight + 1), .add_sums = add_sums,
                  .overwrite = flat_overwrites_gradient(pass->flat, unit));
}

struct linear_forward vit_linear(const struct vit *vit, const struct model_pass *pass, int unit,
                                 enum vit_tensor weight, int64_t tokens, int64_t in, int64_t out)
{
    return (struct linear_forward){.type = vit->model.compute,
                                   .rows = pass->batch * tokens,
                                   .in = in,
                                   .out = out,
                                   .rows_per_sample = tokens,
                                   .weight = vit_weight(vit, pass, unit, weight),
                                   .bias = vit_weight(vit, pass, unit, weight + 1)};
}

struct linear_backward vit_linear_gradient(const struct vit *vit, const struct model_pass *pass,
                                           int unit, enum vit_tensor weight, int64_t tokens,
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

float *vit_move_bias_gradient(const struct vit *vit, struct linear_backward *layer, bool possible)
{
    float *dbias = layer->dbias;
    if (!possible || !vit->model.device->backend->sums_gradients)
        return NULL;
    layer->dbias = NULL;
    return dbias;
}

float *vit_move_residual_bias_gradient(const struct vit *vit, const struct model_pass *pass,
                                       int unit, enum vit_tensor weight,
                                       struct linear_backward *layer)
{
    return vit_move_bias_gradient(
        vit, layer, layer->dy == vit->dx && vit_gradient(vit, pass, unit, weight) != NULL);
}
