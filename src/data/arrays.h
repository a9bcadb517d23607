// SPDX-License-Identifier: BSD-3-Clause
/* Variables and files of an open data set of data.format=arrays, for predictions. */
#ifndef VITTRAIN_DATA_ARRAYS_H
#define VITTRAIN_DATA_ARRAYS_H

#include "data/arrays_variable.h"
#include "data/dataset.h"
#include "data/file_series.h"

struct arrays_view {
    const struct variable *x, *y; /* [x_count], [y_count]: of data.x and data.y */
    int x_count, y_count;
    bool has_targets; /* the files have data.y */
    int64_t file_count;
};

/* Return false if the data set has another format. */
bool arrays_view(const struct dataset *dataset, struct arrays_view *view);

/* Return the file that has a record, and set the number of the sample in it. */
int64_t arrays_find(const struct dataset *dataset, int64_t record, int64_t *sample);

/* Return the records of which a file has the targets. */
struct arrays_part arrays_part(const struct dataset *dataset, int64_t file);

#endif
