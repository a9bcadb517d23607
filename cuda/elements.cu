// SPDX-License-Identifier: BSD-3-Clause
/* Elementwise operations, limited by memory bandwidth: eight elements per thread, so that a warp
 * accesses whole cache lines. */
#include "base/base.h"
#include "cuda.h"
#include "device/update_rule.h"
#include "exact.h"
#include "kernel.h"

enum { THREADS = 256 };

void cuda_zero(struct stream *stream, void *memory, size_t bytes)
{
    if (bytes > 0)
        CUDA_CHECK(cudaMemsetAsync(memory, 0, bytes, stream->handle));
}

/* ---- Conversion */
template <typename target, typename source>
__global__ static void convert_kernel(target *to, const source *from, int64_t count, bool fits)
{
    kernel_begin();
    int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 8, left = count - first;
    if (left <= 0)
        return;
    bool whole = fits && left >= 8;
    eight_store_some(to + first, eight_load_some(from + first, left, whole), left, whole);
}

template <typename target, typename source>
static void convert_launch(struct stream *stream, void *to, const void *from, int64_t count)
{
    bool fits = eight_fits(to, 8) && eight_fits(from, 8);
    KERNEL_LAUNCH((convert_kernel<target, source>), blocks_for(count, THREADS * 8), THREADS, 0,
                  stream->handle, (target *)to, (const source *)from, count, fits);
}

template <typename number16>
static void convert_half(struct stream *stream, void *to, const void *from, bool widen,
                         int64_t count)
{
    if (widen)
        convert_launch<float, number16>(stream, to, from, count);
    else
        convert_launch<number16, float>(stream, to, from, count);
}

void cuda_convert(struct stream *stream, enum data_type to_type, void *to, enum data_type from_type,
                  const void *from, int64_t count)
{
    ENSURE(to_type == TYPE_FP32 || from_type == TYPE_FP32 || to_type == from_type,
           "a conversion between two 16-bit types");
    if (count == 0)
        return;
    if (to_type == from_type)
        CUDA_CHECK(cudaMemcpyAsync(to, from, (size_t)count * type_size(to_type), cudaMemcpyDefault,
                                   stream->handle));
    else if (to_type == TYPE_BF16 || from_type == TYPE_BF16)
        convert_half<struct bf16>(stream, to, from, to_type == TYPE_FP32, count);
    else
        convert_half<struct fp16>(stream, to, from, to_type == TYPE_FP32, count);
}

/* ---- Addition */
__global__ static void add_kernel(float *sum, const float *addend, int64_t count, bool fits)
{
    kernel_begin();
    int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 8, left = count - first;
    if (left <= 0)
        return;
    bool whole = fits && left >= 8;
    struct eight a = eight_load_some(sum + first, left, whole);
    struct eight b = eight_load_some(addend + first, left, whole);
    for (int i = 0; i < 8; i++)
        a.value[i] += b.value[i];
    eight_store_some(sum + first, a, left, whole);
}

void cuda_add(struct stream *stream, float *sum, const float *addend, int64_t count)
{
    bool fits = eight_fits(sum, 8) && eight_fits(addend, 8);
    if (count > 0)
        KERNEL_LAUNCH(add_kernel, blocks_for(count, THREADS * 8), THREADS, 0, stream->handle, sum,
                      addend, count, fits);
}

/* ---- Unfused dropout */
template <typename number>
__global__ static void dropout_kernel(struct octets octets, const number *x, number *y,
                                      struct mask mask, struct mask path)
{
    kernel_begin();
    struct octet_position octet;
    if (!octet_find(octets, &octet))
        return;
    struct eight eight = eight_load_some(x + octet.at, octet.left, octets.fits);
    mask_apply(mask, octet.sample, octet.of_sample, &eight);
    float factor = path_factor(path, octet.sample);
    for (int i = 0; i < 8; i++)
        eight.value[i] *= factor;
    eight_store_some(y + octet.at, eight, octet.left, octets.fits);
}

template <typename number>
static void dropout_launch(struct stream *stream, const struct dropout_apply *args)
{
    bool fits = eight_fits(args->x, args->width) && eight_fits(args->y, args->width);
    struct octets octets = octets_of(args->rows, args->width, args->rows_per_sample, fits);
    KERNEL_LAUNCH(dropout_kernel<number>, blocks_for(octets.count, THREADS), THREADS, 0,
                  stream->handle, octets, (const number *)args->x, (number *)args->y,
                  mask_of(&args->dropout), mask_of(&args->drop_path));
}

void cuda_dropout_apply(struct stream *stream, const struct dropout_apply *args)
{
    if (args->rows > 0 && args->width > 0 && !dropout_is_idle(args))
        NUMBER_SWITCH(args->type, dropout_launch, stream, args);
}

/* ---- y = max(0, y + bias), either part being optional. NaN is preserved. */
__device__ static inline float relu(float value)
{
    return value < 0 ? 0 : value;
}

template <typename number>
__global__ static void bias_relu_kernel(struct octets octets, number *y, const number *bias,
                                        bool relus)
{
    kernel_begin();
    struct octet_position octet;
    if (!octet_find(octets, &octet))
        return;
    struct eight eight = eight_load_some(y + octet.at, octet.left, octets.fits);
    if (bias != NULL) {
        struct eight addend = eight_load_some(bias + octet.column, octet.left, octets.fits);
        for (int i = 0; i < 8; i++)
            eight.value[i] += addend.value[i];
    }
    for (int i = 0; i < 8; i++)
        eight.value[i] = relus ? relu(eight.value[i]) : eight.value[i];
    eight_store_some(y + octet.at, eight, octet.left, octets.fits);
}

template <typename number>
static void bias_relu_launch(struct stream *stream, int64_t rows, int64_t width, const void *bias,
                             bool relus, void *y)
{
    struct octets octets =
        octets_of(rows, width, 1, eight_fits(y, width) && eight_fits(bias, width));
    KERNEL_LAUNCH(bias_relu_kernel<number>, blocks_for(octets.count, THREADS), THREADS, 0,
                  stream->handle, octets, (number *)y, (const number *)bias, relus);
}

void cuda_bias_relu(struct stream *stream, enum data_type type, int64_t rows, int64_t width,
                    const void *bias, bool relus, void *y)
{
    if (rows > 0 && width > 0)
        NUMBER_SWITCH(type, bias_relu_launch, stream, rows, width, bias, relus, y);
}

/* ---- Gradient of a ReLU */
template <typename number>
__global__ static void relu_gradient_kernel(const number *x, number *dx, int64_t count, bool fits)
{
    kernel_begin();
    int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 8, left = count - first;
    if (left <= 0)
        return;
    bool whole = fits && left >= 8;
    struct eight value = eight_load_some(x + first, left, whole);
    struct eight gradient = eight_load_some(dx + first, left, whole);
    for (int i = 0; i < 8; i++)
        gradient.value[i] = value.value[i] <= 0 ? 0 : gradient.value[i];
    eight_store_some(dx + first, gradient, left, whole);
}

template <typename number>
static void relu_gradient_launch(struct stream *stream, int64_t count, const void *x, void *dx)
{
    KERNEL_LAUNCH(relu_gradient_kernel<number>, blocks_for(count, THREADS * 8), THREADS, 0,
                  stream->handle, (const number *)x, (number *)dx, count,
                  eight_fits(x, 8) && eight_fits(dx, 8));
}

void cuda_relu_gradient(struct stream *stream, enum data_type type, int64_t count, const void *x,
                        void *dx)
{
    if (count > 0)
        NUMBER_SWITCH(type, relu_gradient_launch, stream, count, x, dx);
}

/* ---- Sum of matrices and a multiple of the identity */
template <typename number>
__global__ static void matrix_sum_kernel(struct matrix_sum args, bool fits)
{
    kernel_begin();
    int64_t count = args.rows * args.width;
    int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 8, left = count - first;
    if (left <= 0)
        return;
    bool whole = fits && left >= 8;
    float factor = matrix_sum_factor(&args);
    struct eight sum = eight_load_some((const number *)args.x + first, left, whole), z = {};
    if (args.z != NULL)
        z = eight_load_some((const number *)args.z + first, left, whole);
    int64_t row = first / args.width, column = first % args.width;
    for (int i = 0; i < 8; i++) {
        sum.value[i] = sum.value[i] * factor + z.value[i] * args.z_factor +
                       (row == column ? args.diagonal : 0);
        if (++column == args.width) {
            column = 0;
            row++;
        }
    }
    eight_store_some((number *)args.y + first, sum, left, whole);
}

template <typename number>
static void matrix_sum_launch(struct stream *stream, const struct matrix_sum *args)
{
    bool fits = eight_fits(args->x, 8) && eight_fits(args->z, 8) && eight_fits(args->y, 8);
    KERNEL_LAUNCH(matrix_sum_kernel<number>, blocks_for(args->rows * args->width, THREADS * 8),
                  THREADS, 0, stream->handle, *args, fits);
}

void cuda_matrix_sum(struct stream *stream, const struct matrix_sum *args)
{
    if (args->rows > 0 && args->width > 0)
        NUMBER_SWITCH(args->type, matrix_sum_launch, stream, args);
}

/* Maximum number of thread blocks of a reduction that ends with atomic additions. */
static const unsigned reduction_blocks_most = 512;

/* ---- Sum of squares. A thread reads whole blocks of elements. */
__global__ static void squares_kernel(const float *values, int64_t count, struct exact_sum *total,
                                      bool fits)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    struct exact_sum *sum = (struct exact_sum *)shared;
    int64_t each = (count + EXACT_BLOCK - 1) / EXACT_BLOCK;
    each = (each + gridDim.x - 1) / gridDim.x * EXACT_BLOCK;
    int64_t begin = blockIdx.x * each, end = begin + each < count ? begin + each : count;
    struct window window = {};
    exact_begin(sum);
    __syncthreads();
    for (int64_t i = begin + (int64_t)threadIdx.x * EXACT_BLOCK; i < end;
         i += (int64_t)blockDim.x * EXACT_BLOCK) {
        bool whole = fits && i + EXACT_BLOCK <= count;
        struct eight low = eight_load_some(values + i, count - i, whole);
        struct eight high = eight_load_some(values + i + 8, count - i - 8, whole);
        struct block_squares squares = {};
        squares_add(&squares, low);
        squares_add(&squares, high);
        window_add(&window, squares, sum);
    }
    exact_end(window, sum, total);
}

void cuda_sum_squares(struct stream *stream, const float *values, int64_t count,
                      struct exact_sum *sum)
{
    if (count == 0)
        return;
    unsigned blocks = blocks_for(count, THREADS * EXACT_BLOCK);
    blocks = blocks < reduction_blocks_most ? blocks : reduction_blocks_most;
    KERNEL_LAUNCH(squares_kernel, blocks, THREADS, sizeof *sum, stream->handle, values, count, sum,
                  eight_fits(values, 8));
}

__global__ static void sum_value_kernel(const struct exact_sum *sum, double *value)
{
    kernel_begin();
    *value = exact_sum_value(sum);
}

void cuda_sum_value(struct stream *stream, const struct exact_sum *sum, double *value)
{
    KERNEL_LAUNCH(sum_value_kernel, 1, 1, 0, stream->handle, sum, value);
}

/* ---- Hash: a grid-stride loop, then one atomicAdd per warp */
__global__ static void hash_kernel(struct hash args)
{
    kernel_begin();
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    uint64_t sum = 0;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < args.count; i += step)
        sum += hash_element(args.key + (uint64_t)i, args.values[i]);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0)
        atomicAdd((unsigned long long *)args.sum, (unsigned long long)sum);
}

void cuda_hash(struct stream *stream, const struct hash *args)
{
    if (args->count == 0)
        return;
    unsigned blocks = blocks_for(args->count, THREADS * 8);
    blocks = blocks < reduction_blocks_most ? blocks : reduction_blocks_most;
    KERNEL_LAUNCH(hash_kernel, blocks, THREADS, 0, stream->handle, *args);
}

/* ---- First non-finite value */
template <typename number>
__global__ static void nonfinite_kernel(const number *values, int64_t count, int64_t *index)
{
    kernel_begin();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count || isfinite(number_load(values[i])))
        return;
    /* As an unsigned number -1 is the largest, so any index found is smaller. */
    atomicMin((unsigned long long *)index, (unsigned long long)i);
}

template <typename number>
static void nonfinite_launch(struct stream *stream, const struct nonfinite *args)
{
    KERNEL_LAUNCH(nonfinite_kernel<number>, blocks_for(args->count, THREADS), THREADS, 0,
                  stream->handle, (const number *)args->values, args->count, args->index);
}

void cuda_nonfinite(struct stream *stream, const struct nonfinite *args)
{
    CUDA_CHECK(cudaMemsetAsync(args->index, 0xff, sizeof *args->index, stream->handle));
    if (args->count > 0)
        NUMBER_SWITCH(args->type, nonfinite_launch, stream, args);
}
