// SPDX-License-Identifier: BSD-3-Clause
/* Attention in fp32 without tensor cores. A warp processes 4 rows (of queries, or of keys and
 * values) against 32 rows in shared memory at a time; each lane computes one score per row. Every
 * value read from shared memory is used for 4 rows. */
#include "attention.h"

enum {
    ROWS = 4,
    FLOAT_WARPS = 4,
    ROUND_ROWS = ROWS * FLOAT_WARPS,
    LANE_DIMS = HEAD_DIM_MOST / WARP
};

struct alignas(16) four {
    float value[4];
};

/* Shared memory of a block: 32 rows of two matrices; then per warp its rows of two matrices, their
 * weights for the 32 rows, and random numbers; then per token the log of the sum of exponentials
 * and the softmax correction (backward). Rows are `stride` floats apart, so that lanes that read
 * one row each access different banks. */
struct float_memory {
    float *shared_rows[2], *warp_rows[2];
    struct four *weights[2];
    struct random_block *draws;
    float *lse, *correction;
    int stride;
};

__host__ __device__ static inline size_t warp_floats(int64_t head_dim)
{
    return (size_t)(2 * ROWS * head_dim + 2 * WARP * ROWS + 4 * WARP);
}

size_t attention_float_bytes(int64_t tokens, int64_t head_dim)
{
    size_t shared_rows = (size_t)(2 * WARP * (head_dim + 4)), all_tokens = (size_t)(2 * tokens);
    return (shared_rows + FLOAT_WARPS * warp_floats(head_dim) + all_tokens) * sizeof(float);
}

__device__ static inline struct float_memory room_of(unsigned char *shared,
                                                     const struct attention_view &view)
{
    struct float_memory memory;
    int head_dim = view.head_dim, warp = (int)threadIdx.x / WARP;
    memory.stride = head_dim + 4;
    memory.shared_rows[0] = (float *)shared;
    memory.shared_rows[1] = memory.shared_rows[0] + WARP * memory.stride;
    float *warps = memory.shared_rows[1] + WARP * memory.stride;
    size_t each = warp_floats(head_dim);
    memory.warp_rows[0] = warps + each * (size_t)warp;
    memory.warp_rows[1] = memory.warp_rows[0] + ROWS * head_dim;
    memory.weights[0] = (struct four *)(memory.warp_rows[1] + ROWS * head_dim);
    memory.weights[1] = memory.weights[0] + WARP;
    memory.draws = (struct random_block *)(memory.weights[1] + WARP);
    memory.lse = warps + each * FLOAT_WARPS;
    memory.correction = memory.lse + view.tokens;
    return memory;
}

/* Copy rows with `threads` threads, of which this is `thread`; rows past the end become zeros. */
__device__ static inline void rows_copy(float *to, int stride, struct head_rows<const float> rows,
                                        int first, int count, int head_dim, int thread, int threads)
{
    int quarters = head_dim / 4;
    for (int i = thread; i < count * quarters; i += threads) {
        int row = i / quarters, column = i % quarters * 4;
        struct four four = {};
        if (first + row < rows.count)
            four = *(const struct four *)(rows.first + (first + row) * rows.stride + column);
        *(struct four *)(to + row * stride + column) = four;
    }
}

__device__ static inline void room_keep(const struct float_memory &memory,
                                        struct head_rows<const float> a,
                                        struct head_rows<const float> b, int first, int head_dim)
{
    __syncthreads();
    rows_copy(memory.shared_rows[0], memory.stride, a, first, WARP, head_dim, (int)threadIdx.x,
              (int)blockDim.x);
    rows_copy(memory.shared_rows[1], memory.stride, b, first, WARP, head_dim, (int)threadIdx.x,
              (int)blockDim.x);
    __syncthreads();
}

__device__ static inline void warp_rows_load(float *warp_rows, struct head_rows<const float> rows,
                                             int first, int head_dim)
{
    __syncwarp();
    rows_copy(warp_rows, head_dim, rows, first, ROWS, head_dim, (int)threadIdx.x % WARP, WARP);
    __syncwarp();
}

/* Dot products of the warp's rows with the lane's row in shared memory. */
__device__ static inline void rows_dot(float (&sum)[ROWS], const float *warp_rows,
                                       const float *shared_rows, int head_dim)
{
    UNROLL
    for (int r = 0; r < ROWS; r++)
        sum[r] = 0;
    for (int d = 0; d < head_dim; d += 4) {
        struct four b = *(const struct four *)(shared_rows + d);
        UNROLL
        for (int r = 0; r < ROWS; r++) {
            struct four a = *(const struct four *)(warp_rows + r * head_dim + d);
            UNROLL
            for (int i = 0; i < 4; i++)
                sum[r] = fmaf(a.value[i], b.value[i], sum[r]);
        }
    }
}

/* Accumulators of the warp's rows: a lane has columns lane, lane + 32, ... */
struct row_sums {
    float value[ROWS][LANE_DIMS];
};

/* sums += weights . rows in shared memory; each lane passes the weights of its row. */
__device__ static inline void rows_add(struct row_sums &sums, const float (&weight)[ROWS],
                                       struct four *weights, const float *shared_rows, int stride,
                                       int head_dim)
{
    int lane = (int)threadIdx.x % WARP;
    __syncwarp();
    weights[lane] = {{weight[0], weight[1], weight[2], weight[3]}};
    __syncwarp();
    for (int row = 0; row < WARP; row++) {
        struct four of_row = weights[row];
        UNROLL
        for (int i = 0; i < LANE_DIMS; i++) {
            if (i * WARP + lane >= head_dim)
                continue;
            float value = shared_rows[row * stride + i * WARP + lane];
            UNROLL
            for (int r = 0; r < ROWS; r++)
                sums.value[r][i] = fmaf(of_row.value[r], value, sums.value[r][i]);
        }
    }
}

__device__ static inline void rows_store(struct head_rows<float> rows, int first,
                                         const struct row_sums &sums, const float (&factor)[ROWS],
                                         int head_dim)
{
    int lane = (int)threadIdx.x % WARP;
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        UNROLL
        for (int i = 0; i < LANE_DIMS; i++)
            if (first + r < rows.count && i * WARP + lane < head_dim)
                rows.first[(first + r) * rows.stride + i * WARP + lane] =
                    sums.value[r][i] * factor[r];
    }
}

/* Dropout factors of 4 queries and the lane's token; 1 without dropout. */
__device__ static inline void factors_of_queries(float (&factor)[ROWS],
                                                 const struct attention_view &view,
                                                 struct random_block *draws, int query, int token)
{
    int lane = (int)threadIdx.x % WARP;
    UNROLL
    for (int r = 0; r < ROWS; r++)
        factor[r] = 1;
    if (view.mask.threshold == 0)
        return;
    draws_make(draws, view, query + lane % ROWS, token + lane / ROWS % 4 * 8);
    UNROLL
    for (int r = 0; r < ROWS; r++)
        factor[r] = mask_factor(view.mask, draws[lane / 8 * ROWS + r], lane % 8);
}

/* Dropout factors of the lane's query and 4 tokens, which share an octet. */
__device__ static inline void factors_of_tokens(float (&factor)[ROWS],
                                                const struct attention_view &view,
                                                struct random_block *draws, int query, int token)
{
    int lane = (int)threadIdx.x % WARP;
    UNROLL
    for (int r = 0; r < ROWS; r++)
        factor[r] = 1;
    if (view.mask.threshold == 0)
        return;
    draws_make(draws, view, query + lane, token);
    UNROLL
    for (int r = 0; r < ROWS; r++)
        factor[r] = mask_factor(view.mask, draws[lane], token % 8 + r);
}

/* ---- Forward */
struct float_queries {
    struct row_sums out;
    float most[ROWS], total[ROWS]; /* total: over the lane's tokens */
};

__device__ static inline void queries_take(struct float_queries &its,
                                           const struct attention_view &view,
                                           const struct float_memory &memory, int query, int token)
{
    int lane = (int)threadIdx.x % WARP;
    float score[ROWS], factor[ROWS];
    rows_dot(score, memory.warp_rows[0], memory.shared_rows[0] + lane * memory.stride,
             view.head_dim);
    factors_of_queries(factor, view, memory.draws, query, token);
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        score[r] = token + lane < view.tokens ? score[r] * view.scale : -INFINITY;
        float most = fmaxf(its.most[r], warp_max(score[r]));
        float shrink = expf(its.most[r] - most);
        score[r] = expf(score[r] - most);
        its.most[r] = most;
        its.total[r] = its.total[r] * shrink + score[r];
        score[r] *= factor[r];
        UNROLL
        for (int i = 0; i < LANE_DIMS; i++)
            its.out.value[r][i] *= shrink;
    }
    rows_add(its.out, score, memory.weights[0], memory.shared_rows[1], memory.stride,
             view.head_dim);
}

__device__ static inline void queries_finish(struct float_queries &its,
                                             const struct attention_view &view, int query,
                                             float *out, float *lse)
{
    float factor[ROWS];
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        float total = warp_sum(its.total[r]);
        factor[r] = 1 / total;
        if (lse != NULL && query + r < view.queries && threadIdx.x % WARP == 0)
            lse[(int64_t)blockIdx.x * view.queries + query + r] = its.most[r] + logf(total);
    }
    rows_store(out_rows(view, out), query, its.out, factor, view.head_dim);
}

__global__ static void __launch_bounds__(FLOAT_WARPS *WARP)
    attention_float_kernel(struct attention_view view, const float *qkv, float *out, float *lse)
{
    kernel_begin(FLOAT_WARPS * WARP);
    SHARED_MEMORY(shared);
    struct float_memory memory = room_of(shared, view);
    struct head_rows<const float> queries = qkv_rows(view, qkv, 0, view.queries);
    struct head_rows<const float> keys = qkv_rows(view, qkv, 1, view.tokens);
    struct head_rows<const float> values = qkv_rows(view, qkv, 2, view.tokens);
    for (int round = 0; round < view.queries; round += ROUND_ROWS) {
        int query = round + (int)threadIdx.x / WARP * ROWS;
        struct float_queries its = {};
        UNROLL
        for (int r = 0; r < ROWS; r++)
            its.most[r] = -INFINITY;
        warp_rows_load(memory.warp_rows[0], queries, query, view.head_dim);
        for (int token = 0; token < view.tokens; token += WARP) {
            room_keep(memory, keys, values, token, view.head_dim);
            if (query < view.queries)
                queries_take(its, view, memory, query, token);
        }
        if (query < view.queries)
            queries_finish(its, view, query, out, lse);
    }
}

void attention_float_forward(struct stream *stream, const struct attention_forward *args)
{
    struct attention_view view = view_of(args);
    size_t bytes = attention_float_bytes(0, args->head_dim);
    shared_allow(attention_float_kernel, bytes);
    KERNEL_LAUNCH(attention_float_kernel, (unsigned)(args->batch * args->heads), FLOAT_WARPS * WARP,
                  bytes, stream->handle, view, (const float *)args->qkv, (float *)args->out,
                  args->lse);
}

/* ---- Backward: first the gradient of queries, then those of keys and values */
struct gradient_tensors {
    const float *qkv, *out, *dout, *lse;
    float *dqkv;
};

/* Load the warp's 4 queries and store correction = sum of dout * out over a row. */
__device__ static inline void dqueries_begin(const struct attention_view &view,
                                             const struct float_memory &memory, int query,
                                             const struct gradient_tensors &given)
{
    int lane = (int)threadIdx.x % WARP;
    struct head_rows<const float> out = out_rows(view, given.out);
    warp_rows_load(memory.warp_rows[0], qkv_rows(view, given.qkv, 0, view.queries), query,
                   view.head_dim);
    warp_rows_load(memory.warp_rows[1], out_rows(view, given.dout), query, view.head_dim);
    for (int r = 0; r < ROWS && query + r < view.queries; r++) {
        float sum = 0;
        for (int d = lane; d < view.head_dim; d += WARP)
            sum += memory.warp_rows[1][r * view.head_dim + d] *
                   out.first[(query + r) * out.stride + d];
        sum = warp_sum(sum);
        if (lane == 0) {
            memory.correction[query + r] = sum;
            memory.lse[query + r] = given.lse[(int64_t)blockIdx.x * view.queries + query + r];
        }
    }
    __syncwarp();
}

__device__ static inline void dqueries_take(struct row_sums &dqueries,
                                            const struct attention_view &view,
                                            const struct float_memory &memory, int query, int token)
{
    int lane = (int)threadIdx.x % WARP;
    float score[ROWS], slope[ROWS], factor[ROWS];
    rows_dot(score, memory.warp_rows[0], memory.shared_rows[0] + lane * memory.stride,
             view.head_dim);
    rows_dot(slope, memory.warp_rows[1], memory.shared_rows[1] + lane * memory.stride,
             view.head_dim);
    factors_of_queries(factor, view, memory.draws, query, token);
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        bool is = token + lane < view.tokens && query + r < view.queries;
        float lse = is ? memory.lse[query + r] : INFINITY;
        float correction = is ? memory.correction[query + r] : 0;
        slope[r] = expf(score[r] * view.scale - lse) * (slope[r] * factor[r] - correction);
    }
    rows_add(dqueries, slope, memory.weights[0], memory.shared_rows[0], memory.stride,
             view.head_dim);
}

__device__ static inline void dqueries_pass(const struct attention_view &view,
                                            const struct float_memory &memory,
                                            const struct gradient_tensors &given)
{
    struct head_rows<const float> keys = qkv_rows(view, given.qkv, 1, view.tokens);
    struct head_rows<const float> values = qkv_rows(view, given.qkv, 2, view.tokens);
    const float factor[ROWS] = {view.scale, view.scale, view.scale, view.scale};
    for (int round = 0; round < view.tokens; round += ROUND_ROWS) {
        int query = round + (int)threadIdx.x / WARP * ROWS;
        struct row_sums dqueries = {};
        if (query < view.queries)
            dqueries_begin(view, memory, query, given);
        for (int token = 0; round < view.queries && token < view.tokens; token += WARP) {
            room_keep(memory, keys, values, token, view.head_dim);
            if (query < view.queries)
                dqueries_take(dqueries, view, memory, query, token);
        }
        rows_store(qkv_rows(view, given.dqkv, 0, view.tokens), query, dqueries, factor,
                   view.head_dim);
    }
}

__device__ static inline void dkeys_take(struct row_sums &dkeys, struct row_sums &dvalues,
                                         const struct attention_view &view,
                                         const struct float_memory &memory, int token, int query)
{
    int lane = (int)threadIdx.x % WARP;
    float score[ROWS], slope[ROWS], factor[ROWS];
    bool asks = query + lane < view.queries;
    float lse = asks ? memory.lse[query + lane] : INFINITY;
    float correction = asks ? memory.correction[query + lane] : 0;
    rows_dot(score, memory.warp_rows[0], memory.shared_rows[0] + lane * memory.stride,
             view.head_dim);
    rows_dot(slope, memory.warp_rows[1], memory.shared_rows[1] + lane * memory.stride,
             view.head_dim);
    factors_of_tokens(factor, view, memory.draws, query, token);
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        score[r] = expf(score[r] * view.scale - lse);
        slope[r] = score[r] * (slope[r] * factor[r] - correction);
        score[r] *= factor[r];
    }
    rows_add(dvalues, score, memory.weights[0], memory.shared_rows[1], memory.stride,
             view.head_dim);
    rows_add(dkeys, slope, memory.weights[1], memory.shared_rows[0], memory.stride, view.head_dim);
}

__device__ static inline void dkeys_pass(const struct attention_view &view,
                                         const struct float_memory &memory,
                                         const struct gradient_tensors &given)
{
    struct head_rows<const float> queries = qkv_rows(view, given.qkv, 0, view.queries);
    struct head_rows<const float> douts = out_rows(view, given.dout);
    const float scale[ROWS] = {view.scale, view.scale, view.scale, view.scale};
    const float one[ROWS] = {1, 1, 1, 1};
    for (int round = 0; round < view.tokens; round += ROUND_ROWS) {
        int token = round + (int)threadIdx.x / WARP * ROWS;
        struct row_sums dkeys = {}, dvalues = {};
        warp_rows_load(memory.warp_rows[0], qkv_rows(view, given.qkv, 1, view.tokens), token,
                       view.head_dim);
        warp_rows_load(memory.warp_rows[1], qkv_rows(view, given.qkv, 2, view.tokens), token,
                       view.head_dim);
        for (int query = 0; query < view.queries; query += WARP) {
            room_keep(memory, queries, douts, query, view.head_dim);
            dkeys_take(dkeys, dvalues, view, memory, token, query);
        }
        rows_store(qkv_rows(view, given.dqkv, 1, view.tokens), token, dkeys, scale, view.head_dim);
        rows_store(qkv_rows(view, given.dqkv, 2, view.tokens), token, dvalues, one, view.head_dim);
    }
}

__global__ static void __launch_bounds__(FLOAT_WARPS *WARP)
    attention_float_backward_kernel(struct attention_view view, struct gradient_tensors given)
{
    kernel_begin(FLOAT_WARPS * WARP);
    SHARED_MEMORY(shared);
    struct float_memory memory = room_of(shared, view);
    dqueries_pass(view, memory, given);
    dkeys_pass(view, memory, given);
}

void attention_float_backward(struct stream *stream, const struct attention_backward *args)
{
    struct attention_view view = view_of(args);
    struct gradient_tensors given = {(const float *)args->qkv, (const float *)args->out,
                                     (const float *)args->dout, args->lse, (float *)args->dqkv};
    size_t bytes = attention_float_bytes(args->tokens, args->head_dim);
    ENSURE(bytes <= stream->cuda->shared_bytes,
           "attention over %d tokens exceeds the shared memory", view.tokens);
    shared_allow(attention_float_backward_kernel, bytes);
    KERNEL_LAUNCH(attention_float_backward_kernel, (unsigned)(args->batch * args->heads),
                  FLOAT_WARPS * WARP, bytes, stream->handle, view, given);
}
