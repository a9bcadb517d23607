/* One sample's prediction as a line of text, CSV or JSON: what `vittrain predict` writes. */
#ifndef VITTRAIN_APP_PREDICTION_H
#define VITTRAIN_APP_PREDICTION_H

#include <stdint.h>
#include <stdio.h>

struct prediction_line {
    uint32_t record;
    int32_t label, predicted;
    const char *class_name; /* of the predicted class; any bytes, "": it has none */
    int64_t classes;
    const float *probabilities; /* [classes] */
};

/* The line that names the columns of the CSV. */
void prediction_write_header(FILE *text, int64_t classes);

/* RFC 4180: a name with commas, quotes or line ends is quoted. A probability that is not
 * finite is an empty cell. */
void prediction_write_csv(FILE *text, const struct prediction_line *line);

/* One JSON object on one line; names as in result.json. A probability that is not finite is null.
 */
void prediction_write_json(FILE *text, const struct prediction_line *line);

#endif
