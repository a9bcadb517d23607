// SPDX-License-Identifier: BSD-3-Clause
/* Patches, token sequences and pooling, limited by memory bandwidth. Samples are a dimension of the
 * grid, so that divisions are 32-bit or unnecessary. */
#include "base/base.h"
#include "cuda.h"
#include "kernel.h"

enum { THREADS = 256, WARPS = THREADS / WARP };

/* ---- Patches: a copy, so only the number of bytes moved at once matters, not the type. A block
 * copies the image rows of one row of patches. Sizes are in units. */
struct patches_shape {
    int channels, patch, across, unit_patch; /* unit_patch: units in a row of a patch */
    int height, unit_width;                  /* of an image; in units */
    enum pad_choice pad;
    int64_t down, first;
};

template <typename unit, bool back>
__global__ static void patches_kernel(struct patches_shape shape, unit *images, unit *rows)
{
    kernel_begin();
    int row_units = shape.channels * shape.patch * shape.unit_patch;
    int64_t sample = blockIdx.x / shape.down, down = blockIdx.x % shape.down;
    int64_t before = (sample + 1) * shape.first * row_units; /* units that are not patches */
    for (int i = (int)threadIdx.x; i < row_units * shape.across; i += (int)blockDim.x) {
        int across = i / row_units, line = i % row_units / shape.unit_patch;
        int channel = line / shape.patch, y = line % shape.patch;
        int row = (int)down * shape.patch + y, last_row = shape.height - 1;
        int column = across * shape.unit_patch + i % shape.unit_patch, last = shape.unit_width - 1;
        bool outside = row > last_row || column > last;
        if (column > last)
            column = shape.pad == PAD_WRAP ? column % shape.unit_width : last;
        int64_t line_of_image =
            (sample * shape.channels + channel) * shape.height + (row > last_row ? last_row : row);
        unit *in_image = images + line_of_image * shape.unit_width + column;
        unit *in_row = rows + before + (int64_t)blockIdx.x * row_units * shape.across + i;
        if (back && !outside)
            *in_image = *in_row;
        else if (!back)
            *in_row = outside && shape.pad == PAD_NONE ? unit{} : *in_image;
    }
    if (!back && down == 0)
        for (int64_t i = threadIdx.x; i < shape.first * row_units; i += blockDim.x)
            rows[(int64_t)blockIdx.x * row_units * shape.across + before - 1 - i] = {};
}

template <typename unit>
static void patches_launch(struct stream *stream, const struct patches *args)
{
    struct patches_shape shape = {};
    shape.channels = (int)args->channels;
    shape.patch = (int)args->patch;
    shape.across = (int)round_up_division(args->width, args->patch);
    shape.unit_patch = (int)((size_t)args->patch * type_size(args->type) / sizeof(unit));
    shape.height = (int)args->height;
    shape.unit_width = (int)((size_t)args->width * type_size(args->type) / sizeof(unit));
    shape.pad = args->pad;
    shape.down = round_up_division(args->height, args->patch);
    shape.first = args->first;
    KERNEL_LAUNCH((args->back ? patches_kernel<unit, true> : patches_kernel<unit, false>),
                  (unsigned)(args->batch * shape.down), THREADS, 0, stream->handle, shape,
                  (unit *)args->images, (unit *)args->rows);
}

void cuda_patches(struct stream *stream, const struct patches *args)
{
    size_t bytes = (size_t)args->patch * type_size(args->type);
    uintptr_t together = bytes | (uintptr_t)args->images | (uintptr_t)args->rows;
    if (args->width % args->patch != 0)
        together = type_size(args->type); /* columns beyond the image are copied one by one */
    if (args->batch == 0)
        return;
    if (together % sizeof(struct vector16) == 0)
        patches_launch<struct vector16>(stream, args);
    else if (together % sizeof(uint64_t) == 0)
        patches_launch<uint64_t>(stream, args);
    else if (together % sizeof(uint32_t) == 0)
        patches_launch<uint32_t>(stream, args);
    else
        patches_launch<uint16_t>(stream, args);
}

/* ---- Token sequences: eight neighbouring elements of a sample per thread */

/* Return the source of an element of a sample, to which the position is added. patches: the patches
 * of the sample. */
template <typename number>
__device__ static inline const number *token_source(const struct tokens_forward &args,
                                                    const number *patches, int64_t element)
{
    int64_t classes = args.class_token != NULL ? args.width : 0;
    int64_t prefix = classes + args.registers * args.width;
    if (element < classes)
        return (const number *)args.class_token + element;
    return element < prefix ? (const number *)args.register_tokens + (element - classes)
                            : patches + (element - prefix);
}

template <typename number>
__global__ static void tokens_forward_kernel(struct tokens_forward args, bool fits)
{
    kernel_begin();
    int64_t prefix = (args.registers + (args.class_token != NULL ? 1 : 0)) * args.width;
    int64_t elements = args.tokens * args.width, unplaced = args.unplaced * args.width;
    int64_t element = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * 8, sample = blockIdx.x;
    if (element >= elements)
        return;
    const number *patches = (const number *)args.patches + sample * (elements - prefix);
    const number *position = (const number *)args.position;
    int64_t left = elements - element;
    struct eight token = {}, place = {};
    if (fits)
        token = eight_load(token_source(args, patches, element));
    if (fits && element >= unplaced)
        place = eight_load(position + (element - unplaced));
    for (int64_t i = 0; i < 8 && i < left; i++) {
        if (!fits)
            token.value[i] = number_load(*token_source(args, patches, element + i));
        if (!fits && element + i >= unplaced)
            place.value[i] = number_load(position[element + i - unplaced]);
        token.value[i] += place.value[i];
    }
    eight_store_some((number *)args.x + sample * elements + element, token, left, fits);
}

template <typename number>
static void tokens_forward_launch(struct stream *stream, const struct tokens_forward *args)
{
    bool fits = eight_fits(args->patches, args->width) && eight_fits(args->x, args->width) &&
                eight_fits(args->class_token, args->width) &&
                eight_fits(args->register_tokens, args->width) &&
                eight_fits(args->position, args->width);
    dim3 grid((unsigned)args->batch, blocks_for(args->tokens * args->width, THREADS * 8));
    KERNEL_LAUNCH(tokens_forward_kernel<number>, grid, THREADS, 0, stream->handle, *args, fits);
}

void cuda_tokens_forward(struct stream *stream, const struct tokens_forward *args)
{
    if (args->batch > 0)
        NUMBER_SWITCH(args->type, tokens_forward_launch, stream, args);
}

/* A gradient of parameters that are added to elements first .. first + count - 1 of each sample.
 * sums: [count], or NULL. */
struct token_part {
    int64_t first, count;
    float *sums;
};

enum { TOKEN_PARTS = 3 };

struct token_parts {
    int64_t patches; /* the first element of the patches */
    struct token_part part[TOKEN_PARTS];
};

static struct token_parts token_parts_of(const struct tokens_backward *args)
{
    int64_t classes = args->class_token ? args->width : 0,
            registers = args->registers * args->width;
    int64_t unplaced = args->unplaced * args->width;
    return (struct token_parts){
        classes + registers,
        {{0, classes, args->dclass_token},
         {classes, registers, args->dregister_tokens},
         {unplaced, args->tokens * args->width - unplaced, args->dposition}}};
}

/* Backward: a thread processes eight neighbouring elements over a chunk of samples, copies them,
 * and writes their sums to partial [chunks, elements]; with one chunk it adds them to the
 * gradients. */
template <typename number>
__global__ static void tokens_backward_kernel(struct tokens_backward args, struct token_parts parts,
                                              int64_t chunk_samples, float *partial, bool fits)
{
    kernel_begin();
    int64_t first = parts.patches, elements = args.tokens * args.width;
    int64_t element = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * 8;
    int64_t left = elements - element, end = ((int64_t)blockIdx.x + 1) * chunk_samples;
    struct eight sum = {};
    if (element >= elements)
        return;
    for (int64_t b = blockIdx.x * chunk_samples; b < end && b < args.batch; b++) {
        struct eight dx =
            eight_load_some((const number *)args.dx + b * elements + element, left, fits);
        number *patches = (number *)args.dpatches + b * (elements - first);
        if (fits && element >= first)
            eight_store_global(patches + (element - first), dx);
        for (int i = 0; i < 8; i++) {
            sum.value[i] += dx.value[i];
            if (!fits && i < left && element + i >= first)
                number_store(patches + (element + i - first), dx.value[i]);
        }
    }
    for (int i = 0; i < 8 && i < left; i++) {
        if (partial != NULL)
            partial[blockIdx.x * elements + element + i] = sum.value[i];
        for (int p = 0; p < TOKEN_PARTS && partial == NULL; p++) {
            int64_t at = element + i - parts.part[p].first;
            if (parts.part[p].sums != NULL && at >= 0 && at < parts.part[p].count)
                gradient_put(&parts.part[p].sums[at], sum.value[i], args.overwrite);
        }
    }
}

template <typename number>
static void tokens_backward_launch(struct stream *stream, const struct tokens_backward *args)
{
    int64_t elements = args->tokens * args->width, rows = sum_chunk_rows(args->batch);
    int64_t most = WORKSPACE_SUMS / (elements * (int64_t)sizeof(float));
    int64_t least = most > 0 ? (args->batch + most - 1) / most : args->batch;
    rows = rows < least ? least : rows;
    int64_t chunks = (args->batch + rows - 1) / rows;
    bool fits = eight_fits(args->dx, args->width) && eight_fits(args->dpatches, args->width);
    const struct token_parts parts = token_parts_of(args);
    float *partial = NULL;
    if (chunks > 1)
        partial = (float *)cuda_workspace_sums(stream->cuda,
                                               (size_t)(chunks * elements) * sizeof *partial);
    dim3 grid((unsigned)chunks, blocks_for(elements, THREADS * 8));
    KERNEL_LAUNCH(tokens_backward_kernel<number>, grid, THREADS, 0, stream->handle, *args, parts,
                  rows, partial, fits);
    for (int p = 0; p < TOKEN_PARTS && partial != NULL; p++)
        if (parts.part[p].sums != NULL)
            columns_add(stream, partial + parts.part[p].first, chunks, elements,
                        parts.part[p].count, parts.part[p].sums, args->overwrite);
}

void cuda_tokens_backward(struct stream *stream, const struct tokens_backward *args)
{
    if (args->batch > 0)
        NUMBER_SWITCH(args->type, tokens_backward_launch, stream, args);
}

/* ---- Pooling: a block processes 32 octets of a sample's columns; each of its warps sums every
 * eighth token, and the first warp adds the warps' sums. */
template <typename number>
__global__ static void pool_forward_kernel(struct pool_forward args, bool fits)
{
    kernel_begin();
    SHARED_MEMORY(shared);
    float *room = (float *)shared + threadIdx.x * 8;
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int64_t column = ((int64_t)blockIdx.y * WARP + lane) * 8, left = args.width - column;
    int64_t begin = args.mean ? args.first : 0, end = args.mean ? args.tokens : 1;
    const number *x = (const number *)args.x + blockIdx.x * args.tokens * args.width + column;
    struct eight sum = {};
    for (int64_t token = begin + warp; token < end && left > 0; token += WARPS) {
        struct eight eight = eight_load_some(x + token * args.width, left, fits);
        for (int i = 0; i < 8; i++)
            sum.value[i] += eight.value[i];
    }
    eight_store(room, sum);
    __syncthreads();
    if (warp > 0 || left <= 0)
        return;
    for (int other = 1; other < WARPS; other++) {
        struct eight eight = eight_load(room + other * WARP * 8);
        for (int i = 0; i < 8; i++)
            sum.value[i] += eight.value[i];
    }
    for (int i = 0; i < 8; i++)
        sum.value[i] *= 1 / (float)(end - begin);
    eight_store_some((number *)args.y + blockIdx.x * args.width + column, sum, left, fits);
}

template <typename number>
static void pool_forward_launch(struct stream *stream, const struct pool_forward *args)
{
    bool fits = eight_fits(args->x, args->width) && eight_fits(args->y, args->width);
    dim3 grid((unsigned)args->batch, blocks_for(args->width, WARP * 8));
    KERNEL_LAUNCH(pool_forward_kernel<number>, grid, THREADS, THREADS * sizeof(struct eight),
                  stream->handle, *args, fits);
}

void cuda_pool_forward(struct stream *stream, const struct pool_forward *args)
{
    if (args->batch > 0)
        NUMBER_SWITCH(args->type, pool_forward_launch, stream, args);
}

/* Backward: one octet of a row per thread. */
template <typename number>
__global__ static void pool_backward_kernel(struct pool_backward args, bool fits)
{
    kernel_begin();
    int octets = (int)((args.width + 7) / 8);
    int64_t index = (int64_t)blockIdx.y * blockDim.x + threadIdx.x, token = index / octets;
    int64_t column = index % octets * 8, left = args.width - column;
    int64_t begin = args.mean ? args.first : 0, end = args.mean ? args.tokens : 1;
    struct eight dx = {};
    if (token >= args.tokens)
        return;
    if (token >= begin && token < end)
        dx =
            eight_load_some((const number *)args.dy + blockIdx.x * args.width + column, left, fits);
    for (int i = 0; i < 8; i++)
        dx.value[i] *= 1 / (float)(end - begin);
    eight_store_some((number *)args.dx + (blockIdx.x * args.tokens + token) * args.width + column,
                     dx, left, fits);
}

template <typename number>
static void pool_backward_launch(struct stream *stream, const struct pool_backward *args)
{
    bool fits = eight_fits(args->dy, args->width) && eight_fits(args->dx, args->width);
    dim3 grid((unsigned)args->batch, blocks_for(args->tokens * ((args->width + 7) / 8), THREADS));
    KERNEL_LAUNCH(pool_backward_kernel<number>, grid, THREADS, 0, stream->handle, *args, fits);
}

void cuda_pool_backward(struct stream *stream, const struct pool_backward *args)
{
    if (args->batch > 0)
        NUMBER_SWITCH(args->type, pool_backward_launch, stream, args);
}
