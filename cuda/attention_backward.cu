// SPDX-License-Identifier: BSD-3-Clause
/* Attention backward in bf16 and fp16 on tensor cores. A block computes all gradients of one head:
 * first those of the queries, with keys and values in shared memory; then those of keys and values,
 * with queries and output gradients in shared memory. Scores are computed in both phases, so that a
 * warp's accumulators stay in registers: no sum crosses warps, and tile order is fixed (after Dao
 * et al. 2022). */
#include "attention.h"

/* ---- Gradients of queries: 16 queries per warp. */
template <int width> struct query_gradient {
    struct left_matrix query[width / 16], dout[width / 16];
    struct sum_matrix sums[width / 8];
    float lse[2], correction[2]; /* of the lane's upper and lower row */
    int first;
};

template <typename number, int width>
__device__ static inline void
gradient_begin(struct query_gradient<width> &tile, const struct attention_view &view,
               const struct backward_tensors &given, const struct query_sums &sums)
{
    const float *lse = given.lse + (int64_t)blockIdx.x * view.queries;
    tile_load<number, width>(tile.dout, out_rows(view, (const number *)given.dout), tile.first,
                             view.head_dim);
    tile_load<number, width>(tile.query, out_rows(view, (const number *)given.out), tile.first,
                             view.head_dim);
    corrections_find<number, width>(tile.correction, tile.dout, tile.query);
    tile_load<number, width>(tile.query, qkv_rows(view, (const number *)given.qkv, 0, view.queries),
                             tile.first, view.head_dim);
    query_sums_store(tile, view, lse, sums);
}

/* Add the contribution of 16 tokens at `row` in shared memory. */
template <typename number, int width>
__device__ static inline void
gradient_add(struct query_gradient<width> &tile, const struct attention_view &view,
             unsigned char *rows_shared[2], int row, int token, struct random_block *draws)
{
    int lane = (int)threadIdx.x % WARP;
    bool drops = view.mask.threshold != 0;
    if (drops)
        draws_make_tile(draws, view, tile.first, token);
    struct sum_matrix score[2] = {}, slope[2] = {};
    tile_times_rows<number, width>(score, tile.query, rows_shared[0], row);
    tile_times_rows<number, width>(slope, tile.dout, rows_shared[1], row);
    UNROLL
    for (int i = 0; i < 8; i++) {
        int lower = i / 2 % 2, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        float &value = slope[i / 4].value[i % 4];
        if (drops)
            value *= draws_factor(draws, view, lane / 4 + 8 * lower, column);
        float exponent = fmaf(score[i / 4].value[i % 4], view.scale * LOG2_E, -tile.lse[lower]);
        value = exp2_quick(exponent) * (value - tile.correction[lower]);
        if (token + column >= view.tokens)
            value = 0;
    }
    weights_times_rows<number, width>(tile.sums, weights_of<number>(slope), rows_shared[0], row);
}

/* Compute and store the gradients of queries; 0 for tokens that are not queries. */
template <typename number, int width>
__device__ static inline void
queries_pass(const struct attention_view &view, const struct backward_tensors &given,
             unsigned char *rows_shared[2], const struct query_sums &sums,
             struct random_block *draws)
{
    const number *qkv = (const number *)given.qkv;
    int warp = (int)threadIdx.x / WARP, warps = (int)blockDim.x / WARP, count = 0;
    for (int round = 0; round < view.tokens; round += warps * TILE) {
        struct query_gradient<width> tile = {
        };
        tile.first = round + warp * TILE;
        bool active = tile.first < view.queries;
        for (int first = 0; round < view.queries && first < view.tokens; first += view.chunk) {
            bool loads = round == 0 || view.chunk < view.tokens;
            if (loads)
                count =
                    chunk_start<number, width>(rows_shared, qkv_rows(view, qkv, 1, view.tokens),
                                               qkv_rows(view, qkv, 2, view.tokens), first, view);
            if (first == 0 && active) /* while the chunk is copied */
                gradient_begin<number, width>(tile, view, given, sums);
            if (loads) {
                copies_wait();
                __syncthreads();
            }
            for (int row = 0; active && row < count; row += TILE)
                gradient_add<number, width>(tile, view, rows_shared, row, first + row, draws);
        }
        tile_store<number, width>(qkv_rows(view, (number *)given.dqkv, 0, view.tokens), tile.first,
                                  tile.sums, view.scale, view.scale, view.head_dim);
        if (given.sums != NULL)
            warp_sums_add<width>(sums, 0, view.queries - tile.first, tile.sums);
    }
}

/* ---- Gradients of keys and values: 16 tokens per warp. Scores are computed transposed, one token
 * per row, so that they can be the left operand of the product that sums over queries. */
template <int width> struct token_gradient {
    struct left_matrix key[width / 16], value[width / 16];
    struct sum_matrix dkey[width / 8], dvalue[width / 8];
    int first;
};

/* Add the contribution of 16 queries at `row` in shared memory. */
template <typename number, int width>
__device__ static inline void
gradients_add(struct token_gradient<width> &tile, const struct attention_view &view,
              unsigned char *rows_shared[2], int row, int query, const struct query_sums &sums,
              struct random_block *draws)
{
    int lane = (int)threadIdx.x % WARP;
    bool drops = view.mask.threshold != 0;
    if (drops)
        draws_make_tile(draws, view, query, tile.first);
    struct sum_matrix score[2] = {}, slope[2] = {};
    tile_times_rows<number, width>(score, tile.key, rows_shared[0], row);
    tile_times_rows<number, width>(slope, tile.value, rows_shared[1], row);
    UNROLL
    for (int i = 0; i < 8; i++) {
        int column = i / 4 * 8 + lane % 4 * 2 + i % 2, token = lane / 4 + i / 2 % 2 * 8;
        float &probability = score[i / 4].value[i % 4], &value = slope[i / 4].value[i % 4];
        float factor = drops ? draws_factor(draws, view, column, token) : 1;
        float exponent = fmaf(probability, view.scale * LOG2_E, -sums.lse[query + column]);
        probability = exp2_quick(exponent);
        value = probability * (value * factor - sums.correction[query + column]);
        probability *= factor;
    }
    weights_times_rows<number, width>(tile.dvalue, weights_of<number>(score), rows_shared[1], row);
    weights_times_rows<number, width>(tile.dkey, weights_of<number>(slope), rows_shared[0], row);
}

/* Compute and store the gradients of keys and values. */
template <typename number, int width>
__device__ static inline void tokens_pass(const struct attention_view &view,
                                          const struct backward_tensors &given,
                                          unsigned char *rows_shared[2],
                                          const struct query_sums &sums, struct random_block *draws)
{
    const number *qkv = (const number *)given.qkv;
    number *dqkv = (number *)given.dqkv;
    int warp = (int)threadIdx.x / WARP, warps = (int)blockDim.x / WARP, count = 0;
    for (int round = 0; round < view.tokens; round += warps * TILE) {
        struct token_gradient<width> tile = {
        };
        tile.first = round + warp * TILE;
        bool active = tile.first < view.tokens;
        for (int first = 0; first < view.queries; first += view.chunk) {
            bool loads = round == 0 || view.chunk < view.queries;
            if (loads)
                count = chunk_start<number, width>(
                    rows_shared, qkv_rows(view, qkv, 0, view.queries),
                    out_rows(view, (const number *)given.dout), first, view);
            if (first == 0 && active) { /* while the chunk is copied */
                tile_load<number, width>(tile.key, qkv_rows(view, qkv, 1, view.tokens), tile.first,
                                         view.head_dim);
                tile_load<number, width>(tile.value, qkv_rows(view, qkv, 2, view.tokens),
                                         tile.first, view.head_dim);
            }
            if (loads) {
                copies_wait();
                __syncthreads();
            }
            for (int row = 0; active && row < count; row += TILE)
                gradients_add<number, width>(tile, view, rows_shared, row, first + row, sums,
                                             draws);
        }
        tile_store<number, width>(qkv_rows(view, dqkv, 1, view.tokens), tile.first, tile.dkey,
                                  view.scale, view.scale, view.head_dim);
        tile_store<number, width>(qkv_rows(view, dqkv, 2, view.tokens), tile.first, tile.dvalue, 1,
                                  1, view.head_dim);
        if (given.sums != NULL) {
            warp_sums_add<width>(sums, 1, view.tokens - tile.first, tile.dkey);
            warp_sums_add<width>(sums, 2, view.tokens - tile.first, tile.dvalue);
        }
    }
}

template <typename number, int width, int warps_most>
__global__ static void __launch_bounds__(warps_most *WARP, width <= 32                      ? 4
                                                           : width <= 64 && warps_most == 4 ? 3
                                                                                            : 2)
    attention_backward_kernel(struct attention_view view, struct backward_tensors given)
{
    kernel_begin(warps_most * WARP);
    SHARED_MEMORY(shared);
    struct random_block *draws = (struct random_block *)shared + threadIdx.x / WARP * WARP;
    unsigned char *rows_shared[2] = {shared + view.draws_bytes,
                                     shared + view.draws_bytes + view.chunk * width * 2};
    float *lse = (float *)(rows_shared[1] + view.chunk * width * 2);
    int padded = rows_padded(view.tokens);
    struct query_sums sums = {lse, lse + padded, lse + 2 * padded};
    if (given.sums != NULL)
        for (int i = (int)threadIdx.x; i < (int)blockDim.x / WARP * 3 * width; i += (int)blockDim.x)
            sums.columns[i] = 0; /* a barrier follows in queries_pass */
    queries_pass<number, width>(view, given, rows_shared, sums, draws);
    tokens_pass<number, width>(view, given, rows_shared, sums, draws);
    if (given.sums != NULL)
        warp_sums_store<width>(view, given.sums, sums.columns);
}

static size_t sums_bytes(const struct attention_backward *args)
{
    return (size_t)(args->batch * 3 * args->heads * args->head_dim) * sizeof(float);
}

/* True if the kernel computes the column sums of dqkv. For more than CHUNK_MOST tokens there may be
 * no shared memory left. */
static bool sums_fit(const struct attention_backward *args)
{
    return args->dqkv_sums != NULL && args->type != TYPE_FP32 && args->tokens <= CHUNK_MOST &&
           sums_bytes(args) <= WORKSPACE_SUMS;
}

struct backward_call {
    struct stream *stream;
    const struct attention_backward *args;
    struct backward_tensors given;
};

template <typename number, int width, int warps_most>
static bool backward_launch(const struct backward_call *call)
{
    const struct attention_backward *args = call->args;
    struct stream *stream = call->stream;
    struct attention_view view = view_of(args);
    int warps = attention_warps(view.tokens, warps_most);
    size_t fixed = attention_sums_bytes(view.tokens);
    if (call->given.sums != NULL)
        fixed += (size_t)(warps * 3 * width) * sizeof(float);
    size_t bytes = view_cut(&view, stream->cuda, width, warps, fixed);
    shared_allow(attention_backward_kernel<number, width, warps_most>, bytes);
    KERNEL_LAUNCH((attention_backward_kernel<number, width, warps_most>),
                  (unsigned)(args->batch * args->heads), (unsigned)(warps * WARP), bytes,
                  stream->handle, view, call->given);
    return true;
}

template <typename number> static bool backward_variant(void *context, int variant)
{
    const struct backward_call *call = (const struct backward_call *)context;
    if (variant == ATTENTION_WGMMA)
        return attention_wgmma_backward<number>(call->stream, call->args, &call->given);
    if (variant == ATTENTION_8_WARPS)
        return has_8_warps(call->args) && backward_launch<number, 64, 8>(call);
    if (call->args->head_dim <= 32)
        return backward_launch<number, 32, 4>(call);
    if (call->args->head_dim <= 64)
        return backward_launch<number, 64, 4>(call);
    return backward_launch<number, 128, 4>(call);
}

void cuda_attention_backward(struct stream *stream, const struct attention_backward *args)
{
    if (args->batch == 0 || args->heads == 0)
        return;
    ENSURE(eight_fits(args->qkv, 8) && eight_fits(args->out, 8) && eight_fits(args->dout, 8) &&
               eight_fits(args->dqkv, 8),
           "tensors are not aligned");
    ENSURE(args->type != TYPE_BF16 || stream->cuda->capability >= 80,
           "bf16 is not supported by this GPU");
    struct backward_call call = {
        stream, args, {args->qkv, args->out, args->dout, args->lse, args->dqkv, NULL}};
    int64_t columns = 3 * args->heads * args->head_dim;
    if (sums_fit(args))
        call.given.sums = (float *)cuda_workspace_sums(stream->cuda, sums_bytes(args));
    if (args->type == TYPE_FP32)
        attention_float_backward(stream, args);
    else
        attention_choose(stream, "backward", args,
                         args->type == TYPE_BF16 ? backward_variant<struct bf16>
                                                 : backward_variant<struct fp16>,
                         &call);
    if (call.given.sums != NULL)
        columns_add(stream, call.given.sums, args->batch, columns, columns, args->dqkv_sums,
                    args->overwrite);
    else if (args->dqkv_sums != NULL)
        columns_sum(stream, args->type, args->dqkv, args->batch * args->tokens, columns,
                    args->dqkv_sums, args->overwrite);
}
