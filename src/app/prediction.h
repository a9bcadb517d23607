/* One sample's prediction as text, CSV or JSON: what `vittrain predict` writes. */
#ifndef VITTRAIN_APP_PREDICTION_H
#define VITTRAIN_APP_PREDICTION_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct prediction_line {
    const char *file; /* any bytes; NULL: a record of a split */
    uint32_t record;
    int32_t label, predicted; /* label: of a record only */
    char *const *class_name;  /* [named]: any bytes */
    int64_t named, classes;
    const float *probabilities; /* [classes] */
};

/* The line that names the columns of the CSV. */
void prediction_write_header(FILE *text, bool files, int64_t classes);

/* RFC 4180: a name with commas, quotes or line ends is quoted. A probability that is not
 * finite is an empty cell. */
void prediction_write_csv(FILE *text, const struct prediction_line *line);

/* One JSON object on one line; names as in result.json. A probability that is not finite is null.
 */
void prediction_write_json(FILE *text, const struct prediction_line *line);

/* The file and its `top` most probable classes, one per line; a class without a name is its number.
 * Control characters in names are escaped as in C. */
void prediction_write_table(FILE *text, const struct prediction_line *line, int64_t top);

#endif
