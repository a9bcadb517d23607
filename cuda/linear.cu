// SPDX-License-Identifier: BSD-3-Clause
/* Linear layers: matrix products by the library (product.h), including bias and residual. GELU,
 * LayerScale, dropout and drop path are one elementwise kernel after the product, launched only if
 * needed. The product's output is rounded to the compute type in between, like every stored tensor.
 */
#include "columns.h"
#include "device/gelu_fit.h"
#include "product.h"
#include "variant.h"

#include <stdio.h>

enum { THREADS = 256 };

/* ---- The normal distribution. One division and a dozen multiplications per element take less time
 * than the memory access; erff and expf would take more. */
__device__ static inline float normal_below(float x)
{
    float t = x * x;
    NORMAL_FIT(float, t, p, q);
    float below = __fdividef(x * p, q) + 0.5f;
    below = x > NORMAL_FIT_END ? 1.0f : below;
    return x < -NORMAL_FIT_END ? 0.0f : below;
}

/* The tanh approximation of GELU divided by x: 1 / (1 + exp(-x (a + b x^2))). */
__device__ static inline float gelu_tanh_factor(float x)
{
    return __fdividef(1.0f, 1.0f + __expf(-x * (x * x * GELU_TANH_B + GELU_TANH_A)));
}

__device__ static inline float gelu(float x, bool tanh)
{
    return x * (tanh ? gelu_tanh_factor(x) : normal_below(x));
}

__device__ static inline float gelu_slope(float x, bool tanh)
{
    if (tanh) {
        float s = gelu_tanh_factor(x);
        return s + x * s * (1.0f - s) * (x * x * (3 * GELU_TANH_B) + GELU_TANH_A);
    }
    float t = x * x;
    GELU_SLOPE_FIT(float, t, p, q);
    float slope = __fdividef(x * p, q) + 0.5f;
    slope = x > GELU_SLOPE_FIT_END ? 1.0f : slope;
    return x < -GELU_SLOPE_FIT_END ? 0.0f : slope;
}

/* ---- Elementwise */

/* y = dropout(gelu(pre)) */
template <typename number>
__global__ static void gelu_kernel(struct octets octets, const number *pre, number *y, bool tanh,
                                   struct mask mask)
{
    kernel_begin();
    struct octet_position octet;
    if (!octet_find(octets, &octet))
        return;
    struct eight eight = eight_load_some(pre + octet.at, octet.left, octets.fits);
    for (int i = 0; i < 8; i++)
        eight.value[i] = gelu(eight.value[i], tanh);
    mask_apply(mask, octet.sample, octet.of_sample, &eight);
    eight_store_some(y + octet.at, eight, octet.left, octets.fits);
}

/* Blocks per multiprocessor of the gradient without dropout. Multiprocessors below compute
 * capability 8.0 run at most 1024 threads. */
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ < 800
enum { GRADIENT_BLOCKS = 4 };
#else
enum { GRADIENT_BLOCKS = 5 };
#endif

/* dx = dropout(dx) * gelu'(pre), and its column sums. Without `drops` there is no dropout; its
 * random numbers need 16 registers. first_row: index of the first row for the mask. */
template <typename number, bool drops>
__global__ static void __launch_bounds__(COLUMN_THREADS, drops ? 4 : GRADIENT_BLOCKS)
    gelu_gradient_kernel(const number *pre, number *dx, bool tanh, struct mask mask,
                         uint32_t first_row, uint32_t rows_per_sample, struct column_sums sums,
                         bool fits)
{
    kernel_begin(COLUMN_THREADS);
    SHARED_MEMORY(shared);
    struct column_position position = column_position_of(sums);
    uint32_t octets = (uint32_t)(sums.width + 7) / 8;
    struct eight sum = {};
    for (uint32_t row = position.row; row < position.end; row += COLUMN_WARPS) {
        int64_t at = row * sums.width + position.column;
        struct eight eight = eight_load_some(dx + at, position.left, fits);
        struct eight x = eight_load_some(pre + at, position.left, fits);
        if (drops)
            mask_apply(mask, (first_row + row) / rows_per_sample,
                       (first_row + row) % rows_per_sample * octets + (uint32_t)position.column / 8,
                       &eight);
        for (int i = 0; i < 8; i++) {
            eight.value[i] *= gelu_slope(x.value[i], tanh);
            sum.value[i] += eight.value[i];
        }
        eight_store_some(dx + at, eight, position.left, fits);
    }
    column_sums_store(sums, sum, shared);
}

/* y = (residual or 0) + drop_path(dropout((scale or 1) * sum)); y may be sum or residual. */
template <typename number>
__global__ static void drop_kernel(struct octets octets, const number *sum, const number *residual,
                                   const number *scale, number *y, struct mask mask,
                                   struct mask path)
{
    kernel_begin();
    struct octet_position octet;
    if (!octet_find(octets, &octet))
        return;
    struct eight eight = eight_load_some(sum + octet.at, octet.left, octets.fits);
    if (scale != NULL) {
        struct eight factors = eight_load_some(scale + octet.column, octet.left, octets.fits);
        for (int i = 0; i < 8; i++)
            eight.value[i] *= factors.value[i];
    }
    mask_apply(mask, octet.sample, octet.of_sample, &eight);
    if (residual != NULL) {
        struct eight past = eight_load_some(residual + octet.at, octet.left, octets.fits);
        float factor = path_factor(path, octet.sample);
        for (int i = 0; i < 8; i++)
            eight.value[i] = past.value[i] + factor * eight.value[i];
    }
    eight_store_some(y + octet.at, eight, octet.left, octets.fits);
}

static void *row_of(enum data_type type, const void *rows, int64_t width, int64_t row)
{
    return (unsigned char *)rows + (size_t)(row * width) * type_size(type);
}

/* ---- Forward */

/* c = rows first..first + rows - 1 of x . weight^T + bias, + add. */
static void forward_product(struct stream *stream, const struct linear_forward *args, int64_t first,
                            int64_t rows, const void *add, void *c)
{
    struct product product = {};
    product.type = product.c_type = args->type;
    product.rows = rows;
    product.columns = args->out;
    product.inner = args->in;
    product.b_transposed = true;
    product.a = row_of(args->type, args->x, args->in, first);
    product.b = args->weight;
    product.add = add;
    product.c = c;
    if (args->bias != NULL) {
        product.epilogue = EPILOGUE_BIAS;
        product.bias = (void *)args->bias;
    }
    product_run(stream, &product);
}

template <typename number>
static void gelu_launch(struct stream *stream, const struct linear_forward *args, int64_t first,
                        int64_t rows, const void *sum)
{
    number *y = (number *)row_of(args->type, args->y, args->out, first);
    bool fits = eight_fits(sum, args->out) && eight_fits(y, args->out);
    struct octets octets = octets_of(rows, args->out, args->rows_per_sample, fits);
    octets.first_row = (uint32_t)first;
    KERNEL_LAUNCH(gelu_kernel<number>, blocks_for(octets.count, THREADS), THREADS, 0,
                  stream->handle, octets, (const number *)sum, y, args->gelu_tanh,
                  mask_of(&args->dropout));
}

/* Epilogue of the rows from `first` on, whose sums are at `sum`. */
template <typename number>
static void drop_launch(struct stream *stream, const struct linear_forward *args, int64_t first,
                        int64_t rows, const void *sum)
{
    number *y = (number *)row_of(args->type, args->y, args->out, first);
    const number *residual = (const number *)args->residual;
    if (residual != NULL)
        residual += first * args->out;
    bool fits = eight_fits(sum, args->out) && eight_fits(y, args->out) &&
                eight_fits(residual, args->out) && eight_fits(args->scale, args->out);
    struct octets octets = octets_of(rows, args->out, args->rows_per_sample, fits);
    octets.first_row = (uint32_t)first;
    KERNEL_LAUNCH(drop_kernel<number>, blocks_for(octets.count, THREADS), THREADS, 0,
                  stream->handle, octets, (const number *)sum, residual,
                  (const number *)args->scale, y, mask_of(&args->dropout),
                  mask_of(&args->drop_path));
}

/* Queue the product and the kernel after it for some rows. */
static void forward_rows(struct stream *stream, const struct linear_forward *args, int64_t first,
                         int64_t rows, void *sum)
{
    forward_product(stream, args, first, rows, NULL, sum);
    if (linear_epilogue(args) == LINEAR_GELU)
        NUMBER_SWITCH(args->type, gelu_launch, stream, args, first, rows, sum);
    else
        NUMBER_SWITCH(args->type, drop_launch, stream, args, first, rows, sum);
}

/* ---- Backward */

/* dweight += or = dy^T . x, dbias += or = column sums of dy. */
static void backward_weights(struct stream *stream, const struct linear_backward *args)
{
    struct product product = {};
    product.type = args->type;
    product.c_type = TYPE_FP32;
    product.rows = args->out;
    product.columns = args->in;
    product.inner = args->rows;
    product.a_transposed = true;
    product.a = args->dy;
    product.b = args->x;
    product.c = args->dweight;
    product.add = args->overwrite ? NULL : args->dweight;
    if (args->dweight != NULL && args->dbias != NULL)
        product_run_sums(stream, &product, args->dbias);
    else if (args->dweight != NULL)
        product_run(stream, &product);
    else if (args->dbias != NULL)
        columns_sum(stream, args->type, args->dy, args->rows, args->out, args->dbias,
                    args->overwrite);
}

/* dx of some rows, before the gradient of GELU or ReLU. */
static void input_product(struct stream *stream, const struct linear_backward *args, int64_t first,
                          int64_t rows)
{
    struct product product = {};
    product.type = product.c_type = args->type;
    product.rows = rows;
    product.columns = args->in;
    product.inner = args->out;
    product.a = row_of(args->type, args->dy, args->out, first);
    product.b = args->weight;
    product.c = row_of(args->type, args->dx, args->in, first);
    product_run(stream, &product);
}

template <typename number>
static void gelu_gradient_launch(struct stream *stream, const struct linear_backward *args,
                                 const struct column_sums *all, int64_t first, int64_t rows)
{
    const number *pre = (const number *)row_of(args->type, args->pre, args->in, first);
    number *dx = (number *)row_of(args->type, args->dx, args->in, first);
    struct mask mask = mask_of(&args->dropout);
    struct column_sums sums = columns_part(all, first, rows);
    KERNEL_LAUNCH((mask.threshold != 0 ? gelu_gradient_kernel<number, true>
                                       : gelu_gradient_kernel<number, false>),
                  columns_grid(&sums), COLUMN_THREADS, COLUMN_ROOM, stream->handle, pre, dx,
                  args->gelu_tanh, mask, (uint32_t)first, (uint32_t)args->rows_per_sample, sums,
                  eight_fits(pre, args->in) && eight_fits(dx, args->in));
}

/* Queue the product and the gradient of the GELU for some rows; `sums` are those of all rows. */
static void backward_rows(struct stream *stream, const struct linear_backward *args,
                          const struct column_sums *sums, int64_t first, int64_t rows)
{
    input_product(stream, args, first, rows);
    NUMBER_SWITCH(args->type, gelu_gradient_launch, stream, args, sums, first, rows);
}

/* ---- A product and the GELU kernel after it, in chunks of rows: the product's output stays in the
 * L2 cache until the kernel reads it, but smaller products are slower. */
struct gelu_step {
    struct stream *stream;
    const struct linear_forward *forward;   /* NULL in the backward pass */
    const struct linear_backward *backward; /* NULL in the forward pass */
    enum data_type type;
    int64_t rows, width, inner; /* of the product */
    struct column_sums sums;    /* of dx; the same for all variants */
};

/* Return the rows per chunk: all rows, or as many as fill half or three quarters of the L2 cache; 0
 * if the tensor is not larger than that. Chunks are whole tiles of a product, of 128 rows, and
 * whole chunks of the column sums. */
static int64_t chunk_rows(const struct gelu_step *step, int variant)
{
    int64_t row_bytes = step->width * (int64_t)type_size(step->type);
    int64_t rows = step->stream->cuda->l2_bytes / 4 * (variant + 1) / row_bytes;
    rows -= rows % (step->sums.chunk_rows > 128 ? step->sums.chunk_rows : 128);
    return variant == 0 ? step->rows : rows < step->rows ? rows : 0;
}

static bool gelu_step_queue(void *context, int variant)
{
    const struct gelu_step *step = (const struct gelu_step *)context;
    const int64_t most = chunk_rows(step, variant);
    for (int64_t first = 0; most > 0 && first < step->rows; first += most) {
        int64_t rows = step->rows - first < most ? step->rows - first : most;
        if (step->backward != NULL)
            backward_rows(step->stream, step->backward, &step->sums, first, rows);
        else
            forward_rows(step->stream, step->forward, first, rows,
                         row_of(step->type, step->forward->pre, step->width, first));
    }
    return most > 0;
}

static void gelu_step_run(struct gelu_step *step)
{
    char key[CHOICE_KEY];
    snprintf(key, sizeof key, "gelu%s %s %lldx%lldx%lld", step->backward != NULL ? " gradient" : "",
             type_name(step->type), (long long)step->rows, (long long)step->width,
             (long long)step->inner);
    variant_run(step->stream, key, chunk_rows(step, 1) > 0 ? 3 : 1, gelu_step_queue, step);
}

/* ---- Operations */

/* y holds the residual, so the sums are computed block by block in the workspace. */
static void forward_in_place(struct stream *stream, const struct linear_forward *args)
{
    size_t row_bytes = (size_t)args->out * type_size(args->type);
    int64_t most = (int64_t)(WORKSPACE_SUMS / row_bytes);
    most = most < args->rows ? most : args->rows;
    void *sums = cuda_workspace_sums(stream->cuda, (size_t)(most > 0 ? most : 1) * row_bytes);
    for (int64_t first = 0; first < args->rows; first += most) {
        int64_t rows = args->rows - first < most ? args->rows - first : most;
        forward_rows(stream, args, first, rows, sums);
    }
}

void cuda_linear_forward(struct stream *stream, const struct linear_forward *args)
{
    const enum linear_epilogue epilogue = linear_epilogue(args);
    if (args->rows == 0 || args->in == 0 || args->out == 0)
        return;
    if (epilogue == LINEAR_GELU) {
        struct gelu_step step = {stream,     args,      NULL,     args->type,
                                 args->rows, args->out, args->in, {}};
        gelu_step_run(&step);
    } else if (epilogue != LINEAR_DROP) {
        forward_product(stream, args, 0, args->rows, args->residual, args->y);
        if (epilogue == LINEAR_RELU)
            cuda_bias_relu(stream, args->type, args->rows, args->out, NULL, true, args->y);
    } else if (args->pre == NULL && args->residual == args->y) {
        forward_in_place(stream, args);
    } else {
        forward_rows(stream, args, 0, args->rows, args->pre != NULL ? args->pre : args->y);
    }
}

/* The sums have chunks of 32, 64 or 128 rows, more if the workspace is too small. */
static void backward_gelu(struct stream *stream, const struct linear_backward *args)
{
    struct gelu_step step = {stream, NULL, args, args->type, args->rows, args->in, args->out, {}};
    int64_t rows = 32;
    while (rows < 128 && rows * 256 < args->rows)
        rows *= 2;
    step.sums = columns_cut(stream, args->rows, args->in, rows, args->dx_sums, args->overwrite);
    gelu_step_run(&step);
    columns_finish(stream, &step.sums);
}

static void backward_inputs(struct stream *stream, const struct linear_backward *args)
{
    if (args->pre != NULL) {
        backward_gelu(stream, args);
        return;
    }
    input_product(stream, args, 0, args->rows);
    if (args->x_relu)
        cuda_relu_gradient(stream, args->type, args->rows * args->in, args->x, args->dx);
}

void cuda_linear_backward(struct stream *stream, const struct linear_backward *args)
{
    if (args->rows == 0 || args->in == 0 || args->out == 0)
        return;
    backward_weights(stream, args);
    if (args->dx != NULL)
        backward_inputs(stream, args);
}
