// SPDX-License-Identifier: BSD-3-Clause
/* A data set that data.x or data.y names, as planes of samples: [N], [N, K], [N, H, W], [N, C, H,
 * W] or [N, H, W, C]. In memory a sample is [channels, height, width]. */
#ifndef VITTRAIN_DATA_ARRAYS_VARIABLE_H
#define VITTRAIN_DATA_ARRAYS_VARIABLE_H

#include <stddef.h>

#include "config/option_types.h"
#include "data/array.h"
#include "data/value_transform.h"

enum { VARIABLE_TEXT = OPTION_TEXT + 24 /* a name and an offset */ };

struct variable {
    char name[OPTION_TEXT]; /* without the slash at its start */
    int64_t offset;         /* sample n is index n + offset of the data set: "u@+6", "u@-1" */
    int dimensions;
    bool channels_last;
    enum value_transform transform;
    bool is_wide;                    /* array_is_wide in a file, without a transform */
    int64_t channels, height, width; /* 1 x 1 pixel if there are fewer than 3 dimensions */
};

/* Parse the list of an option, "data.x" or "data.y", to allocated variables. */
MUST_CHECK bool variables_parse(const char *option, const char *list, struct variable **variables,
                                int *count, struct error *error);

/* Set the transforms of a list such as "log1p:u,sqrt:v" (data.transform). Each variable of the list
 * must be in x or y, once; if y_is_class, none may be in y. */
MUST_CHECK bool variables_transform(const char *list, struct variable *x, int x_count,
                                    struct variable *y, int y_count, bool y_is_class,
                                    struct error *error);

/* Write the transform of each of `total` channels. A variable whose number of channels is not known
 * has one channel, or all channels if it is the only variable. */
void variables_list_transforms(const struct variable *variables, int count, int64_t total,
                               uint8_t transforms[IMAGE_CHANNELS]);

/* Set the shape from the array of the first file; channels_last is set. */
MUST_CHECK bool variable_set_shape(struct variable *variable, const char *option,
                                   const struct array *array, struct error *error);

/* Add the variable's channels to `channels`. It is an error if its images are not of height x
 * width, the size of those of `first`. */
MUST_CHECK bool variable_add_channels(const struct variable *variable, const struct variable *first,
                                      const char *option, int64_t *channels, int64_t height,
                                      int64_t width, struct error *error);

/* Log the shape that was found for a variable of four dimensions. */
void variable_log(const struct variable *variable, const char *option);

/* True if the array of another file has the variable's shape. */
bool variable_agrees(const struct variable *variable, const struct array *array);

/* Return the box of the window of height x width pixels at (top, left) of a sample. */
struct array_box variable_window(const struct variable *variable, int64_t sample, int64_t top,
                                 int64_t left, int64_t height, int64_t width);

/* Return the box of `count` samples from `sample` on. */
struct array_box variable_box(const struct variable *variable, int64_t sample, int64_t count);

/* Read a box, whose samples have `plane` values for each channel. origin: NULL, or [channels]
 * numbers that are subtracted from the values. */
MUST_CHECK bool variable_read(const struct variable *variable, struct array *array,
                              const struct array_box *box, int64_t plane, const double *origin,
                              float *to, struct error *error);

/* Mark the channels of wide variables. */
void variables_list_wide(const struct variable *variables, int count, bool is_wide[IMAGE_CHANNELS]);

/* Write the variable as in the option: "u", "u@+6". */
void variable_write(const struct variable *variable, char text[VARIABLE_TEXT]);

/* Write the name of a channel: "u", "u@+6", or "fields 2" if the variable has several. */
void variable_channel_name(const struct variable *variable, int64_t channel, char *text,
                           size_t size);

#endif
