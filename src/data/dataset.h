/* A data set: numbered records of uint8 pixels and a label. A format is one file and one line in
 * the list of dataset.c. Everything that can be wrong with the files is found by dataset_open. */
#ifndef VITTRAIN_DATA_DATASET_H
#define VITTRAIN_DATA_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

struct options;

enum data_split { SPLIT_TRAIN, SPLIT_VALIDATION, SPLIT_TEST };

struct dataset;

/* Bytes of an encoded image. `data` is malloc's and grows (byte_buffer_reserve). */
struct byte_buffer {
    uint8_t *data;
    size_t count, capacity;
};

/* Room for so many bytes; what was there is lost. */
MUST_CHECK bool byte_buffer_reserve(struct byte_buffer *buffer, size_t capacity,
                                    struct error *error);

struct dataset_format {
    const char *name; /* as in data.format */
    /* Opens the records of a split; with data.val=reference all records, those for training first
     * (dataset_open then deals them out). On failure close is called all the same. */
    bool (*open)(const struct options *options, enum data_split split, struct dataset *dataset,
                 struct error *error);
    /* Sets channels, height, width and classes from the options alone, without looking at files;
     * NULL where only the files know. */
    void (*describe)(const struct options *options, struct dataset *dataset);
    /* Thread-safe. pixels: [channels, height, width]. A failed read here (file changed under us) is
     * an error in the struct, too. */
    bool (*read)(struct dataset *dataset, int64_t record, uint8_t *pixels, int32_t *label,
                 struct error *error);
    /* Of data sets that are `encoded`, instead of read: the record's file, JPEG or PNG, of whatever
     * size its image has. Thread-safe; the buffer is the caller's, may hold an older record and is
     * made larger where needed. */
    bool (*load)(struct dataset *dataset, int64_t record, struct byte_buffer *bytes, int32_t *label,
                 struct error *error);
    /* Of data sets that are `encoded`: the bytes that `load` will give. */
    int64_t (*size)(struct dataset *dataset, int64_t record, struct error *error);
    /* Records [first, end) will be read soon: a hint. Thread-safe. NULL: of no use. */
    void (*advise)(struct dataset *dataset, int64_t first, int64_t end);
    /* What messages call a record: its file. NULL: records have numbers only. */
    void (*name_record)(const struct dataset *dataset, int64_t record, char *text, size_t size);
    void (*close)(struct dataset *dataset);
    bool splits; /* it has a validation split besides the test split (data.val=val) */
};

struct dataset {
    const struct dataset_format *format;
    int64_t count;
    bool encoded;                    /* records are image files: `load`, not `read` */
    uint32_t sum;                    /* of what was found: differs between ranks when data do */
    int64_t channels, height, width; /* of every record; encoded: 3, 0, 0 */
    bool normalised;                 /* by mean and std of its own, else as the model is */
    double mean[4], std[4];          /* [channels] */
    int64_t classes;
    double
        label_unit; /* of a regression, whose targets are labels times this; 0: labels are classes
                     */
    char **class_name; /* [classes] */
    uint32_t *subset;  /* record numbers of this split, or NULL: all; then `count` is its length */
    void *self;        /* the format's own */
};

extern const struct dataset_format dataset_cifar10, dataset_synthetic, dataset_image_folder,
    dataset_cinic10, dataset_packed;

/* Opens a split as `data.*` says, subset (data.val, debug.fraction) included. Local: call it on all
 * ranks, then comm_agree. An empty split is an error, so is the validation split of data.val=none.
 */
MUST_CHECK bool dataset_open(struct dataset *dataset, const struct options *options,
                             enum data_split split, struct error *error);
/* What a record is like, for planning: needs the files only where the format cannot tell without.
 * Nothing is left open: there are no records to read, and dataset_close need not be called. */
MUST_CHECK bool dataset_describe(struct dataset *dataset, const struct options *options,
                                 struct error *error);
/* Sample `index` of the split, 0 <= index < count: its pixels, or (of encoded data sets) its file.
 * Thread-safe. */
MUST_CHECK bool dataset_read(struct dataset *dataset, int64_t index, uint8_t *pixels,
                             int32_t *label, struct error *error);
MUST_CHECK bool dataset_load(struct dataset *dataset, int64_t index, struct byte_buffer *bytes,
                             int32_t *label, struct error *error);

/* Samples [first, first + count) will be read soon. */
void dataset_advise(struct dataset *dataset, int64_t first, int64_t count);

/* The record behind a sample of the split: what augmentation is keyed by. */
uint32_t dataset_record(const struct dataset *dataset, int64_t index);

/* What messages call a sample: "data/train/cat/1.jpg", or "record 12". */
void dataset_name(const struct dataset *dataset, int64_t index, char *text, size_t size);
void dataset_close(struct dataset *dataset);

/* The directory of the sample that comes with the program: beside the program when it runs from the
 * build tree, else in the installed data directory. */
const char *dataset_sample_directory(void);

#endif
