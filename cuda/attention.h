/* What the passes of attention share. A block has one head of one sample to itself. It keeps two of
 * the head's matrices (keys and values, or queries and gradients) in shared memory, all rows where
 * they fit, else a chunk at a time; a warp takes 16 rows of the others at once and goes over all
 * that is kept. So scores only ever lie in registers. In shared memory rows are padded with zeros
 * to `width` numbers, and their number to a multiple of 16. */
#ifndef VITTRAIN_CUDA_ATTENTION_H
#define VITTRAIN_CUDA_ATTENTION_H

#include "cuda.h"
#include "kernel.h"
#include "tensor_core.h"

enum {
    HEAD_DIM_MOST = 128,
    TILE = 16,           /* rows that a warp takes at once */
    STEP = 64,           /* tokens that one step of the softmax takes */
    CHUNK_MOST = 320,    /* tokens; a multiple of STEP: steps do not depend on the GPU */
    ATTENTION_WARPS = 4, /* most of a block */
    ATTENTION_THREADS = ATTENTION_WARPS * WARP
};

/* How heads lie and how they are cut up. */
struct attention_view {
    int tokens, queries, heads, head_dim;
    int chunk;       /* tokens, a multiple of TILE */
    int draws_bytes; /* where dropout is on: of shared memory, for all warps */
    float scale;
    struct mask mask;
};

/* The rows of one head in a tensor, `stride` numbers apart. */
template <typename number> struct head_rows {
    number *first;
    int64_t stride;
    int count;
};

template <typename arguments> static inline struct attention_view view_of(const arguments *args)
{
    struct attention_view view = {};
    view.tokens = (int)args->tokens;
    view.queries = (int)args->queries;
    view.heads = (int)args->heads;
    view.head_dim = (int)args->head_dim;
    view.scale = args->scale;
    view.mask = mask_of(&args->dropout);
    ENSURE(args->head_dim % 8 == 0 && args->head_dim <= HEAD_DIM_MOST, "attention heads of %lld",
           (long long)args->head_dim);
    ENSURE(args->queries >= 1 && args->queries <= args->tokens, "%lld of %lld tokens ask",
           (long long)args->queries, (long long)args->tokens);
    ENSURE(args->scale > 0, "attention scale %g", (double)args->scale);
    return view;
}

/* Launches have to ask for more than 48 KiB. */
template <typename kernel_type> static inline void shared_allow(kernel_type kernel, size_t bytes)
{
    if (bytes > 48 * 1024)
        CUDA_CHECK(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
}

/* The fp32 passes (attention_float.cu), and the shared memory of the one that needs more. */
void attention_float_forward(struct stream *stream, const struct attention_forward *args);
void attention_float_backward(struct stream *stream, const struct attention_backward *args);
size_t attention_float_bytes(int64_t tokens, int64_t head_dim);

/* Of the backward pass: two numbers of each token stay in shared memory. */
static inline size_t attention_sums_bytes(int64_t tokens)
{
    return (size_t)((tokens + TILE - 1) / TILE * TILE) * 2 * sizeof(float);
}

/* Sets how a head is cut up where rows are `width` numbers and `fixed` bytes of shared memory are
 * taken; returns how many the block needs. */
static inline size_t view_cut(struct attention_view *view, const struct cuda_device *cuda,
                              int width, int warps, size_t fixed)
{
    size_t row_bytes = (size_t)width * 2 * sizeof(uint16_t);
    if (view->mask.threshold != 0)
        view->draws_bytes = warps * WARP * (int)sizeof(struct random_block);
    fixed += (size_t)view->draws_bytes;
    ENSURE(fixed + STEP * row_bytes <= cuda->shared_bytes, "attention over %d tokens does not fit",
           view->tokens);
    int64_t most = (int64_t)((cuda->shared_bytes - fixed) / row_bytes / STEP * STEP);
    int padded = (view->tokens + TILE - 1) / TILE * TILE;
    most = most < CHUNK_MOST ? most : (int64_t)CHUNK_MOST;
    view->chunk = padded < most ? padded : (int)most;
    return fixed + (size_t)view->chunk * row_bytes;
}

/* As few warps as take all tiles in as few rounds. */
static inline int attention_warps(int tokens)
{
    int tiles = (tokens + TILE - 1) / TILE;
    int rounds = (tiles + ATTENTION_WARPS - 1) / ATTENTION_WARPS;
    return (tiles + rounds - 1) / rounds;
}

/* ---- In kernels: where a block's head is. */
__device__ static inline int64_t block_sample(const struct attention_view &view)
{
    return blockIdx.x / (unsigned)view.heads;
}

__device__ static inline int block_head(const struct attention_view &view)
{
    return (int)(blockIdx.x % (unsigned)view.heads);
}

/* Queries, keys or values (part 0, 1, 2), the first `count` rows of them. */
template <typename number>
__device__ static inline struct head_rows<number> qkv_rows(const struct attention_view &view,
                                                           number *qkv, int part, int count) {
    int64_t row = block_sample(view) * view.tokens * 3 + part;
    int64_t stride = (int64_t)view.heads * view.head_dim;
    return {qkv + row * stride + block_head(view) * view.head_dim, 3 * stride, count};
}

template <typename number>
__device__ static inline struct head_rows<number> out_rows(const struct attention_view &view,
                                                           number *out) {
    int64_t stride = (int64_t)view.heads * view.head_dim;
    return {out + block_sample(view) * view.queries * stride + block_head(view) * view.head_dim,
            stride, view.queries};
}

/* ---- Dropout's random numbers: each lane draws an octet for its warp, which shares them. Drawn
 * before a tile's products begin, while registers are free; counted in 32 bits, as many as count.
 */
__device__ static inline void
draws_make(struct random_block *draws, const struct attention_view &view, int query, int token)
{
    uint32_t octets = (uint32_t)(view.tokens + 7) / 8;
    uint32_t row = (uint32_t)(block_head(view) * view.queries + query);
    __syncwarp();
    draws[threadIdx.x % WARP] =
        mask_draw(view.mask, block_sample(view), row * octets + (uint32_t)token / 8);
    __syncwarp();
}

/* Those of 16 queries and 16 tokens from here on. */
__device__ static inline void
draws_make_tile(struct random_block *draws, const struct attention_view &view, int query, int token)
{
    int lane = (int)threadIdx.x % WARP;
    draws_make(draws, view, query + lane % TILE, token + lane / TILE * 8);
}

__device__ static inline float draws_factor(const struct random_block *draws,
                                            const struct attention_view &view, int query, int token)
{
    return mask_factor(view.mask, draws[token / 8 * TILE + query], token % 8);
}

/* ---- Rows in shared memory. Eight rows that are read at once must lie in different banks: octets
 * of a row change places with its number. */
template <int width> __device__ static inline int place_of(int row, int octet)
{
    const int octets = width / 8;
    int turn = octets >= 8 ? row % 8 : row / 2 % octets;
    return (row * octets + (octet ^ turn)) * 16;
}

/* Keeps rows first .. first + count - 1; copies_wait and a barrier follow. */
template <typename number, int width>
__device__ static inline void rows_keep(unsigned char *kept, struct head_rows<const number> rows,
                                        int first, int count, int head_dim)
{
    const int octets = width / 8;
    for (int i = (int)threadIdx.x; i < count * octets; i += (int)blockDim.x) {
        int row = i / octets, octet = i % octets;
        unsigned char *place = kept + place_of<width>(row, octet);
        if (first + row < rows.count && octet * 8 < head_dim)
            copy_start(place, rows.first + (first + row) * rows.stride + octet * 8);
        else
            *(struct vector16 *)place = {};
    }
}

/* Keeps a chunk of two matrices, when nobody reads the chunk before any more. Returns its rows. */
template <typename number, int width>
__device__ static inline int chunk_keep(unsigned char *kept[2], struct head_rows<const number> a,
                                        struct head_rows<const number> b, int first,
                                        const struct attention_view &view)
{
    int left = (a.count - first + TILE - 1) / TILE * TILE;
    int count = left < view.chunk ? left : view.chunk;
    __syncthreads();
    rows_keep<number, width>(kept[0], a, first, count, view.head_dim);
    rows_keep<number, width>(kept[1], b, first, count, view.head_dim);
    copies_wait();
    __syncthreads();
    return count;
}

/* ---- Tiles of 16 rows in registers, as tensor_core.h lays them out. */
template <typename number, int width>
__device__ static inline void tile_load(struct left_matrix (&tile)[width / 16],
                                        struct head_rows<const number> rows, int first,
                                        int head_dim)
{
    int lane = (int)threadIdx.x % WARP;
    UNROLL
    for (int part = 0; part < 2 * (width / 32); part++) {
        int lower = part % 2, group = part / 2, row = first + lane / 4 + 8 * lower;
        int column = (group * 4 + lane % 4) * 8;
        struct vector16 vector = {};
        if (row < rows.count && column < head_dim)
            vector = *(const struct vector16 *)(rows.first + row * rows.stride + column);
        quad_transpose(vector.word);
        UNROLL
        for (int i = 0; i < 4; i++)
            tile[group * 2 + i / 2].word[i % 2 * 2 + lower] = vector.word[i];
    }
}

/* Rows of the sums, times `factor` of the upper and the lower eight. */
template <typename number, int width>
__device__ static inline void tile_store(struct head_rows<number> rows, int first,
                                         const struct sum_matrix (&sums)[width / 8],
                                         float factor_upper, float factor_lower, int head_dim)
{
    int lane = (int)threadIdx.x % WARP;
    UNROLL
    for (int part = 0; part < 2 * (width / 32); part++) {
        int lower = part % 2, group = part / 2, row = first + lane / 4 + 8 * lower;
        int column = (group * 4 + lane % 4) * 8;
        float factor = lower ? factor_lower : factor_upper;
        struct vector16 vector;
        UNROLL
        for (int i = 0; i < 4; i++) {
            const float *value = sums[group * 4 + i].value + 2 * lower;
            vector.word[i] = word_pack(value[0] * factor, value[1] * factor, number{});
        }
        quad_transpose(vector.word);
        if (row < rows.count && column < head_dim)
            *(struct vector16 *)(rows.first + row * rows.stride + column) = vector;
    }
}

/* sums[16, 16] += tile . rows^T, for 16 kept rows from `row` on. */
template <typename number, int width>
__device__ static inline void tile_times_rows(struct sum_matrix (&sums)[2],
                                              const struct left_matrix (&tile)[width / 16],
                                              const unsigned char *kept, int row)
{
    int lane = (int)threadIdx.x % WARP;
    UNROLL
    for (int k = 0; k < width / 16; k++) {
        uint32_t word[4];
        int of_lane = lane / 16 * 8 + lane % 8; /* all but this is the same for all lanes */
        blocks_load(word, kept + row * width * 2 + place_of<width>(of_lane, k * 2 + lane / 8 % 2));
        product_add(sums[0], tile[k], word[0], word[1], number{});
        product_add(sums[1], tile[k], word[2], word[3], number{});
    }
}

/* sums[16, width] += weights[16, 16] . 16 kept rows from `row` on. */
template <typename number, int width>
__device__ static inline void weights_times_rows(struct sum_matrix (&sums)[width / 8],
                                                 const struct left_matrix &weights,
                                                 const unsigned char *kept, int row)
{
    int lane = (int)threadIdx.x % WARP;
    UNROLL
    for (int k = 0; k < width / 16; k++) {
        uint32_t word[4];
        blocks_load_transposed(word, kept + row * width * 2 +
                                         place_of<width>(lane % 16, k * 2 + lane / 16));
        product_add(sums[k * 2], weights, word[0], word[1], number{});
        product_add(sums[k * 2 + 1], weights, word[2], word[3], number{});
    }
}

/* Sums that lie side by side, rounded, as the left matrix of a product. */
template <typename number>
__device__ static inline struct left_matrix weights_of(const struct sum_matrix (&sums)[2])
{
    struct left_matrix weights;
    UNROLL
    for (int i = 0; i < 4; i++)
        weights.word[i] =
            word_pack(sums[i / 2].value[i % 2 * 2], sums[i / 2].value[i % 2 * 2 + 1], number{});
    return weights;
}

/* Over the four lanes that share a row. */
__device__ static inline float quad_sum(float value)
{
    value += __shfl_xor_sync(0xffffffffu, value, 1);
    return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

__device__ static inline float quad_max(float value)
{
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
    return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

#define LOG2_E 1.44269504088896341f

#endif
