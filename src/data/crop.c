// SPDX-License-Identifier: BSD-3-Clause
/* Choose the crop of an image and resample it to the model's image. Each random number has a fixed
 * position in the sample's stream. */
#include "data/crop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/random.h"
#include "options/options.h"

/* Blocks of the sample's stream, in another layer than those of augment.c. */
enum { LAYER_CROP = 1, BLOCK_TAKE = 0, BLOCK_ATTEMPT = 1 };
enum { ATTEMPTS = 10, SMALLEST = 8 /* SMALLEST: largest denominator of scaled decoding */ };

bool crop_is_active(const struct options *options, bool encoded)
{
    const struct augment_options *augment = &options->augment;
    return encoded || augment->recipe == RECIPE_PHOTOS ||
           augment->random_resized_crop == SWITCH_ON || augment->crop == CROP_CENTER ||
           augment->crop == CROP_RANDOM || augment->interpolation == INTERPOLATION_BICUBIC ||
           options->eval.resize != 0 || options->eval.resize_to != RESIZE_AUTO ||
           options->eval.crop != CROP_AUTO;
}

static bool check_sizes(const struct crop *crop, const char *section, struct error *error)
{
    const long long height = crop->image.height, width = crop->image.width, pad = crop->pad;
    if (crop->take == CROP_NONE &&
        (crop->resize.height != height || crop->resize_to == RESIZE_SHORTER))
        return error_set(error, ERROR_USAGE,
                         "%s.crop=none: images differ from the model's %lld x %lld pixels: set "
                         "%s.crop, or remove %s.resize",
                         section, height, width, section, section);
    if (crop->take == CROP_RANDOM &&
        (crop->resize.height + 2 * pad < height || crop->resize.width + 2 * pad < width))
        return error_set(error, ERROR_USAGE,
                         "%s.resize=%lld with %s.crop_pad=%lld is smaller than the model's %lld x "
                         "%lld pixels: raise %s.resize",
                         section, (long long)crop->resize.height, section, pad, height, width,
                         section);
    if (pad >= height || pad >= width)
        return error_set(
            error, ERROR_USAGE,
            "%s.crop_pad=%lld: images of %lld x %lld pixels could consist of padding only; lower "
            "it",
            section, pad, height, width);
    return true;
}

bool crop_open(struct crop *crop, const struct options *options, bool encoded,
               struct image_size image, bool training, struct error *error)
{
    *crop = (struct crop){
        .active = crop_is_active(options, encoded),
        .image = image,
        .seed = (uint64_t)options->run.seed,
        .scaled_decode = options->data.scaled_decode == SWITCH_AUTO
                             ? training || options->augment.recipe != RECIPE_PHOTOS
                             : options->data.scaled_decode == SWITCH_ON,
        .filter = options->augment.interpolation == INTERPOLATION_BICUBIC ? FILTER_BICUBIC
                                                                          : FILTER_BILINEAR,
        .turn = options->data.exif,
        .most_pixels = options->data.max_pixels};
    if (training) {
        crop->random_resized = options->augment.random_resized_crop == SWITCH_ON;
        memcpy(crop->scale, options->augment.crop_scale.value, sizeof crop->scale);
        memcpy(crop->ratio, options->augment.crop_ratio.value, sizeof crop->ratio);
        crop->resize.height = options->augment.resize;
        crop->resize_to = options->augment.resize_to;
        crop->take = options->augment.crop == CROP_AUTO ? CROP_NONE : options->augment.crop;
        crop->pad = options->augment.crop == CROP_RANDOM ? options->augment.crop_pad : 0;
    } else {
        crop->resize.height =
            options->eval.resize > 0 ? options->eval.resize : options->augment.resize;
        crop->resize_to = options->eval.resize_to;
        if (crop->resize_to == RESIZE_AUTO)
            crop->resize_to = options->augment.resize_to;
        crop->take = options->eval.crop;
        if (crop->take == CROP_AUTO)
            crop->take =
                options->augment.crop == CROP_CENTER || options->augment.crop == CROP_RANDOM
                    ? CROP_CENTER
                    : CROP_NONE;
        crop->pad = crop->take == CROP_RANDOM ? options->eval.crop_pad : 0;
    }
    if (crop->resize_to == RESIZE_AUTO)
        crop->resize_to = RESIZE_SQUARE;
    crop->window = window_is_asked_for(options);
    if (crop->window) {
        /* Evaluations of planes read the tiles of the data set. */
        crop->active = training || options->model.head != HEAD_DENSE;
        return true;
    }
    if (crop->resize.height == 0)
        crop->resize.height = image.height;
    crop->resize.width = crop->resize.height * image.width / image.height;
    if (!crop->active)
        return true;
    crop->host = cpu_kernels_choose(error);
    return crop->host != NULL &&
           (crop->random_resized || check_sizes(crop, training ? "augment" : "eval", error));
}

/* ---- Plans. */

/* torchvision's RandomResizedCrop.get_params: a box of random area and aspect ratio. Another
 * attempt is made if it does not fit; after the last one, the largest centred box whose aspect
 * ratio is within the limits is used. */
static void draw_box(const struct crop *crop, uint32_t epoch, uint32_t sample, int64_t width,
                     int64_t height, struct image_area *box)
{
    const double area = (double)width * (double)height;
    const double low = log(crop->ratio[0]), high = log(crop->ratio[1]);
    for (uint32_t attempt = 0; attempt < ATTEMPTS; attempt++) {
        const struct random_block draw = random_block_at(crop->seed, RANDOM_AUGMENT, LAYER_CROP,
                                                         epoch, sample, BLOCK_ATTEMPT + attempt);
        const double part = area * random_between(draw.word[0], crop->scale[0], crop->scale[1]);
        const double ratio = exp(random_between(draw.word[1], low, high));
        box->width = (int64_t)rint(sqrt(part * ratio));
        box->height = (int64_t)rint(sqrt(part / ratio));
        if (box->width < 1 || box->width > width || box->height < 1 || box->height > height)
            continue;
        box->y = random_integer(draw.word[2], 0, height - box->height);
        box->x = random_integer(draw.word[3], 0, width - box->width);
        return;
    }
    const double ratio = (double)width / (double)height;
    box->width = width;
    box->height = height;
    if (ratio < crop->ratio[0])
        box->height = larger(1, (int64_t)rint((double)width / crop->ratio[0]));
    else if (ratio > crop->ratio[1])
        box->width = larger(1, (int64_t)rint((double)height * crop->ratio[1]));
    box->x = (width - box->width) / 2;
    box->y = (height - box->height) / 2;
}

/* Offset of torchvision's center_crop; negative if the image is smaller, which pads it with zeros.
 */
static int64_t center_offset(int64_t size, int64_t taken)
{
    return size < taken ? -((taken - size) / 2) : (int64_t)rint((double)(size - taken) / 2);
}

void crop_plan_make(const struct crop *crop, uint32_t epoch, uint32_t sample, int64_t width,
                    int64_t height, struct crop_plan *plan)
{
    *plan = (struct crop_plan){.box = {0, 0, width, height},
                               .resized_width = crop->resize.width,
                               .resized_height = crop->resize.height};
    if (crop->window) {
        plan->resized_width = width;
        plan->resized_height = height;
    }
    if (crop->random_resized) {
        draw_box(crop, epoch, sample, width, height, &plan->box);
        plan->resized_width = crop->image.width;
        plan->resized_height = crop->image.height;
        return;
    }
    /* Resize the image in proportion to the smallest size that covers crop->resize. For square
     * sizes the longer side is rounded down, as by torchvision's Resize; otherwise it is rounded to
     * the nearest integer, as by timm's ResizeKeepRatio. */
    const struct image_size *to = &crop->resize;
    const bool square = to->width == to->height;
    const double down = (double)(to->width * height) / (double)width;
    const double across = (double)(to->height * width) / (double)height;
    if (crop->resize_to == RESIZE_SHORTER && width * to->height < height * to->width)
        plan->resized_height = (int64_t)(square ? floor(down) : rint(down));
    else if (crop->resize_to == RESIZE_SHORTER)
        plan->resized_width = (int64_t)(square ? floor(across) : rint(across));
    if (crop->take == CROP_CENTER) {
        plan->left = center_offset(plan->resized_width, crop->image.width);
        plan->top = center_offset(plan->resized_height, crop->image.height);
    } else if (crop->take == CROP_RANDOM) {
        const struct random_block draw =
            random_block_at(crop->seed, RANDOM_AUGMENT, LAYER_CROP, epoch, sample, BLOCK_TAKE);
        const int64_t most_left = plan->resized_width + 2 * crop->pad - crop->image.width;
        const int64_t most_top = plan->resized_height + 2 * crop->pad - crop->image.height;
        plan->left = random_integer(draw.word[0], 0, most_left) - crop->pad;
        plan->top = random_integer(draw.word[1], 0, most_top) - crop->pad;
    }
}

/* ---- Resampling. */

/* One axis of a crop: `count` pixels of the resized image from `begin` are written to the output
 * from `at`; the rest of the output is zero. */
struct stretch {
    int64_t begin, count, at;
};

static struct stretch stretch_of(int64_t offset, int64_t resized, int64_t image)
{
    int64_t begin = offset < 0 ? 0 : offset;
    int64_t end = offset + image > resized ? resized : offset + image;
    return (struct stretch){begin, end > begin ? end - begin : 0, begin - offset};
}

/* The box of one axis in pixels of a scaled decoding, relative to the first pixel that it overlaps.
 */
static struct resize_span span_of(enum resize_filter filter, int64_t begin, int64_t extent,
                                  int64_t scale, int64_t resized)
{
    const int64_t first = begin / scale, end = (begin + extent + scale - 1) / scale;
    return (struct resize_span){.begin = (double)(begin - first * scale) / (double)scale,
                                .extent = (double)extent / (double)scale,
                                .source = end - first,
                                .size = resized,
                                .filter = filter};
}

/* Reduce the box of one axis to the input pixels of a stretch, with a margin for rounding at this
 * scale. */
static void box_narrow(enum resize_filter filter, int64_t *begin, int64_t *extent, int64_t resized,
                       struct stretch stretch, int64_t scale)
{
    const double step = (double)*extent / (double)resized;
    const double support = filter == FILTER_BICUBIC ? 2 : 1;
    const double reach = support * (step < 1 ? 1 : step) + (double)(2 * scale);
    const int64_t low = (int64_t)floor((double)stretch.begin * step - reach);
    const int64_t high = (int64_t)ceil((double)(stretch.begin + stretch.count) * step + reach);
    const int64_t first = low < 0 ? 0 : low, end = high > *extent ? *extent : high;
    *begin += first;
    *extent = end - first;
}

void crop_request(const struct crop *crop, const struct crop_plan *plan,
                  struct image_request *request)
{
    const struct image_area *box = &plan->box;
    int64_t scale = 1;
    while (crop->scaled_decode && scale < SMALLEST &&
           box->width >= 2 * scale * plan->resized_width &&
           box->height >= 2 * scale * plan->resized_height)
        scale *= 2;
    *request = (struct image_request){.area = *box, .scale = scale};
    box_narrow(crop->filter, &request->area.x, &request->area.width, plan->resized_width,
               stretch_of(plan->left, plan->resized_width, crop->image.width), scale);
    box_narrow(crop->filter, &request->area.y, &request->area.height, plan->resized_height,
               stretch_of(plan->top, plan->resized_height, crop->image.height), scale);
}

bool crop_from_pixels(const struct crop *crop, const struct crop_plan *plan,
                      const struct crop_source *source, int64_t channels,
                      struct crop_scratch *scratch, void *planes, struct error *error)
{
    const struct image_area *box = &plan->box, *present = &source->present;
    const int64_t scale = source->scale, interleaved = source->pixel_stride;
    const int64_t width = crop->image.width, count = crop->image.height * width;
    const int64_t size = (int64_t)dataset_value_size(source->type);
    const bool is_float = source->type == DATASET_FLOAT32;
    const struct image_kernels *kernels = crop->host->image;
    const struct stretch across = stretch_of(plan->left, plan->resized_width, width);
    const struct stretch down = stretch_of(plan->top, plan->resized_height, crop->image.height);
    const int64_t columns = across.count, lines = down.count;
    const struct resize_span x_span =
        span_of(crop->filter, box->x, box->width, scale, plan->resized_width);
    const struct resize_span y_span =
        span_of(crop->filter, box->y, box->height, scale, plan->resized_height);
    const size_t x_numbers = resize_axis_numbers(&x_span, columns);
    const size_t numbers = x_numbers + resize_axis_numbers(&y_span, lines);
    struct resize_axis x, y;
    if (!byte_buffer_reserve(&scratch->weights, numbers * sizeof(int32_t), error))
        return false;
    int32_t *weights = (int32_t *)(void *)scratch->weights.data;
    resize_axis_make(&x, &x_span, across.begin, columns, weights);
    resize_axis_make(&y, &y_span, down.begin, lines, weights + x_numbers);
    /* Input positions of the horizontal pass become columns of the source. The vertical pass reads
     * the rows from row `top` of the source on. */
    const int32_t first = y.first[0];
    const int64_t rows = y.first[lines - 1] + y.count[lines - 1] - first;
    const int64_t left = box->x / scale - present->x, top = box->y / scale - present->y + first;
    ENSURE(x.first[0] + left >= 0 &&
               x.first[columns - 1] + x.count[columns - 1] + left <= present->width && top >= 0 &&
               top + rows <= present->height,
           "the source of a crop lacks what it asked for");
    for (int64_t i = 0; i < columns; i++)
        x.first[i] += (int32_t)left;
    x.source = present->width;
    for (int64_t i = 0; i < lines; i++)
        y.first[i] -= first;
    const int64_t plane = rows * columns * size, resized_bytes = lines * columns * size;
    if (!byte_buffer_reserve(&scratch->between, (size_t)(interleaved * plane + resized_bytes),
                             error))
        return false;
    const bool whole = columns * lines == count;
    uint8_t *between = scratch->between.data, *to = planes;
    if (!whole) /* a float32 whose bits are all set is NaN */
        memset(planes, is_float ? 0xff : 0, (size_t)(channels * count * size));
    for (int64_t channel = 0; channel < channels; channel++, to += count * size) {
        const int64_t begin = channel * source->channel_stride + top * source->row_stride;
        void *const from = between + channel % interleaved * plane;
        void *const resized = whole ? to : between + interleaved * plane;
        if (is_float) {
            const struct resize_values horizontal = {(const float *)source->pixels + begin,
                                                     from,
                                                     rows,
                                                     source->row_stride,
                                                     source->pixel_stride,
                                                     columns,
                                                     1};
            const struct resize_values vertical = {from, resized, columns, 1, columns, 1, columns};
            kernels->resize_values(&x, &horizontal);
            kernels->resize_values(&y, &vertical);
        } else {
            const struct resize_lines horizontal = {(const uint8_t *)source->pixels + begin, rows,
                                                    source->row_stride, source->pixel_stride};
            if (channel % interleaved == 0)
                kernels->resize_horizontal(&x, &horizontal, between);
            kernels->resize_vertical(&y, columns, from, resized);
        }
        for (int64_t line = 0; !whole && line < lines; line++)
            memcpy(to + ((down.at + line) * width + across.at) * size,
                   (const uint8_t *)resized + line * columns * size, (size_t)(columns * size));
    }
    return true;
}

bool crop_file(const struct crop *crop, uint32_t epoch, uint32_t sample, const uint8_t *bytes,
               size_t count, struct crop_scratch *scratch, uint8_t *planes, struct error *error)
{
    struct image_header header;
    struct image_request request;
    struct crop_plan plan;
    bool incomplete;
    if (!image_file_header(bytes, count, true, crop->most_pixels, &header, &incomplete, error))
        return false;
    if (crop->turn)
        image_header_turn(&header);
    crop_plan_make(crop, epoch, sample, header.width, header.height, &plan);
    crop_request(crop, &plan, &request);
    if (!image_file_decode(bytes, count, &header, &request, &scratch->decoded, error))
        return false;
    const struct image_pixels *decoded = &scratch->decoded;
    const struct crop_source source = {.pixels = decoded->rows.data,
                                       .present = decoded->area,
                                       .row_stride = 3 * decoded->area.width,
                                       .pixel_stride = 3,
                                       .channel_stride = 1,
                                       .scale = decoded->scale};
    return crop_from_pixels(crop, &plan, &source, 3, scratch, planes, error);
}

bool crop_stored(const struct crop *crop, uint32_t epoch, uint32_t sample, const void *values,
                 const struct dataset *dataset, struct crop_scratch *scratch, void *planes,
                 struct error *error)
{
    const int64_t height = dataset->height, width = dataset->width;
    struct crop_plan plan;
    crop_plan_make(crop, epoch, sample, width, height, &plan);
    const struct crop_source source = {.type = dataset->type,
                                       .pixels = values,
                                       .present = {0, 0, width, height},
                                       .row_stride = width,
                                       .pixel_stride = 1,
                                       .channel_stride = height * width,
                                       .scale = 1};
    return crop_from_pixels(crop, &plan, &source, dataset->channels, scratch, planes, error);
}

int64_t crop_first_row(const struct crop *crop, const struct dataset *dataset, uint32_t epoch,
                       int64_t sample)
{
    struct crop_plan plan;
    if (!crop->window || !crop->active)
        return window_tile_of(dataset, sample).top;
    crop_plan_make(crop, epoch, dataset_record(dataset, sample), dataset->field.width,
                   dataset->field.height, &plan);
    return plan.top;
}

bool crop_sample(const struct crop *crop, const struct dataset *dataset, uint32_t epoch,
                 int64_t sample, struct crop_scratch *scratch, void *planes, struct error *error)
{
    const uint32_t record = dataset_record(dataset, sample);
    struct byte_buffer *bytes = &scratch->record;
    struct error reason = {0};
    if (crop->window) {
        struct crop_plan plan;
        crop_plan_make(crop, epoch, record, dataset->field.width, dataset->field.height, &plan);
        return dataset_read_window(dataset, sample, plan.top, plan.left, planes, error);
    }
    if (!dataset->encoded) {
        const int64_t pixels = crop->image.height * crop->image.width;
        if (!byte_buffer_reserve(bytes, dataset_record_bytes(dataset), error) ||
            !dataset_read(dataset, sample, bytes->data, error))
            return false;
        if (dataset->target.count > 0)
            memcpy((uint8_t *)planes + dataset_plane_bytes(dataset, pixels),
                   dataset_targets(dataset, bytes->data), target_bytes(&dataset->target));
        return crop_stored(crop, epoch, record, bytes->data, dataset, scratch, planes, error);
    }
    if (!dataset_load(dataset, sample, bytes, error))
        return false;
    return crop_file(crop, epoch, record, bytes->data, bytes->count, scratch, planes, &reason) ||
           dataset_name_error(dataset, sample, &reason, error);
}

void crop_scratch_free(struct crop_scratch *scratch)
{
    image_pixels_free(&scratch->decoded);
    free(scratch->between.data);
    free(scratch->weights.data);
    free(scratch->record.data);
    *scratch = (struct crop_scratch){0};
}
