// SPDX-License-Identifier: BSD-3-Clause
/* One sample's prediction as a table, CSV or JSON, for `vittrain predict`. */
#ifndef VITTRAIN_COMMANDS_PREDICTION_H
#define VITTRAIN_COMMANDS_PREDICTION_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { PREDICTION_TOP = 5 };

struct prediction_line {
    const char *file; /* name, any bytes; NULL for a record of a split */
    uint32_t record;
    int32_t label, predicted; /* class numbers; a label of -1 is unknown; files have none */
    char *const *class_name;  /* [named]: any bytes */
    int64_t named, classes;
    const float *probabilities; /* [classes]; the outputs of a regression */
    const double *origin;       /* [classes]: added to outputs and targets; NULL: 0 */
    bool has_targets;           /* targets instead of label, predicted and names */
    const float *targets;       /* [classes]; NULL: unknown */
    bool is_number;             /* of a regression, not marks of several labels */
};

/* Write the header line of the CSV for lines like this one. */
void prediction_write_header(FILE *text, const struct prediction_line *line);

/* RFC 4180: a name with commas, quotes or line ends is quoted. A probability that is not
 * finite is an empty cell. */
void prediction_write_csv(FILE *text, const struct prediction_line *line);

/* One JSON object on one line; names as in result.json. A probability that is not finite is null.
 */
void prediction_write_json(FILE *text, const struct prediction_line *line);

/* Write the file's name and its PREDICTION_TOP most probable classes, one per line. A class without
 * a name is written as its number. Control characters in names are escaped as in C. */
void prediction_write_table(FILE *text, const struct prediction_line *line);

#endif
