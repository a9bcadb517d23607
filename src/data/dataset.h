// SPDX-License-Identifier: BSD-3-Clause
/* A data set: numbered records of uint8 pixels or float32 values, with a label. A format is one
 * file and one line in the list in dataset.c. dataset_open checks the files and reports everything
 * that is wrong with them. */
#ifndef VITTRAIN_DATA_DATASET_H
#define VITTRAIN_DATA_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "device/image.h"
#include "options/option_types.h"

struct comm;
struct options;

struct dataset;

/* The bytes of an image file: a whole file, or a part of a shard. */
struct record_place {
    int descriptor;
    bool is_own; /* the caller closes the descriptor */
    int64_t offset;
    size_t bytes;
};

struct dataset_format {
    const char *name; /* value of data.format */
    /* Open the records of a split; with data.val=reference all records, training first
     * (dataset_open then splits them). A data set without test data may open the training records
     * as SPLIT_TEST if data.val is a fraction; it then sets `held_out`. Collective over
     * dataset->comm, but it may fail on one rank only. close is also called after a failure, and
     * is not collective. */
    bool (*open)(const struct options *options, enum data_split split, struct dataset *dataset,
                 struct error *error);
    /* Set channels, height, width and classes from the options alone; NULL if only the files have
     * them. */
    void (*describe)(const struct options *options, struct dataset *dataset);
    /* Read one record: pixels [channels, height, width] of the data set's type, and targets at
     * dataset_pixel_bytes. Thread-safe. A read that fails, because a file changed for example, sets
     * the error. */
    bool (*read)(const struct dataset *dataset, int64_t record, void *values, struct error *error);
    /* Instead of read, for formats that can read a part of a record: the window of dataset->height
     * x width pixels from row `top` and column `left` on, and its targets. */
    bool (*read_window)(const struct dataset *dataset, int64_t record, int64_t top, int64_t left,
                        void *values, struct error *error);
    /* Encoded data sets only, instead of read: find the record's image file. Thread-safe. The error
     * does not name the record. */
    bool (*locate)(const struct dataset *dataset, int64_t record, struct record_place *place,
                   struct error *error);
    /* Called after the image file is read: fails if it is no longer that of the record. The error
     * does not name the record. NULL: not checked. */
    bool (*verify)(const struct dataset *dataset, int64_t record, struct error *error);
    /* Return the label of a record. NULL: all labels are 0. */
    int32_t (*label)(const struct dataset *dataset, int64_t record);
    /* Number of the chunk in the file that contains a record and its neighbours, ascending with the
     * record, for data.shuffle=chunks. NULL: not supported. */
    int64_t (*chunk)(const struct dataset *dataset, int64_t record);
    /* Set the place of a record on the axis of time, or of samples, and the first and the last
     * place of which it has values, for data.val_from=end. NULL: its number. */
    void (*span)(const struct dataset *dataset, int64_t record, double span[3]);
    /* Set held[r] of all records r in a list of periods of time, "2019-07..2020-06,2021". NULL: the
     * records have no times. */
    bool (*find_periods)(const struct dataset *dataset, const char *periods, bool *held,
                         struct error *error);
    /* Name of a record in messages: its file. NULL: only the record number is known. */
    void (*name_record)(const struct dataset *dataset, int64_t record, char *text, size_t size);
    /* The origins of the targets have changed: read again those that are in memory. NULL: none
     * are. */
    bool (*use_origins)(struct dataset *dataset, struct error *error);
    void (*close)(struct dataset *dataset);
    bool splits; /* has a validation split besides the test split (data.val=val) */
};

/* Functions of data.transform, which are applied to values when they are read. */
enum value_transform { TRANSFORM_NONE, TRANSFORM_LOG1P, TRANSFORM_LOG10, TRANSFORM_SQRT };

/* Type of a record's values. float32 is in the byte order of the host; NaN is a missing value. */
enum dataset_type { DATASET_UINT8, DATASET_FLOAT32 };

/* Float targets of a record: [count, height, width], where 1 x 1 is one number for each output of
 * the model, else a plane of the images' size. count 0: the label is a class. */
struct target_shape {
    int64_t count, height, width;
};

static inline size_t target_bytes(const struct target_shape *target)
{
    return (size_t)(target->count * target->height * target->width) * sizeof(float);
}

struct dataset {
    const struct dataset_format *format;
    struct comm *comm;   /* of `open`; NULL: one rank, and after dataset_open */
    int64_t rank, ranks; /* of comm; one rank without it */
    int64_t count;
    enum dataset_type type;
    bool encoded;  /* records are image files: `locate` is set and not `read` */
    uint32_t sum;  /* checksum of the listed records; also in checkpoints */
    uint32_t seen; /* checksum of sizes of files as this rank sees them, to compare ranks */
    int64_t channels, height, width; /* of each record; 3, 0, 0 if encoded */
    struct image_size field; /* size of the stored images if samples are windows of them; else 0 */
    int64_t tiles;           /* number of tiles of a record if samples are tiles; else 0 */
    int64_t classes;         /* or the number of outputs, if the targets are not classes */
    bool unlabelled;         /* the records have no labels, and their targets are missing */
    bool has_offsets;        /* samples share values with their neighbours in time */
    bool is_finite;          /* no value is infinite: `read` need not check it */
    bool held_out;     /* the records are training records, of which data.val holds out a part */
    char **class_name; /* [classes], or NULL */
    struct target_shape target; /* NaN is a missing target */
    /* enum value_transform of the values of a channel and of a target */
    uint8_t channel_transform[IMAGE_CHANNELS], target_transform[IMAGE_CHANNELS];
    /* The values have more digits than float32. A number near the mean, or 0, is subtracted from
     * them before they become float32. */
    bool channel_is_wide[IMAGE_CHANNELS], target_is_wide[IMAGE_CHANNELS];
    double channel_origin[IMAGE_CHANNELS], target_origin[IMAGE_CHANNELS];
    bool target_is_class;       /* one plane, of class numbers */
    bool target_normalised;     /* the model learns (target - mean) / std of the training samples */
    bool residual;              /* targets are differences: the channel `persistence` of the pixels
                                 * is subtracted from them when they are read */
    char **target_name;         /* [target.count], or NULL: names of the outputs */
    int64_t *variable_bytes;    /* [target.count]: length of the variable in target_name */
    float *row_weights;         /* [rows of a field], or NULL: weights in loss and metrics */
    int64_t *persistence;       /* [target.count], or NULL: the channel of the pixels that is the
                                 * same variable at the time of the sample (residual: or before),
                                 * or -1 */
    uint32_t *subset;           /* [count] record numbers of this split; NULL: all records */
    int64_t kept_bytes;         /* limit of the decoded chunks in memory */
    struct array_cache *chunks; /* decoded chunks of arrays, or NULL */
    const struct grid *grid;    /* of arrays, or NULL: not known or not checked */
    void *self;                 /* data of the format */
};

static inline size_t dataset_value_size(enum dataset_type type)
{
    return type == DATASET_FLOAT32 ? sizeof(float) : sizeof(uint8_t);
}

/* Return the offset of the targets in a record with `pixels` pixels per channel: the bytes of the
 * pixels, rounded up to a multiple of 4 if there are targets. */
static inline size_t dataset_plane_bytes(const struct dataset *dataset, int64_t pixels)
{
    const size_t bytes = (size_t)(dataset->channels * pixels) * dataset_value_size(dataset->type);
    return dataset->target.count > 0 ? (bytes + 3) / 4 * 4 : bytes;
}

/* Return the offset of the targets in a record that is not encoded. */
static inline size_t dataset_pixel_bytes(const struct dataset *dataset)
{
    return dataset_plane_bytes(dataset, dataset->height * dataset->width);
}

/* Return the bytes of a record that is not encoded: pixels and targets. */
static inline size_t dataset_record_bytes(const struct dataset *dataset)
{
    return dataset_pixel_bytes(dataset) + target_bytes(&dataset->target);
}

/* Return the targets of a record that was read to `values`. */
static inline float *dataset_targets(const struct dataset *dataset, void *values)
{
    return (float *)(void *)((uint8_t *)values + dataset_pixel_bytes(dataset));
}

/* Synthetic data: training samples for each test sample. */
enum { TRAINING_PER_TEST = 4 };

extern const struct dataset_format dataset_cifar10, dataset_synthetic, dataset_image_folder,
    dataset_webdataset, dataset_arrays;

/* Open a split according to `data.*`, data.val and debug.fraction. Collective over `comm`; NULL:
 * one rank. The ranks share the work of listing, indexing and checking files. If it fails on one
 * rank, it fails on all. An empty split is an error, and so is the validation split of
 * data.val=none. */
MUST_CHECK bool dataset_open(struct dataset *dataset, const struct options *options,
                             enum data_split split, struct comm *comm, struct error *error);

/* Open image files without labels, for predictions, in the order of the operands: the images of a
 * folder and of its subfolders, sorted; other names are image files. All labels are 0, and there
 * are no classes. An image that cannot be used is an error, or skipped with data.skip_broken=on.
 * Collective over `comm`; NULL: one rank. */
MUST_CHECK bool file_list_open(struct dataset *dataset, const struct options *options,
                               const char *const *operands, int count, struct comm *comm,
                               struct error *error);

/* Initialize for opening: everything else is 0. */
void dataset_begin_open(struct dataset *dataset, struct comm *comm);
/* For formats. Collective: if a rank has set its error, copy it to all ranks and return false. */
MUST_CHECK bool dataset_agree(const struct dataset *dataset, struct error *error);

/* For encoded formats. Collective over dataset->comm. Check all records according to data.check,
 * each on one rank. Records that cannot be used are an error with their number and the name of the
 * first one. With data.skip_broken=on they are a warning; then *kept has those of the
 * dataset->count entries of `bytes` bytes whose records can be used, and dataset->count is their
 * number. The caller frees *kept, which is unchanged if all records can be used. The number of
 * records with an EXIF orientation or with alpha is logged. */
MUST_CHECK bool record_check(struct dataset *dataset, const struct options *options,
                             const void *entries, size_t bytes, void **kept, struct error *error);

/* Describe a record for planning; reads files only if the format needs them. Not collective. No
 * records can be read. Closed by dataset_close. */
MUST_CHECK bool dataset_describe(struct dataset *dataset, const struct options *options,
                                 struct error *error);
/* Read sample `index` of the split, 0 <= index < count: the record, or the file if encoded.
 * Thread-safe. The buffer is grown if necessary. */
MUST_CHECK bool dataset_read(const struct dataset *dataset, int64_t index, void *values,
                             struct error *error);
MUST_CHECK bool dataset_load(const struct dataset *dataset, int64_t index,
                             struct byte_buffer *bytes, struct error *error);

/* Read the window at (top, left) of a sample. dataset->field must be set. */
MUST_CHECK bool dataset_read_window(const struct dataset *dataset, int64_t index, int64_t top,
                                    int64_t left, void *values, struct error *error);

/* Return the class of a sample; 0 if it has targets. */
int32_t dataset_label(const struct dataset *dataset, int64_t index);

/* Set the origins: the means, where float32 would lose digits that the standard deviation needs. No
 * thread may read meanwhile. */
MUST_CHECK bool dataset_set_origins(struct dataset *dataset,
                                    const struct value_statistics *statistics, struct error *error);
/* Take the origins of another data set of the same shape. */
MUST_CHECK bool dataset_copy_origins(struct dataset *dataset, const struct dataset *from,
                                     struct error *error);
bool dataset_has_origins(const struct dataset *dataset);

/* Set the names of the classes to PREFIX0, PREFIX1, ...; called by formats. */
void dataset_number_classes(struct dataset *dataset, const char *prefix);

/* Make a split of `count` samples, for data sets with tiles of `count` fields: its own ones,
 * repeated as often as necessary. */
void dataset_repeat(struct dataset *dataset, int64_t count);

/* Return the record number of a sample; augmentation uses it as a key. */
uint32_t dataset_record(const struct dataset *dataset, int64_t index);

/* Name of a sample in messages: "data/train/cat/1.jpg" or "record 12". */
void dataset_name(const struct dataset *dataset, int64_t index, char *text, size_t size);
/* Set the error `reason`, preceded by the sample's name; returns false. */
bool dataset_name_error(const struct dataset *dataset, int64_t index, const struct error *reason,
                        struct error *error);
void dataset_close(struct dataset *dataset);

/* Return the folder of the sample data: beside the program in a build tree, else in the installed
 * data directory. */
const char *dataset_sample_directory(void);

/* ---- Windows of fields: with augment.crop and without a resize, a sample is a part of a larger
 * image, the field. The part has the model's image size. Training draws its position (crop.h).
 * Evaluations and predictions of planes divide each field into tiles; each tile is a sample of the
 * split. */

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

/* ---- Transforms of values. */

/* Return the transform with a name of `length` bytes, or TRANSFORM_NONE. */
enum value_transform value_transform_find(const char *name, size_t length);

/* Transform values in place. A finite value whose result is not finite becomes NaN; infinite values
 * are unchanged. */
void value_transform_apply(enum value_transform transform, float *values, int64_t count);

/* Apply the inverse function in place. That of sqrt returns 0 for negative values. */
void value_transform_undo(enum value_transform transform, float *values, int64_t count);

/* ---- Mean and standard deviation of each channel, and of each target, of float32 records. */

/* Collective. Compute and log the statistics; statistics->mean.count is 0 if a signal requested the
 * end before they were complete. If float32 does not show the variance of a channel (dataset.h),
 * the records are read again and keep its origin. Each rank reads its share of the samples with
 * `threads` threads. The sums are exact, so the result does not depend on the number of ranks and
 * threads. Missing values are ignored. The mean of a channel without values is 0; the standard
 * deviation of a channel without variance is 1. An infinite or too large value is an error, else
 * records->is_finite is set. Targets are measured if dataset->target_normalised is set. */
MUST_CHECK bool statistics_compute(struct dataset *records, struct comm *world, int threads,
                                   struct value_statistics *statistics, struct error *error);

/* True if the rounding of values near the mean to float32, up to 2^-24 of the mean, may exceed
 * 2^-12 of the standard deviation. */
static inline bool statistics_mean_is_far(double mean, double std)
{
    return mean > 0x1p12 * std || mean < -0x1p12 * std;
}

#endif
