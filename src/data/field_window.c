// SPDX-License-Identifier: BSD-3-Clause

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "base/log.h"
#include "data/dataset.h"
#include "options/options.h"

bool window_is_asked_for(const struct options *options)
{
    const struct augment_options *augment = &options->augment;
    return strcmp(options->data.format, dataset_arrays.name) == 0 && augment->resize == 0 &&
           options->eval.resize == 0 &&
           (augment->crop == CROP_RANDOM || augment->crop == CROP_CENTER ||
            options->eval.crop == CROP_CENTER);
}

bool window_is_tiled(const struct options *options, enum data_split split)
{
    return window_is_asked_for(options) && split != SPLIT_TRAIN &&
           options->model.head == HEAD_DENSE;
}

bool window_set(struct dataset *dataset, const struct options *options, enum data_split split,
                struct error *error)
{
    const int64_t height = options->model.image;
    const int64_t width = options->model.image_width > 0 ? options->model.image_width : height;
    struct target_shape *target = &dataset->target;
    struct error reason = {0};
    if (!window_is_asked_for(options))
        return true;
    const char *unused = options->augment.crop_pad > 0        ? "augment.crop_pad"
                         : options->augment.roll != ROLL_NONE ? "augment.roll"
                         : options->eval.crop == CROP_NONE    ? "eval.crop=none"
                         : options->eval.crop == CROP_RANDOM  ? "eval.crop=random"
                         : options->augment.resize_to == RESIZE_SHORTER
                             ? "augment.resize_to=shorter"
                         : options->eval.resize_to == RESIZE_SHORTER ? "eval.resize_to=shorter"
                                                                     : NULL;
    if (unused != NULL)
        return error_set(error, ERROR_USAGE,
                         "%s does not apply to windows of arrays (augment.crop without "
                         "augment.resize): leave it out",
                         unused);
    if (height == 0)
        return error_set(error, ERROR_USAGE,
                         "augment.crop of arrays takes windows of model.image pixels: set "
                         "model.image");
    if (split == SPLIT_TRAIN && options->augment.crop != CROP_RANDOM &&
        options->augment.crop != CROP_CENTER)
        return error_set(error, ERROR_USAGE,
                         "eval.crop=center of arrays needs augment.crop=random or center, which "
                         "takes windows for training: set it");
    if (dataset->height < height || dataset->width < width) {
        error_set(&reason, ERROR_DATA,
                  "images of %lldx%lld pixels are smaller than windows of %lldx%lld: %s",
                  (long long)dataset->height, (long long)dataset->width, (long long)height,
                  (long long)width,
                  split == SPLIT_ALL ? "the model needs larger images"
                                     : "set model.image and model.image_width");
        return dataset_name_error(dataset, 0, &reason, error);
    }
    dataset->field = (struct image_size){.height = dataset->height, .width = dataset->width};
    if (window_is_tiled(options, split)) {
        dataset->tiles =
            round_up_division(dataset->height, height) * round_up_division(dataset->width, width);
        dataset->count *= dataset->tiles;
    }
    if (split == SPLIT_TRAIN)
        log_info("augment.crop: windows of %lldx%lld from images of %lldx%lld%s", (long long)height,
                 (long long)width, (long long)dataset->height, (long long)dataset->width,
                 window_is_tiled(options, SPLIT_ALL) ? "; evaluations read whole images in tiles"
                                                     : "; evaluations read the centre");
    dataset->height = height;
    dataset->width = width;
    if (target->height * target->width > 1) {
        target->height = height;
        target->width = width;
    }
    return true;
}

struct window_tile window_tile_of(const struct dataset *dataset, int64_t index)
{
    if (dataset->tiles == 0)
        return (struct window_tile){0};
    const int64_t across = round_up_division(dataset->field.width, dataset->width);
    const int64_t tile = index % dataset->tiles;
    const int64_t top = tile / across * dataset->height, left = tile % across * dataset->width;
    const int64_t last_top = dataset->field.height - dataset->height;
    const int64_t last_left = dataset->field.width - dataset->width;
    return (struct window_tile){.top = smaller(top, last_top),
                                .left = smaller(left, last_left),
                                .rows = larger(0, top - last_top),
                                .columns = larger(0, left - last_left)};
}

void window_mask(const struct dataset *dataset, struct window_tile tile, float *targets)
{
    const struct target_shape *target = &dataset->target;
    if (tile.rows == 0 && tile.columns == 0)
        return;
    for (int64_t row = 0; row < target->count * target->height; row++, targets += target->width) {
        const bool is_masked = row % target->height < tile.rows;
        for (int64_t x = 0; x < (is_masked ? target->width : tile.columns); x++)
            targets[x] = NAN;
    }
}

struct image_size window_field(const struct dataset *dataset)
{
    return dataset->field.height > 0
               ? dataset->field
               : (struct image_size){.height = dataset->height, .width = dataset->width};
}

int64_t window_records(const struct dataset *dataset)
{
    return dataset->count / larger(1, dataset->tiles);
}

struct dataset window_fields(const struct dataset *dataset)
{
    struct dataset fields = *dataset;
    ENSURE(dataset->tiles == 0, "the samples are tiles");
    fields.height = window_field(dataset).height;
    fields.width = window_field(dataset).width;
    if (fields.target.height * fields.target.width > 1) {
        fields.target.height = fields.height;
        fields.target.width = fields.width;
    }
    return fields;
}
