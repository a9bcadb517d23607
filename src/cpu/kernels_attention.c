// SPDX-License-Identifier: BSD-3-Clause
/* Attention of one head of one sample in fp32. Queries are processed in blocks whose scores against
 * all tokens fit into the L2 cache; the tokens x tokens matrix is never stored. All matrix products
 * use one kernel that holds a tile of the result in registers. */
#include <math.h>

#include "base/base.h"
#include "cpu/kernels.h"
#include "cpu/vector.h"

/* A tile of accumulators, a row of b and one broadcast factor must fit into the 32 or 16 registers.
 */
#if defined(__AVX512F__) || defined(__aarch64__)
#define TILE_ROWS 6
#define TILE_VECTORS 4
#elif defined(__AVX2__)
#define TILE_ROWS 6
#define TILE_VECTORS 2
#else
#define TILE_ROWS 4
#define TILE_VECTORS 2
#endif

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

/* Multiples of tiles of 4 and of 6 rows; smaller if a row of scores is long. */
enum { QUERIES_AT_A_TIME = 72, QUERIES_OF_MANY_TOKENS = 24, MANY_TOKENS = 1100 };

/* c [rows, columns] = or += a . b, with a(r, k) at a[r * a_row + k * a_inner], and row-major b
 * [inner, columns] and c. columns is a multiple of VECTOR_WIDTH. */
struct small_product {
    int64_t rows, inner, columns;
    const float *a;
    int64_t a_row, a_inner;
    const float *b;
    int64_t b_row;
    float *c;
    int64_t c_row;
    bool accumulate;
};

KERNEL_INLINE void tile(const struct small_product *product, int64_t row, int64_t column,
                        const int rows, const int vectors)
{
    const float *a = product->a + row * product->a_row, *b = product->b + column;
    float *c = product->c + row * product->c_row + column;
    const int64_t a_row = product->a_row, a_inner = product->a_inner, b_row = product->b_row;
    vector_float sum[TILE_ROWS][TILE_VECTORS];

    UNROLL
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            sum[r][v] = product->accumulate ? vector_load(c + r * product->c_row + v * VECTOR_WIDTH)
                                            : (vector_float){0};
    for (int64_t k = product->inner; k > 0; k--) {
        vector_float here[TILE_VECTORS];
        UNROLL
        for (int v = 0; v < vectors; v++)
            here[v] = vector_load(b + v * VECTOR_WIDTH);
        UNROLL
        for (int r = 0; r < rows; r++) {
            const vector_float factor = vector_all(a[r * a_row]);
            for (int v = 0; v < vectors; v++)
                sum[r][v] += factor * here[v];
        }
        a += a_inner;
        b += b_row;
    }
    UNROLL
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            vector_store(c + r * product->c_row + v * VECTOR_WIDTH, sum[r][v]);
}

/* All tiles of a block of columns: full tiles, then the remaining rows. */
KERNEL_INLINE void tile_column(const struct small_product *product, int64_t column,
                               const int vectors)
{
    int64_t row = 0;

    for (; row + TILE_ROWS <= product->rows; row += TILE_ROWS)
        tile(product, row, column, TILE_ROWS, vectors);
    switch (product->rows - row) {
#if TILE_ROWS > 4
    case 5:
        tile(product, row, column, 5, vectors);
        break;
    case 4:
        tile(product, row, column, 4, vectors);
        break;
#endif
    case 3:
        tile(product, row, column, 3, vectors);
        break;
    case 2:
        tile(product, row, column, 2, vectors);
        break;
    case 1:
        tile(product, row, column, 1, vectors);
        break;
    default:
        break;
    }
}

static void multiply(const struct small_product *product)
{
    int64_t column = 0;
    const int64_t width = TILE_VECTORS * VECTOR_WIDTH;

    for (; column + width <= product->columns; column += width)
        tile_column(product, column, TILE_VECTORS);
    for (; column < product->columns; column += VECTOR_WIDTH)
        tile_column(product, column, 1);
}

/* Layout of a head's fp32 copies. Distances between rows: `width` for q, k, v and their products,
 * `scores` for scores, `mask` for masks (operations.h). */
struct layout {
    int64_t width, scores, mask, queries;
};

/* Queries are split into equal blocks. */
static struct layout layout_of(const struct attention_head *head)
{
    const int64_t most = head->tokens > MANY_TOKENS ? QUERIES_OF_MANY_TOKENS : QUERIES_AT_A_TIME;
    const int64_t parts = (head->queries + most - 1) / most;
    const int64_t even = (head->queries + parts - 1) / parts;

    return (struct layout){.width = round_up(head->head_dim, VECTOR_WIDTH),
                           .scores = round_up(head->tokens, 16),
                           .mask = round_up(head->tokens, 8),
                           .queries = round_up(even, TILE_ROWS)};
}

/* Convert a row of `count` elements to fp32, times `scale`, padded with zeros to whole vectors. */
KERNEL_INLINE void pack_row(enum data_type type, const void *from, int64_t count, float scale,
                            float *row)
{
    int64_t d = 0;

    for (; d + VECTOR_WIDTH <= count; d += VECTOR_WIDTH)
        vector_store(row + d, typed_load(type, from, d) * scale);
    if (d < count)
        vector_store(row + d, typed_load_part(type, from, d, count - d) * scale);
}

/* The rows of a head are far apart in memory, which defeats the hardware prefetcher. */
KERNEL_INLINE void fetch_row(const char *row, int64_t bytes)
{
    enum { CACHE_LINE = 64 };

    for (int64_t i = 0; i < bytes; i += CACHE_LINE)
        __builtin_prefetch(row + i);
}

/* Convert [count, head_dim] rows to fp32, times `scale`. */
static void pack(const struct attention_head *head, const void *first, int64_t stride,
                 int64_t count, float scale, float *packed)
{
    enum { AHEAD = 4 };
    const int64_t width = layout_of(head).width, dim = head->head_dim;
    const int64_t size = (int64_t)type_size(head->type);

    for (int64_t r = 0; r < count; r++) {
        const char *from = (const char *)first + r * stride * size;
        float *row = packed + r * width;
        if (r + AHEAD < count)
            fetch_row(from + AHEAD * stride * size, dim * size);
        TYPED_CALL(pack_row, head->type, from, dim, scale, row);
    }
}

KERNEL_INLINE void unpack_row(enum data_type type, const float *row, int64_t count, float scale,
                              void *to)
{
    int64_t d = 0;

    for (; d + VECTOR_WIDTH <= count; d += VECTOR_WIDTH)
        typed_store(type, to, d, vector_load(row + d) * scale);
    if (d < count)
        typed_store_part(type, to, d, vector_load(row + d) * scale, count - d);
}

/* Convert fp32 rows back, times `scale` or, per row, times `scales`. */
static void unpack(const struct attention_head *head, const float *packed, float scale,
                   const float *scales, int64_t count, void *first, int64_t stride)
{
    const int64_t width = layout_of(head).width, dim = head->head_dim;
    const int64_t bytes = stride * (int64_t)type_size(head->type);

    for (int64_t r = 0; r < count; r++) {
        const float *row = packed + r * width;
        const float factor = scales != NULL ? scales[r] : scale;
        void *to = (char *)first + r * bytes;
        TYPED_CALL(unpack_row, head->type, row, dim, factor, to);
    }
}

/* Bits of four fp32 numbers. */
typedef uint32_t vector_four_words __attribute__((vector_size(16)));

/* Transpose 4 x 4 elements; from_row and to_row are the row strides. */
KERNEL_INLINE void transpose_four(const float *from, int64_t from_row, float *to, int64_t to_row)
{
    vector_four_words row[4], pair[4];

    for (int r = 0; r < 4; r++)
        memcpy(&row[r], from + r * from_row, sizeof row[r]);
    pair[0] = VECTOR_SHUFFLE(vector_four_words, row[0], row[1], 0, 4, 1, 5);
    pair[1] = VECTOR_SHUFFLE(vector_four_words, row[2], row[3], 0, 4, 1, 5);
    pair[2] = VECTOR_SHUFFLE(vector_four_words, row[0], row[1], 2, 6, 3, 7);
    pair[3] = VECTOR_SHUFFLE(vector_four_words, row[2], row[3], 2, 6, 3, 7);
    row[0] = VECTOR_SHUFFLE(vector_four_words, pair[0], pair[1], 0, 1, 4, 5);
    row[1] = VECTOR_SHUFFLE(vector_four_words, pair[0], pair[1], 2, 3, 6, 7);
    row[2] = VECTOR_SHUFFLE(vector_four_words, pair[2], pair[3], 0, 1, 4, 5);
    row[3] = VECTOR_SHUFFLE(vector_four_words, pair[2], pair[3], 2, 3, 6, 7);
    for (int r = 0; r < 4; r++)
        memcpy(to + r * to_row, &row[r], sizeof row[r]);
}

/* Transpose the packed rows of all tokens to [width, scores], with zeros in the padding. */
static void transpose(const struct attention_head *head, const float *packed, float *transposed)
{
    const struct layout layout = layout_of(head);
    const int64_t whole = head->tokens / 4 * 4;

    for (int64_t d = 0; d < layout.width; d += 4) {
        float *rows = transposed + d * layout.scores;
        for (int64_t t = 0; t < whole; t += 4)
            transpose_four(packed + t * layout.width + d, layout.width, rows + t, layout.scores);
        for (int64_t r = 0; r < 4; r++)
            for (int64_t t = whole; t < layout.scores; t++)
                rows[r * layout.scores + t] =
                    t < head->tokens ? packed[t * layout.width + d + r] : 0;
    }
}

/* scores [count, tokens] = rows . transposed; whole vectors of columns are written. */
static void scores_make(const struct attention_head *head, const float *rows, int64_t count,
                        const float *transposed, float *scores)
{
    const struct layout layout = layout_of(head);

    multiply(&(struct small_product){.rows = count,
                                     .inner = head->head_dim,
                                     .columns = round_up(head->tokens, VECTOR_WIDTH),
                                     .a = rows,
                                     .a_row = layout.width,
                                     .a_inner = 1,
                                     .b = transposed,
                                     .b_row = layout.scores,
                                     .c = scores,
                                     .c_row = layout.scores});
}

/* out [count, head_dim] = scores . rows of all tokens */
static void scores_apply(const struct attention_head *head, const float *scores, int64_t count,
                         const float *rows, float *out)
{
    const struct layout layout = layout_of(head);

    multiply(&(struct small_product){.rows = count,
                                     .inner = head->tokens,
                                     .columns = layout.width,
                                     .a = scores,
                                     .a_row = layout.scores,
                                     .a_inner = 1,
                                     .b = rows,
                                     .b_row = layout.width,
                                     .c = out,
                                     .c_row = layout.width});
}

/* sums [tokens, head_dim] = or += scores^T . rows [count, head_dim] */
static void scores_gather(const struct attention_head *head, const float *scores, int64_t count,
                          const float *rows, float *sums, bool accumulate)
{
    const struct layout layout = layout_of(head);

    multiply(&(struct small_product){.rows = head->tokens,
                                     .inner = count,
                                     .columns = layout.width,
                                     .a = scores,
                                     .a_row = 1,
                                     .a_inner = layout.scores,
                                     .b = rows,
                                     .b_row = layout.width,
                                     .c = sums,
                                     .c_row = layout.width,
                                     .accumulate = accumulate});
}

/* Compute the mask of queries first .. first + count; NULL without dropout. */
static const float *mask_make(const struct attention_head *head, int64_t first, int64_t count,
                              float *memory)
{
    const int64_t row = layout_of(head).mask;

    if (head->mask.threshold == 0)
        return NULL;
    head->random->mask(&head->mask, head->mask_block + first * (row / 8), count * row, memory);
    return memory;
}

/* Replace a row of scores by exp(score - maximum), times the mask if there is one. Return the sum
 * before masking; *maximum is set. Padding columns become 0. */
static float exponentials(const struct attention_head *head, float *row, const float *mask,
                          float *maximum)
{
    const int64_t end = round_up(head->tokens, VECTOR_WIDTH);
    vector_float most = vector_all(row[0]), sum = {0};

    for (int64_t t = head->tokens; t < end; t++)
        row[t] = -1e30f;
    for (int64_t t = 0; t < end; t += VECTOR_WIDTH)
        most = vector_max(most, vector_load(row + t));
    *maximum = vector_largest(most);
    for (int64_t t = 0; t < end; t += VECTOR_WIDTH) {
        const vector_float power = vector_exp(vector_load(row + t) - *maximum);
        vector_store(row + t, power);
        sum += power;
    }
    if (mask != NULL)
        for (int64_t t = 0; t < head->tokens; t++)
            row[t] *= mask[t];
    return vector_sum(sum);
}

static int64_t attention_memory(const struct attention_head *head, bool backward)
{
    const struct layout layout = layout_of(head);
    const int64_t tensor = head->tokens * layout.width;
    const int64_t transposed = layout.width * layout.scores;
    const int64_t rows = layout.queries * layout.width;
    const int64_t scores = layout.queries * layout.scores, mask = layout.queries * layout.mask;

    if (backward)
        return 3 * tensor + 2 * transposed + 3 * rows + 2 * scores + mask;
    return tensor + transposed + 2 * rows + scores + mask;
}

/* Return the next `count` elements of the workspace. */
static float *memory_next(float **memory, int64_t count)
{
    float *first = *memory;

    *memory += count;
    return first;
}

static void forward(const struct attention_head *head)
{
    const struct layout layout = layout_of(head);
    float *memory = head->memory;
    float *v = memory_next(&memory, head->tokens * layout.width);
    float *k_transposed = memory_next(&memory, layout.width * layout.scores);
    float *q = memory_next(&memory, layout.queries * layout.width);
    float *out = memory_next(&memory, layout.queries * layout.width);
    float *scores = memory_next(&memory, layout.queries * layout.scores);

    pack(head, head->k, head->stride, head->tokens, 1, v);
    transpose(head, v, k_transposed);
    pack(head, head->v, head->stride, head->tokens, 1, v);
    for (int64_t first = 0; first < head->queries; first += layout.queries) {
        const int64_t left = head->queries - first;
        const int64_t count = left < layout.queries ? left : layout.queries;
        const int64_t bytes = first * (int64_t)type_size(head->type);
        const float *mask = mask_make(head, first, count, memory);
        pack(head, (const char *)head->q + bytes * head->stride, head->stride, count, head->scale,
             q);
        scores_make(head, q, count, k_transposed, scores);
        float factor[QUERIES_AT_A_TIME];
        for (int64_t i = 0; i < count; i++) {
            float maximum;
            const float sum = exponentials(head, scores + i * layout.scores,
                                           mask != NULL ? mask + i * layout.mask : NULL, &maximum);
            factor[i] = 1 / sum;
            if (head->lse != NULL)
                head->lse[first + i] = maximum + logf(sum);
        }
        scores_apply(head, scores, count, v, out);
        unpack(head, out, 1, factor, count, (char *)head->out + bytes * head->out_stride,
               head->out_stride);
    }
}

/* Given a row of scores and of d(loss)/d(masked probability), compute the masked probabilities in
 * `scores` and d(loss)/d(score) in `slopes`. */
static void softmax_backward(const struct attention_head *head, float lse, const float *mask,
                             float *scores, float *slopes)
{
    const int64_t end = round_up(head->tokens, VECTOR_WIDTH);
    vector_float sum = {0};

    if (mask != NULL)
        for (int64_t t = 0; t < head->tokens; t++)
            slopes[t] *= mask[t];
    for (int64_t t = 0; t < end; t += VECTOR_WIDTH) {
        const vector_float p = vector_exp(vector_load(scores + t) - lse);
        vector_store(scores + t, p);
        sum += p * vector_load(slopes + t); /* slopes are 0 in the padding */
    }
    const float mean = vector_sum(sum);
    for (int64_t t = 0; t < end; t += VECTOR_WIDTH)
        vector_store(slopes + t, vector_load(scores + t) * (vector_load(slopes + t) - mean));
    if (mask != NULL)
        for (int64_t t = 0; t < head->tokens; t++)
            scores[t] *= mask[t];
}

/* fp32 copies of a head in the backward pass. */
struct backward_memory {
    float *k, *k_transposed, *v_transposed, *dk, *dv; /* all tokens */
    float *q, *dout, *dq, *scores, *slopes, *mask;    /* a block of queries */
};

static struct backward_memory backward_memory(const struct attention_head *head)
{
    const struct layout layout = layout_of(head);
    const int64_t tensor = head->tokens * layout.width;
    const int64_t transposed = layout.width * layout.scores;
    const int64_t rows = layout.queries * layout.width;
    const int64_t scores = layout.queries * layout.scores;
    float *memory = head->memory;

    struct backward_memory parts = {.k = memory_next(&memory, tensor)};
    parts.k_transposed = memory_next(&memory, transposed);
    parts.v_transposed = memory_next(&memory, transposed);
    parts.dk = memory_next(&memory, tensor);
    parts.dv = memory_next(&memory, tensor);
    parts.q = memory_next(&memory, rows);
    parts.dout = memory_next(&memory, rows);
    parts.dq = memory_next(&memory, rows);
    parts.scores = memory_next(&memory, scores);
    parts.slopes = memory_next(&memory, scores);
    parts.mask = memory;
    return parts;
}

static void backward_queries(const struct attention_head *head, const struct backward_memory *parts,
                             int64_t first, int64_t count)
{
    const struct layout layout = layout_of(head);
    const int64_t bytes = first * (int64_t)type_size(head->type);
    const float *mask = mask_make(head, first, count, parts->mask);

    pack(head, (const char *)head->q + bytes * head->stride, head->stride, count, head->scale,
         parts->q);
    pack(head, (const char *)head->dout + bytes * head->out_stride, head->out_stride, count, 1,
         parts->dout);
    scores_make(head, parts->q, count, parts->k_transposed, parts->scores);
    scores_make(head, parts->dout, count, parts->v_transposed, parts->slopes);
    for (int64_t i = 0; i < count; i++)
        softmax_backward(head, head->lse_read[first + i],
                         mask != NULL ? mask + i * layout.mask : NULL,
                         parts->scores + i * layout.scores, parts->slopes + i * layout.scores);
    scores_apply(head, parts->slopes, count, parts->k, parts->dq);
    unpack(head, parts->dq, head->scale, NULL, count, (char *)head->dq + bytes * head->stride,
           head->stride);
    scores_gather(head, parts->slopes, count, parts->q, parts->dk, first > 0);
    scores_gather(head, parts->scores, count, parts->dout, parts->dv, first > 0);
}

static void backward(const struct attention_head *head)
{
    const struct layout layout = layout_of(head);
    const struct backward_memory parts = backward_memory(head);
    const int64_t size = (int64_t)type_size(head->type);

    pack(head, head->v, head->stride, head->tokens, 1, parts.k);
    transpose(head, parts.k, parts.v_transposed);
    pack(head, head->k, head->stride, head->tokens, 1, parts.k);
    transpose(head, parts.k, parts.k_transposed);
    for (int64_t first = 0; first < head->queries; first += layout.queries) {
        const int64_t left = head->queries - first;
        backward_queries(head, &parts, first, left < layout.queries ? left : layout.queries);
    }
    unpack(head, parts.dk, 1, NULL, head->tokens, head->dk, head->stride);
    unpack(head, parts.dv, 1, NULL, head->tokens, head->dv, head->stride);
    for (int64_t t = head->queries; t < head->tokens; t++)
        memset((char *)head->dq + t * head->stride * size, 0, (size_t)(head->head_dim * size));
}

const struct attention_kernels KERNEL(attention_kernels) = {attention_memory, forward, backward};
