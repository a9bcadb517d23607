// SPDX-License-Identifier: BSD-3-Clause
/* The binary version of CIFAR-10 (Krizhevsky 2009). A record is one label byte and 32 x 32 bytes
 * each of red, green and blue. All records are read and their labels checked when the files are
 * opened. Records are read with pread, so the ranks of a node share the page cache, and a file that
 * is truncated during training is an error rather than SIGBUS. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/file.h"
#include "data/dataset.h"
#include "data/listing.h"
#include "options/options.h"

enum { SIDE = 32, PIXELS = 3 * SIDE * SIDE, RECORD = 1 + PIXELS, CLASSES = 10 };
enum { OFFICIAL_FILES = 5, OFFICIAL_RECORDS = 10000 };
enum { CHECK_RECORDS = 256 };

static const char *const class_names[CLASSES] = {
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};

struct cifar_file {
    char *path;
    int descriptor;
    int64_t first, records; /* index of its first record in the data set */
    unsigned char *labels;  /* [records] */
};

struct cifar10 {
    struct cifar_file *files;
    int file_count;
};

static const char advice[] = "get the data set with `tools/fetch.sh cifar10` and set data.root, or "
                             "install the sample (package vittrain-sample)";

/* Return the largest N of data_batch_N.bin in a directory; 0 if there is none. */
static int last_batch(const char *directory)
{
    DIR *entries = NULL;
    int last = 0;
    for (const char *name; (name = folder_next(&entries, directory)) != NULL;) {
        int number = 0, end = 0;
        if (sscanf(name, "data_batch_%4d.bin%n", &number, &end) == 1 && end > 0 &&
            name[end] == '\0' && number > last)
            last = number;
    }
    return last;
}

static bool has_files(const char *directory)
{
    OWNED char *path = allocate_text("%s/test_batch.bin", directory);
    return access(path, F_OK) == 0 || last_batch(directory) > 0;
}

/* Return the folder of the data set: data.root or the archive's folder below it; NULL and an error
 * if there is none. */
static char *find_directory(const char *root, struct error *error)
{
    if (!data_root_check(root, advice, error))
        return NULL;
    for (int below = 0; below < 2; below++) {
        char *directory = allocate_text("%s%s", root, below ? "/cifar-10-batches-bin" : "");
        if (has_files(directory))
            return directory;
        free(directory);
    }
    data_root_unexpected(root, "no data_batch_*.bin or test_batch.bin",
                         "for folders of images set data.format=imagefolder; else get the "
                         "data set with `tools/fetch.sh cifar10`, or install vittrain-sample",
                         error);
    return NULL;
}

/* Fill `buffer` from `offset`; false if the file ends early or cannot be read. */
static bool read_fully(const struct cifar_file *file, void *buffer, size_t bytes, int64_t offset,
                       struct error *error)
{
    const size_t done = durable_pread(file->descriptor, buffer, bytes, offset);
    return done == bytes ||
           error_set(error, ERROR_DATA, "%s: cannot read record %lld: %s; check the disk",
                     file->path, (long long)(offset + (int64_t)done) / RECORD,
                     errno == 0 ? "the file was truncated after it was opened" : strerror(errno));
}

static bool check_label(const struct cifar_file *file, int64_t record, int label,
                        struct error *error)
{
    if (label < CLASSES)
        return true;
    return error_set(error, ERROR_DATA,
                     "%s: record %lld has label %d, valid labels are 0 to %d: the file is damaged "
                     "or not CIFAR-10; fetch it again",
                     file->path, (long long)record, label, CLASSES - 1);
}

/* Read all records: labels are checked, and the data set's checksum is updated. */
static bool check_records(struct dataset *dataset, struct cifar_file *file, struct error *error)
{
    OWNED unsigned char *chunk = allocate(CHECK_RECORDS, RECORD);
    bool good = true;
    file->labels = allocate((size_t)file->records, 1);
    for (int64_t first = 0; good && first < file->records; first += CHECK_RECORDS) {
        const int64_t count = smaller(file->records - first, CHECK_RECORDS);
        good = read_fully(file, chunk, (size_t)(count * RECORD), first * RECORD, error);
        for (int64_t i = 0; good && i < count; i++) {
            file->labels[first + i] = chunk[i * RECORD];
            good = check_label(file, first + i, chunk[i * RECORD], error);
        }
        if (good)
            dataset->sum = crc32c_update(dataset->sum, chunk, (size_t)(count * RECORD));
    }
    return good;
}

static bool open_file(struct dataset *dataset, const char *directory, const char *name,
                      struct error *error)
{
    struct cifar10 *self = dataset->self;
    struct cifar_file *file = &self->files[self->file_count];
    int64_t bytes;
    self->file_count++;
    file->path = allocate_text("%s/%s", directory, name);
    file->descriptor = text_file_descriptor(file->path, &bytes);
    if (file->descriptor < 0)
        return error_set(
            error, ERROR_DATA, "%s: %s; %s", file->path,
            errno == EINVAL || errno == EISDIR ? "not a regular file" : strerror(errno), advice);
    file->first = dataset->count;
    if (bytes == 0 || bytes % RECORD != 0)
        return error_set(
            error, ERROR_DATA,
            "%s: %lld bytes are not a multiple of the record size of %d bytes (record %lld is "
            "incomplete): the file is truncated or has extra data; fetch it again",
            file->path, (long long)bytes, RECORD, (long long)bytes / RECORD);
    file->records = bytes / RECORD;
    if (!check_records(dataset, file, error))
        return false;
    dataset->count += file->records;
    return true;
}

/* The official set has five training files of 10,000 records. Fewer files of that size mean that
 * one is missing. */
static bool open_training_files(struct dataset *dataset, const char *directory, int last,
                                struct error *error)
{
    const struct cifar10 *self = dataset->self;
    bool official = last > 1 && last < OFFICIAL_FILES;
    for (int number = 1; number <= (last > 0 ? last : 1); number++) {
        char name[32];
        snprintf(name, sizeof name, "data_batch_%d.bin", number);
        if (!open_file(dataset, directory, name, error))
            return false;
        official = official && self->files[self->file_count - 1].records == OFFICIAL_RECORDS;
    }
    return !official || error_set(error, ERROR_DATA, "%s: data_batch_%d.bin is missing; %s",
                                  directory, last + 1, advice);
}

static void cifar10_describe(const struct options *options, struct dataset *dataset)
{
    (void)options;
    dataset->channels = 3;
    dataset->height = dataset->width = SIDE;
    dataset->classes = CLASSES;
}

static bool cifar10_open(const struct options *options, enum data_split split,
                         struct dataset *dataset, struct error *error)
{
    bool all = options->data.val == VALIDATION_REFERENCE;
    const char *root = options->data.root;
    if (root[0] == '\0')
        root = dataset_sample_directory();
    OWNED char *directory = find_directory(root, error);
    if (directory == NULL)
        return false;
    int last = last_batch(directory);
    struct cifar10 *self = dataset->self = allocate(1, sizeof *self);
    self->files = allocate((size_t)last + 2, sizeof *self->files);
    cifar10_describe(options, dataset);
    dataset->class_name = allocate(CLASSES, sizeof *dataset->class_name);
    for (int i = 0; i < CLASSES; i++)
        dataset->class_name[i] = allocate_copy(class_names[i]);
    if ((all || split == SPLIT_TRAIN) && !open_training_files(dataset, directory, last, error))
        return false;
    if (all || split != SPLIT_TRAIN)
        return open_file(dataset, directory, "test_batch.bin", error);
    return true;
}

static const struct cifar_file *file_of(const struct cifar10 *self, int64_t record)
{
    const struct cifar_file *file = self->files;
    while (record >= file->first + file->records)
        file++;
    return file;
}

static bool cifar10_label(struct dataset *dataset, int64_t record, int32_t *label,
                          struct error *error)
{
    const struct cifar_file *file = file_of(dataset->self, record);
    (void)error;
    *label = file->labels[record - file->first];
    return true;
}

static bool cifar10_read(struct dataset *dataset, int64_t record, void *values, int32_t *label,
                         struct error *error)
{
    const struct cifar_file *file = file_of(dataset->self, record);
    const int64_t place = record - file->first;
    unsigned char bytes[RECORD];
    if (!read_fully(file, bytes, RECORD, place * RECORD, error))
        return false;
    memcpy(values, bytes + 1, PIXELS);
    *label = bytes[0];
    return check_label(file, place, bytes[0], error);
}

static void cifar10_close(struct dataset *dataset)
{
    struct cifar10 *self = dataset->self;
    if (self == NULL)
        return;
    for (int i = 0; i < self->file_count; i++) {
        if (self->files[i].descriptor >= 0)
            close(self->files[i].descriptor);
        free(self->files[i].path);
        free(self->files[i].labels);
    }
    free(self->files);
    free(self);
}

const struct dataset_format dataset_cifar10 = {
    .name = "cifar10",
    .open = cifar10_open,
    .describe = cifar10_describe,
    .read = cifar10_read,
    .label = cifar10_label,
    .close = cifar10_close,
};
