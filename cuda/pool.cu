// SPDX-License-Identifier: BSD-3-Clause
/* Channels-last images: max pooling, and transposition between channels first and channels last.
 * Limited by memory bandwidth: eight channels of a pixel per thread. */
#include "cuda.h"
#include "kernel.h"

enum { THREADS = 256 };

/* Window index of each of eight maxima. */
struct alignas(8) eight_indices {
    uint8_t at[8];
};

/* Sizes in 32 bits, because a 64-bit division takes longer than the memory access. */
struct pool {
    uint32_t octets; /* of all pixels processed, and of one pixel */
    uint32_t of_pixel;
    int height, width, out_height, out_width;
    int kernel, stride, padding;
    int64_t channels;
    bool fits, fits_index;
};

/* A thread's pixel in height x width, and its first channel. */
struct pool_position {
    int64_t sample;
    int row, column;
    int64_t channel, left; /* left: channels from there on */
    int64_t at;            /* first element */
};

/* Return false if the thread has no work. */
__device__ static inline bool position_find(const struct pool &pool, int height, int width,
                                            struct pool_position *position)
{
    uint32_t octet = blockIdx.x * blockDim.x + threadIdx.x;
    if (octet >= pool.octets)
        return false;
    uint32_t pixel = octet / pool.of_pixel, line = pixel / (uint32_t)width;
    position->channel = (int64_t)(octet - pixel * pool.of_pixel) * 8;
    position->left = pool.channels - position->channel;
    position->at = pixel * pool.channels + position->channel;
    position->column = (int)(pixel - line * (uint32_t)width);
    position->sample = line / (uint32_t)height;
    position->row = (int)(line - (uint32_t)position->sample * (uint32_t)height);
    return true;
}

__device__ static inline void indices_store(uint8_t *to, const struct eight_indices &indices,
                                            int64_t count, bool fits)
{
    if (fits)
        *(struct eight_indices *)to = indices;
    else
        for (int i = 0; i < 8; i++)
            if (i < count)
                to[i] = indices.at[i];
}

__device__ static inline struct eight_indices indices_load(const uint8_t *from, int64_t count,
                                                           bool fits)
{
    struct eight_indices indices = {};
    if (fits)
        return *(const struct eight_indices *)from;
    for (int i = 0; i < 8; i++)
        if (i < count)
            indices.at[i] = from[i];
    return indices;
}

/* ---- Forward: one thread per octet of an output pixel. It loads the pixels of a window of 3 x 3
 * before it uses the first; a branch between two loads would make the second wait. So `fits` is
 * pool.fits, and positions outside of the image or the window load the sample's first pixel. */
enum { POOL_TOGETHER = 9 };

template <typename number, bool fits>
__global__ static void __launch_bounds__(THREADS, 1)
    max_forward_kernel(struct pool pool, const number *x, number *y, uint8_t *index)
{
    kernel_begin(THREADS);
    struct pool_position position;
    if (!position_find(pool, pool.out_height, pool.out_width, &position))
        return;
    int top = position.row * pool.stride - pool.padding;
    int first = position.column * pool.stride - pool.padding;
    struct eight best = {};
    struct eight_indices indices = {};
    bool found = false;
    for (int r = 0, s = 0; r < pool.kernel;) {
        struct packed_eight<number> read[POOL_TOGETHER];
        int in_window[POOL_TOGETHER]; /* index; -1: outside */
        UNROLL
        for (int k = 0; k < POOL_TOGETHER; k++) {
            int row = top + r, column = first + s;
            bool inside = r < pool.kernel && row >= 0 && row < pool.height && column >= 0 &&
                          column < pool.width;
            int64_t pixel = (position.sample * pool.height + (inside ? row : 0)) * pool.width +
                            (inside ? column : 0);
            read[k] =
                packed_load_some(x + pixel * pool.channels + position.channel, position.left, fits);
            in_window[k] = inside ? r * pool.kernel + s : -1;
            s = s + 1 < pool.kernel ? s + 1 : 0;
            r += s == 0;
        }
        UNROLL
        for (int k = 0; k < POOL_TOGETHER; k++) {
            struct eight here = packed_open(read[k]);
            for (int i = 0; i < 8 && in_window[k] >= 0; i++) {
                float value = here.value[i], most = best.value[i];
                if (!found || value > most || (value != value && most == most)) {
                    best.value[i] = value;
                    indices.at[i] = (uint8_t)in_window[k];
                }
            }
            found = found || in_window[k] >= 0;
        }
    }
    eight_store_some(y + position.at, best, position.left, fits);
    if (index != NULL)
        indices_store(index + position.at, indices, position.left, pool.fits_index);
}

/* First and last window that contain this row or column. */
__device__ static inline void windows_find(const struct pool &pool, int at, int out, int *first,
                                           int *last)
{
    int above = at + pool.padding - pool.kernel + 1, below = (at + pool.padding) / pool.stride;
    *first = above > 0 ? (above + pool.stride - 1) / pool.stride : 0;
    *last = below < out ? below : out - 1;
}

/* ---- Backward: a thread adds the gradients of all windows whose maximum is its input pixel. */
template <typename number>
__global__ static void max_backward_kernel(struct pool pool, const number *dy, const number *add,
                                           const uint8_t *index, number *dx)
{
    kernel_begin();
    struct pool_position position;
    if (!position_find(pool, pool.height, pool.width, &position))
        return;
    int first_row, last_row, first_column, last_column;
    windows_find(pool, position.row, pool.out_height, &first_row, &last_row);
    windows_find(pool, position.column, pool.out_width, &first_column, &last_column);
    struct eight sum = {};
    for (int row = first_row; row <= last_row; row++)
        for (int column = first_column; column <= last_column; column++) {
            int64_t pixel = (position.sample * pool.out_height + row) * pool.out_width + column;
            int64_t at = pixel * pool.channels + position.channel;
            int here = (position.row + pool.padding - row * pool.stride) * pool.kernel +
                       position.column + pool.padding - column * pool.stride;
            struct eight_indices indices = indices_load(index + at, position.left, pool.fits_index);
            struct eight gradient = eight_load_some(dy + at, position.left, pool.fits);
            struct eight other = {};
            if (add != NULL)
                other = eight_load_some(add + at, position.left, pool.fits);
            for (int i = 0; i < 8; i++)
                sum.value[i] += indices.at[i] == here ? gradient.value[i] + other.value[i] : 0;
        }
    eight_store_some(dx + position.at, sum, position.left, pool.fits);
}

/* ---- Launches. args is the struct of either operation; their sizes have the same names. */
template <typename args_type>
static struct pool pool_of(const args_type *args, int64_t pixels, bool fits)
{
    struct pool pool = {};
    ENSURE(args->kernel <= 15, "max pooling over %lld x %lld", (long long)args->kernel,
           (long long)args->kernel);
    pool.octets = octets_in(pixels, args->channels);
    pool.of_pixel = (uint32_t)((args->channels + 7) / 8);
    pool.height = (int)args->height;
    pool.width = (int)args->width;
    pool.out_height = (int)convolved_size(args->height, args->kernel, args->stride, args->padding);
    pool.out_width = (int)convolved_size(args->width, args->kernel, args->stride, args->padding);
    pool.kernel = (int)args->kernel;
    pool.stride = (int)args->stride;
    pool.padding = (int)args->padding;
    pool.channels = args->channels;
    pool.fits = fits;
    pool.fits_index = args->channels % 8 == 0 && (uintptr_t)args->index % 8 == 0;
    return pool;
}

template <typename number>
static void max_forward_launch(struct stream *stream, const struct max_pool_forward *args)
{
    int64_t pixels = args->batch *
                     convolved_size(args->height, args->kernel, args->stride, args->padding) *
                     convolved_size(args->width, args->kernel, args->stride, args->padding);
    bool fits = eight_fits(args->x, args->channels) && eight_fits(args->y, args->channels);
    struct pool pool = pool_of(args, pixels, fits);
    if (pool.octets > 0)
        KERNEL_LAUNCH((fits ? max_forward_kernel<number, true> : max_forward_kernel<number, false>),
                      blocks_for(pool.octets, THREADS), THREADS, 0, stream->handle, pool,
                      (const number *)args->x, (number *)args->y, args->index);
}

void cuda_max_pool_forward(struct stream *stream, const struct max_pool_forward *args)
{
    NUMBER_SWITCH(args->type, max_forward_launch, stream, args);
}

template <typename number>
static void max_backward_launch(struct stream *stream, const struct max_pool_backward *args)
{
    bool fits = eight_fits(args->dy, args->channels) && eight_fits(args->dx, args->channels) &&
                eight_fits(args->add, args->channels);
    struct pool pool = pool_of(args, args->batch * args->height * args->width, fits);
    if (pool.octets > 0)
        KERNEL_LAUNCH(max_backward_kernel<number>, blocks_for(pool.octets, THREADS), THREADS, 0,
                      stream->handle, pool, (const number *)args->dy, (const number *)args->add,
                      args->index, (number *)args->dx);
}

void cuda_max_pool_backward(struct stream *stream, const struct max_pool_backward *args)
{
    NUMBER_SWITCH(args->type, max_backward_launch, stream, args);
}

/* ---- Transposition: a block copies a tile to shared memory row by row and writes it column by
 * column. If one side is short (three channels, nine pixels of a filter), the tile is longer along
 * the other. */
enum { TILE = 1024, TILE_SIDE = 32 };

struct tiles {
    int64_t rows, columns;
    int tile_rows, tile_columns;
    int stride; /* row stride of a tile in shared memory: odd, so that columns are in different
                   banks */
    uint32_t of_rows, of_columns; /* tiles in both directions */
};

template <typename number> __device__ static inline void put(number *to, number value)
{
    *to = value;
}

/* fp32 targets that are accumulated or overwritten; the type distinguishes them from a plain copy.
 */
struct sum_of {
    float value;
};
struct value_of {
    float value;
};
template <typename number> __device__ static inline void put(struct sum_of *to, number value)
{
    to->value += number_load(value);
}
template <typename number> __device__ static inline void put(struct value_of *to, number value)
{
    to->value = number_load(value);
}

template <typename source, typename target>
__global__ static void transpose_kernel(struct tiles tiles, const source *x, target *y)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    source *tile = (source *)shared;
    uint32_t line = blockIdx.x / tiles.of_columns, sample = line / tiles.of_rows;
    int64_t first_row = (int64_t)(line - sample * tiles.of_rows) * tiles.tile_rows;
    int64_t first_column = (int64_t)(blockIdx.x - line * tiles.of_columns) * tiles.tile_columns;
    int64_t left_rows = tiles.rows - first_row, left_columns = tiles.columns - first_column;
    int rows = left_rows < tiles.tile_rows ? (int)left_rows : tiles.tile_rows;
    int columns = left_columns < tiles.tile_columns ? (int)left_columns : tiles.tile_columns;
    int64_t of_sample = (int64_t)sample * tiles.rows * tiles.columns;
    for (int e = (int)threadIdx.x; e < rows * columns; e += THREADS) {
        int row = e / columns, column = e - row * columns;
        tile[row * tiles.stride + column] =
            x[of_sample + (first_row + row) * tiles.columns + first_column + column];
    }
    __syncthreads();
    for (int e = (int)threadIdx.x; e < rows * columns; e += THREADS) {
        int column = e / rows, row = e - column * rows;
        put(y + of_sample + (first_column + column) * tiles.rows + first_row + row,
            tile[row * tiles.stride + column]);
    }
}

static int shorter(int64_t side, int64_t most)
{
    return (int)(side < most ? side : most);
}

template <typename source, typename target>
static void transpose_launch(struct stream *stream, const struct transpose *args, void *y)
{
    struct tiles tiles = {};
    bool tall = args->columns < TILE_SIDE;
    tiles.rows = args->rows;
    tiles.columns = args->columns;
    tiles.tile_rows = shorter(args->rows, tall ? TILE / args->columns : (int64_t)TILE_SIDE);
    tiles.tile_columns = shorter(args->columns, tall ? (int64_t)TILE_SIDE : TILE / tiles.tile_rows);
    tiles.stride = tiles.tile_columns | 1;
    tiles.of_rows = blocks_for(args->rows, tiles.tile_rows);
    tiles.of_columns = blocks_for(args->columns, tiles.tile_columns);
    int64_t blocks = args->batch * tiles.of_rows * tiles.of_columns;
    ENSURE(blocks <= INT32_MAX, "%lld tiles to transpose", (long long)blocks);
    KERNEL_LAUNCH((transpose_kernel<source, target>), (unsigned)blocks, THREADS,
                  (size_t)(tiles.tile_rows * tiles.stride) * sizeof(source), stream->handle, tiles,
                  (const source *)args->x, (target *)y);
}

static bool transposes_nothing(const struct transpose *args)
{
    return args->batch == 0 || args->rows == 0 || args->columns == 0;
}

/* Only the element size matters. */
void cuda_transpose(struct stream *stream, const struct transpose *args)
{
    if (transposes_nothing(args))
        return;
    if (type_size(args->type) == 4)
        transpose_launch<uint32_t, uint32_t>(stream, args, args->y);
    else
        transpose_launch<uint16_t, uint16_t>(stream, args, args->y);
}

template <typename number>
static void transpose_add_launch(struct stream *stream, const struct transpose *args, float *sum,
                                 bool overwrite)
{
    if (overwrite)
        transpose_launch<number, struct value_of>(stream, args, sum);
    else
        transpose_launch<number, struct sum_of>(stream, args, sum);
}

void cuda_transpose_add(struct stream *stream, const struct transpose *args, float *sum,
                        bool overwrite)
{
    if (!transposes_nothing(args))
        NUMBER_SWITCH(args->type, transpose_add_launch, stream, args, sum, overwrite);
}
