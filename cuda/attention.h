// SPDX-License-Identifier: BSD-3-Clause
/* Shared by the passes of attention. A block processes one head of one sample. Two of the head's
 * matrices (keys and values, or queries and gradients) are in shared memory, completely if they
 * fit, else a chunk at a time; a warp processes 16 rows of the other matrices against all of them.
 * Scores exist only in registers. In shared memory rows are zero-padded to `width` elements, and
 * their number to a multiple of 16. */
#ifndef VITTRAIN_CUDA_ATTENTION_H
#define VITTRAIN_CUDA_ATTENTION_H

#include <stdio.h>

#include "kernel.h"
#include "product.h"
#include "tensor_core.h"
#include "variant.h"

enum {
    HEAD_DIM_MOST = 128,
    TILE = 16,        /* rows per warp */
    STEP = 64,        /* tokens per step of the online softmax */
    CHUNK_MOST = 320, /* tokens; a multiple of STEP, so that steps do not depend on the GPU */
};

/* How a pass in 16 bits is computed; the fastest one is chosen (variant.h). All return the same
 * bits; only those of dqkv_sums differ. */
enum attention_variant {
    ATTENTION_4_WARPS, /* at most 4 warps per block */
    ATTENTION_8_WARPS, /* at most 8 */
    ATTENTION_WGMMA,   /* attention_wgmma.cu */
    ATTENTION_VARIANTS
};

/* Layout of heads and their split into chunks. */
struct attention_view {
    int tokens, queries, heads, head_dim;
    int chunk;       /* tokens per chunk, a multiple of TILE */
    int draws_bytes; /* with dropout: shared memory for random numbers of all warps */
    float scale;
    struct mask mask;
};

/* Round a number of rows up to whole tiles. */
__device__ __host__ static inline int rows_padded(int count)
{
    return (count + TILE - 1) / TILE * TILE;
}

/* The rows of one head in a tensor, `stride` elements apart. */
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
    ENSURE(args->queries >= 1 && args->queries <= args->tokens, "%lld queries of %lld tokens",
           (long long)args->queries, (long long)args->tokens);
    ENSURE(args->scale > 0, "attention scale %g", (double)args->scale);
    return view;
}

struct backward_tensors {
    const void *qkv, *out, *dout;
    const float *lse;
    void *dqkv;
    float *sums; /* [batch, 3, heads, head_dim] of dqkv over the tokens of a sample; or NULL */
};

/* Launches must request more than 48 KiB explicitly. */
template <typename kernel_type> static inline void shared_allow(kernel_type kernel, size_t bytes)
{
    if (bytes > 48 * 1024)
        CUDA_CHECK(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
}

/* The fp32 passes (attention_float.cu). */
void attention_float_forward(struct stream *stream, const struct attention_forward *args);
void attention_float_backward(struct stream *stream, const struct attention_backward *args);

/* The passes with wgmma. They return false, and queue nothing, if they do not support the GPU or
 * the arguments. */
template <typename number>
bool attention_wgmma_forward(struct stream *stream, const struct attention_forward *args);
template <typename number>
bool attention_wgmma_backward(struct stream *stream, const struct attention_backward *args,
                              const struct backward_tensors *given);

/* Shared memory of the backward pass: two numbers per token. */
static inline size_t attention_sums_bytes(int64_t tokens)
{
    return (size_t)rows_padded((int)tokens) * 2 * sizeof(float);
}

/* Set the chunk size for rows of `width` elements and `fixed` bytes of other shared memory; return
 * the shared memory of a block. */
static inline size_t view_cut(struct attention_view *view, const struct cuda_device *cuda,
                              int width, int warps, size_t fixed)
{
    size_t row_bytes = (size_t)width * 2 * sizeof(uint16_t);
    if (view->mask.threshold != 0)
        view->draws_bytes = warps * WARP * (int)sizeof(struct random_block);
    fixed += (size_t)view->draws_bytes;
    ENSURE(fixed + STEP * row_bytes <= cuda->shared_bytes,
           "attention over %d tokens exceeds the shared memory", view->tokens);
    int64_t most = (int64_t)((cuda->shared_bytes - fixed) / row_bytes / STEP * STEP);
    int padded = rows_padded(view->tokens);
    most = most < CHUNK_MOST ? most : (int64_t)CHUNK_MOST;
    view->chunk = padded < most ? padded : (int)most;
    return fixed + (size_t)view->chunk * row_bytes;
}

/* The smallest number of warps, at most `most`, that needs no additional round over the tiles. */
static inline int attention_warps(int tokens, int most)
{
    int tiles = rows_padded(tokens) / TILE;
    int rounds = (tiles + most - 1) / most;
    return (tiles + rounds - 1) / rounds;
}

/* True if 8 warps are a variant: heads are padded to 64 numbers, tokens are more than 4 tiles and
 * at most one chunk. */
template <typename arguments> static inline bool has_8_warps(const arguments *args)
{
    return args->head_dim > 32 && args->head_dim <= 64 && args->tokens > 4 * TILE &&
           args->tokens <= CHUNK_MOST;
}

/* Queue the fastest variant of a pass by launch(call, variant). */
template <typename arguments>
static inline void attention_choose(struct stream *stream, const char *pass, const arguments *args,
                                    variant_queue *launch, void *call)
{
    char key[CHOICE_KEY];
    snprintf(key, sizeof key, "attention %s %s %lldx%lldx%lldx%lld %lld queries%s", pass,
             type_name(args->type), (long long)args->batch, (long long)args->heads,
             (long long)args->tokens, (long long)args->head_dim, (long long)args->queries,
             args->dropout.rate > 0 ? " dropout" : "");
    variant_run(stream, key, ATTENTION_VARIANTS, launch, call);
}

/* ---- In kernels: the head of a block */
__device__ static inline int64_t block_sample(const struct attention_view &view)
{
    return blockIdx.x / (unsigned)view.heads;
}

__device__ static inline int block_head(const struct attention_view &view)
{
    return (int)(blockIdx.x % (unsigned)view.heads);
}

/* The first `count` rows of queries, keys or values (part 0, 1, 2). */
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

/* ---- Random numbers of dropout: each lane draws an octet for its warp, which shares them. They
 * are drawn before a tile's matrix products, while registers are free. Indices have 32 bits, as in
 * the definition. */
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

/* Draw the numbers of 16 queries and 16 tokens. */
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

/* ---- Rows in shared memory. Eight rows that are read at once must be in different banks: the
 * octets of a row are swizzled (XOR with the row). */
template <int width> __device__ static inline int shared_offset(int row, int octet)
{
    const int octets = width / 8;
    int swizzle = octets >= 8 ? row % 8 : row / 2 % octets;
    return (row * octets + (octet ^ swizzle)) * 16;
}

/* Copy rows first .. first + count - 1 to shared memory; copies_wait and a barrier must follow. */
template <typename number, int width>
__device__ static inline void rows_load(unsigned char *rows_shared,
                                        struct head_rows<const number> rows, int first, int count,
                                        int head_dim)
{
    const int octets = width / 8;
    for (int i = (int)threadIdx.x; i < count * octets; i += (int)blockDim.x) {
        int row = i / octets, octet = i % octets;
        unsigned char *to = rows_shared + shared_offset<width>(row, octet);
        if (first + row < rows.count && octet * 8 < head_dim)
            copy_start(to, rows.first + (first + row) * rows.stride + octet * 8);
        else
            *(struct vector16 *)to = {};
    }
}

/* Start to copy a chunk of two matrices to shared memory after all threads have finished with the
 * previous one; copies_wait and a barrier must follow. Return its rows. */
template <typename number, int width>
__device__ static inline int
chunk_start(unsigned char *rows_shared[2], struct head_rows<const number> a,
            struct head_rows<const number> b, int first, const struct attention_view &view)
{
    int left = rows_padded(a.count - first);
    int count = left < view.chunk ? left : view.chunk;
    __syncthreads();
    rows_load<number, width>(rows_shared[0], a, first, count, view.head_dim);
    rows_load<number, width>(rows_shared[1], b, first, count, view.head_dim);
    return count;
}

/* ---- Tiles of 16 rows in registers, in the layout of tensor_core.h */
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

/* Store rows of the accumulators, times a factor for the upper and the lower eight. */
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

/* Load columns k * 16 .. k * 16 + 15 of 16 rows in shared memory from `row` on: the right operands
 * of two products with the transposed rows (rows_part), or with the rows themselves
 * (columns_part). */
template <int width>
__device__ static inline void rows_part(uint32_t (&word)[4], const unsigned char *rows_shared,
                                        int row, int k)
{
    int lane = (int)threadIdx.x % WARP;
    int of_lane = lane / 16 * 8 + lane % 8; /* everything else is the same for all lanes */
    blocks_load(word, rows_shared + row * width * 2 +
                          shared_offset<width>(of_lane, k * 2 + lane / 8 % 2));
}

template <int width>
__device__ static inline void columns_part(uint32_t (&word)[4], const unsigned char *rows_shared,
                                           int row, int k)
{
    int lane = (int)threadIdx.x % WARP;
    blocks_load_transposed(word, rows_shared + row * width * 2 +
                                     shared_offset<width>(lane % 16, k * 2 + lane / 16));
}

/* Add the products of `left` with a loaded part to two adjacent accumulators. */
template <typename number>
__device__ static inline void part_add(struct sum_matrix *sums, const struct left_matrix &left,
                                       const uint32_t (&word)[4])
{
    product_add(sums[0], left, word[0], word[1], number{});
    product_add(sums[1], left, word[2], word[3], number{});
}

/* sums[16, 16] += tile . rows^T, for 16 rows in shared memory from `row` on. */
template <typename number, int width>
__device__ static inline void tile_times_rows(struct sum_matrix *sums,
                                              const struct left_matrix (&tile)[width / 16],
                                              const unsigned char *rows_shared, int row)
{
    UNROLL
    for (int k = 0; k < width / 16; k++) {
        uint32_t word[4];
        rows_part<width>(word, rows_shared, row, k);
        part_add<number>(sums, tile[k], word);
    }
}

/* sums[16, width] += weights[16, 16] . 16 rows in shared memory from `row` on. */
template <typename number, int width>
__device__ static inline void weights_times_rows(struct sum_matrix (&sums)[width / 8],
                                                 const struct left_matrix &weights,
                                                 const unsigned char *rows_shared, int row)
{
    UNROLL
    for (int k = 0; k < width / 16; k++) {
        uint32_t word[4];
        columns_part<width>(word, rows_shared, row, k);
        part_add<number>(sums + k * 2, weights, word);
    }
}

/* Round two adjacent accumulators to the left operand of a product. */
template <typename number>
__device__ static inline struct left_matrix weights_of(const struct sum_matrix *sums)
{
    struct left_matrix weights;
    UNROLL
    for (int i = 0; i < 4; i++)
        weights.word[i] =
            word_pack(sums[i / 2].value[i % 2 * 2], sums[i / 2].value[i % 2 * 2 + 1], number{});
    return weights;
}

/* Reduce over the four lanes that share a row. */
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

/* ---- Forward */

/* A warp's 16 queries: accumulators of the output and, per row, the maximum score and the lane's
 * partial sum of exponentials, for the upper (0) and lower (1) eight rows. */
template <int width> struct query_tile {
    struct left_matrix query[width / 16];
    struct sum_matrix out[width / 8];
    float most[2], total[2];
    int first;
};

/* Set the scores of padding tokens to -infinity. */
template <int blocks>
__device__ static inline void scores_mask(struct sum_matrix (&score)[blocks], int count)
{
    UNROLL
    for (int i = 0; i < blocks * 4; i++)
        if (i / 4 * 8 + (int)threadIdx.x % 4 * 2 + i % 2 >= count)
            score[i / 4].value[i % 4] = -INFINITY;
}

/* Replace scores by exponentials and rescale the accumulators to the new maximum. `exponent` is the
 * scale for powers of two. */
template <int width, int blocks>
__device__ static inline void softmax_step(struct sum_matrix (&score)[blocks],
                                           struct query_tile<width> &tile, float exponent)
{
    UNROLL
    for (int lower = 0; lower < 2; lower++) {
        float most = tile.most[lower], total = 0;
        UNROLL
        for (int i = 0; i < blocks * 2; i++)
            most = fmaxf(most, score[i / 2].value[lower * 2 + i % 2]);
        most = quad_max(most);
        float shrink = exp2_quick((tile.most[lower] - most) * exponent), offset = most * exponent;
        UNROLL
        for (int i = 0; i < blocks * 2; i++) {
            float &value = score[i / 2].value[lower * 2 + i % 2];
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

/* ---- Backward */

/* Per token, in shared memory: log2 of the sum of exponentials (infinity for tokens that are not
 * queries, so that their probabilities are 0), and the sum of dout * out, which is subtracted in
 * the softmax gradient. */
struct query_sums {
    float *lse, *correction;
    float *columns; /* the warps' column sums, [warps, 3, width]; only with backward_tensors.sums */
};

/* Add the column sums of the first `count` rows of a tile to the warp's sums of this part. In each
 * step the two lanes of a pair keep half of their columns each; the last ones begin at `first`. */
template <int width>
__device__ static inline void warp_sums_add(const struct query_sums &sums, int part, int count,
                                            const struct sum_matrix (&tile)[width / 8])
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, first = 0;
    float *columns = sums.columns + (warp * 3 + part) * width, value[width / 4];
    UNROLL
    for (int i = 0; i < width / 4; i++)
        value[i] = (lane / 4 < count ? tile[i / 2].value[i % 2] : 0) +
                   (lane / 4 + 8 < count ? tile[i / 2].value[i % 2 + 2] : 0);
    UNROLL
    for (int step = 0; step < 3; step++) {
        const int half = width / 8 >> step, distance = 4 << step;
        bool upper = (lane & distance) != 0;
        first += upper ? half : 0;
        UNROLL
        for (int i = 0; i < width / 8; i++) {
            if (i >= half)
                continue;
            float low = value[i], high = value[i + half];
            float got = __shfl_xor_sync(0xffffffffu, upper ? low : high, distance);
            value[i] = (upper ? high : low) + got;
        }
    }
    UNROLL
    for (int i = 0; i < width / 32; i++)
        columns[(first + i) / 2 * 8 + lane % 4 * 2 + (first + i) % 2] += value[i];
}

/* Add the warps' column sums, which start at `columns`, and store the totals. Those of dq and dk
 * are multiplied by the scale, as tile_store does with the gradients. */
template <int width>
__device__ static inline void warp_sums_store(const struct attention_view &view, float *to,
                                              const float *columns)
{
    __syncthreads();
    for (int i = (int)threadIdx.x; i < 3 * view.head_dim; i += (int)blockDim.x) {
        int part = i / view.head_dim, column = i % view.head_dim;
        float sum = 0;
        for (int warp = 0; warp < (int)blockDim.x / WARP; warp++)
            sum += columns[(warp * 3 + part) * width + column];
        int64_t head = (block_sample(view) * 3 + part) * view.heads + block_head(view);
        to[head * view.head_dim + column] = part < 2 ? sum * view.scale : sum;
    }
}

/* Compute the sums of dout * out over the lane's upper and lower row. */
template <typename number, int width>
__device__ static inline void corrections_find(float (&correction)[2],
                                               const struct left_matrix (&dout)[width / 16],
                                               const struct left_matrix (&out)[width / 16])
{
    correction[0] = correction[1] = 0;
    UNROLL
    for (int i = 0; i < width / 16 * 4; i++) {
        uint32_t a = dout[i / 4].word[i % 4], b = out[i / 4].word[i % 4];
        correction[i % 2] += number_load(number{(uint16_t)a}) * number_load(number{(uint16_t)b});
        correction[i % 2] +=
            number_load(number{(uint16_t)(a >> 16)}) * number_load(number{(uint16_t)(b >> 16)});
    }
    correction[0] = quad_sum(correction[0]);
    correction[1] = quad_sum(correction[1]);
}

/* Find tile.lse, as in query_sums, from that of the forward pass, and store it and
 * tile.correction for the other pass. */
template <typename tile_type>
__device__ static inline void query_sums_store(tile_type &tile, const struct attention_view &view,
                                               const float *lse, const struct query_sums &sums)
{
    int lane = (int)threadIdx.x % WARP;
    UNROLL
    for (int lower = 0; lower < 2; lower++) {
        int query = tile.first + lane / 4 + 8 * lower;
        tile.lse[lower] = query < view.queries ? lse[query] * LOG2_E : INFINITY;
        if (lane % 4 != 0)
            continue;
        sums.lse[query] = tile.lse[lower];
        sums.correction[query] = tile.correction[lower];
    }
}

#endif
