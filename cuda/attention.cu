// SPDX-License-Identifier: BSD-3-Clause
/* Attention forward in bf16 and fp16 on tensor cores, with online softmax in steps of 64 tokens, so
 * that a row of scores is never stored completely (Milakov and Gimelshein 2018; Dao et al. 2022).
 */
#include "attention.h"

/* Apply dropout to 16 x 16 probabilities. */
__device__ static inline void scores_drop(struct sum_matrix *score,
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

/* Process parts * 16 tokens: `row` is their position in shared memory, `token` the index of the
 * first one. */
template <typename number, int width, int parts>
__device__ static inline void
step_run(struct query_tile<width> &tile, const struct attention_view &view,
         unsigned char *rows_shared[2], int row, int token, struct random_block *draws)
{
    struct sum_matrix score[parts * 2] = {};
    UNROLL
    for (int part = 0; part < parts; part++)
        tile_times_rows<number, width>(score + part * 2, tile.query, rows_shared[0],
                                       row + part * TILE);
    if (token + parts * TILE > view.tokens)
        scores_mask(score, view.tokens - token);
    softmax_step(score, tile, view.scale * LOG2_E);
    UNROLL
    for (int part = 0; part < parts; part++) {
        if (view.mask.threshold != 0)
            scores_drop(score + part * 2, view, draws, tile.first, token + part * TILE);
        weights_times_rows<number, width>(tile.out, weights_of<number>(score + part * 2),
                                          rows_shared[1], row + part * TILE);
    }
}

template <typename number, int width, int warps_most>
__global__ static void __launch_bounds__(warps_most *WARP, width <= 64 && warps_most == 4 ? 3 : 2)
    attention_kernel(struct attention_view view, const number *qkv, number *out, float *lse)
{
    kernel_begin(warps_most * WARP);
    SHARED_MEMORY(shared);
    int warp = (int)threadIdx.x / WARP, warps = (int)blockDim.x / WARP;
    struct random_block *draws = (struct random_block *)shared + warp * WARP;
    unsigned char *rows_shared[2] = {shared + view.draws_bytes,
                                     shared + view.draws_bytes + view.chunk * width * 2};
    struct head_rows<const number> queries = qkv_rows(view, qkv, 0, view.queries);
    struct head_rows<const number> keys = qkv_rows(view, qkv, 1, view.tokens);
    struct head_rows<const number> values = qkv_rows(view, qkv, 2, view.tokens);
    int count = 0;
    for (int round = 0; round < view.queries; round += warps * TILE) {
        struct query_tile<width> tile;
        int mine = round + warp * TILE;
        bool active = mine < view.queries;
        for (int first = 0; first < view.tokens; first += view.chunk) {
            bool loads = round == 0 || view.chunk < view.tokens;
            if (loads)
                count = chunk_start<number, width>(rows_shared, keys, values, first, view);
            if (first == 0 && active) /* while the chunk is copied */
                tile_begin<number, width>(tile, queries, mine, view.head_dim);
            if (loads) {
                copies_wait();
                __syncthreads();
            }
            int row = 0;
            for (; active && row + STEP <= count; row += STEP)
                step_run<number, width, STEP / TILE>(tile, view, rows_shared, row, first + row,
                                                     draws);
            for (; active && row < count; row += TILE)
                step_run<number, width, 1>(tile, view, rows_shared, row, first + row, draws);
        }
        if (active)
            tile_finish<number, width>(tile, view, out_rows(view, out), lse);
    }
}

struct forward_call {
    struct stream *stream;
    const struct attention_forward *args;
};

template <typename number, int width, int warps_most>
static bool forward_launch(const struct forward_call *call)
{
    const struct attention_forward *args = call->args;
    struct stream *stream = call->stream;
    struct attention_view view = view_of(args);
    int warps = attention_warps(view.tokens, warps_most);
    size_t bytes = view_cut(&view, stream->cuda, width, warps, 0);
    shared_allow(attention_kernel<number, width, warps_most>, bytes);
    KERNEL_LAUNCH((attention_kernel<number, width, warps_most>),
                  (unsigned)(args->batch * args->heads), (unsigned)(warps * WARP), bytes,
                  stream->handle, view, (const number *)args->qkv, (number *)args->out, args->lse);
    return true;
}

template <typename number> static bool forward_variant(void *context, int variant)
{
    const struct forward_call *call = (const struct forward_call *)context;
    if (variant == ATTENTION_WGMMA)
        return attention_wgmma_forward<number>(call->stream, call->args);
    if (variant == ATTENTION_8_WARPS)
        return has_8_warps(call->args) && forward_launch<number, 64, 8>(call);
    if (call->args->head_dim <= 32)
        return forward_launch<number, 32, 4>(call);
    if (call->args->head_dim <= 64)
        return forward_launch<number, 64, 4>(call);
    return forward_launch<number, 128, 4>(call);
}

void cuda_attention_forward(struct stream *stream, const struct attention_forward *args)
{
    if (args->batch == 0 || args->heads == 0)
        return;
    ENSURE(eight_fits(args->qkv, 8) && eight_fits(args->out, 8), "tensors are not aligned");
    ENSURE(args->type != TYPE_BF16 || stream->cuda->capability >= 80,
           "bf16 is not supported by this GPU");
    struct forward_call call = {stream, args};
    if (args->type == TYPE_FP32)
        attention_float_forward(stream, args);
    else
        attention_choose(stream, "forward", args,
                         args->type == TYPE_BF16 ? forward_variant<struct bf16>
                                                 : forward_variant<struct fp16>,
                         &call);
}

/* The backward pass in 16 bits needs more shared memory than the others. */
bool cuda_attention_fits(struct device *device, int64_t tokens, int64_t head_dim)
{
    const struct cuda_device *cuda = (struct cuda_device *)device;
    if (head_dim % 8 != 0 || head_dim > HEAD_DIM_MOST || tokens > 1 << 20)
        return false;
    size_t width = head_dim <= 32 ? 32 : head_dim <= 64 ? 64 : 128;
    size_t chunk = STEP * width * 2 * sizeof(uint16_t);
    size_t draws = 4 * WARP * sizeof(struct random_block);
    return attention_sums_bytes(tokens) + chunk + draws <= cuda->shared_bytes;
}
