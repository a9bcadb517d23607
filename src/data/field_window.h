// SPDX-License-Identifier: BSD-3-Clause
/* Windows of fields: with augment.crop and without a resize, a sample is a part of a larger image,
 * the field. The part has the model's image size. Training draws its position (crop.h). Evaluations
 * and predictions of planes divide each field into tiles; each tile is a sample of the split. */
#ifndef VITTRAIN_DATA_FIELD_WINDOW_H
#define VITTRAIN_DATA_FIELD_WINDOW_H

#include "data/dataset.h"

/* True if samples are windows of fields with these options. */
bool window_is_asked_for(const struct options *options);

/* True if the samples of this split are the tiles of whole fields with these options. */
bool window_is_tiled(const struct options *options, enum data_split split);

/* Set the size of the samples of an open split to that of the windows, and their number. Do nothing
 * if samples are not windows. */
MUST_CHECK bool window_set(struct dataset *dataset, const struct options *options,
                           enum data_split split, struct error *error);

/* Position of a tile in its field. The first `rows` rows and `columns` columns of a tile at the
 * border of the field belong to the tiles before it, too. */
struct window_tile {
    int64_t top, left, rows, columns;
};

/* Return the tile of a sample; all members are 0 if the samples are not tiles. */
struct window_tile window_tile_of(const struct dataset *dataset, int64_t index);

/* Set the targets of pixels that belong to an earlier tile, too, to NaN: missing. */
void window_mask(const struct dataset *dataset, struct window_tile tile, float *targets);

/* Return the size of the stored images of a data set that is not encoded. */
struct image_size window_field(const struct dataset *dataset);

/* Return the number of stored records of the split, which have one or several tiles each. */
int64_t window_records(const struct dataset *dataset);

/* Return a copy of a training split whose samples are the whole fields. It shares the memory. */
struct dataset window_fields(const struct dataset *dataset);

#endif
