// SPDX-License-Identifier: BSD-3-Clause
/* Attention on Hopper's warpgroups (wgmma.h), in 16 bits, with heads of 64 numbers and up to 208
 * tokens. One warpgroup computes a head, whose matrices are in shared memory completely. Softmax
 * and sums have the order of attention.cu and attention_backward.cu, which serve all other cases,
 * so the bits are the same. */
#include "attention.h"
#include "wgmma.h"

#if !defined(__CUDACC__) || defined(WITH_SM_90A)

enum { WIDTH = 64, WGMMA_TOKENS = 208, PARTS = WIDTH / TILE };

__device__ static inline unsigned char *shared_align(unsigned char *shared)
{
    return shared + (0u - shared_address(shared)) % WGMMA_ALIGNMENT;
}

/* sums[64, 8 * blocks] = left . rows^T, for rows of shared memory from `address` on. */
template <typename number, int blocks>
__device__ static inline void rows_multiply(struct sum_matrix (&sums)[blocks],
                                            const struct left_matrix (&left)[PARTS],
                                            uint32_t address)
{
    UNROLL
    for (int k = 0; k < PARTS; k++)
        wgmma_add(sums, left[k], wgmma_rows(address + k * TILE * 2), k > 0, number{});
}

/* sums[64, 64] += weights[64, 16 * parts] . rows. */
template <typename number, int parts>
__device__ static inline void rows_add(struct sum_matrix (&sums)[WIDTH / 8],
                                       const struct left_matrix (&weights)[PARTS], uint32_t address)
{
    UNROLL
    for (int part = 0; part < parts; part++)
        wgmma_add_transposed(sums, weights[part],
                             wgmma_rows(address + part * TILE * WGMMA_ROW_BYTES), true, number{});
}

template <typename number, int parts>
__device__ static inline void weights_pack(struct left_matrix (&weights)[PARTS],
                                           const struct sum_matrix (&sums)[parts * 2])
{
    UNROLL
    for (int part = 0; part < parts; part++)
        weights[part] = weights_of<number>(sums + part * 2);
}

/* ---- Forward */

/* Process parts * 16 tokens for the warp's 16 queries. The products that add to tile.out still run
 * when the function returns. Warps without queries only take part in products. */
template <typename number, int parts>
__device__ static inline void
tokens_take(struct query_tile<WIDTH> &tile, struct left_matrix (&weights)[PARTS],
            const struct attention_view &view, uint32_t keys, uint32_t values, int token)
{
    struct sum_matrix score[parts * 2];
    wgmma_hold(tile.query);
    wgmma_begin();
    rows_multiply<number>(score, tile.query, keys + token * WGMMA_ROW_BYTES);
    wgmma_commit();
    wgmma_wait();
    wgmma_hold(score);
    wgmma_hold(tile.out);
    wgmma_hold(weights);
    if (tile.first < view.queries) {
        if (token + parts * TILE > view.tokens)
            scores_mask(score, view.tokens - token);
        softmax_step(score, tile, view.scale * LOG2_E);
    }
    weights_pack<number, parts>(weights, score);
    wgmma_hold(weights);
    wgmma_hold(tile.out);
    wgmma_begin();
    rows_add<number, parts>(tile.out, weights, values + token * WGMMA_ROW_BYTES);
    wgmma_commit();
}

template <typename number>
__global__ static void __launch_bounds__(WARPGROUP, 3)
    attention_wgmma_kernel(struct attention_view view, const number *qkv, number *out, float *lse)
{
    kernel_begin(WARPGROUP);
    SHARED_MEMORY(shared);
    unsigned char *rows = shared_align(shared);
    uint32_t keys = shared_address(rows), values = keys + view.chunk * WGMMA_ROW_BYTES;
    rows_load<number, WIDTH>(rows, qkv_rows(view, qkv, 1, view.tokens), 0, view.chunk,
                             view.head_dim);
    rows_load<number, WIDTH>(rows + view.chunk * WGMMA_ROW_BYTES,
                             qkv_rows(view, qkv, 2, view.tokens), 0, view.chunk, view.head_dim);
    struct query_tile<WIDTH> tile;
    struct left_matrix weights[PARTS] = {};
    for (int first = 0; first < view.queries; first += WGMMA_ROWS) {
        tile_begin<number, WIDTH>(tile, qkv_rows(view, qkv, 0, view.queries),
                                  first + (int)threadIdx.x / WARP * TILE, view.head_dim);
        if (first == 0) {
            copies_wait();
            wgmma_publish();
            __syncthreads();
        }
        int token = 0;
        for (; token + STEP <= view.chunk; token += STEP)
            tokens_take<number, STEP / TILE>(tile, weights, view, keys, values, token);
        for (; token < view.chunk; token += TILE)
            tokens_take<number, 1>(tile, weights, view, keys, values, token);
        wgmma_wait();
        wgmma_hold(tile.out);
        tile_finish<number, WIDTH>(tile, view, out_rows(view, out), lse);
    }
}

/* ---- Backward */

/* The head's four matrices in shared memory. */
struct rows_shared {
    unsigned char *rows[4];
    uint32_t address[4];
    int count[4];
};
enum { KEYS, VALUES, QUERIES, DOUTS };

/* Load the warp's 16 rows, from `row` on, of a matrix in shared memory; zeros past its last row. */
__device__ static inline void left_load(struct left_matrix (&left)[PARTS],
                                        const struct rows_shared &shared, int which, int row)
{
    int lane = (int)threadIdx.x % WARP;
    UNROLL
    for (int k = 0; k < PARTS; k++) {
        left[k] = {};
        if (row < shared.count[which])
            blocks_load(left[k].word, shared.rows[which] + row * WGMMA_ROW_BYTES +
                                          shared_offset<WIDTH>(lane % TILE, k * 2 + lane / TILE));
    }
}

/* Queue the products of a step, which starts at `row`, of the warps' rows with two matrices. */
template <typename number, int blocks>
__device__ static inline void
scores_and_slopes(struct sum_matrix (&score)[blocks], struct sum_matrix (&slope)[blocks],
                  struct left_matrix (&a)[PARTS], struct left_matrix (&b)[PARTS],
                  const struct rows_shared &shared, int first, int row)
{
    wgmma_hold(a);
    wgmma_hold(b);
    wgmma_begin();
    rows_multiply<number>(score, a, shared.address[first] + row * WGMMA_ROW_BYTES);
    rows_multiply<number>(slope, b, shared.address[first + 1] + row * WGMMA_ROW_BYTES);
    wgmma_commit();
    wgmma_wait();
    wgmma_hold(score);
    wgmma_hold(slope);
}

struct query_rows {
    struct left_matrix query[PARTS], dout[PARTS], weights[PARTS];
    struct sum_matrix sums[WIDTH / 8];
    float lse[2], correction[2]; /* of the lane's upper and lower row */
    int first;
};

/* Gradients of queries: add the contribution of parts * 16 tokens. */
template <typename number, int parts>
__device__ static inline void gradient_add(struct query_rows &its,
                                           const struct attention_view &view,
                                           const struct rows_shared &shared, int token)
{
    struct sum_matrix score[parts * 2], slope[parts * 2];
    scores_and_slopes<number>(score, slope, its.query, its.dout, shared, KEYS, token);
    wgmma_hold(its.sums);
    wgmma_hold(its.weights);
    if (its.first < view.queries) {
        UNROLL
        for (int i = 0; i < parts * 8; i++) {
            int lower = i / 2 % 2, column = i / 4 * 8 + (int)threadIdx.x % 4 * 2 + i % 2;
            float &value = slope[i / 4].value[i % 4];
            float exponent = fmaf(score[i / 4].value[i % 4], view.scale * LOG2_E, -its.lse[lower]);
            value = exp2_quick(exponent) * (value - its.correction[lower]);
            if (token + column >= view.tokens)
                value = 0;
        }
    }
    weights_pack<number, parts>(its.weights, slope);
    wgmma_hold(its.weights);
    wgmma_hold(its.sums);
    wgmma_begin();
    rows_add<number, parts>(its.sums, its.weights, shared.address[KEYS] + token * WGMMA_ROW_BYTES);
    wgmma_commit();
}

/* Compute and store the gradients of queries; 0 for tokens that are not queries. */
template <typename number>
__device__ static inline void
queries_gradients(const struct attention_view &view, const struct backward_tensors &given,
                  const struct rows_shared &shared, const struct query_sums &sums)
{
    const float *lse = given.lse + (int64_t)blockIdx.x * view.queries;
    struct query_rows its = {};
    for (int first = 0; first < view.tokens; first += WGMMA_ROWS) {
        its.first = first + (int)threadIdx.x / WARP * TILE;
        UNROLL
        for (int i = 0; i < WIDTH / 8; i++)
            its.sums[i] = {};
        if (first < view.queries) {
            tile_load<number, WIDTH>(its.query, out_rows(view, (const number *)given.out),
                                     its.first, view.head_dim);
            left_load(its.dout, shared, DOUTS, its.first);
            corrections_find<number, WIDTH>(its.correction, its.dout, its.query);
            left_load(its.query, shared, QUERIES, its.first);
            query_sums_store(its, view, lse, sums);
            int token = 0;
            for (; token + STEP <= view.chunk; token += STEP)
                gradient_add<number, STEP / TILE>(its, view, shared, token);
            for (; token < view.chunk; token += TILE)
                gradient_add<number, 1>(its, view, shared, token);
            wgmma_wait();
            wgmma_hold(its.sums);
        }
        tile_store<number, WIDTH>(qkv_rows(view, (number *)given.dqkv, 0, view.tokens), its.first,
                                  its.sums, view.scale, view.scale, view.head_dim);
        if (given.sums != NULL)
            warp_sums_add<WIDTH>(sums, 0, view.queries - its.first, its.sums);
    }
}

struct token_rows {
    struct left_matrix key[PARTS], value[PARTS], probability[PARTS], slope[PARTS];
    struct sum_matrix dkey[WIDTH / 8], dvalue[WIDTH / 8];
    int first;
};

/* Gradients of keys and values: add the contribution of parts * 16 queries. */
template <typename number, int parts>
__device__ static inline void
gradients_add(struct token_rows &its, const struct attention_view &view,
              const struct rows_shared &shared, int query, const struct query_sums &sums)
{
    struct sum_matrix score[parts * 2], slope[parts * 2];
    scores_and_slopes<number>(score, slope, its.key, its.value, shared, QUERIES, query);
    wgmma_hold(its.dkey);
    wgmma_hold(its.dvalue);
    wgmma_hold(its.probability);
    wgmma_hold(its.slope);
    if (its.first < view.tokens) {
        UNROLL
        for (int i = 0; i < parts * 8; i++) {
            int at = query + i / 4 * 8 + (int)threadIdx.x % 4 * 2 + i % 2;
            float &probability = score[i / 4].value[i % 4], &value = slope[i / 4].value[i % 4];
            probability = exp2_quick(fmaf(probability, view.scale * LOG2_E, -sums.lse[at]));
            value = probability * (value - sums.correction[at]);
        }
    }
    weights_pack<number, parts>(its.probability, score);
    weights_pack<number, parts>(its.slope, slope);
    wgmma_hold(its.probability);
    wgmma_hold(its.slope);
    wgmma_hold(its.dkey);
    wgmma_hold(its.dvalue);
    wgmma_begin();
    rows_add<number, parts>(its.dvalue, its.probability,
                            shared.address[DOUTS] + query * WGMMA_ROW_BYTES);
    rows_add<number, parts>(its.dkey, its.slope, shared.address[QUERIES] + query * WGMMA_ROW_BYTES);
    wgmma_commit();
}

template <typename number>
__device__ static inline void
tokens_gradients(const struct attention_view &view, const struct backward_tensors &given,
                 const struct rows_shared &shared, const struct query_sums &sums)
{
    number *dqkv = (number *)given.dqkv;
    struct token_rows its = {};
    for (int first = 0; first < view.tokens; first += WGMMA_ROWS) {
        its.first = first + (int)threadIdx.x / WARP * TILE;
        left_load(its.key, shared, KEYS, its.first);
        left_load(its.value, shared, VALUES, its.first);
        UNROLL
        for (int i = 0; i < WIDTH / 8; i++)
            its.dkey[i] = its.dvalue[i] = {};
        int query = 0;
        for (; query + STEP <= shared.count[QUERIES]; query += STEP)
            gradients_add<number, STEP / TILE>(its, view, shared, query, sums);
        for (; query < shared.count[QUERIES]; query += TILE)
            gradients_add<number, 1>(its, view, shared, query, sums);
        wgmma_wait();
        wgmma_hold(its.dkey);
        wgmma_hold(its.dvalue);
        tile_store<number, WIDTH>(qkv_rows(view, dqkv, 1, view.tokens), its.first, its.dkey,
                                  view.scale, view.scale, view.head_dim);
        tile_store<number, WIDTH>(qkv_rows(view, dqkv, 2, view.tokens), its.first, its.dvalue, 1, 1,
                                  view.head_dim);
        if (given.sums != NULL) {
            warp_sums_add<WIDTH>(sums, 1, view.tokens - its.first, its.dkey);
            warp_sums_add<WIDTH>(sums, 2, view.tokens - its.first, its.dvalue);
        }
    }
}

template <typename number>
__global__ static void __launch_bounds__(WARPGROUP, 2)
    attention_wgmma_backward_kernel(struct attention_view view, struct backward_tensors given)
{
    kernel_begin(WARPGROUP);
    SHARED_MEMORY(unaligned);
    const number *qkv = (const number *)given.qkv;
    struct rows_shared shared;
    unsigned char *next = shared_align(unaligned);
    UNROLL
    for (int i = 0; i < 4; i++) {
        shared.rows[i] = next;
        shared.address[i] = shared_address(next);
        shared.count[i] = i < QUERIES ? view.chunk : rows_padded(view.queries);
        next += shared.count[i] * WGMMA_ROW_BYTES;
        rows_load<number, WIDTH>(shared.rows[i],
                                 i == DOUTS ? out_rows(view, (const number *)given.dout)
                                            : qkv_rows(view, qkv, i == QUERIES ? 0 : i + 1,
                                                       i == QUERIES ? view.queries : view.tokens),
                                 0, shared.count[i], view.head_dim);
    }
    int tiles = (view.tokens + WGMMA_ROWS - 1) / WGMMA_ROWS;
    float *lse = (float *)next;
    struct query_sums sums = {lse, lse + tiles * WGMMA_ROWS, lse + 2 * tiles * WGMMA_ROWS};
    if (given.sums != NULL)
        for (int i = (int)threadIdx.x; i < 4 * 3 * WIDTH; i += WARPGROUP)
            sums.columns[i] = 0;
    copies_wait();
    wgmma_publish();
    __syncthreads();
    queries_gradients<number>(view, given, shared, sums);
    __syncthreads();
    tokens_gradients<number>(view, given, shared, sums);
    if (given.sums != NULL)
        warp_sums_store<WIDTH>(view, given.sums, sums.columns);
}

/* ---- Launches */
template <typename arguments>
static bool is_supported(const struct stream *stream, const arguments *args)
{
    return stream->cuda->capability == 90 && args->head_dim == WIDTH &&
           args->tokens <= WGMMA_TOKENS && args->dropout.rate == 0;
}

template <typename number>
bool attention_wgmma_forward(struct stream *stream, const struct attention_forward *args)
{
    if (!is_supported(stream, args))
        return false;
    struct attention_view view = view_of(args);
    view.chunk = rows_padded(view.tokens);
    size_t bytes = WGMMA_ALIGNMENT + (size_t)view.chunk * 2 * WGMMA_ROW_BYTES;
    shared_allow(attention_wgmma_kernel<number>, bytes);
    KERNEL_LAUNCH(attention_wgmma_kernel<number>, (unsigned)(args->batch * args->heads), WARPGROUP,
                  bytes, stream->handle, view, (const number *)args->qkv, (number *)args->out,
                  args->lse);
    return true;
}

template <typename number>
bool attention_wgmma_backward(struct stream *stream, const struct attention_backward *args,
                              const struct backward_tensors *given)
{
    if (!is_supported(stream, args))
        return false;
    struct attention_view view = view_of(args);
    view.chunk = rows_padded(view.tokens);
    size_t rows = (size_t)(view.chunk + rows_padded(view.queries)) * 2;
    size_t tiles = ((size_t)view.tokens + WGMMA_ROWS - 1) / WGMMA_ROWS;
    size_t floats = 2 * tiles * WGMMA_ROWS + (given->sums != NULL ? 4 * 3 * WIDTH : 0);
    size_t bytes = WGMMA_ALIGNMENT + rows * WGMMA_ROW_BYTES + floats * sizeof(float);
    shared_allow(attention_wgmma_backward_kernel<number>, bytes);
    KERNEL_LAUNCH(attention_wgmma_backward_kernel<number>, (unsigned)(args->batch * args->heads),
                  WARPGROUP, bytes, stream->handle, view, *given);
    return true;
}

/* ---- One warpgroup computes a product of each form with left and rows, [64, 64]: left . rows^T,
 * left . (rows 16 to 31)^T and left . rows; sums: [64, 144]. Only for test_wgmma, because no
 * emulation can confirm how the hardware reads descriptors. */
template <int blocks>
__device__ static inline void sums_store(float *to, const struct sum_matrix (&sums)[blocks])
{
    int lane = (int)threadIdx.x % WARP, row = (int)threadIdx.x / WARP * TILE + lane / 4;
    UNROLL
    for (int i = 0; i < blocks * 4; i++)
        to[(row + i / 2 % 2 * 8) * 144 + i / 4 * 8 + lane % 4 * 2 + i % 2] =
            sums[i / 4].value[i % 4];
}

template <typename number>
__global__ static void __launch_bounds__(WARPGROUP)
    wgmma_forms_kernel(const number *left, const number *rows, float *sums)
{
    kernel_begin(WARPGROUP);
    SHARED_MEMORY(unaligned);
    unsigned char *shared = shared_align(unaligned);
    uint32_t address = shared_address(shared);
    struct left_matrix tile[PARTS];
    struct sum_matrix wide[WIDTH / 8], narrow[2], transposed[WIDTH / 8] = {};
    rows_load<number, WIDTH>(shared, {rows, WIDTH, WGMMA_ROWS}, 0, WGMMA_ROWS, WIDTH);
    tile_load<number, WIDTH>(tile, {left, WIDTH, WGMMA_ROWS}, (int)threadIdx.x / WARP * TILE,
                             WIDTH);
    copies_wait();
    wgmma_publish();
    __syncthreads();
    wgmma_hold(tile);
    wgmma_hold(transposed);
    wgmma_begin();
    rows_multiply<number>(wide, tile, address);
    rows_multiply<number>(narrow, tile, address + TILE * WGMMA_ROW_BYTES);
    rows_add<number, PARTS>(transposed, tile, address);
    wgmma_commit();
    wgmma_wait();
    wgmma_hold(wide);
    wgmma_hold(narrow);
    wgmma_hold(transposed);
    sums_store(sums, wide);
    sums_store(sums + 64, narrow);
    sums_store(sums + 80, transposed);
}

template <typename number>
static void forms_launch(struct stream *stream, const void *left, const void *rows, float *sums)
{
    KERNEL_LAUNCH(wgmma_forms_kernel<number>, 1, WARPGROUP,
                  WGMMA_ALIGNMENT + WGMMA_ROWS * WGMMA_ROW_BYTES, stream->handle,
                  (const number *)left, (const number *)rows, sums);
}

extern "C" bool wgmma_forms(struct stream *stream, enum data_type type, const void *left,
                            const void *rows, float *sums)
{
    if (stream->cuda->capability != 90)
        return false;
    if (type == TYPE_BF16)
        forms_launch<struct bf16>(stream, left, rows, sums);
    else
        forms_launch<struct fp16>(stream, left, rows, sums);
    return true;
}

#else

extern "C" bool wgmma_forms(struct stream *, enum data_type, const void *, const void *, float *)
{
    return false;
}

template <typename number>
bool attention_wgmma_forward(struct stream *, const struct attention_forward *)
{
    return false;
}

template <typename number>
bool attention_wgmma_backward(struct stream *, const struct attention_backward *,
                              const struct backward_tensors *)
{
    return false;
}

#endif

#define INSTANTIATE(number)                                                                        \
    template bool attention_wgmma_forward<number>(struct stream *,                                 \
                                                  const struct attention_forward *);               \
    template bool attention_wgmma_backward<number>(                                                \
        struct stream *, const struct attention_backward *, const struct backward_tensors *);
INSTANTIATE(struct bf16)
INSTANTIATE(struct fp16)
