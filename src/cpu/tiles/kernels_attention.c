// SPDX-License-Identifier: BSD-3-Clause
/* Attention of one head of one sample in bf16 with tiles, for heads of 32, 64, 96 or 128 numbers.
 * Sums, scores and the softmax are fp32. Probabilities and gradients of scores are rounded to bf16
 * before they are multiplied, as on GPUs. Queries are processed 32 at a time, in two strips; their
 * scores against all tokens stay in the L1 or L2 cache. The backward pass recomputes the scores and
 * stores the rounded strips of a block of queries. The gradients of k and v are sums over queries;
 * they are computed transposed, for a whole block at once. The stored strips are then an operand b,
 * whose rows are pairs of queries, and need no transposition. All operands are padded with zeros to
 * multiples of 32.
 *
 * Limits for heads of 64 on Sapphire Rapids, computed for 32 x 32 scores, which are 64 vectors, at
 * two vector instructions per cycle. Forward: 256 cycles for 2 products of 65,536 multiplications,
 * 64 cycles for the largest score, 640 cycles for exponentials, their sum and rounding. Backward:
 * 640 cycles for 5 products, 580 cycles for exponentials, 380 cycles for gradients and rounding. If
 * out-of-order execution overlaps the products with vector instructions, the latter limit the speed
 * to 370 (forward) and 680 (backward) operations per cycle, of the 2,048 of the tiles. */
#include <math.h>

#include "cpu/cpu.h"
#include "cpu/tiles/tile.h"

/* PAIR: lines of a pair of strips. WIDEST: largest dimension of a head. */
enum { PAIR = 2 * TILE, WIDEST = 128 };
/* Largest block of queries, and bytes of its probabilities in the L2 cache; a block has at least
 * PAIR queries. */
enum { QUERIES_MOST = 256, BLOCK_BYTES = 256 << 10 };

/* tokens: padded. row: distance between rows of scores, an odd number of cache lines, so that the
 * rows of a tile are in different cache sets. block: queries of a block. */
struct layout {
    int64_t dim, tokens, row, block;
};

static struct layout layout_of(const struct attention_head *head)
{
    const int64_t tokens = round_up(head->tokens, PAIR);
    const int64_t fit = BLOCK_BYTES / (tokens * 2) / PAIR * PAIR;
    const int64_t most = integer_clamp(fit, PAIR, QUERIES_MOST);
    const int64_t queries = round_up(head->queries, PAIR);

    return (struct layout){.dim = head->head_dim,
                           .tokens = tokens,
                           .row = tokens + TILE,
                           .block = queries < most ? queries : most};
}

/* Packed operands a and b of products are pairs of strips of 16 lines (struct tile_strips). */
struct operands {
    uint16_t *k;                        /* b: strips of tokens */
    uint16_t *v;                        /* b: strips of columns; backward: of tokens */
    uint16_t *k_columns;                /* b: strips of columns */
    uint16_t *q, *dout;                 /* a: strips of PAIR queries */
    uint16_t *q_columns, *dout_columns; /* a: strips of columns, of a block of queries */
    uint16_t *rows;                     /* a: p, backward: ds, of 32 queries */
    uint16_t *p, *ds;                   /* b: strips of tokens, of a block of queries */
    float *scores, *slopes;             /* [32, tokens] */
    float *out;                         /* [32, dim]: out or dq */
    float *dk, *dv;                     /* [dim, tokens] */
    float *mask;                        /* [2, tokens] */
};

/* Return the next `bytes` of the workspace; NULL if it is only measured. */
static void *memory_next(const struct attention_head *head, int64_t *used, int64_t bytes)
{
    void *part = head->memory == NULL ? NULL : (char *)head->memory + *used;

    *used += round_up(bytes, TILE_ROW);
    return part;
}

static struct operands operands_of(const struct attention_head *head, bool backward, int64_t *used)
{
    const struct layout l = layout_of(head);
    const int64_t tensor = l.tokens * l.dim * 2, strip = PAIR * l.dim * 2;
    const int64_t scores = PAIR * l.row * 4, sums = l.dim * l.row * 4;
    struct operands o = {.k = memory_next(head, used, tensor)};

    o.v = memory_next(head, used, tensor);
    o.q = memory_next(head, used, strip);
    o.rows = memory_next(head, used, PAIR * l.tokens * 2);
    o.scores = memory_next(head, used, scores);
    o.out = memory_next(head, used, 2 * strip);
    o.mask = memory_next(head, used, 2 * l.tokens * 4);
    if (!backward)
        return o;
    o.k_columns = memory_next(head, used, tensor);
    o.dout = memory_next(head, used, strip);
    o.q_columns = memory_next(head, used, l.block * l.dim * 2);
    o.dout_columns = memory_next(head, used, l.block * l.dim * 2);
    o.p = memory_next(head, used, l.block * l.tokens * 2);
    o.ds = memory_next(head, used, l.block * l.tokens * 2);
    o.slopes = memory_next(head, used, scores);
    o.dk = memory_next(head, used, sums);
    o.dv = memory_next(head, used, sums);
    return o;
}

static int64_t attention_memory(const struct attention_head *head, bool backward)
{
    struct attention_head measured = *head;
    int64_t used = 0;

    if (head->head_dim % PAIR != 0 || head->head_dim > WIDEST)
        return 0;
    measured.memory = NULL;
    operands_of(&measured, backward, &used);
    return used / (int64_t)sizeof(float);
}

/* Pack rows [count, dim] as strips of rows. Rows are prefetched because the hardware does not
 * prefetch rows that are far apart. */
static void pack_rows(const struct attention_head *head, const uint16_t *first, int64_t stride,
                      int64_t count, bool of_b, uint16_t *strips)
{
    const int64_t dim = head->head_dim;

    for (int64_t row = 0; row < count; row += PAIR) {
        for (int64_t next = row + PAIR; next < smaller(count, row + 2 * PAIR); next++)
            for (int64_t d = 0; d < dim; d += TILE_INNER)
                __builtin_prefetch(first + next * stride + d);
        KERNEL(tile_product_kernels)
            .pack(&(struct tile_strips){.from = first + row * stride,
                                        .lines = smaller(count - row, PAIR),
                                        .k = dim,
                                        .stride = stride,
                                        .step = TILE * dim,
                                        .along_k = true,
                                        .of_b = of_b},
                  strips + row * dim);
    }
}

/* Pack rows [count, dim] as strips of columns. */
static void pack_columns(const struct attention_head *head, const uint16_t *first, int64_t stride,
                         int64_t count, bool of_b, uint16_t *strips)
{
    const int64_t padded = round_up(count, PAIR);

    for (int64_t d = 0; d < head->head_dim; d += PAIR)
        KERNEL(tile_product_kernels)
            .pack(&(struct tile_strips){.from = first + d,
                                        .lines = PAIR,
                                        .k = count,
                                        .stride = stride,
                                        .step = TILE * padded,
                                        .of_b = of_b},
                  strips + d * padded);
}

/* Store fp32 rows [count, dim] as bf16, times scales[row] or, if it is NULL, times `scale`. */
static void unpack(const struct attention_head *head, const float *rows, float scale,
                   const float *scales, int64_t count, uint16_t *first, int64_t stride)
{
    const int64_t dim = head->head_dim;

    for (int64_t r = 0; r < count; r++) {
        const float factor = scales != NULL ? scales[r] : scale;
        for (int64_t d = 0; d < dim; d += TILE)
            vector_to_bf16(first + r * stride + d, vector_load(rows + r * dim + d) * factor);
    }
}

/* Store fp32 columns [dim, tokens] as bf16 rows of all tokens, times `scale`. */
static void unpack_columns(const struct attention_head *head, const float *columns, float scale,
                           uint16_t *first)
{
    const struct layout l = layout_of(head);

    for (int64_t t = 0; t < head->tokens; t += TILE)
        for (int64_t d = 0; d < l.dim; d += TILE) {
            vector_word rows[TILE];
            TILE_UNROLL
            for (int i = 0; i < TILE; i++)
                rows[i] = word_load(columns + (d + i) * l.row + t);
            words_transpose(rows);
            for (int64_t i = 0; i < integer_clamp(head->tokens - t, 0, TILE); i++)
                vector_to_bf16(first + (t + i) * head->stride + d, (vector_float)rows[i] * scale);
        }
}

/* scores [32, tokens] = rows . k^T */
static void scores_make(const struct layout *l, const uint16_t *rows, const uint16_t *k,
                        float *scores)
{
    KERNEL(tile_product_kernels)
        .multiply(&(struct tile_block){.a = rows,
                                       .b = k,
                                       .c = scores,
                                       .a_step = TILE * l->dim,
                                       .b_step = TILE * l->dim,
                                       .c_stride = l->row,
                                       .pairs = l->tokens / PAIR,
                                       .tiles = l->dim / TILE_INNER,
                                       .begin = true});
}

/* out [32, dim] = rows [32, tokens] . columns */
static void scores_apply(const struct layout *l, const struct operands *o, const uint16_t *columns)
{
    KERNEL(tile_product_kernels)
        .multiply(&(struct tile_block){.a = o->rows,
                                       .b = columns,
                                       .c = o->out,
                                       .a_step = TILE * l->tokens,
                                       .b_step = TILE * l->tokens,
                                       .c_stride = l->dim,
                                       .pairs = l->dim / PAIR,
                                       .tiles = l->tokens / TILE_INNER,
                                       .begin = true});
}

/* sums [dim, tokens] += columns . scores for `count` queries; = if `begin` */
static void scores_gather(const struct layout *l, const uint16_t *columns, const uint16_t *scores,
                          int64_t count, bool begin, float *sums)
{
    const int64_t queries = round_up(count, PAIR);

    for (int64_t d = 0; d < l->dim; d += PAIR)
        KERNEL(tile_product_kernels)
            .multiply(&(struct tile_block){.a = columns + d * queries,
                                           .b = scores,
                                           .c = sums + d * l->row,
                                           .a_step = TILE * queries,
                                           .b_step = TILE * queries,
                                           .c_stride = l->row,
                                           .pairs = l->tokens / PAIR,
                                           .tiles = queries / TILE_INNER,
                                           .begin = begin});
}

#define LOG2_E 0x1.715476p0f

/* Return 2^x to 3 ulp for x <= 127, and 2^-126 below -126. x = n + r with |r| <= 0.5; 2^r is the
 * polynomial of degree 5 with the smallest maximum relative error. NaN stays NaN. */
KERNEL_INLINE vector_float power_of_two(vector_float x)
{
    const float round_shift = 0x1.8p23f; /* the low bits of x + round_shift are n */

    x = vector_max(vector_all(-126), x);
    const vector_float n = x + round_shift;
    const vector_float r = x - (n - round_shift);
    vector_float p = r * 0x1.5c08e6p-10f + 0x1.3d0c52p-7f;
    p = p * r + 0x1.c6b6e4p-5f;
    p = p * r + 0x1.ebf918p-3f;
    p = p * r + 0x1.62e428p-1f;
    p = p * r + 0x1.000002p0f;
    return (vector_float)((vector_word)p + ((vector_word)n << 23));
}

/* Compute the mask of a query; NULL without dropout. */
static const float *mask_make(const struct attention_head *head, int64_t query, float *mask)
{
    const int64_t row = round_up(head->tokens, 8);

    if (head->mask.threshold == 0)
        return NULL;
    head->random->mask(&head->mask, head->mask_block + query * (row / 8), row, mask);
    return mask;
}

/* Clear the padding of the masks, which mask_make does not write. */
static void mask_begin(const struct attention_head *head, const struct operands *o)
{
    memset(o->mask, 0, (size_t)(2 * round_up(head->tokens, PAIR)) * sizeof(float));
}

/* Set the padding of a row of scores to a value whose exponential is negligible. */
static void padding_ignore(const struct attention_head *head, float *row)
{
    for (int64_t t = head->tokens; t < round_up(head->tokens, PAIR); t++)
        row[t] = -1e30f;
}

/* Compute exp(scale * (score - largest)) of row r of o->scores, times the mask, as operand o->rows.
 * Return the sum before masking, and the largest score. */
static float exponentials(const struct attention_head *head, const struct operands *o, int64_t r,
                          const float *mask, float *largest)
{
    const struct layout l = layout_of(head);
    const float factor = head->scale * LOG2_E;
    float *row = o->scores + r * l.row;
    uint16_t *to = o->rows + r / TILE * TILE * l.tokens + r % TILE * TILE_INNER;
    vector_float sum = {0}, sum_1 = {0};

    padding_ignore(head, row);
    vector_float most = vector_load(row), most_1 = most;
    for (int64_t t = 0; t < l.tokens; t += PAIR) {
        most = vector_max(most, vector_load(row + t));
        most_1 = vector_max(most_1, vector_load(row + t + TILE));
    }
    *largest = vector_largest(vector_max(most, most_1));
    const float shift = *largest * factor;
    for (int64_t t = 0; t < l.tokens; t += PAIR, to += TILE_NUMBERS) {
        vector_float p = power_of_two(vector_load(row + t) * factor - shift);
        vector_float p_1 = power_of_two(vector_load(row + t + TILE) * factor - shift);
        sum += p;
        sum_1 += p_1;
        if (mask != NULL) {
            p *= vector_load(mask + t);
            p_1 *= vector_load(mask + t + TILE);
        }
        tile_row_store(to, p, p_1);
    }
    return vector_sum(sum + sum_1);
}

static void forward(const struct attention_head *head)
{
    const struct layout l = layout_of(head);
    int64_t used = 0;
    const struct operands o = operands_of(head, false, &used);
    const struct tile_configuration before = tiles_begin();

    mask_begin(head, &o);
    pack_rows(head, head->k, head->stride, head->tokens, true, o.k);
    pack_columns(head, head->v, head->stride, head->tokens, true, o.v);
    for (int64_t first = 0; first < head->queries; first += PAIR) {
        const int64_t count = integer_clamp(head->queries - first, 0, PAIR);
        float factor[PAIR];
        pack_rows(head, (const uint16_t *)head->q + first * head->stride, head->stride, count,
                  false, o.q);
        scores_make(&l, o.q, o.k, o.scores);
        for (int64_t r = 0; r < count; r++) {
            const float *mask = mask_make(head, first + r, o.mask);
            float largest;
            const float sum = exponentials(head, &o, r, mask, &largest);
            factor[r] = 1 / sum;
            if (head->lse != NULL)
                head->lse[first + r] = largest * head->scale + logf(sum);
        }
        scores_apply(&l, &o, o.v);
        unpack(head, o.out, 1, factor, count, (uint16_t *)head->out + first * head->out_stride,
               head->out_stride);
    }
    tiles_end(&before);
}

/* Given row r of the scores and of d(loss)/d(masked probability), compute the probabilities in
 * o->scores and d(loss)/d(probability) in o->slopes. Return the sum of their products. */
static float probabilities(const struct attention_head *head, const struct operands *o, int64_t r,
                           float lse, const float *mask)
{
    const struct layout l = layout_of(head);
    const float factor = head->scale * LOG2_E, shift = lse * LOG2_E;
    float *row = o->scores + r * l.row, *slopes = o->slopes + r * l.row;
    vector_float sum = {0}, sum_1 = {0};

    padding_ignore(head, row);
    if (mask != NULL)
        for (int64_t t = 0; t < l.tokens; t += TILE)
            vector_store(slopes + t, vector_load(slopes + t) * vector_load(mask + t));
    for (int64_t t = 0; t < l.tokens; t += PAIR) {
        const vector_float p = power_of_two(vector_load(row + t) * factor - shift);
        const vector_float p_1 = power_of_two(vector_load(row + t + TILE) * factor - shift);
        vector_store(row + t, p);
        vector_store(row + t + TILE, p_1);
        sum += p * vector_load(slopes + t);
        sum_1 += p_1 * vector_load(slopes + t + TILE);
    }
    return vector_sum(sum + sum_1);
}

/* Probabilities and gradients of scores of two queries and 16 tokens. */
struct pair {
    vector_float p[2], ds[2];
};

KERNEL_INLINE struct pair pair_make(const float *p, const float *slopes, int64_t row,
                                    const float mean[2], const float *const mask[2], int64_t t)
{
    struct pair pair;

    for (int i = 0; i < 2; i++) {
        pair.p[i] = vector_load(p + i * row + t);
        pair.ds[i] = pair.p[i] * (vector_load(slopes + i * row + t) - mean[i]);
        if (mask[i] != NULL)
            pair.p[i] *= vector_load(mask[i] + t);
    }
    return pair;
}

/* Compute the masked probabilities and the gradients of the scores of rows r and r + 1 of o->scores
 * as operands. to: offset of this pair of queries in o->p and o->ds; strip: distance between their
 * strips. */
static void softmax_backward(const struct attention_head *head, const struct operands *o, int64_t r,
                             const float mean[2], const float *const mask[2], int64_t to,
                             int64_t strip)
{
    const struct layout l = layout_of(head);
    const float *p = o->scores + r * l.row, *slopes = o->slopes + r * l.row;
    uint16_t *rows = o->rows + r / TILE * TILE * l.tokens + r % TILE * TILE_INNER;

    for (int64_t t = 0; t < l.tokens; t += PAIR, rows += TILE_NUMBERS, to += 2 * strip) {
        const struct pair a = pair_make(p, slopes, l.row, mean, mask, t);
        const struct pair b = pair_make(p, slopes, l.row, mean, mask, t + TILE);
        word_store(o->p + to, bf16_pair(a.p[0], a.p[1]));
        word_store(o->p + to + strip, bf16_pair(b.p[0], b.p[1]));
        word_store(o->ds + to, bf16_pair(a.ds[0], a.ds[1]));
        word_store(o->ds + to + strip, bf16_pair(b.ds[0], b.ds[1]));
        tile_row_store(rows, a.ds[0], b.ds[0]);
        tile_row_store(rows + TILE_INNER, a.ds[1], b.ds[1]);
    }
}

/* Process up to PAIR queries from `begin` on in a block of `queries` queries. block: first query of
 * the block. */
static void backward_strip(const struct attention_head *head, const struct operands *o,
                           int64_t block, int64_t begin, int64_t queries)
{
    const struct layout l = layout_of(head);
    const int64_t first = block + begin, count = integer_clamp(queries - begin, 0, PAIR);
    const int64_t strip = TILE * round_up(queries, PAIR);

    pack_rows(head, (const uint16_t *)head->q + first * head->stride, head->stride, count, false,
              o->q);
    pack_rows(head, (const uint16_t *)head->dout + first * head->out_stride, head->out_stride,
              count, false, o->dout);
    scores_make(&l, o->q, o->k, o->scores);
    scores_make(&l, o->dout, o->v, o->slopes);
    for (int64_t r = 0; r < PAIR; r += 2) {
        const int64_t to = begin * TILE + r * TILE;
        const float *mask[2] = {NULL, NULL};
        float mean[2] = {0, 0};
        if (r >= count) {
            for (int64_t t = 0; t < l.tokens / TILE; t++) {
                word_store(o->p + to + t * strip, (vector_word){0});
                word_store(o->ds + to + t * strip, (vector_word){0});
            }
            continue;
        }
        for (int i = 0; i < 2; i++) {
            const float lse = r + i < count ? head->lse_read[first + r + i] : 1e30f;
            mask[i] = mask_make(head, first + r + i, o->mask + i * l.tokens);
            mean[i] = probabilities(head, o, r + i, lse, mask[i]);
        }
        softmax_backward(head, o, r, mean, mask, to, strip);
    }
    scores_apply(&l, o, o->k_columns);
    unpack(head, o->out, head->scale, NULL, count, (uint16_t *)head->dq + first * head->stride,
           head->stride);
}

static void backward(const struct attention_head *head)
{
    const struct layout l = layout_of(head);
    int64_t used = 0;
    const struct operands o = operands_of(head, true, &used);
    const struct tile_configuration before = tiles_begin();

    mask_begin(head, &o);
    pack_rows(head, head->k, head->stride, head->tokens, true, o.k);
    pack_rows(head, head->v, head->stride, head->tokens, true, o.v);
    pack_columns(head, head->k, head->stride, head->tokens, true, o.k_columns);
    for (int64_t block = 0; block < head->queries; block += l.block) {
        const int64_t count = integer_clamp(head->queries - block, 0, l.block);
        pack_columns(head, (const uint16_t *)head->q + block * head->stride, head->stride, count,
                     false, o.q_columns);
        pack_columns(head, (const uint16_t *)head->dout + block * head->out_stride,
                     head->out_stride, count, false, o.dout_columns);
        for (int64_t begin = 0; begin < count; begin += PAIR)
            backward_strip(head, &o, block, begin, count);
        scores_gather(&l, o.q_columns, o.ds, count, block == 0, o.dk);
        scores_gather(&l, o.dout_columns, o.p, count, block == 0, o.dv);
    }
    tiles_end(&before);
    unpack_columns(head, o.dk, head->scale, head->dk);
    unpack_columns(head, o.dv, 1, head->dv);
    for (int64_t t = head->queries; t < head->tokens; t++)
        memset((uint16_t *)head->dq + t * head->stride, 0, (size_t)head->head_dim * 2);
}

const struct attention_kernels KERNEL(tile_attention_kernels) = {attention_memory, forward,
                                                                 backward};
