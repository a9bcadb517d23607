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
};

struct cifar10 {
    struct cifar_file *files;
    int file_count;
    struct byte_buffer labels; /* [dataset->count] one byte each */
};

static const char advice[] = "get the data set with `tools/fetch.sh cifar10` and set data.root, or "
                             "install the sample (package vittrain-sample)";

/* Return the path of data_batch_N.bin, or of test_batch.bin for N = 0. */
static char *batch_path(const char *directory, int number)
{
    return number == 0 ? allocate_text("%s/test_batch.bin", directory)
                       : allocate_text("%s/data_batch_%d.bin", directory, number);
}

/* Return the largest number of a file in a directory; -1 if there is none. */
static int last_batch(const char *directory)
{
    struct listing names = {0};
    struct error unused = {0};
    int last = -1;
    bool good = listing_read(directory, &names, &names, NULL, &unused);
    for (size_t i = 0; good && i < names.count; i++) {
        int number = 0, end = 0;
        if (strcmp(names.names[i], "test_batch.bin") == 0 ||
            (sscanf(names.names[i], "data_batch_%4d.bin%n", &number, &end) == 1 && number > 0 &&
             end > 0 && names.names[i][end] == '\0'))
            last = number > last ? number : last;
    }
    listing_free(&names);
    return last;
}

/* Return the folder of the data set: data.root or the archive's folder below it; NULL and an error
 * if there is none. */
static char *find_directory(const char *root, struct error *error)
{
    if (!data_root_check(root, advice, error))
        return NULL;
    for (int below = 0; below < 2; below++) {
        char *directory = allocate_text("%s%s", root, below ? "/cifar-10-batches-bin" : "");
        if (last_batch(directory) >= 0)
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

/* Open a file and read all records: labels are checked, and the data set's checksum is updated. */
static bool open_file(struct dataset *dataset, const char *directory, int number,
                      struct error *error)
{
    struct cifar10 *self = dataset->self;
    struct cifar_file *file = &self->files[self->file_count++];
    OWNED unsigned char *chunk = allocate(CHECK_RECORDS, RECORD);
    int64_t bytes;
    file->path = batch_path(directory, number);
    file->descriptor = text_file_descriptor(file->path, &bytes);
    if (file->descriptor < 0)
        return error_set(
            error, ERROR_DATA, "%s: %s; %s", file->path,
            errno == EINVAL || errno == EISDIR ? "not a regular file" : strerror(errno), advice);
    if (bytes == 0 || bytes % RECORD != 0)
        return error_set(
            error, ERROR_DATA,
            "%s: %lld bytes are not a multiple of the record size of %d bytes (record %lld is "
            "incomplete): the file is truncated or has extra data; fetch it again",
            file->path, (long long)bytes, RECORD, (long long)bytes / RECORD);
    file->first = dataset->count;
    file->records = bytes / RECORD;
    dataset->count += file->records;
    for (int64_t first = 0; first < file->records; first += CHECK_RECORDS) {
        const int64_t count = smaller(file->records - first, CHECK_RECORDS);
        if (!read_fully(file, chunk, (size_t)(count * RECORD), first * RECORD, error))
            return false;
        dataset->sum = crc32c_update(dataset->sum, chunk, (size_t)(count * RECORD));
        for (int64_t i = 0; i < count; i++) {
            const unsigned char label = chunk[i * RECORD];
            if (label >= CLASSES)
                return error_set(
                    error, ERROR_DATA,
                    "%s: record %lld has label %d, valid labels are 0 to %d: the file is damaged "
                    "or not CIFAR-10; fetch it again",
                    file->path, (long long)(first + i), label, CLASSES - 1);
            byte_buffer_append(&self->labels, &label, 1);
        }
    }
    return true;
}

/* The official set has five training files of 10,000 records. Fewer files of that size mean that
 * one is missing. */
static bool open_training_files(struct dataset *dataset, const char *directory, int last,
                                struct error *error)
{
    for (int number = 1; number <= larger(last, 1); number++)
        if (!open_file(dataset, directory, number, error))
            return false;
    return last < 2 || last >= OFFICIAL_FILES || dataset->count != last * OFFICIAL_RECORDS ||
           error_set(error, ERROR_DATA, "%s: data_batch_%d.bin is missing; %s", directory, last + 1,
                     advice);
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
    const int last = last_batch(directory);
    struct cifar10 *self = dataset->self = allocate(1, sizeof *self);
    self->files = allocate((size_t)larger(last, 1) + 1, sizeof *self->files);
    cifar10_describe(options, dataset);
    dataset->class_name = allocate(CLASSES, sizeof *dataset->class_name);
    for (int i = 0; i < CLASSES; i++)
        dataset->class_name[i] = allocate_copy(class_names[i]);
    if ((all || split == SPLIT_TRAIN) && !open_training_files(dataset, directory, last, error))
        return false;
    if (all || split != SPLIT_TRAIN)
        return open_file(dataset, directory, 0, error);
    return true;
}

static const struct cifar_file *file_of(const struct cifar10 *self, int64_t record)
{
    const struct cifar_file *file = self->files;
    while (record >= file->first + file->records)
        file++;
    return file;
}

static int32_t cifar10_label(const struct dataset *dataset, int64_t record)
{
    const struct cifar10 *self = dataset->self;
    return self->labels.data[record];
}

static bool cifar10_read(const struct dataset *dataset, int64_t record, void *values,
                         struct error *error)
{
    const struct cifar_file *file = file_of(dataset->self, record);
    const int64_t place = record - file->first;
    unsigned char bytes[RECORD];
    if (!read_fully(file, bytes, RECORD, place * RECORD, error))
        return false;
    memcpy(values, bytes + 1, PIXELS);
    return bytes[0] == cifar10_label(dataset, record) ||
           error_set(error, ERROR_DATA, "%s: the label of record %lld was changed during the run",
                     file->path, (long long)place);
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
    }
    free(self->files);
    free(self->labels.data);
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
