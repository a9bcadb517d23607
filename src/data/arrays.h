// SPDX-License-Identifier: BSD-3-Clause
/* Variables and files of an open data set of data.format=arrays, for predictions. */
#ifndef VITTRAIN_DATA_ARRAYS_H
#define VITTRAIN_DATA_ARRAYS_H

#include "data/arrays_variable.h"
#include "data/dataset.h"
#include "data/grid.h"

struct arrays_view {
    const struct variable *x, *y; /* [x_count], [y_count]: of data.x and data.y */
    int x_count, y_count;
    bool has_targets; /* the files have data.y */
    const struct file_series *series;
    const struct grid *grid; /* of the first file */
};

/* Return false if the data set has another format. */
bool arrays_view(const struct dataset *dataset, struct arrays_view *view);

/* Compare the grid of a data set with that of weights (grid_write; NULL: not known) in the file
 * `path`. Times after the end of a series continue in the step of the weights. */
MUST_CHECK bool arrays_check_grid(struct dataset *dataset, const char *text, const char *path,
                                  struct error *error);
/* Return the file that has a record, and set the number of the sample in it. */
int64_t arrays_find(const struct dataset *dataset, int64_t record, int64_t *sample);

#endif
