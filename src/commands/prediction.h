// SPDX-License-Identifier: BSD-3-Clause
/* One sample's prediction as a table, CSV or JSON, for `vittrain predict`. */
#ifndef VITTRAIN_COMMANDS_PREDICTION_H
#define VITTRAIN_COMMANDS_PREDICTION_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct prediction_line {
    const char *file; /* name, any bytes; NULL for a record of a split */
    uint32_t record;
    int32_t label, predicted; /* class numbers; files have no label */
    char *const *class_name;  /* [named]: any bytes */
    int64_t named, classes;
    const float *probabilities; /* [classes]; the outputs of a regression */
    bool is_number;             /* regression: `target` instead of label, predicted and names */
    double target;
};

/* Write the header line of the CSV. `files`: for lines of files instead of records; `numbers`: for
 * a regression. */
void prediction_write_header(FILE *text, bool files, bool numbers, int64_t classes);

/* RFC 4180: a name with commas, quotes or line ends is quoted. A probability that is not
 * finite is an empty cell. */
void prediction_write_csv(FILE *text, const struct prediction_line *line);

/* One JSON object on one line; names as in result.json. A probability that is not finite is null.
 */
void prediction_write_json(FILE *text, const struct prediction_line *line);

/* Write the file's name and its `top` most probable classes, one per line. A class without a name
 * is written as its number. Control characters in names are escaped as in C. */
void prediction_write_table(FILE *text, const struct prediction_line *line, int64_t top);

#endif
