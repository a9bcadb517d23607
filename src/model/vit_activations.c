// SPDX-License-Identifier: BSD-3-Clause
/* Activations of the Vision Transformer: memory that is written in a unit's forward pass and read
 * in its backward pass. In training each block has its own set. With model.recompute and in
 * evaluation all blocks share one set. */
#include "model/vit.h"

bool vit_pools(const struct vit_shape *shape)
{
    return shape->pool_mean || shape->pool_map || shape->dense;
}

int64_t vit_fc1_width(const struct vit_shape *shape)
{
    return (shape->swiglu ? 2 : 1) * shape->hidden;
}

int64_t vit_head_width(const struct vit_shape *shape)
{
    return shape->classes * (shape->dense ? shape->patch * shape->patch : 1);
}

int64_t vit_tokens_after(const struct vit *vit, int unit)
{
    int last = (int)vit->shape.depth;
    return unit > last || (unit == last && !vit_pools(&vit->shape)) ? 1 : vit->tokens;
}

/* All activations of a block except its output. `kept`: tokens per sample after the attention. */
static void block_take_inner(const struct vit *vit, struct vit_block *block, struct arena *arena,
                             int64_t batch, int64_t kept, bool training)
{
    const struct vit_shape *shape = &vit->shape;
    size_t size = type_size(vit->model.compute);
    int64_t rows = batch * vit->tokens, kept_rows = batch * kept;
    block->norm1 = activation_take(arena, rows * shape->dim, size);
    block->qkv = activation_take(arena, 3 * rows * shape->dim, size);
    block->attention = activation_take(arena, kept_rows * shape->dim, size);
    block->middle = activation_take(arena, kept_rows * shape->dim, size);
    block->norm2 = activation_take(arena, kept_rows * shape->dim, size);
    block->pre = activation_take(arena, kept_rows * vit_fc1_width(shape), size);
    block->hidden = activation_take(arena, kept_rows * shape->hidden, size);
    if (shape->layer_scale > 0) {
        block->branch1 = activation_take(arena, kept_rows * shape->dim, size);
        block->branch2 = activation_take(arena, kept_rows * shape->dim, size);
    }
    if (!training)
        return;
    if (shape->qk_norm) {
        block->qk = activation_take(arena, 2 * rows * shape->dim, size);
        block->qk_mean = activation_take(arena, 2 * rows * shape->heads, sizeof(float));
        block->qk_rstd = activation_take(arena, 2 * rows * shape->heads, sizeof(float));
    }
    block->mean1 = activation_take(arena, rows, sizeof(float));
    block->rstd1 = activation_take(arena, rows, sizeof(float));
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

static void stem_take(struct vit *vit, struct arena *arena, int64_t batch, bool training)
{
    const struct vit_shape *shape = &vit->shape;
    size_t size = type_size(vit->model.compute);
    int64_t rows = batch * vit->tokens, statistics = training ? rows : 0;
    int64_t patch_width = shape->channels * shape->patch * shape->patch;
    vit->patch_rows = activation_take(arena, batch * vit->patches * patch_width, size);
    vit->patch_tokens = activation_take(arena, batch * vit->patches * shape->dim, size);
    vit->x = activation_take(arena, rows * shape->dim, size);
    vit->embedded = shape->embed_norm ? activation_take(arena, rows * shape->dim, size) : vit->x;
    vit->embed_mean = activation_take(arena, shape->embed_norm ? statistics : 0, sizeof(float));
    vit->embed_rstd = activation_take(arena, shape->embed_norm ? statistics : 0, sizeof(float));
}

/* Take the memory of the attention pool. Its output is vit->normed. */
static void attention_pool_take(struct vit *vit, struct arena *arena, int64_t batch, bool training)
{
    const struct vit_shape *shape = &vit->shape;
    size_t size = type_size(vit->model.compute);
    int64_t rows = batch * vit->tokens;
    struct vit_block *pool = &vit->blocks[shape->depth];
    vit->query = activation_take(arena, shape->dim, size);
    vit->kv = activation_take(arena, 2 * rows * shape->dim, size);
    vit->dquery = activation_take(arena, training ? batch * shape->dim : 0, size);
    pool->qkv = activation_take(arena, 3 * rows * shape->dim, size);
    pool->attention = activation_take(arena, batch * shape->dim, size);
    pool->middle = activation_take(arena, batch * shape->dim, size);
    pool->norm2 = activation_take(arena, batch * shape->dim, size);
    pool->pre = activation_take(arena, batch * shape->hidden, size);
    pool->hidden = activation_take(arena, batch * shape->hidden, size);
    pool->lse = activation_take(arena, training ? batch * shape->heads : 0, sizeof(float));
    pool->mean2 = activation_take(arena, training ? batch : 0, sizeof(float));
    pool->rstd2 = activation_take(arena, training ? batch : 0, sizeof(float));
    pool->out = vit->normed;
}

static void head_take(struct vit *vit, struct arena *arena, int64_t batch, bool training)
{
    const struct vit_shape *shape = &vit->shape;
    size_t size = type_size(vit->model.compute);
    int64_t rows = shape->norm_first ? batch * vit->tokens : batch;
    vit->pooled = activation_take(arena, vit_pools(shape) ? rows * shape->dim : 0, size);
    vit->normed = activation_take(arena, shape->dense ? 0 : batch * shape->dim, size);
    vit->dense = activation_take(arena, shape->dense ? rows * vit_head_width(shape) : 0, size);
    vit->head_mean = activation_take(arena, training ? rows : 0, sizeof(float));
    vit->head_rstd = activation_take(arena, training ? rows : 0, sizeof(float));
    if (shape->pool_map)
        attention_pool_take(vit, arena, batch, training);
}

static void gradients_take(struct vit *vit, struct arena *arena, int64_t batch)
{
    const struct vit_shape *shape = &vit->shape;
    size_t size = type_size(vit->model.compute);
    int64_t rows = batch * vit->tokens;
    vit->dx = activation_take(arena, rows * shape->dim, size);
    vit->dbranch = activation_take(arena, rows * shape->dim, size);
    vit->dattention = activation_take(arena, rows * shape->dim, size);
    vit->dspread = activation_take(arena, vit_pools(shape) ? 0 : rows * shape->dim, size);
    vit->dhidden = activation_take(arena, rows * shape->hidden, size);
    vit->dqkv = activation_take(arena, 3 * rows * shape->dim, size);
    vit->dpooled = activation_take(
        arena, shape->pool_mean && !shape->norm_first ? batch * shape->dim : 0, size);
    vit->dnormed = activation_take(arena, shape->dense ? 0 : batch * shape->dim, size);
}

void vit_activations(struct model *model, struct arena *arena, int64_t batch, bool training)
{
    struct vit *vit = (struct vit *)model;
    arena_for_unit(arena, 0);
    stem_take(vit, arena, batch, training);
    arena_for_all(arena);
    blocks_take(vit, arena, batch, training);
    arena_for_unit(arena, model->unit_count - 1);
    head_take(vit, arena, batch, training);
    arena_for_all(arena);
    if (training)
        gradients_take(vit, arena, batch);
}
