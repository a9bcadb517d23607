// SPDX-License-Identifier: BSD-3-Clause
/* Windows of fields: with augment.crop and no resize, a record is a part of the model's size of a
 * larger image. Training draws its position (crop.h). Evaluations and predictions of planes divide
 * each field into tiles, which are samples of the split. */
#ifndef VITTRAIN_DATA_WINDOW_H
#define VITTRAIN_DATA_WINDOW_H

#include "data/dataset.h"

/* True if the options cut windows from fields, which are not resized. */
bool window_is_asked_for(const struct options *options);

/* True if evaluations with these options read whole fields in tiles. */
bool window_is_tiled(const struct options *options, enum data_split split);

/* Set the size of the records of an open split to that of the windows. */
MUST_CHECK bool window_set(struct dataset *dataset, const struct options *options,
                           enum data_split split, struct error *error);

/* Position of a tile in its field. Pixels of the first rows and columns may belong to the previous
 * tile, too: `rows` and `columns` is their number. */
struct window_tile {
    int64_t top, left, rows, columns;
};

/* Return the tile of a sample; 0, 0 if there are no tiles. */
struct window_tile window_tile_of(const struct dataset *dataset, int64_t index);

/* Make the targets of pixels that belong to the previous tile missing. */
void window_mask(const struct dataset *dataset, struct window_tile tile, float *targets);

/* Return the size of the stored images of a data set that is not encoded. */
struct image_size window_field(const struct dataset *dataset);

/* Return the number of records whose windows are the samples. */
int64_t window_records(const struct dataset *dataset);

/* Return a view of a training split whose records are the whole fields. */
struct dataset window_fields(const struct dataset *dataset);

#endif
