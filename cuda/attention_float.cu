// SPDX-License-Identifier: BSD-3-Clause
/* Attention in fp32 without tensor cores: simple rather than fast. A block processes 32 rows of one
 * head, with eight lanes per row: queries, and in the backward pass keys and values as well. These
 * rows are held in registers. Rows of the other two matrices are loaded to shared memory, 32 at a
 * time, and used one by one. */
#include "attention.h"

enum {
    LANES = 8,
    ROWS = 32,
    FLOAT_THREADS = ROWS * LANES,
    QUADS = HEAD_DIM_MOST / (4 * LANES) /* maximum per lane and row */
};

struct alignas(16) four {
    float value[4];
};

/* A lane's part of a row: four numbers at each lane_column(i) before head_dim. */
struct lane_row {
    struct four quad[QUADS];
};

__device__ static inline int lane_column(int i)
{
    return (i * LANES + (int)threadIdx.x % LANES) * 4;
}

__device__ static inline struct lane_row row_load(const float *row, int head_dim)
{
    struct lane_row loaded = {};
    UNROLL
    for (int i = 0; i < QUADS; i++)
        if (lane_column(i) < head_dim)
            loaded.quad[i] = *(const struct four *)(row + lane_column(i));
    return loaded;
}

__device__ static inline void row_store(float *row, const struct lane_row &stored, int head_dim)
{
    UNROLL
    for (int i = 0; i < QUADS; i++)
        if (lane_column(i) < head_dim)
            *(struct four *)(row + lane_column(i)) = stored.quad[i];
}

/* Load row `index` of a matrix; zeros past the last one. */
__device__ static inline struct lane_row matrix_load(const struct head_rows<const float> &matrix,
                                                     int index, int head_dim)
{
    if (index >= matrix.count)
        return {};
    return row_load(matrix.first + index * matrix.stride, head_dim);
}

__device__ static inline void matrix_store(const struct head_rows<float> &matrix, int index,
                                           const struct lane_row &row, int head_dim)
{
    if (index < matrix.count)
        row_store(matrix.first + index * matrix.stride, row, head_dim);
}

/* Return the dot product to all lanes of the row. All lanes of the warp must call it. */
__device__ static inline float row_dot(const struct lane_row &a, const struct lane_row &b,
                                       int head_dim)
{
    float sum = 0;
    UNROLL
    for (int i = 0; i < QUADS; i++)
        for (int k = 0; k < 4 && i * LANES * 4 < head_dim; k++)
            sum = fmaf(a.quad[i].value[k], b.quad[i].value[k], sum);
    for (int distance = LANES / 2; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    return sum;
}

/* sum += factor * row */
__device__ static inline void row_add(struct lane_row &sum, float factor,
                                      const struct lane_row &row, int head_dim)
{
    UNROLL
    for (int i = 0; i < QUADS; i++)
        for (int k = 0; k < 4 && i * LANES * 4 < head_dim; k++)
            sum.quad[i].value[k] = fmaf(factor, row.quad[i].value[k], sum.quad[i].value[k]);
}

__device__ static inline void row_scale(struct lane_row &row, float factor)
{
    UNROLL
    for (int i = 0; i < QUADS; i++)
        for (int k = 0; k < 4; k++)
            row.quad[i].value[k] *= factor;
}

/* Shared memory of a block: 32 rows of two matrices, and the softmax corrections of 32 queries. */
struct float_memory {
    float rows[2][ROWS][HEAD_DIM_MOST], correction[ROWS];
};

/* The block's row of this thread among ROWS. */
__device__ static inline int block_row(void)
{
    return (int)threadIdx.x / LANES;
}

/* Copy rows first, first + 1, ... of two matrices to shared memory. Return their number. */
__device__ static inline int memory_load(struct float_memory &memory,
                                         const struct head_rows<const float> (&matrix)[2],
                                         int first, int head_dim)
{
    __syncthreads();
    for (int i = 0; i < 2; i++)
        row_store(memory.rows[i][block_row()],
                  matrix_load(matrix[i], first + block_row(), head_dim), head_dim);
    __syncthreads();
    return matrix[0].count - first < ROWS ? matrix[0].count - first : (int)ROWS;
}

__device__ static inline float dropout_factor(const struct attention_view &view, int query,
                                              int token)
{
    if (view.mask.threshold == 0)
        return 1;
    uint32_t octets = (uint32_t)(view.tokens + 7) / 8;
    uint32_t row = (uint32_t)(block_head(view) * view.queries + query);
    uint32_t octet = row * octets + (uint32_t)token / 8;
    return mask_factor(view.mask, mask_draw(view.mask, block_sample(view), octet), token % 8);
}

__global__ static void __launch_bounds__(FLOAT_THREADS)
    attention_float_kernel(struct attention_view view, const float *qkv, float *out, float *lse)
{
    kernel_begin(FLOAT_THREADS);
    SHARED_MEMORY(shared);
    const int head_dim = view.head_dim, query = (int)blockIdx.y * ROWS + block_row();
    struct float_memory &memory = *(struct float_memory *)shared;
    const struct head_rows<const float> others[] = {
        qkv_rows(view, qkv, 1, view.tokens), qkv_rows(view, qkv, 2, view.tokens)
    };
    const struct lane_row held = matrix_load(qkv_rows(view, qkv, 0, view.queries), query, head_dim);
    struct lane_row sum = {};
    float most = -INFINITY, total = 0;
    for (int token = 0; token < view.tokens; token += ROWS) {
        const int count = memory_load(memory, others, token, head_dim);
        for (int i = 0; i < count; i++) {
            const struct lane_row key = row_load(memory.rows[0][i], head_dim);
            const struct lane_row value = row_load(memory.rows[1][i], head_dim);
            const float score = row_dot(held, key, head_dim) * view.scale;
            if (score > most) {
                total *= expf(most - score);
                row_scale(sum, expf(most - score));
                most = score;
            }
            const float probability = expf(score - most);
            total += probability;
            row_add(sum, probability * dropout_factor(view, query, token + i), value, head_dim);
        }
    }
    row_scale(sum, 1 / total);
    matrix_store(out_rows(view, out), query, sum, head_dim);
    if (lse != NULL && query < view.queries && threadIdx.x % LANES == 0)
        lse[(int64_t)blockIdx.x * view.queries + query] = most + logf(total);
}

void attention_float_forward(struct stream *stream, const struct attention_forward *args)
{
    dim3 grid((unsigned)(args->batch * args->heads), blocks_for(args->queries, ROWS));
    KERNEL_LAUNCH(attention_float_kernel, grid, FLOAT_THREADS, sizeof(struct float_memory),
                  stream->handle, view_of(args), (const float *)args->qkv, (float *)args->out,
                  args->lse);
}

/* ---- Backward. The softmax correction of a query is the sum of dout * out over its row. */
struct gradient_tensors {
    const float *qkv, *out, *dout, *lse;
    float *dqkv;
};

/* Gradients of the block's queries or, with of_tokens, of its keys and values. */
template <bool of_tokens>
__device__ static inline void gradient_pass(const struct attention_view &view,
                                            struct float_memory &memory,
                                            const struct gradient_tensors &given)
{
    /* The matrices with a row per query, and those with a row per token. */
    const struct head_rows<const float> by_query[] = {
        qkv_rows(view, given.qkv, 0, view.queries), out_rows(view, given.dout)
    };
    const struct head_rows<const float> by_token[] = {
        qkv_rows(view, given.qkv, 1, view.tokens), qkv_rows(view, given.qkv, 2, view.tokens)
    };
    const struct head_rows<const float> out = out_rows(view, given.out);
    const float *lse = given.lse + (int64_t)blockIdx.x * view.queries;
    const auto &others = of_tokens ? by_query : by_token,
               &held_matrix = of_tokens ? by_token : by_query;
    const int head_dim = view.head_dim, row = (int)blockIdx.y * ROWS + block_row();
    const struct lane_row held[] = {matrix_load(held_matrix[0], row, head_dim),
                                    matrix_load(held_matrix[1], row, head_dim)};
    const int held_query = row < view.queries ? row : view.queries - 1;
    const int other_count = (int)blockIdx.y * ROWS < held_matrix[0].count ? others[0].count : 0;
    struct lane_row sums[2] = {};
    float correction = of_tokens ? 0 : row_dot(held[1], matrix_load(out, row, head_dim), head_dim);
    for (int first = 0; first < other_count; first += ROWS) {
        const int count = memory_load(memory, others, first, head_dim);
        if (of_tokens) {
            correction = row_dot(matrix_load(others[1], first + block_row(), head_dim),
                                 matrix_load(out, first + block_row(), head_dim), head_dim);
            if (threadIdx.x % LANES == 0)
                memory.correction[block_row()] = correction;
            __syncthreads();
        }
        for (int i = 0; i < count; i++) {
            const int query = of_tokens ? first + i : held_query;
            const int token = of_tokens ? row : first + i;
            const struct lane_row other[] = {row_load(memory.rows[0][i], head_dim),
                                             row_load(memory.rows[1][i], head_dim)};
            const float score = row_dot(held[0], other[0], head_dim) * view.scale;
            const float probability = expf(score - lse[query]);
            const float factor = dropout_factor(view, query, token);
            const float slope = row_dot(held[1], other[1], head_dim) * factor -
                                (of_tokens ? memory.correction[i] : correction);
            row_add(sums[0], probability * slope * view.scale, other[0], head_dim);
            if (of_tokens)
                row_add(sums[1], probability * factor, other[1], head_dim);
        }
    }
    const int part = of_tokens ? 1 : 0;
    matrix_store(qkv_rows(view, given.dqkv, part, view.tokens), row, sums[0], head_dim);
    if (of_tokens)
        matrix_store(qkv_rows(view, given.dqkv, 2, view.tokens), row, sums[1], head_dim);
}

__global__ static void __launch_bounds__(FLOAT_THREADS, 2)
    attention_float_backward_kernel(struct attention_view view, struct gradient_tensors given)
{
    kernel_begin(FLOAT_THREADS);
    SHARED_MEMORY(shared);
    gradient_pass<false>(view, *(struct float_memory *)shared, given);
    gradient_pass<true>(view, *(struct float_memory *)shared, given);
}

void attention_float_backward(struct stream *stream, const struct attention_backward *args)
{
    struct gradient_tensors given = {(const float *)args->qkv, (const float *)args->out,
                                     (const float *)args->dout, args->lse, (float *)args->dqkv};
    dim3 grid((unsigned)(args->batch * args->heads), blocks_for(args->tokens, ROWS));
    KERNEL_LAUNCH(attention_float_backward_kernel, grid, FLOAT_THREADS, sizeof(struct float_memory),
                  stream->handle, view_of(args), given);
}
