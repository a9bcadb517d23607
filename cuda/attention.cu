// SPDX-License-Identifier: BSD-3-Clause
/* Attention forward in bf16 and fp16 on tensor cores, with online softmax in steps of 64 tokens, so
 * that a row of scores is never stored completely (Milakov and Gimelshein 2018; Dao et al. 2022).
 */
#include "attention.h"

#include <stdio.h>

#include "product.h"
#include "variant.h"

/* A warp's 16 queries: accumulators of the output and, per row, the maximum score and the lane's
 * partial sum of exponentials, for the upper (0) and lower (1) eight rows. */
template <int width> struct query_tile {
    struct left_matrix query[width / 16];
    struct sum_matrix out[width / 8];
    float most[2], total[2];
    int first;
};

/* Set the scores of padding tokens to -infinity. */
template <int parts>
__device__ static inline void scores_mask(struct sum_matrix (&score)[parts][2], int count)
{
    UNROLL
    for (int i = 0; i < parts * 8; i++)
        if (i / 4 * 8 + (int)threadIdx.x % 4 * 2 + i % 2 >= count)
            score[i / 8][i / 4 % 2].value[i % 4] = -INFINITY;
}

/* Replace scores by exponentials and rescale the accumulators to the new maximum. `exponent` is the
 * scale for powers of two. */
template <int width, int parts>
__device__ static inline void softmax_step(struct sum_matrix (&score)[parts][2],
                                           struct query_tile<width> &tile, float exponent)
{
    UNROLL
    for (int lower = 0; lower < 2; lower++) {
        float most = tile.most[lower], total = 0;
        UNROLL
        for (int i = 0; i < parts * 4; i++)
            most = fmaxf(most, score[i / 4][i / 2 % 2].value[lower * 2 + i % 2]);
        most = quad_max(most);
        float shrink = exp2_quick((tile.most[lower] - most) * exponent), offset = most * exponent;
        UNROLL
        for (int i = 0; i < parts * 4; i++) {
            float &value = score[i / 4][i / 2 % 2].value[lower * 2 + i % 2];
            value = exp2_quick(fmaf(value, exponent, -offset));
            total += value;
        }
        tile.most[lower] = most;
        tile.total[lower] = tile.total[lower] * shrink + total;
        UNROLL
        for (int i = 0; i < width / 8 * 2; i++)
            tile.out[i / 2].value[lower * 2 + i % 2] *= shrink;
    }
}

/* Apply dropout to 16 x 16 probabilities. */
__device__ static inline void scores_drop(struct sum_matrix (&score)[2],
                                          const struct attention_view &view,
                                          struct random_block *draws, int query, int token)
{
    int lane = (int)threadIdx.x % WARP;
    draws_make_tile(draws, view, query, token);
    UNROLL
    for (int i = 0; i < 8; i++)
        score[i / 4].value[i % 4] *=
            draws_factor(draws, view, lane / 4 + i / 2 % 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2);
}

/* Process parts * 16 tokens for `tiles` tiles of queries: `row` is the position of the tokens in
 * shared memory, `token` the index of the first one. Each tile's result is the same for any number
 * of tiles. */
template <typename number, int width, int tiles, int parts>
__device__ static inline void
step_run(struct query_tile<width> (&tile)[tiles], const struct attention_view &view,
         unsigned char *rows_shared[2], int row, int token, struct random_block *draws)
{
    struct sum_matrix score[tiles][parts][2] = {};
    uint32_t word[4];
    UNROLL
    for (int i = 0; i < parts * (width / 16); i++) {
        int part = i / (width / 16), k = i % (width / 16);
        rows_part<width>(word, rows_shared[0], row + part * TILE, k);
        UNROLL
        for (int t = 0; t < tiles; t++)
            part_add<number>(score[t][part], tile[t].query[k], word);
    }
    UNROLL
    for (int t = 0; t < tiles; t++) {
        if (token + parts * TILE > view.tokens)
            scores_mask(score[t], view.tokens - token);
        softmax_step(score[t], tile[t], view.scale * LOG2_E);
    }
    UNROLL
    for (int part = 0; part < parts; part++) {
        struct left_matrix weights[tiles];
        UNROLL
        for (int t = 0; t < tiles; t++) {
            if (view.mask.threshold != 0)
                scores_drop(score[t][part], view, draws, tile[t].first, token + part * TILE);
            weights[t] = weights_of<number>(score[t][part]);
        }
        UNROLL
        for (int k = 0; k < width / 16; k++) {
            columns_part<width>(word, rows_shared[1], row + part * TILE, k);
            UNROLL
            for (int t = 0; t < tiles; t++)
                part_add<number>(tile[t].out + k * 2, weights[t], word);
        }
    }
}

template <typename number, int width>
__device__ static inline void tile_begin(struct query_tile<width> &tile,
                                         struct head_rows<const number> queries, int first,
                                         int head_dim)
{
    tile_load<number, width>(tile.query, queries, first, head_dim);
    UNROLL
    for (int i = 0; i < width / 8; i++)
        tile.out[i] = {};
    tile.most[0] = tile.most[1] = -INFINITY;
    tile.total[0] = tile.total[1] = 0;
    tile.first = first;
}

template <typename number, int width>
__device__ static inline void tile_finish(struct query_tile<width> &tile,
                                          const struct attention_view &view,
                                          struct head_rows<number> out, float *lse)
{
    int lane = (int)threadIdx.x % WARP;
    float total[2] = {quad_sum(tile.total[0]), quad_sum(tile.total[1])};
    tile_store<number, width>(out, tile.first, tile.out, 1 / total[0], 1 / total[1], view.head_dim);
    if (lse == NULL || lane % 4 != 0)
        return;
    lse += (int64_t)blockIdx.x * view.queries;
    for (int lower = 0; lower < 2; lower++) {
        int query = tile.first + lane / 4 + 8 * lower;
        if (query < view.queries)
            lse[query] = tile.most[lower] * view.scale + logf(total[lower]);
    }
}

/* A warp processes `tiles` tiles at a time: two halve the loads from shared memory, but need more
 * registers. */
template <typename number, int width, int tiles>
__global__ static void __launch_bounds__(ATTENTION_THREADS, width <= 64 && tiles == 1 ? 3 : 2)
    attention_kernel(struct attention_view view, const number *qkv, number *out, float *lse)
{
    kernel_begin(ATTENTION_THREADS);
    SHARED_MEMORY(shared);
    int warp = (int)threadIdx.x / WARP, warps = (int)blockDim.x / WARP;
    struct random_block *draws = (struct random_block *)shared + warp * WARP;
    unsigned char *rows_shared[2] = {shared + view.draws_bytes,
                                     shared + view.draws_bytes + view.chunk * width * 2};
    struct head_rows<const number> queries = qkv_rows(view, qkv, 0, view.queries);
    struct head_rows<const number> keys = qkv_rows(view, qkv, 1, view.tokens);
    struct head_rows<const number> values = qkv_rows(view, qkv, 2, view.tokens);
    int count = 0;
    for (int round = 0; round < view.queries; round += warps * tiles * TILE) {
        struct query_tile<width> tile[tiles];
        int mine = round + warp * tiles * TILE;
        bool active = mine < view.queries;
        if (active) {
            UNROLL
            for (int t = 0; t < tiles; t++)
                tile_begin<number, width>(tile[t], queries, mine + t * TILE, view.head_dim);
        }
        for (int first = 0; first < view.tokens; first += view.chunk) {
            if (round == 0 || view.chunk < view.tokens)
                count = chunk_load<number, width>(rows_shared, keys, values, first, view);
            int row = 0;
            for (; active && row + STEP <= count; row += STEP)
                step_run<number, width, tiles, STEP / TILE>(tile, view, rows_shared, row,
                                                            first + row, draws);
            for (; active && row < count; row += TILE)
                step_run<number, width, tiles, 1>(tile, view, rows_shared, row, first + row, draws);
        }
        if (active) {
            UNROLL
            for (int t = 0; t < tiles; t++)
                tile_finish<number, width>(tile[t], view, out_rows(view, out), lse);
        }
    }
}

template <typename number, int width, int tiles>
static void forward_launch(struct stream *stream, const struct attention_forward *args)
{
    struct attention_view view = view_of(args);
    int warps = attention_warps(view.tokens, tiles * TILE);
    size_t bytes = view_cut(&view, stream->cuda, width, warps, 0);
    shared_allow(attention_kernel<number, width, tiles>, bytes);
    KERNEL_LAUNCH((attention_kernel<number, width, tiles>), (unsigned)(args->batch * args->heads),
                  (unsigned)(warps * WARP), bytes, stream->handle, view, (const number *)args->qkv,
                  (number *)args->out, args->lse);
}

/* ---- Variants: 16 or 32 queries per warp */
struct forward_call {
    struct stream *stream;
    const struct attention_forward *args;
};

template <typename number> static bool variant_launch(void *context, int variant)
{
    const struct forward_call *call = (const struct forward_call *)context;
    int64_t head_dim = call->args->head_dim;
    if (head_dim <= 32 && variant == 0)
        forward_launch<number, 32, 1>(call->stream, call->args);
    else if (head_dim <= 32)
        forward_launch<number, 32, 2>(call->stream, call->args);
    else if (head_dim <= 64 && variant == 0)
        forward_launch<number, 64, 1>(call->stream, call->args);
    else if (head_dim <= 64)
        forward_launch<number, 64, 2>(call->stream, call->args);
    else
        forward_launch<number, 128, 1>(call->stream, call->args);
    return true;
}

/* Two tiles of 128 numbers exceed the registers. */
template <typename number>
static void forward_for(struct stream *stream, const struct attention_forward *args)
{
    struct forward_call call = {stream, args};
    char key[CHOICE_KEY];
    snprintf(key, sizeof key, "attention %s %lldx%lldx%lldx%lld %lld queries%s",
             type_name(args->type), (long long)args->batch, (long long)args->heads,
             (long long)args->tokens, (long long)args->head_dim, (long long)args->queries,
             args->dropout.rate > 0 ? " dropout" : "");
    variant_run(stream, key, args->head_dim <= 64 && args->queries > TILE ? 2 : 1,
                variant_launch<number>, &call);
}

void cuda_attention_forward(struct stream *stream, const struct attention_forward *args)
{
    if (args->batch == 0 || args->heads == 0)
        return;
    ENSURE(eight_fits(args->qkv, 8) && eight_fits(args->out, 8), "tensors are not aligned");
    ENSURE(args->type != TYPE_BF16 || stream->cuda->capability >= 80,
           "bf16 is not supported by this GPU");
    if (args->type == TYPE_FP32)
        attention_float_forward(stream, args);
    else if (args->type == TYPE_BF16)
        forward_for<struct bf16>(stream, args);
    else
        forward_for<struct fp16>(stream, args);
}

/* The backward pass in 16 bits needs more shared memory than the others. */
bool cuda_attention_fits(struct device *device, int64_t tokens, int64_t head_dim)
{
    const struct cuda_device *cuda = (struct cuda_device *)device;
    if (head_dim % 8 != 0 || head_dim > HEAD_DIM_MOST || tokens > 1 << 20)
        return false;
    size_t width = head_dim <= 32 ? 32 : head_dim <= 64 ? 64 : 128;
    size_t chunk = STEP * width * 2 * sizeof(uint16_t);
    size_t draws = ATTENTION_THREADS * sizeof(struct random_block);
    return attention_sums_bytes(tokens) + chunk + draws <= cuda->shared_bytes;
}
