// SPDX-License-Identifier: BSD-3-Clause
/* The open data set of data.format=arrays: variables, files, series of samples and grid. */
#ifndef VITTRAIN_ARRAYS_ARRAYS_H
#define VITTRAIN_ARRAYS_ARRAYS_H

#include "arrays/grid.h"
#include "arrays/path.h"
#include "arrays/series.h"
#include "comm/comm.h"
#include "data/dataset.h"
#include "options/options.h"

enum { VARIABLE_TEXT = OPTION_TEXT + 24 /* a name and an offset */ };

/* A data set that data.x or data.y names, as planes of samples: [N], [N, K], [N, H, W], [N, C, H,
 * W] or [N, H, W, C]. In memory a sample is [channels, height, width]. */
struct variable {
    char name[OPTION_TEXT]; /* without the slash at its start */
    bool is_target;         /* of data.y */
    int64_t offset;         /* sample n is index n + offset of the data set: "u@+6", "u@-1" */
    int dimensions;
    bool channels_last;
    enum value_transform transform;
    int64_t channels, height, width; /* 1 x 1 pixel if there are fewer than 3 dimensions */
};

struct arrays_file {
    char *path;
    struct array_path place;
    int64_t chunk;       /* samples in its largest chunks that have to be decoded; at least 1 */
    int64_t first_chunk; /* number of chunks of the files before */
    struct array *array; /* [array_count] */
    int opened;          /* number of arrays that are open */
    bool is_empty;       /* it could not be opened because an array has no elements */
    struct series_file times;
    char time_name[64]; /* of the coordinate of its samples, if they have times */
};

struct arrays {
    struct variable *variable; /* [x_count + y_count]: those of data.x, then those of data.y */
    struct variable *y;        /* the first one of data.y */
    int x_count, y_count;
    int array_count; /* of a file: x_count + y_count; x_count if the files do not have data.y */
    struct split_files files;
    struct arrays_file *file; /* [file_count] in the order of records */
    int64_t file_count;
    struct file_series series;     /* its files are those in `file` */
    struct grid grid;              /* of the first file; its arrays are the variables */
    struct joined_bytes joined[2]; /* descriptions of files, whose tables are used */
    int joined_count;
    bool has_planes; /* the targets are planes, which are read with the pixels */
    double ignored;  /* train.ignore_label, or NAN */
    float *target;   /* [count, target.count]: targets that are not planes, or NULL */
    int32_t *label;  /* [count]: classes, or NULL */
};

/* Return the data of an open data set, or NULL if it has another format. */
const struct arrays *arrays_of(const struct dataset *dataset);

/* Compare the grid of a data set with that of weights (grid_write; NULL: not known) in the file
 * `path`. Times after the end of a series continue in the step of the weights. */
MUST_CHECK bool arrays_check_grid(struct dataset *dataset, const char *text, const char *path,
                                  struct error *error);

/* Return the file that has a record, and set the number of the sample in it. */
int64_t arrays_find(const struct dataset *dataset, int64_t record, int64_t *sample);

/* ---- Coordinates (coordinates.c). */

/* Dimensions of predictions. AXIS_OUTPUTS: the channels of a variable, such as level. */
enum coordinate_axis { AXIS_SAMPLES, AXIS_ROWS, AXIS_COLUMNS, AXIS_OUTPUTS, AXES };

struct coordinate {
    const struct dimension *dimension; /* in the files; NULL: not known */
    double *values;                    /* of samples: allocated; NULL: those of the dimension */
};

/* Return the coordinates of an axis of the predictions of variable `y` of data.y. Those of samples
 * are the times of its targets, in the units of the first file. */
void arrays_coordinate(const struct dataset *dataset, int y, enum coordinate_axis axis,
                       struct coordinate *to);

/* Set allocated weights of the rows of the images, with a mean of 1: the cosine of the latitude
 * (WeatherBench, Rasp et al. 2020), which is the same in all files. If the files have none, the
 * rows are assumed to be equally spaced from pole to pole. A latitude that cannot be used is an
 * error. Log which of these is used. */
MUST_CHECK bool arrays_row_weights(const struct dataset *dataset, float **weights,
                                   struct error *error);

/* ---- Variables (variable.c). */

/* Parse data.x and data.y. */
MUST_CHECK bool variables_parse(struct arrays *self, const struct options *options,
                                struct error *error);

/* Set the transforms of data.transform, a list such as "log1p:u,sqrt:v". Each name of the list must
 * be in data.x or data.y, once. Classes in data.y have no transform. */
MUST_CHECK bool variables_transform(struct arrays *self, const struct options *options,
                                    struct error *error);

/* Write the transform of each of `total` channels. A variable whose number of channels is not known
 * has one channel, or all channels if it is the only variable. */
void variables_list_transforms(const struct variable *variables, int count, int64_t total,
                               uint8_t transforms[IMAGE_CHANNELS]);

/* Mark the channels of the variables [first, end) that have no transform, and whose array is wide
 * in a file (array_is_wide). */
void variables_list_wide(const struct arrays *self, int first, int end,
                         bool is_wide[IMAGE_CHANNELS]);

/* Return the option that names a variable: "data.x". */
const char *variable_option(const struct variable *variable);

/* Set the shape from the array of the first file; channels_last is set. */
MUST_CHECK bool variable_set_shape(struct variable *variable, const struct array *array,
                                   struct error *error);

/* Log the shape that was found for a variable of four dimensions. */
void variable_log(const struct variable *variable);

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

/* Write the variable as in the option: "u", "u@+6". */
void variable_write(const struct variable *variable, char text[VARIABLE_TEXT]);

/* Write the name of a channel: "u", "u@+6", or "fields 2" if the variable has several. */
void variable_channel_name(const struct variable *variable, int64_t channel, char *text,
                           size_t size);

/* ---- Opening; used by arrays.c only (open.c, targets.c). */

/* Collective over dataset->comm. Describe the files of a split, self->files, and pair their samples
 * to records. Rank 0 describes the first file, whose shape and grid the others must have. Each rank
 * describes a part of the others. Then each rank has all descriptions; the ranks of a node share
 * one copy of large tables of chunks. */
MUST_CHECK bool arrays_open_files(struct dataset *dataset, const struct options *options,
                                  enum data_split split, struct error *error);

/* Return the number of the first array of the same data set, which may be named twice: u@-1,u. */
int arrays_first_of(const struct arrays_file *file, int number);

void arrays_file_close(struct arrays_file *file);

/* Read the names of classes, an attribute of data.y, from a file. Later files have the names of the
 * first one, or none. */
MUST_CHECK bool arrays_class_names(struct dataset *dataset, const struct arrays_file *file,
                                   struct error *error);

/* Set classes, names of the outputs and the checksum. Single labels are moved from self->target to
 * self->label. training: shapes and values that often have another meaning than the user's are
 * errors or warnings. */
MUST_CHECK bool arrays_targets_use(struct dataset *dataset, const struct options *options,
                                   bool training, struct error *error);

#endif
