// SPDX-License-Identifier: BSD-3-Clause
/* Arrays of numbers in HDF5, NetCDF-4, Zarr and .npy files, read in place. data.x names the images,
 * data.y their classes or the numbers to predict. Only the labels are kept in memory. The HDF5
 * library is not called after the data set is opened, so several threads can read. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"
#include "core/crc32c.h"
#include "core/integer.h"
#include "core/log.h"
#include "core/text.h"
#include "data/array_cache.h"
#include "data/array_path.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "data/split_files.h"

/* A data set of data.x. */
struct variable {
    char name[OPTION_TEXT];
    int dimensions; /* 3: [N, H, W], 4: [N, C, H, W] or [N, H, W, C] */
    bool channels_last;
    int64_t channels, height, width;
};

struct arrays_file {
    char *path;
    struct array_path place;
    int64_t first, count; /* first record and number of records */
    int64_t chunk;        /* samples in its largest chunks that have to be decoded; at least 1 */
    int64_t first_chunk;  /* number of chunks of the files before */
    struct array *x;      /* [variable_count] */
    int opened;           /* number of arrays in x that are open */
};

struct arrays {
    struct split_files files;
    struct arrays_file *file; /* [file_count] in the order of records */
    int64_t file_count;
    struct variable *variable; /* [variable_count] */
    int variable_count;
    double *target; /* [count]: values of data.y; freed by labels_set */
    int32_t *label; /* [count] */
};

static bool no_memory(struct error *error)
{
    return error_set(error, ERROR_MEMORY, "no memory for the list of samples");
}

/* ---- variables ---- */

static bool variables_list(const struct options *options, struct arrays *self, struct error *error)
{
    size_t length;
    if (options->data.root[0] == '\0')
        return error_set(error, ERROR_USAGE, "data.format=arrays needs data.root");
    if (options->data.x[0] == '\0' || options->data.y[0] == '\0')
        return error_set(error, ERROR_USAGE,
                         "data.format=arrays needs data.x and data.y: `vittrain data describe "
                         "FILE` lists the data sets of a file");
    self->variable = calloc(strlen(options->data.x) + 1, sizeof *self->variable);
    if (self->variable == NULL)
        return no_memory(error);
    for (const char *item = text_next_item(options->data.x, &length); item != NULL;
         item = text_next_item(item + length, &length))
        snprintf(self->variable[self->variable_count++].name, OPTION_TEXT, "%.*s", (int)length,
                 item);
    if (self->variable_count == 0)
        return error_set(error, ERROR_USAGE, "data.x=%s names no data set", options->data.x);
    return true;
}

/* Set the shape of a variable from its array in the first file. */
static bool variable_shape(struct variable *variable, const struct array *array, int order,
                           struct error *error)
{
    const int64_t *size = array->extent;
    variable->dimensions = array->dimensions;
    if (array->dimensions != 3 && array->dimensions != 4)
        return error_set(error, ERROR_DATA,
                         "data.x=%s has %d dimensions: it must be [samples, height, width], "
                         "[samples, channels, height, width] or [samples, height, width, channels]",
                         variable->name, array->dimensions);
    variable->channels_last =
        array->dimensions == 4 &&
        (order == DATA_ORDER_HWC || (order == DATA_ORDER_AUTO && array_order_is_hwc(size)));
    const int rows = array->dimensions == 4 && !variable->channels_last ? 2 : 1;
    variable->height = size[rows];
    variable->width = size[rows + 1];
    variable->channels = array->dimensions == 3 ? 1 : size[variable->channels_last ? 3 : 1];
    return true;
}

static bool variable_agrees(const struct variable *variable, const struct array *array)
{
    const int64_t *size = array->extent;
    const int64_t plane[] = {variable->height, variable->width, variable->channels};
    const int64_t planes[] = {variable->channels, variable->height, variable->width};
    const int64_t *expected = variable->dimensions == 3 || variable->channels_last ? plane : planes;
    if (array->dimensions != variable->dimensions)
        return false;
    for (int d = 1; d < array->dimensions; d++)
        if (size[d] != expected[d - 1])
            return false;
    return true;
}

/* Add the variable's channels to the record's. */
static bool variable_add(struct dataset *dataset, const struct variable *variable,
                         struct error *error)
{
    const struct arrays *self = dataset->self;
    if (dataset->channels == 0) {
        dataset->height = variable->height;
        dataset->width = variable->width;
    }
    dataset->channels += variable->channels;
    if (variable->height == dataset->height && variable->width == dataset->width)
        return true;
    return error_set(error, ERROR_DATA,
                     "data.x: %s has images of %lldx%lld, %s of %lldx%lld: name data sets with "
                     "images of the same size",
                     self->variable[0].name, (long long)dataset->width, (long long)dataset->height,
                     variable->name, (long long)variable->width, (long long)variable->height);
}

static void variable_log(const struct variable *variable)
{
    if (variable->dimensions == 4)
        log_info("data.x=%s: %lld channels of %lldx%lld, order %s", variable->name,
                 (long long)variable->channels, (long long)variable->width,
                 (long long)variable->height,
                 variable->channels_last ? "hwc; if channels are first, set data.order=chw"
                                         : "chw; if channels are last, set data.order=hwc");
}

/* ---- files ---- */

/* Append all labels of a file to self->target. */
static bool labels_read(struct arrays *self, const struct arrays_file *file, struct array *y,
                        struct error *error)
{
    const struct array_box box = {.count = {file->count}, .stride = {1}};
    if (y->dimensions != 1 || y->extent[0] != file->count)
        return error_set(error, ERROR_DATA,
                         "%s: data.y=%s is not one number for each of the %lld samples of data.x",
                         file->path, y->name, (long long)file->count);
    double *larger =
        realloc(self->target, (size_t)(file->first + file->count) * sizeof *self->target);
    if (larger == NULL)
        return no_memory(error);
    self->target = larger;
    return array_read_doubles(y, &box, self->target + file->first, error);
}

/* Open the arrays of data.x and check that their shapes match those of the first file. */
static bool images_open(struct dataset *dataset, const struct options *options,
                        struct arrays_file *file, struct error *error)
{
    struct arrays *self = dataset->self;
    for (; file->opened < self->variable_count; file->opened++) {
        struct variable *variable = &self->variable[file->opened];
        struct array *array = &file->x[file->opened];
        if (!array_path_array(&file->place, variable->name, array, error)) {
            array_close(array);
            return false;
        }
        if (self->file_count == 1 &&
            (!variable_shape(variable, array, options->data.order, error) ||
             !variable_add(dataset, variable, error))) {
            array_close(array);
            return false;
        }
        if (!variable_agrees(variable, array) || array->extent[0] != file->x[0].extent[0]) {
            array_close(array);
            return error_set(error, ERROR_DATA,
                             "%s: the shape of data.x=%s does not match that of %s: use data sets "
                             "of the same shape",
                             file->path, variable->name,
                             self->file_count > 1 ? self->file[0].path : self->variable[0].name);
        }
    }
    file->count = file->x[0].extent[0];
    return true;
}

/* Add a class, or compare its name with that of an earlier file. */
static bool class_name_add(struct dataset *dataset, int64_t class_number, const char *name,
                           const char *path, struct error *error)
{
    const struct arrays *self = dataset->self;
    if (self->file_count > 1 &&
        (class_number >= dataset->classes || strcmp(dataset->class_name[class_number], name) != 0))
        return error_set(error, ERROR_DATA,
                         "%s: class %lld is '%s' in the attribute class_names, but the first file "
                         "%s has other names: make them the same",
                         path, (long long)class_number, name, self->file[0].path);
    if (self->file_count > 1)
        return true;
    dataset->class_name[dataset->classes] = strdup(name);
    return dataset->class_name[dataset->classes++] != NULL || no_memory(error);
}

/* Read the names of classes from the attribute class_names of data.y. Later files have the names of
 * the first one, or none. */
static bool class_names_read(struct dataset *dataset, const struct hdf5_reader *reader,
                             const char *y, const char *path, struct error *error)
{
    const struct arrays *self = dataset->self;
    const struct hdf5_object *object = hdf5_path_find(reader, y);
    const struct hdf5_attribute *names =
        object != NULL ? hdf5_attribute_find(reader, object, "class_names") : NULL;
    if (names == NULL || names->kind != HDF5_TEXT || names->count > CLASSES_MOST)
        return true;
    const char *text = reader->file.values + names->offset;
    const char *end = reader->file.values + reader->file.value_bytes;
    if (self->file_count == 1)
        dataset->class_name = calloc((size_t)names->count, sizeof *dataset->class_name);
    if (self->file_count == 1 && dataset->class_name == NULL)
        return no_memory(error);
    for (int64_t c = 0; c < names->count && text < end; c++, text += strlen(text) + 1) {
        if (memchr(text, '\0', (size_t)(end - text)) == NULL)
            return hdf5_refuse(reader, error, "its attribute 'class_names' is damaged");
        if (!class_name_add(dataset, c, text, path, error))
            return false;
    }
    return true;
}

static bool file_open(struct dataset *dataset, const struct options *options,
                      struct hdf5_reader *reader, const char *path, struct error *error)
{
    struct arrays *self = dataset->self;
    struct arrays_file *file = &self->file[self->file_count++];
    const char *y_name = options->data.y;
    struct array y;
    *file = (struct arrays_file){.first = dataset->count, .place = {.descriptor = -1}};
    file->path = strdup(path);
    file->x = calloc((size_t)self->variable_count, sizeof *file->x);
    if (file->path == NULL || file->x == NULL)
        return no_memory(error);
    if (!array_path_open(&file->place, file->path, reader, error))
        return false;
    if (!images_open(dataset, options, file, error))
        return false;
    const bool is_hdf5 = file->place.descriptor >= 0;
    const bool good = array_path_array(&file->place, y_name, &y, error) &&
                      labels_read(self, file, &y, error) &&
                      (!is_hdf5 || options->data.task == TASK_REGRESSION ||
                       class_names_read(dataset, reader, y_name, path, error));
    array_close(&y);
    dataset->count += file->count;
    return good;
}

/* Return the files of a split. If there are no test files, the validation files are the test split.
 * If there are neither and data.val is a fraction, return the training files: samples are held out
 * from them. */
static const struct split_file *split_find(const struct arrays *self, const struct options *options,
                                           enum data_split split, int64_t *count,
                                           struct error *error)
{
    const struct split_files *files = &self->files;
    const bool own = split == SPLIT_VALIDATION && options->data.val == VALIDATION_VAL;
    const struct split_file *found =
        split_files_of(files, split == SPLIT_VALIDATION && !own ? SPLIT_TEST : split, count);
    if (*count == 0 && split != SPLIT_TRAIN)
        found = split_files_of(files, SPLIT_VALIDATION, count);
    if (*count == 0 && options->data.val == VALIDATION_FRACTION)
        found = split_files_of(files, SPLIT_TRAIN, count);
    if (*count > 0)
        return found;
    if (split == SPLIT_TRAIN)
        error_set(error, ERROR_DATA,
                  "data.root=%s: all %lld files are for evaluation, because they or their folders "
                  "have test or val in their names: add files for training, or rename these",
                  options->data.root, (long long)files->count);
    else
        error_set(
            error, ERROR_DATA,
            "data.root=%s: none of the %lld files has %s in its name: set data.val=0.1 to hold "
            "out samples, or add such a file",
            options->data.root, (long long)files->count,
            own ? "val, valid or validation" : "test, val, valid or validation");
    return NULL;
}

static bool split_open(struct dataset *dataset, const struct options *options,
                       struct hdf5_reader *reader, enum data_split split, struct error *error)
{
    int64_t count;
    const struct split_file *files = split_find(dataset->self, options, split, &count, error);
    bool good = files != NULL;
    if (good)
        dataset->held_out |= split != SPLIT_TRAIN && files[0].split == SPLIT_TRAIN;
    for (int64_t i = 0; good && i < count; i++)
        good = file_open(dataset, options, reader, files[i].path, error);
    return good;
}

/* ---- labels ---- */

static bool label_refuse(const struct dataset *dataset, int64_t record, const char *reason,
                         struct error *error)
{
    char name[ERROR_TEXT_SIZE / 2];
    const struct arrays *self = dataset->self;
    dataset->format->name_record(dataset, record, name, sizeof name);
    return error_set(error, ERROR_DATA, "%s: its label %g %s", name, self->target[record], reason);
}

/* Store the labels of a regression as integers in units of one power of two, label_unit. */
static bool numbers_set(struct dataset *dataset, struct error *error)
{
    enum { BITS = 31 };
    struct arrays *self = dataset->self;
    double largest = 0;
    int exponent = 0;
    for (int64_t i = 0; i < dataset->count; i++) {
        if (!isfinite(self->target[i]))
            return label_refuse(dataset, i, "is no number to predict: remove the sample", error);
        largest = fmax(largest, fabs(self->target[i]));
    }
    frexp(fmax(largest, DBL_MIN), &exponent);
    dataset->classes = 1;
    dataset->label_unit = ldexp(1, exponent - BITS);
    for (int64_t i = 0; i < dataset->count; i++) {
        const double label = rint(self->target[i] / dataset->label_unit);
        self->label[i] = (int32_t)fmin(label, INT32_MAX);
    }
    return true;
}

static bool classes_set(struct dataset *dataset, struct error *error)
{
    struct arrays *self = dataset->self;
    int64_t classes = 0;
    for (int64_t i = 0; i < dataset->count; i++) {
        const double label = self->target[i];
        if (!(label >= 0 && label < CLASSES_MOST && label == floor(label)))
            return label_refuse(dataset, i,
                                "is no class (0, 1, ...): set data.task=regression to predict "
                                "numbers",
                                error);
        if (dataset->class_name != NULL && label >= (double)dataset->classes)
            return label_refuse(dataset, i, "has no name in the attribute class_names", error);
        self->label[i] = (int32_t)label;
        classes = larger(classes, self->label[i] + 1);
    }
    if (dataset->class_name != NULL)
        return true;
    dataset->class_name = calloc((size_t)classes + 1, sizeof *dataset->class_name);
    for (int64_t c = 0; dataset->class_name != NULL && c < classes; c++) {
        char name[24];
        snprintf(name, sizeof name, "%lld", (long long)c);
        dataset->class_name[dataset->classes++] = strdup(name);
        if (dataset->class_name[c] == NULL)
            return no_memory(error);
    }
    return dataset->class_name != NULL || no_memory(error);
}

/* Convert the labels and compute the checksum of shape and labels. */
static bool labels_set(struct dataset *dataset, const struct options *options, struct error *error)
{
    struct arrays *self = dataset->self;
    const int64_t shape[] = {dataset->count, dataset->channels, dataset->height, dataset->width};
    self->label = malloc((size_t)dataset->count * sizeof *self->label);
    if (self->label == NULL)
        return no_memory(error);
    if (options->data.task == TASK_REGRESSION ? !numbers_set(dataset, error)
                                              : !classes_set(dataset, error))
        return false;
    free(self->target);
    self->target = NULL;
    dataset->sum = crc32c_update(0, shape, sizeof shape);
    dataset->sum =
        crc32c_update(dataset->sum, self->label, (size_t)dataset->count * sizeof *self->label);
    return true;
}

/* ---- chunks ---- */

static struct arrays_file *file_of(const struct arrays *self, int64_t record)
{
    int64_t low = 0, high = self->file_count - 1;
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (self->file[middle].first <= record)
            low = middle;
        else
            high = middle - 1;
    }
    return &self->file[low];
}

/* Set the size of a file's chunks. Return the bytes that all of them have after decoding. */
static int64_t chunks_count(struct arrays_file *file, int64_t first_chunk)
{
    int64_t bytes = 0;
    file->chunk = 1;
    for (int v = 0; v < file->opened; v++) {
        const struct array *array = &file->x[v];
        const int64_t shared = array_shared_bytes(array);
        if (shared > 0)
            file->chunk = larger(file->chunk, smaller(array->chunk[0], array->extent[0]));
        bytes += shared * array->grid[0];
    }
    file->first_chunk = first_chunk;
    return bytes;
}

/* Return the bytes of decoded chunks to keep: those that the threads need for their last samples,
 * or with data.shuffle=chunks a window and half a window more, since ranks share the window and its
 * successor begins before its end. */
static int64_t chunks_kept(const struct arrays_file *file, int64_t workers, bool by_chunks)
{
    enum { CHUNKS = SHUFFLE_WINDOW + SHUFFLE_WINDOW / 2 };
    const int64_t most = (int64_t)1 << 28;
    int64_t kept = 0;
    for (int v = 0; v < file->opened; v++) {
        const struct array *array = &file->x[v];
        const int64_t shared = array_shared_bytes(array);
        if (by_chunks)
            kept += CHUNKS * round_up_division(file->chunk, array->chunk[0]) * shared;
        else if (shared > 0)
            kept += (workers + 1) * larger(smaller(shared, most), array->chunk_bytes);
    }
    return kept;
}

/* Let all files share one cache of decoded chunks. */
static void chunks_share(struct dataset *dataset, const struct options *options, bool by_chunks)
{
    struct arrays *self = dataset->self;
    int64_t total = 0, chunks = 0, largest = 1;
    dataset->chunks = array_cache_new();
    for (int64_t i = 0; i < self->file_count; i++) {
        struct arrays_file *file = &self->file[i];
        for (int v = 0; v < file->opened; v++)
            array_use_cache(&file->x[v], dataset->chunks);
        total += chunks_count(file, chunks);
        chunks += round_up_division(file->count, file->chunk);
        largest = larger(largest, file->chunk);
        dataset->kept_bytes =
            larger(dataset->kept_bytes, chunks_kept(file, options->data.workers, by_chunks));
    }
    dataset->kept_bytes = smaller(dataset->kept_bytes, total);
    array_cache_limit(dataset->chunks, dataset->kept_bytes);
    if (by_chunks)
        log_info("data.shuffle=chunks: %lld samples in a chunk; decoded chunks take at most %.1f "
                 "MiB of each rank's memory",
                 (long long)largest, (double)dataset->kept_bytes / (1 << 20));
}

static int64_t arrays_chunk(const struct dataset *dataset, int64_t record)
{
    const struct arrays_file *file = file_of(dataset->self, record);
    return file->first_chunk + (record - file->first) / file->chunk;
}

/* ---- the data set ---- */

static bool files_open(struct dataset *dataset, const struct options *options,
                       enum data_split split, struct error *error)
{
    struct arrays *self = dataset->self;
    char names[2 * OPTION_TEXT];
    struct hdf5_reader reader = {.kind = ERROR_DATA, .purpose = "arrays", .datasets = names};
    const bool all = options->data.val == VALIDATION_REFERENCE;
    snprintf(names, sizeof names, "%s,%s", options->data.x, options->data.y);
    self->file = calloc((size_t)self->files.count + 1, sizeof *self->file);
    if (self->file == NULL)
        return no_memory(error);
    const bool good = (!all || split_open(dataset, options, &reader, SPLIT_TRAIN, error)) &&
                      split_open(dataset, options, &reader, all ? SPLIT_TEST : split, error);
    hdf5_reader_close(&reader);
    return good;
}

static bool arrays_open(const struct options *options, enum data_split split,
                        struct dataset *dataset, struct error *error)
{
    struct arrays *self = calloc(1, sizeof *self);
    dataset->self = self;
    dataset->type = DATASET_FLOAT32;
    if (self == NULL)
        return no_memory(error);
    if (!variables_list(options, self, error) ||
        !array_path_find(options->data.root, &self->files, error) ||
        !files_open(dataset, options, split, error) || !labels_set(dataset, options, error))
        return false;
    const bool training = split == SPLIT_TRAIN && !dataset->held_out;
    chunks_share(dataset, options, training && options->data.shuffle == SHUFFLE_CHUNKS);
    for (int v = 0; training && v < self->variable_count; v++)
        variable_log(&self->variable[v]);
    return true;
}

/* Return the box of a sample. In memory, each channel is one plane. */
static struct array_box sample_box(const struct variable *variable, int64_t sample)
{
    const int64_t channels = variable->channels, height = variable->height, width = variable->width;
    const int64_t plane = height * width;
    if (variable->dimensions == 3)
        return (struct array_box){
            .begin = {sample}, .count = {1, height, width}, .stride = {plane, width, 1}};
    if (variable->channels_last)
        return (struct array_box){.begin = {sample},
                                  .count = {1, height, width, channels},
                                  .stride = {channels * plane, width, 1, channels > 1 ? plane : 1}};
    return (struct array_box){.begin = {sample},
                              .count = {1, channels, height, width},
                              .stride = {channels * plane, plane, width, 1}};
}

/* Statistics exist of training samples only, so an infinite value of another one is found here. */
static bool values_are_finite(const float *values, int64_t count)
{
    uint32_t infinite = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        infinite |= (bits & UINT32_C(0x7fffffff)) == UINT32_C(0x7f800000);
    }
    return infinite == 0;
}

static bool arrays_read(struct dataset *dataset, int64_t record, void *values, int32_t *label,
                        struct error *error)
{
    const struct arrays *self = dataset->self;
    const struct arrays_file *file = file_of(self, record);
    float *to = values;
    *label = self->label[record];
    for (int v = 0; v < self->variable_count; v++) {
        const struct variable *variable = &self->variable[v];
        const struct array_box box = sample_box(variable, record - file->first);
        const int64_t count = variable->channels * variable->height * variable->width;
        if (!array_read(&file->x[v], &box, to, error))
            return false;
        if (!values_are_finite(to, count))
            return error_set(error, ERROR_DATA,
                             "%s has an infinite or too large value; mark missing values with NaN",
                             variable->name);
        to += count;
    }
    return true;
}

static bool arrays_label(struct dataset *dataset, int64_t record, int32_t *label,
                         struct error *error)
{
    const struct arrays *self = dataset->self;
    (void)error;
    *label = self->label[record];
    return true;
}

static void arrays_name_record(const struct dataset *dataset, int64_t record, char *text,
                               size_t size)
{
    const struct arrays_file *file = file_of(dataset->self, record);
    snprintf(text, size, "%s: sample %lld", file->path, (long long)(record - file->first));
}

static void arrays_close(struct dataset *dataset)
{
    struct arrays *self = dataset->self;
    if (self == NULL)
        return;
    for (int64_t i = 0; i < self->file_count; i++) {
        struct arrays_file *file = &self->file[i];
        for (int v = 0; v < file->opened; v++)
            array_close(&file->x[v]);
        array_path_close(&file->place);
        free(file->x);
        free(file->path);
    }
    array_cache_free(dataset->chunks);
    split_files_free(&self->files);
    free(self->file);
    free(self->variable);
    free(self->target);
    free(self->label);
    free(self);
}

const struct dataset_format dataset_arrays = {
    .name = "arrays",
    .open = arrays_open,
    .read = arrays_read,
    .label = arrays_label,
    .chunk = arrays_chunk,
    .name_record = arrays_name_record,
    .close = arrays_close,
    .splits = true,
};
