// SPDX-License-Identifier: BSD-3-Clause
/* The tensors of Vision Transformers: one unit for the stem, one for each block, one
 * for the head. The list of tensors drives allocation, initialisation, checkpoints and the names in
 * safetensors files. */
#include "model/vit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "options/options.h"

/* True if the head reads all patches (mean, attention pool or dense head), not only the class
 * token. */
static bool vit_pools(const struct vit_shape *shape)
{
    return shape->pool_mean || shape->pool_map || shape->dense;
}

/* Output width of fc1: twice `hidden` with SwiGLU. */
static int64_t fc1_width(const struct vit_shape *shape)
{
    return (shape->swiglu ? 2 : 1) * shape->hidden;
}

/* Outputs of the head per row. */
static int64_t head_width(const struct vit_shape *shape)
{
    return shape->classes * (shape->dense ? shape->patch * shape->patch : 1);
}

int64_t vit_tokens_after(const struct vit *vit, int unit)
{
    int last = (int)vit->shape.depth;
    return unit > last || (unit == last && !vit_pools(&vit->shape)) ? 1 : vit->tokens;
}

/* Appends tensors to a unit. */
struct unit_builder {
    struct unit *unit;
    int *slot;
    uint32_t *next_index;
    const char *prefix; /* of all names */
};

/* Append the tensor PREFIX LAYER PART, without weight decay. */
static struct unit_tensor *tensor_add(struct unit_builder *builder, enum vit_tensor which,
                                      const char *layer, const char *part, enum initial_rule rule,
                                      double scale, int dimensions, const int64_t *shape)
{
    char name[2 * TENSOR_NAME];
    snprintf(name, sizeof name, "%s%s%s", builder->prefix, layer, part);
    builder->slot[which] = builder->unit->tensor_count;
    return unit_add_tensor(builder->unit, builder->next_index, name, rule, scale, dimensions,
                           shape);
}

/* Weight and, if `bias`, bias of a linear layer. */
static void linear_add(struct unit_builder *builder, enum vit_tensor weight, const char *layer,
                       int64_t out, int64_t in, bool bias)
{
    tensor_add(builder, weight, layer, ".weight", INITIAL_TRUNCATED_NORMAL, 0.02, 2,
               (int64_t[]){out, in})
        ->decay = true;
    if (bias)
        tensor_add(builder, weight + 1, layer, ".bias", INITIAL_ZERO, 0, 1, &out);
}

static void norm_add(struct unit_builder *builder, enum vit_tensor weight, const char *layer,
                     int64_t width)
{
    tensor_add(builder, weight, layer, ".weight", INITIAL_ONE, 0, 1, &width);
    tensor_add(builder, weight + 1, layer, ".bias", INITIAL_ZERO, 0, 1, &width);
}

static void stem_describe(struct unit_builder *builder, const struct vit *vit)
{
    const struct vit_shape *shape = &vit->shape;
    const bool rotary = shape->position == POSITION_ROTARY;
    const bool sincos = shape->position == POSITION_SINCOS;
    const bool zero = shape->initial_zero;
    /* Class and register tokens. With rotary positions they start as in timm's Eva: with a
     * truncated normal distribution, as weights. */
    const enum initial_rule token = zero     ? INITIAL_ZERO
                                    : rotary ? INITIAL_TRUNCATED_NORMAL
                                             : INITIAL_NORMAL;
    const double token_scale = rotary ? 0.02 : 1e-6;
    if (shape->class_token)
        tensor_add(builder, VIT_CLASS_TOKEN, "cls_token", "", token, token_scale, 3,
                   (int64_t[]){1, 1, shape->dim});
    if (shape->registers > 0)
        tensor_add(builder, VIT_REGISTERS, "reg_token", "", token, token_scale, 3,
                   (int64_t[]){1, shape->registers, shape->dim});
    if (!rotary) {
        const enum initial_rule rule = sincos ? INITIAL_SINCOS
                                       : zero ? INITIAL_ZERO
                                              : INITIAL_TRUNCATED_NORMAL;
        struct unit_tensor *position =
            tensor_add(builder, VIT_POSITION, "pos_embed", "", rule, 0.02, 3,
                       (int64_t[]){1, vit->tokens - vit->unplaced, shape->dim});
        position->grid[0] = vit->grid[0];
        position->grid[1] = vit->grid[1];
        position->trainable = !sincos;
    }
    /* The patch embedding has the shape and initialisation of a torch convolution, as in timm:
     * uniform within 1 / sqrt(fan in). */
    const int64_t weight[] = {shape->dim, shape->channels, shape->patch, shape->patch};
    const double bound = 1 / sqrt((double)(shape->channels * shape->patch * shape->patch));
    tensor_add(builder, VIT_PATCH_WEIGHT, "patch_embed.proj", ".weight",
               zero ? INITIAL_TRUNCATED_NORMAL : INITIAL_UNIFORM, zero ? 0.02 : bound, 4, weight)
        ->decay = true;
    tensor_add(builder, VIT_PATCH_BIAS, "patch_embed.proj", ".bias",
               zero ? INITIAL_ZERO : INITIAL_UNIFORM, bound, 1, &shape->dim);
    if (shape->embed_norm)
        norm_add(builder, VIT_NORM1_WEIGHT, "norm_pre", shape->dim);
}

/* Add the LayerScale factors of branch 1 or 2. Their names are those of timm's VisionTransformer
 * or, with rotary positions, of its Eva. */
static void scale_add(struct unit_builder *builder, enum vit_tensor which, int branch,
                      const struct vit_shape *shape)
{
    char name[TENSOR_NAME];
    if (shape->layer_scale == 0)
        return;
    snprintf(name, sizeof name, shape->position == POSITION_ROTARY ? "gamma_%d" : "ls%d.gamma",
             branch);
    tensor_add(builder, which, name, "", INITIAL_CONSTANT, shape->layer_scale, 1, &shape->dim);
}

static void block_describe(struct unit_builder *builder, const struct vit_shape *shape)
{
    norm_add(builder, VIT_NORM1_WEIGHT, "norm1", shape->dim);
    linear_add(builder, VIT_QKV_WEIGHT, "attn.qkv", 3 * shape->dim, shape->dim, shape->qkv_bias);
    if (shape->qk_norm) {
        norm_add(builder, VIT_Q_NORM_WEIGHT, "attn.q_norm", shape->dim / shape->heads);
        norm_add(builder, VIT_K_NORM_WEIGHT, "attn.k_norm", shape->dim / shape->heads);
    }
    linear_add(builder, VIT_PROJ_WEIGHT, "attn.proj", shape->dim, shape->dim, true);
    scale_add(builder, VIT_SCALE1, 1, shape);
    norm_add(builder, VIT_NORM2_WEIGHT, "norm2", shape->dim);
    linear_add(builder, VIT_FC1_WEIGHT, "mlp.fc1", fc1_width(shape), shape->dim, true);
    if (shape->swiglu) { /* initial values of timm's GluMlp */
        builder->unit->tensors[builder->slot[VIT_FC1_WEIGHT]].initial = INITIAL_HALF_NORMAL;
        builder->unit->tensors[builder->slot[VIT_FC1_BIAS]].initial = INITIAL_HALF_ONE;
    }
    linear_add(builder, VIT_FC2_WEIGHT, "mlp.fc2", shape->dim, shape->hidden, true);
    scale_add(builder, VIT_SCALE2, 2, shape);
}

/* Set the scales of initial weights of timm's Eva. Those of the last layer of both branches of
 * block u, counted from 1, are divided by sqrt(2 u); that of the classifier by 1000. */
static void rotary_initialize(struct vit *vit)
{
    for (int u = 1; u <= vit->shape.depth; u++) {
        const int *slot = vit->slot[u];
        vit->model.units[u].tensors[slot[VIT_PROJ_WEIGHT]].initial_scale /= sqrt(2.0 * u);
        vit->model.units[u].tensors[slot[VIT_FC2_WEIGHT]].initial_scale /= sqrt(2.0 * u);
    }
    int head = vit->model.unit_count - 1;
    vit->model.units[head].tensors[vit->slot[head][VIT_HEAD_WEIGHT]].initial_scale /= 1000;
}

/* Add the tensors of timm's AttentionPoolLatent. */
static void attention_pool_add(struct unit_builder *builder, const struct vit_shape *shape)
{
    const int64_t dim = shape->dim, hidden = shape->hidden;
    tensor_add(builder, VIT_LATENT, "attn_pool.latent", "", INITIAL_TRUNCATED_NORMAL,
               1 / sqrt((double)dim), 3, (int64_t[]){1, 1, dim})
        ->decay = true;
    linear_add(builder, VIT_Q_WEIGHT, "attn_pool.q", dim, dim, true);
    linear_add(builder, VIT_QKV_WEIGHT, "attn_pool.kv", 2 * dim, dim, true);
    linear_add(builder, VIT_PROJ_WEIGHT, "attn_pool.proj", dim, dim, true);
    norm_add(builder, VIT_NORM2_WEIGHT, "attn_pool.norm", dim);
    linear_add(builder, VIT_FC1_WEIGHT, "attn_pool.mlp.fc1", hidden, dim, true);
    linear_add(builder, VIT_FC2_WEIGHT, "attn_pool.mlp.fc2", dim, hidden, true);
}

static void units_describe(struct vit *vit)
{
    const struct vit_shape *shape = &vit->shape;
    uint32_t next_index = 0;
    for (int u = 0; u < vit->model.unit_count; u++) {
        struct unit *unit = &vit->model.units[u];
        struct unit_builder builder = {unit, vit->slot[u], &next_index, ""};
        char prefix[TENSOR_NAME + 1];
        memset(vit->slot[u], -1, sizeof vit->slot[u]);
        unit->tensors = allocate(VIT_TENSORS, sizeof *unit->tensors);
        unit->depth = u;
        if (u == 0) {
            snprintf(unit->name, sizeof unit->name, "stem");
            stem_describe(&builder, vit);
        } else if (u <= shape->depth) {
            snprintf(unit->name, sizeof unit->name, "blocks.%d", u - 1);
            snprintf(prefix, sizeof prefix, "%s.", unit->name);
            builder.prefix = prefix;
            block_describe(&builder, shape);
        } else {
            snprintf(unit->name, sizeof unit->name, "head");
            bool after_mean = shape->pool_mean && !shape->norm_first;
            norm_add(&builder, VIT_NORM1_WEIGHT, after_mean ? "fc_norm" : "norm", shape->dim);
            /* For layer-wise decay, timm groups `norm` with the last block, fc_norm with the head.
             */
            for (int t = 0; t < unit->tensor_count && !after_mean; t++)
                unit->tensors[t].depth--;
            if (shape->pool_map)
                attention_pool_add(&builder, shape);
            linear_add(&builder, VIT_HEAD_WEIGHT, shape->dense ? "dense" : "head",
                       head_width(shape), shape->dim, true);
        }
    }
    if (shape->position == POSITION_ROTARY)
        rotary_initialize(vit);
}

/* True if the patch does not divide the height and width of the image. */
static bool vit_pads(const struct vit_shape *shape)
{
    return shape->image % shape->patch != 0 || shape->image_width % shape->patch != 0;
}

static bool shape_check(const struct vit_shape *shape, struct error *error)
{
    if (vit_pads(shape) && shape->pad == PAD_NONE)
        return error_set(error, ERROR_USAGE,
                         "model.pad=none: model.patch=%lld does not divide images of %lld x %lld "
                         "pixels; change model.patch, or set model.pad=edge or wrap",
                         (long long)shape->patch, (long long)shape->image,
                         (long long)(shape->image_width > 0 ? shape->image_width : shape->image));
    if (shape->dim % shape->heads != 0)
        return error_set(
            error, ERROR_USAGE,
            "model.heads=%lld does not divide model.dim=%lld: choose a number of heads "
            "that does",
            (long long)shape->heads, (long long)shape->dim);
    if (shape->hidden < 1)
        return error_set(error, ERROR_USAGE,
                         "model.mlp_ratio is too small: the hidden layer of a block with "
                         "model.dim=%lld has no units; raise model.mlp_ratio",
                         (long long)shape->dim);
    if (!shape->class_token && !vit_pools(shape))
        return error_set(error, ERROR_USAGE,
                         "model.pool=token needs model.class_token=on: set it, or use "
                         "model.pool=mean");
    if (shape->pool_map && (shape->class_token || shape->registers > 0))
        return error_set(error, ERROR_USAGE,
                         "model.pool=map does not work with a class token or registers: set "
                         "model.class_token=off and model.registers=0");
    if (shape->pool_map && shape->swiglu)
        return error_set(error, ERROR_USAGE,
                         "model.pool=map needs model.mlp=gelu: set it, or use another model.pool");
    if (shape->position == POSITION_ROTARY && shape->dim / shape->heads % 4 != 0)
        return error_set(error, ERROR_USAGE,
                         "model.position=rotary needs a head dimension divisible by 4, not %lld: "
                         "change model.dim or model.heads",
                         (long long)(shape->dim / shape->heads));
    if (shape->position == POSITION_SINCOS && (shape->dim < 8 || shape->dim % 4 != 0))
        return error_set(
            error, ERROR_USAGE,
            "model.position=sincos needs a multiple of 4, at least 8, not model.dim=%lld",
            (long long)shape->dim);
    return true;
}

/* FLOPs of the matrix products, forward and twice as many backward; the stem needs no gradient of
 * its input. The tokens that the last block skips are counted, as is usual. */
static double flops_per_image(const struct vit *vit)
{
    const struct vit_shape *shape = &vit->shape;
    double tokens = (double)vit->tokens, dim = (double)shape->dim;
    double stem =
        (double)vit->patches * dim * (double)(shape->channels * shape->patch * shape->patch);
    double mlp = (double)(shape->hidden + fc1_width(shape));
    double block = tokens * dim * (4 * dim + mlp) + 2 * tokens * tokens * dim;
    double head = dim * (double)head_width(shape) * (shape->dense ? (double)vit->patches : 1);
    if (shape->pool_map)
        head += dim * (2 * tokens * (dim + 1) + dim + 2 * (double)shape->hidden);
    return 2 * (2 * stem + 3 * ((double)shape->depth * block + head));
}

/* ---- activations: memory that is written in a unit's forward pass and read in its backward pass.
 * In training each block has its own set. With model.recompute and in evaluation all blocks share
 * one set. */

/* All activations of a block, or of the attention pool, except its output. `kept`: tokens per
 * sample after the attention. */
static void block_take_inner(const struct vit *vit, struct vit_block *block, struct arena *arena,
                             int64_t batch, int64_t kept, bool training)
{
    const struct vit_shape *shape = &vit->shape;
    const bool is_pool = block == &vit->blocks[shape->depth];
    const size_t size = type_size(vit->model.compute);
    const int64_t rows = batch * vit->tokens, kept_rows = batch * kept;
    const int64_t normed = is_pool ? 0 : rows; /* the pool has no first norm */
    block->norm1 = activation_take(arena, normed * shape->dim, size);
    block->qkv = activation_take(arena, 3 * rows * shape->dim, size);
    block->attention = activation_take(arena, kept_rows * shape->dim, size);
    block->middle = activation_take(arena, kept_rows * shape->dim, size);
    block->norm2 = activation_take(arena, kept_rows * shape->dim, size);
    block->pre = activation_take(arena, kept_rows * fc1_width(shape), size);
    block->hidden = activation_take(arena, kept_rows * shape->hidden, size);
    if (shape->layer_scale > 0 && !is_pool) {
        block->branch1 = activation_take(arena, kept_rows * shape->dim, size);
        block->branch2 = activation_take(arena, kept_rows * shape->dim, size);
    }
    if (!training)
        return;
    if (shape->qk_norm && !is_pool) {
        block->qk = activation_take(arena, 2 * rows * shape->dim, size);
        block->qk_mean = activation_take(arena, 2 * rows * shape->heads, sizeof(float));
        block->qk_rstd = activation_take(arena, 2 * rows * shape->heads, sizeof(float));
    }
    block->mean1 = activation_take(arena, normed, sizeof(float));
    block->rstd1 = activation_take(arena, normed, sizeof(float));
    block->lse = activation_take(arena, kept_rows * shape->heads, sizeof(float));
    block->mean2 = activation_take(arena, kept_rows, sizeof(float));
    block->rstd2 = activation_take(arena, kept_rows, sizeof(float));
}

/* If blocks share activations, they share those of the first block: no block has more tokens. */
static void blocks_take(struct vit *vit, struct arena *arena, int64_t batch, bool training)
{
    const struct vit_shape *shape = &vit->shape;
    size_t size = type_size(vit->model.compute);
    bool own_inner = training && !vit->model.recompute;
    for (int i = 0; i < (int)shape->depth; i++) {
        int64_t kept = vit_tokens_after(vit, i + 1);
        struct vit_block *block = &vit->blocks[i];
        if (own_inner)
            arena_for_unit(arena, 1 + i);
        if (i == 0 || own_inner)
            block_take_inner(vit, block, arena, batch, kept, training);
        else
            *block = vit->blocks[0];
        if (training)
            arena_for_unit(arena, 1 + i);
        if (i == 0 || training)
            block->out = activation_take(arena, batch * kept * shape->dim, size);
    }
    arena_for_unit(arena, (int)shape->depth);
    vit->selected = activation_take(arena, vit_pools(shape) ? 0 : batch * shape->dim, size);
}

static void vit_activations(struct model *model, struct arena *arena, int64_t batch, bool training)
{
    struct vit *vit = (struct vit *)model;
    const struct vit_shape *shape = &vit->shape;
    const size_t size = type_size(model->compute);
    const int64_t dim = shape->dim, rows = batch * vit->tokens, patches = batch * vit->patches;
    const int64_t head_rows = shape->norm_first ? rows : batch;
    const int64_t normed = shape->embed_norm ? rows : 0;
    arena_for_unit(arena, 0);
    vit->patch_rows =
        activation_take(arena, patches * shape->channels * shape->patch * shape->patch, size);
    vit->patch_tokens = activation_take(arena, patches * dim, size);
    vit->x = activation_take(arena, rows * dim, size);
    vit->embedded = shape->embed_norm ? activation_take(arena, rows * dim, size) : vit->x;
    vit->embed_mean = activation_take(arena, training ? normed : 0, sizeof(float));
    vit->embed_rstd = activation_take(arena, training ? normed : 0, sizeof(float));
    arena_for_all(arena);
    blocks_take(vit, arena, batch, training);
    arena_for_unit(arena, model->unit_count - 1);
    vit->pooled = activation_take(arena, vit_pools(shape) ? head_rows * dim : 0, size);
    vit->normed = activation_take(arena, shape->dense ? 0 : batch * dim, size);
    vit->dense = activation_take(arena, shape->dense ? rows * head_width(shape) : 0, size);
    vit->head_mean = activation_take(arena, training ? head_rows : 0, sizeof(float));
    vit->head_rstd = activation_take(arena, training ? head_rows : 0, sizeof(float));
    if (shape->pool_map) {
        vit->query = activation_take(arena, dim, size);
        vit->kv = activation_take(arena, 2 * rows * dim, size);
        vit->dquery = activation_take(arena, training ? batch * dim : 0, size);
        block_take_inner(vit, &vit->blocks[shape->depth], arena, batch, 1, training);
        vit->blocks[shape->depth].out = vit->normed;
    }
    arena_for_all(arena);
    if (!training)
        return;
    const bool means = shape->pool_mean && !shape->norm_first;
    vit->dx = activation_take(arena, rows * dim, size);
    vit->dbranch = activation_take(arena, rows * dim, size);
    vit->dattention = activation_take(arena, rows * dim, size);
    vit->dspread = activation_take(arena, vit_pools(shape) ? 0 : rows * dim, size);
    vit->dhidden = activation_take(arena, rows * shape->hidden, size);
    vit->dqkv = activation_take(arena, 3 * rows * dim, size);
    vit->dpooled = activation_take(arena, means ? batch * dim : 0, size);
    vit->dnormed = activation_take(arena, shape->dense ? 0 : batch * dim, size);
}

/* ---- the type */

static void vit_close(struct model *model)
{
    struct vit *vit = (struct vit *)model;
    free(vit->slot);
    free(vit->blocks);
}

static struct model *vit_open_entry(const struct model_entry *entry, const struct options *options,
                                    struct device *device, enum data_type compute,
                                    struct error *error)
{
    struct vit_shape shape = *(const struct vit_shape *)entry->shape;
    double ratio = shape.hidden > 0 ? (double)shape.hidden / (double)shape.dim : 4;
    if (options->model.mlp_ratio > 0)
        ratio = options->model.mlp_ratio;
    model_override(&shape.image, options->model.image);
    model_override(&shape.image_width, options->model.image_width);
    model_override(&shape.channels, options->model.channels);
    model_override(&shape.patch, options->model.patch);
    model_override(&shape.dim, options->model.dim);
    model_override(&shape.depth, options->model.depth);
    model_override(&shape.heads, options->model.heads);
    model_override(&shape.classes, options->model.classes);
    shape.hidden = llround(ratio * (double)shape.dim);
    if (options->model.dropout >= 0)
        shape.dropout = options->model.dropout;
    if (options->model.drop_path >= 0)
        shape.drop_path = options->model.drop_path;
    if (options->model.qkv_bias != SWITCH_AUTO)
        shape.qkv_bias = options->model.qkv_bias == SWITCH_ON;
    if (options->model.qk_norm != SWITCH_AUTO)
        shape.qk_norm = options->model.qk_norm == SWITCH_ON;
    if (options->model.class_token != SWITCH_AUTO)
        shape.class_token = options->model.class_token == SWITCH_ON;
    if (options->model.embed_norm != SWITCH_AUTO)
        shape.embed_norm = options->model.embed_norm == SWITCH_ON;
    if (options->model.registers >= 0)
        shape.registers = options->model.registers;
    if (options->model.position != POSITION_AUTO)
        shape.position = options->model.position;
    shape.pad = options->model.pad;
    if (options->model.pool != POOL_AUTO) {
        shape.pool_mean = options->model.pool == POOL_MEAN;
        shape.pool_map = options->model.pool == POOL_MAP;
    }
    if (options->model.head == HEAD_DENSE) {
        shape.dense = true;
        shape.pool_mean = shape.pool_map = false;
    }
    if (options->model.fc_norm != SWITCH_AUTO)
        shape.norm_first = options->model.fc_norm == SWITCH_OFF;
    if (options->model.layer_scale >= 0)
        shape.layer_scale = options->model.layer_scale;
    if (options->model.mlp != MLP_AUTO)
        shape.swiglu = options->model.mlp == MLP_SWIGLU;
    if (options->model.gelu != GELU_AUTO)
        shape.gelu_tanh = options->model.gelu == GELU_TANH;
    return vit_open(&shape, device, compute, error);
}

const struct model_type vit_type = {.name = "vit",
                                    .recomputes = true,
                                    .open = vit_open_entry,
                                    .activations = vit_activations,
                                    .forward = vit_forward,
                                    .backward = vit_backward,
                                    .output = vit_output,
                                    .close = vit_close};

struct model *vit_open(const struct vit_shape *shape, struct device *device, enum data_type compute,
                       struct error *error)
{
    if (!shape_check(shape, error))
        return NULL;
    struct vit *vit = allocate(1, sizeof *vit);
    vit->shape = *shape;
    vit->shape.norm_first =
        shape->pool_map || shape->dense || (shape->norm_first && shape->pool_mean);
    const struct image_size image = {shape->image,
                                     shape->image_width > 0 ? shape->image_width : shape->image};
    if (shape->pad == PAD_AUTO)
        vit->shape.pad = PAD_EDGE;
    vit->grid[0] = round_up_division(image.height, shape->patch);
    vit->grid[1] = round_up_division(image.width, shape->patch);
    vit->patches = vit->grid[0] * vit->grid[1];
    vit->tokens = vit->patches + shape->registers + (shape->class_token ? 1 : 0);
    bool places_all = shape->position == POSITION_AUTO || shape->position == POSITION_LEARNED;
    vit->unplaced = places_all                           ? 0
                    : shape->position == POSITION_ROTARY ? vit->tokens
                                                         : vit->tokens - vit->patches;
    const int64_t head_dim = shape->dim / shape->heads;
    if (device != NULL && !device->backend->attention_fits(device, vit->tokens, head_dim)) {
        error_set(
            error, ERROR_USAGE,
            "attention on this device does not support %lld tokens (model.patch=%lld) with a "
            "head dimension of %lld: use larger patches or smaller images; on a GPU model.dim "
            "/ model.heads must be a multiple of 8, at most 128",
            (long long)vit->tokens, (long long)shape->patch, (long long)head_dim);
        free(vit);
        return NULL;
    }
    int unit_count = (int)shape->depth + 2;
    vit->model = (struct model){.type = &vit_type,
                                .device = device,
                                .compute = compute,
                                .units = allocate((size_t)unit_count, sizeof(struct unit)),
                                .unit_count = unit_count,
                                .image = image,
                                .output = shape->dense ? image : (struct image_size){1, 1},
                                .channels = shape->channels,
                                .classes = shape->classes,
                                .pads = vit_pads(shape),
                                .flops_per_image = flops_per_image(vit)};
    vit->slot = allocate((size_t)unit_count, sizeof *vit->slot);
    vit->blocks = allocate((size_t)shape->depth + 1, sizeof *vit->blocks);
    units_describe(vit);
    return &vit->model;
}
