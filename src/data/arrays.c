// SPDX-License-Identifier: BSD-3-Clause
/* Arrays of numbers in HDF5, NetCDF-4, Zarr and .npy files, read in place. data.x names the images,
 * data.y their classes, or targets: numbers or planes. Only labels and numbers are kept in memory.
 * The HDF5 library is not called after the data set is opened, so several threads can read. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"
#include "core/allocate.h"
#include "core/integer.h"
#include "core/log.h"
#include "core/text.h"
#include "core/vectorised.h"
#include "data/array_attributes.h"
#include "data/array_cache.h"
#include "data/array_files.h"
#include "data/array_path.h"
#include "data/arrays.h"
#include "data/arrays_coordinates.h"
#include "data/arrays_targets.h"
#include "data/arrays_variable.h"
#include "data/dataset.h"
#include "data/file_series.h"
#include "data/grid.h"
#include "data/sampler.h"
#include "data/split_files.h"
#include "data/window.h"

struct arrays_file {
    char *path;
    struct array_path place;
    int64_t chunk;       /* samples in its largest chunks that have to be decoded; at least 1 */
    int64_t first_chunk; /* number of chunks of the files before */
    struct array *array; /* [x_count + y_count] */
    int opened;          /* number of arrays that are open */
    bool is_empty;       /* it could not be opened because an array has no elements */
    struct series_file times;
};

struct arrays {
    struct split_files files;
    struct arrays_file *file; /* [file_count] in the order of records */
    int64_t file_count;
    struct variable *x, *y; /* [x_count], [y_count] */
    int x_count, y_count;
    int array_count; /* of a file: x_count + y_count; x_count if the files do not have data.y */
    struct file_series series; /* its files are those in `file` */
    struct grid grid;          /* of the first file */
    struct array_missing missing;
    bool has_planes; /* the targets are planes, which are read with the pixels */
    double ignored;  /* train.ignore_label, or NAN */
    float *target;   /* [count, target.count]: targets that are not planes, or NULL */
    int32_t *label;  /* [count]: classes, or NULL */
};

/* ---- variables ---- */

/* Return a variable of data.x, or after them one of data.y. */
static struct variable *variable_of(const struct arrays *self, int number)
{
    return number < self->x_count ? &self->x[number] : &self->y[number - self->x_count];
}

static bool variables_list(const struct options *options, struct arrays *self, struct error *error)
{
    if (options->data.root[0] == '\0')
        return error_set(error, ERROR_USAGE, "data.format=arrays needs data.root");
    if (options->data.x[0] == '\0' || options->data.y[0] == '\0')
        return error_set(error, ERROR_USAGE,
                         "data.format=arrays needs data.x and data.y: `vittrain data describe "
                         "FILE` lists the data sets of a file");
    return variables_parse("data.x", options->data.x, &self->x, &self->x_count, error) &&
           variables_parse("data.y", options->data.y, &self->y, &self->y_count, error);
}

/* Return the samples at both ends of a series without times that are no records. */
static int64_t samples_at_ends(const struct file_series *series)
{
    int64_t before = 0, after = 0;
    for (int o = 0; o < series->offset_count; o++)
        if (series->required[o]) {
            before = larger(before, -series->offset[o]);
            after = larger(after, series->offset[o]);
        }
    return before + after;
}

/* Set offsets and transforms. A data set of the first file whose name is "u@+6" has priority over
 * an offset. Samples of planes or numbers are predicted (allows_none) even if their targets are
 * after the end of the series. */
static bool variables_resolve(struct arrays *self, const struct options *options,
                              const struct array_path *place, bool allows_none, struct error *error)
{
    const bool predicts_beyond =
        allows_none && (options->data.task == TASK_REGRESSION || options->model.head == HEAD_DENSE);
    for (int v = 0; v < self->x_count + self->y_count; v++) {
        struct variable *variable = variable_of(self, v);
        char name[VARIABLE_TEXT];
        variable_write(variable, name);
        if (variable->offset != 0 && array_path_has(place, name)) {
            variable->offset = 0;
            snprintf(variable->name, sizeof variable->name, "%.*s", (int)sizeof variable->name - 1,
                     name);
        }
        const bool required = v < self->x_count || !predicts_beyond || variable->offset < 0;
        if (!file_series_use(&self->series, variable->offset, required))
            return error_set(error, ERROR_USAGE, "data.x and data.y have more than %d offsets (@)",
                             SERIES_OFFSETS);
    }
    const bool by_time = options->data.val == VALIDATION_FRACTION &&
                         options->data.val_from == VAL_FROM_END && !allows_none;
    self->series.is_ordered = !self->series.counts && (self->series.joined || by_time ||
                                                       samples_at_ends(&self->series) > 0);
    return variables_transform(options->data.transform, self->x, self->x_count, self->y,
                               self->y_count, options->data.task != TASK_REGRESSION, error);
}

/* Set the shape of the records from the first file. */
static bool shape_set(struct dataset *dataset, const struct options *options,
                      const struct arrays_file *file, struct error *error)
{
    struct arrays *self = dataset->self;
    struct target_shape *target = &dataset->target;
    for (int v = 0; v < self->array_count; v++)
        if (!grid_set_order(&self->grid, v, file->array[v].extent, options->data.order,
                            &variable_of(self, v)->channels_last, error) ||
            !variable_set_shape(variable_of(self, v), v < self->x_count ? "data.x" : "data.y",
                                &file->array[v], error))
            return false;
    if (!self->series.counts && !grid_check(&self->grid, error))
        return false;
    dataset->height = self->x[0].height;
    dataset->width = self->x[0].width;
    self->has_planes = self->y[0].dimensions > 2;
    target->height = self->has_planes ? dataset->height : 1;
    target->width = self->has_planes ? dataset->width : 1;
    for (int v = 0; v < self->x_count; v++)
        if (!variable_add_channels(&self->x[v], &self->x[0], "data.x", &dataset->channels,
                                   dataset->height, dataset->width, error))
            return false;
    for (int v = 0; !dataset->unlabelled && v < self->y_count; v++)
        if (!variable_add_channels(&self->y[v], self->has_planes ? &self->x[0] : &self->y[0],
                                   "data.y", &target->count, target->height, target->width, error))
            return false;
    variables_list_transforms(self->x, self->x_count, dataset->channels,
                              dataset->channel_transform);
    variables_list_transforms(self->y, self->y_count, target->count, dataset->target_transform);
    return true;
}

/* ---- files ---- */

/* Return the number of the first array of the same data set, which may be named twice: u@-1,u. */
static int first_of(const struct arrays_file *file, int number)
{
    int first = 0;
    while (strcmp(file->array[first].name, file->array[number].name) != 0)
        first++;
    return first;
}

/* Take the times of the samples of a file out of its grid: the coordinate of the first dimension of
 * data.x. */
static bool times_take(struct arrays *self, struct arrays_file *file, const struct grid *grid,
                       struct error *error)
{
    struct file_series *series = &self->series;
    struct series_file *times = &file->times;
    const int number = grid->array[0].dimension[0];
    double most = 0;
    *times = (struct series_file){.path = file->path, .samples = file->array[0].extent[0]};
    if (number == GRID_NONE || grid->dimension[number].values == NULL)
        return true;
    struct dimension *samples = &grid->dimension[number];
    const char *calendar = array_attributes_text(&samples->attributes, "calendar");
    if (samples->kind != DIMENSION_TIME && !series->joined && samples_at_ends(series) == 0)
        series->is_ordered = false; /* numbers that are no times do not decide about splits */
    if (!time_units_parse(samples->units, calendar, &times->units)) {
        times->units = (struct time_units){0};
        if (series->is_ordered)
            return error_set(error, ERROR_DATA,
                             "%s: cannot decode the units '%.60s' of '%s' in the calendar '%.40s': "
                             "write UNIT since DATE, or set data.coordinates=ignore",
                             file->path, samples->units, samples->name, calendar);
    }
    for (int64_t n = 0; n < samples->count; n++) {
        most = fmax(most, fabs(samples->values[n]));
        if (!isfinite(samples->values[n]) && series->is_ordered)
            return error_set(error, ERROR_DATA,
                             "%s: '%s' has no value at sample %lld: write all times, or set "
                             "data.coordinates=ignore to count samples",
                             file->path, samples->name, (long long)n);
    }
    times->time = samples->values;
    samples->values = NULL;
    if (samples->is_float32)
        times->rounding = most * 0x1p-24 * (times->units.seconds > 0 ? times->units.seconds : 1);
    if (series->name[0] == '\0') {
        series->units = times->units;
        snprintf(series->name, sizeof series->name, "%.63s", samples->name);
    }
    return true;
}

/* Read the grid of a file. Keep that of the first file, and compare others with it. */
static bool grid_read(struct dataset *dataset, const struct options *options,
                      struct arrays_file *file, struct error *error)
{
    struct arrays *self = dataset->self;
    struct grid other = {0};
    const bool is_first = self->file_count == 1, counts = self->series.counts;
    struct grid *grid = is_first ? &self->grid : &other;
    for (int v = 0; v < self->array_count; v++)
        grid_add(grid, &file->place, variable_of(self, v)->name, &file->array[v]);
    for (int n = 0; counts && n < grid->dimension_count; n++)
        grid->dimension[n].kind = DIMENSION_UNKNOWN;
    const bool good = (is_first ? shape_set(dataset, options, file, error)
                                : counts || grid_compare(&self->grid, grid, error)) &&
                      times_take(self, file, grid, error);
    grid_close(&other);
    return good;
}

/* Open the arrays of a file, and check that their shapes match those of the first file. */
static bool file_arrays(struct dataset *dataset, const struct options *options,
                        struct arrays_file *file, struct error *error)
{
    struct arrays *self = dataset->self;
    const int count = self->array_count;
    for (; file->opened < count; file->opened++) {
        struct array *array = &file->array[file->opened];
        if (!array_path_array(&file->place, variable_of(self, file->opened)->name, array, error)) {
            file->is_empty = array->is_empty && file->opened < self->x_count;
            array_close(array);
            return false;
        }
    }
    if (!grid_read(dataset, options, file, error))
        return false;
    for (int v = 0; v < count; v++) {
        const bool is_x = v < self->x_count;
        struct variable *variable = variable_of(self, v);
        variable->is_wide |=
            variable->transform == TRANSFORM_NONE && array_is_wide(&file->array[v]);
        if (!variable_agrees(variable, &file->array[v]))
            return error_set(error, ERROR_DATA,
                             "%s: the shape of %s=%s does not match that of %s: use data sets of "
                             "the same shape",
                             file->path, is_x ? "data.x" : "data.y", variable->name,
                             self->file[0].path);
        if (file->array[v].extent[0] != file->array[0].extent[0])
            return error_set(error, ERROR_DATA,
                             "%s: %s=%s has %lld samples, and data.x=%s has %lld: use data sets of "
                             "the same number of samples",
                             file->path, is_x ? "data.x" : "data.y", variable->name,
                             (long long)file->array[v].extent[0], self->x[0].name,
                             (long long)file->array[0].extent[0]);
    }
    const int64_t samples = file->array[0].extent[0];
    return self->series.joined || samples >= samples_at_ends(&self->series) ||
           error_set(error, ERROR_DATA,
                     "%s: %lld samples are too few for the offsets (@) of data.x=%s and data.y=%s; "
                     "data.join=on makes the files one series",
                     file->path, (long long)samples, options->data.x, options->data.y);
}

static int compare_times(const void *left, const void *right)
{
    const struct series_file *a = &((const struct arrays_file *)left)->times;
    const struct series_file *b = &((const struct arrays_file *)right)->times;
    const double one = time_decode(&a->units, a->time[0]);
    const double other = time_decode(&b->units, b->time[0]);
    return one != other ? (one > other) - (one < other) : strcmp(a->path, b->path);
}

/* Make series of the open files. Those of one series are ordered by time. */
static bool series_make(struct dataset *dataset, struct error *error)
{
    struct arrays *self = dataset->self;
    struct file_series *series = &self->series;
    int64_t timed = 0;
    for (int64_t f = 0; f < self->file_count; f++)
        timed += self->file[f].times.time != NULL;
    if (series->joined && timed == self->file_count && !series->counts)
        qsort(self->file, (size_t)self->file_count, sizeof *self->file, compare_times);
    for (int64_t f = 0; f < self->file_count; f++)
        file_series_add(series, &self->file[f].times);
    if (!file_series_pair(series, !dataset->held_out, error))
        return false;
    dataset->count = series->records;
    dataset->has_offsets = samples_at_ends(series) > 0;
    if (dataset->has_offsets && timed == 0 && !dataset->held_out)
        log_info("offsets (@) count samples: %s has no coordinate of its samples such as 'time'",
                 self->file[0].path);
    return true;
}

/* Read targets that are not planes from all files into self->target. */
static bool targets_read(struct dataset *dataset, struct error *error)
{
    struct arrays *self = dataset->self;
    const int64_t outputs = dataset->target.count;
    const int64_t records = self->series.records;
    const double *origin = dataset->target_origin;
    free(self->target);
    float *to = self->target = allocate((size_t)(records * outputs), sizeof *self->target);
    for (int v = 0; v < self->y_count; v++) {
        const struct variable *variable = &self->y[v];
        const int64_t channels = variable->channels;
        float *values = NULL;
        int64_t file, sample, last = -1;
        for (int64_t r = 0; r < records; r++) {
            float *target = to + r * outputs;
            file = file_series_find(&self->series, r, variable->offset, &sample);
            if (file >= 0 && file != last) {
                struct array *array = &self->file[file].array[self->x_count + v];
                const struct array_box box = variable_box(variable, 0, array->extent[0]);
                values = allocate_resized(values, (size_t)array_elements(array) * sizeof *values);
                if (!variable_read(variable, array, &box, 1, origin, values, error)) {
                    free(values);
                    return false;
                }
                last = file;
            }
            for (int64_t c = 0; c < channels; c++)
                target[c] = file < 0 ? NAN : values[sample * channels + c];
            value_transform_apply(variable->transform, target, channels);
        }
        free(values);
        to += channels;
        origin += channels;
    }
    return true;
}

/* Compare the names of classes with those of the first file. */
static bool class_names_compare(const struct dataset *dataset, const struct listing *names,
                                const char *path, struct error *error)
{
    const struct arrays *self = dataset->self;
    for (size_t c = 0; c < names->count; c++)
        if ((int64_t)c >= dataset->classes || strcmp(dataset->class_name[c], names->names[c]) != 0)
            return error_set(error, ERROR_DATA,
                             "%s: class %zu is '%s' in the attribute class_names, but the first "
                             "file %s has other names: make them the same",
                             path, c, names->names[c], self->file[0].path);
    return true;
}

/* Read the names of classes. Later files have the names of the first one, or none. */
static bool class_names_read(struct dataset *dataset, const struct arrays_file *file,
                             struct error *error)
{
    const struct arrays *self = dataset->self;
    struct listing names = {0};
    bool good = array_class_names(&file->place, self->y[0].name, &names, error);
    if (good && self->file_count > 1) {
        good = class_names_compare(dataset, &names, file->path, error);
    } else if (good && names.count > 0) {
        dataset->classes = (int64_t)names.count;
        dataset->class_name = names.names;
        names = (struct listing){0};
    }
    listing_free(&names);
    return good;
}

/* Decide if the files have data.y. allows_none: they need not have it. */
static void labels_find(struct dataset *dataset, const struct arrays_file *first, bool allows_none)
{
    struct arrays *self = dataset->self;
    for (int v = 0; allows_none && v < self->y_count; v++)
        dataset->unlabelled |= !array_path_has(&first->place, self->y[v].name);
    self->array_count = self->x_count + (dataset->unlabelled ? 0 : self->y_count);
}

/* allows_none: the file need not have data.y. */
static bool file_open(struct dataset *dataset, const struct options *options,
                      struct hdf5_reader *reader, const char *path, bool allows_none,
                      struct error *error)
{
    struct arrays *self = dataset->self;
    struct arrays_file *file = &self->file[self->file_count++];
    *file = (struct arrays_file){.path = NULL};
    file->path = allocate_copy(path);
    file->array = allocate((size_t)(self->x_count + self->y_count), sizeof *file->array);
    if (!array_path_open(&file->place, file->path, reader, error))
        return false;
    if (self->file_count == 1) {
        if (!variables_resolve(self, options, &file->place, allows_none, error))
            return false;
        labels_find(dataset, file, allows_none);
    }
    if (!file_arrays(dataset, options, file, error))
        return false;
    for (int v = 0; v < file->opened; v++)
        if (first_of(file, v) == v)
            array_missing_add(&self->missing, &file->array[v]);
    return dataset->unlabelled || options->data.task == TASK_REGRESSION ||
           class_names_read(dataset, file, error);
}

static void file_close(struct arrays_file *file)
{
    for (int v = 0; v < file->opened; v++)
        array_close(&file->array[v]);
    array_path_close(&file->place);
    free(file->times.time);
    free(file->array);
    free(file->path);
}

static bool split_open(struct dataset *dataset, const struct options *options,
                       struct hdf5_reader *reader, enum data_split split, struct error *error)
{
    struct arrays *self = dataset->self;
    int64_t count, empty = 0;
    const struct split_file *files =
        split == SPLIT_ALL ? split_files_all(&self->files, &count)
                           : split_files_choose(&self->files, options, split, &count, error);
    bool good = files != NULL;
    if (good)
        dataset->held_out |=
            split != SPLIT_TRAIN && split != SPLIT_ALL && files[0].split == SPLIT_TRAIN;
    for (int64_t i = 0; good && i < count; i++) {
        good = file_open(dataset, options, reader, files[i].path, split == SPLIT_ALL, error);
        if (good || !self->file[self->file_count - 1].is_empty || ++empty == count)
            continue;
        file_close(&self->file[--self->file_count]);
        error_clear(error);
        good = true;
    }
    if (good && empty > 0 && !dataset->held_out)
        log_warn("data.root: %lld of %lld files have no samples and are left out", (long long)empty,
                 (long long)count);
    return good;
}

/* ---- chunks ---- */

/* Return the bytes of decoded chunks that samples or the tiles of a field share; 0 for numbers,
 * which are read when the file is opened. */
static int64_t shared_bytes(const struct array *array, bool tiled)
{
    return array->dimensions > 2 ? array_shared_bytes(array, tiled) : 0;
}

/* Set the size of a file's chunks. Return the bytes that all of them have after decoding. */
static int64_t chunks_count(struct arrays_file *file, int64_t first_chunk, bool tiled)
{
    int64_t bytes = 0;
    file->chunk = 1;
    for (int v = 0; v < file->opened; v++) {
        const struct array *array = &file->array[v];
        const int64_t shared = shared_bytes(array, tiled);
        if (shared > 0)
            file->chunk = larger(file->chunk, smaller(array->chunk[0], array->extent[0]));
        bytes += shared * array->grid[0];
    }
    file->first_chunk = first_chunk;
    return bytes;
}

/* Return the bytes of decoded chunks to keep: those of the last sample of each thread. With
 * data.shuffle=chunks it is one and a half windows, since ranks share a window, and the next one
 * begins before it ends. */
static int64_t chunks_kept(const struct arrays_file *file, int64_t workers, bool by_chunks,
                           bool tiled)
{
    enum { CHUNKS = SHUFFLE_WINDOW + SHUFFLE_WINDOW / 2 };
    const int64_t most = (int64_t)1 << 28;
    int64_t kept = 0;
    for (int v = 0; v < file->opened; v++) {
        const struct array *array = &file->array[v];
        const int64_t shared = shared_bytes(array, tiled);
        if (by_chunks)
            kept += CHUNKS * round_up_division(file->chunk, array->chunk[0]) * shared;
        else if (shared > 0)
            kept += (workers + 1) * larger(smaller(shared, most), array->chunk_bytes);
    }
    return kept;
}

/* Let all files share one cache of decoded chunks. */
static void chunks_share(struct dataset *dataset, const struct options *options, bool by_chunks,
                         bool tiled)
{
    struct arrays *self = dataset->self;
    int64_t total = 0, chunks = 0, largest = 1;
    dataset->chunks = array_cache_new();
    for (int64_t i = 0; i < self->file_count; i++) {
        struct arrays_file *file = &self->file[i];
        for (int v = 0; v < file->opened; v++)
            array_use_cache(&file->array[v], dataset->chunks, &file->array[first_of(file, v)]);
        total += chunks_count(file, chunks, tiled);
        chunks += round_up_division(file->array[0].extent[0], file->chunk);
        largest = larger(largest, file->chunk);
        dataset->kept_bytes =
            larger(dataset->kept_bytes, chunks_kept(file, options->data.workers, by_chunks, tiled));
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
    const struct arrays *self = dataset->self;
    int64_t sample;
    const struct arrays_file *file =
        &self->file[file_series_find(&self->series, record, 0, &sample)];
    return file->first_chunk + sample / file->chunk;
}

/* ---- the data set ---- */

/* List the data sets that both options may name, for the HDF5 reader. */
static char *names_list(const struct arrays *self)
{
    struct text_stream names;
    text_stream_open(&names);
    for (int v = 0; v < self->x_count + self->y_count; v++) {
        char name[VARIABLE_TEXT];
        variable_write(variable_of(self, v), name);
        fprintf(names.stream, "%s%s,%s", v > 0 ? "," : "", variable_of(self, v)->name, name);
    }
    fprintf(names.stream, ",%.*stime", (int)(text_base_name(self->x[0].name) - self->x[0].name),
            self->x[0].name);
    return text_stream_close(&names);
}

static bool files_open(struct dataset *dataset, const struct options *options,
                       enum data_split split, struct error *error)
{
    struct arrays *self = dataset->self;
    char *names = names_list(self);
    struct hdf5_reader reader = {.kind = ERROR_DATA, .purpose = "arrays", .datasets = names};
    const bool all = options->data.val == VALIDATION_REFERENCE && split != SPLIT_ALL;
    self->file = allocate((size_t)self->files.count, sizeof *self->file);
    const bool good = (!all || split_open(dataset, options, &reader, SPLIT_TRAIN, error)) &&
                      split_open(dataset, options, &reader, all ? SPLIT_TEST : split, error);
    hdf5_reader_close(&reader);
    free(names);
    const bool refused = options->data.missing == MISSING_ERROR;
    return good &&
           ((dataset->held_out && !refused) ||
            array_missing_report(&self->missing, refused, error)) &&
           series_make(dataset, error) &&
           (self->has_planes || dataset->unlabelled || targets_read(dataset, error));
}

static bool arrays_open(const struct options *options, enum data_split split,
                        struct dataset *dataset, struct error *error)
{
    struct arrays *self = allocate(1, sizeof *self);
    dataset->self = self;
    dataset->type = DATASET_FLOAT32;
    self->series.joined = options->data.join;
    self->series.counts = options->data.coordinates == COORDINATES_IGNORE;
    ENSURE(file_series_use(&self->series, 0, false), "no room for an offset");
    self->ignored =
        options->train.ignore_label == IGNORE_NONE ? NAN : (double)options->train.ignore_label;
    struct arrays_view view;
    if (!variables_list(options, self, error) ||
        !array_path_find(options->data.root, &self->files, dataset->comm, error) ||
        !files_open(dataset, options, split, error))
        return false;
    variables_list_wide(self->x, self->x_count, dataset->channel_is_wide);
    variables_list_wide(self->y, self->y_count, dataset->target_is_wide);
    const bool training = split == SPLIT_TRAIN && !dataset->held_out;
    if (!arrays_view(dataset, &view) ||
        !arrays_targets_use(dataset, options, &view, training, &self->target, &self->label, error))
        return false;
    if (dataset->has_offsets)
        self->grid.step = self->series.step;
    if (!self->series.counts)
        dataset->grid = &self->grid;
    else if (training)
        log_info("data.coordinates=ignore: names, coordinates, units and times are not checked");
    chunks_share(dataset, options, training && options->data.shuffle == SHUFFLE_CHUNKS,
                 !training && window_is_tiled(options, SPLIT_ALL));
    if (training && options->train.row_weight == ROW_WEIGHT_LATITUDE &&
        !arrays_row_weights(dataset, &dataset->row_weights, error))
        return false;
    for (int v = 0; training && v < self->x_count; v++)
        variable_log(&self->x[v], "data.x");
    for (int v = 0; training && v < self->y_count; v++)
        variable_log(&self->y[v], "data.y");
    return true;
}

VECTORISED static bool values_are_finite(const float *values, int64_t count)
{
    uint32_t infinite = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        infinite |= bits << 1 == UINT32_C(0xff000000); /* without the sign */
    }
    return infinite == 0;
}

/* Read the window at (top, left) of variables of a record into `to`. Values after the end of the
 * series are NaN. */
static bool planes_read(const struct dataset *dataset, const struct variable *variables, int count,
                        int64_t record, int64_t top, int64_t left, float *to, struct error *error)
{
    const struct arrays *self = dataset->self;
    const double *origin = variables == self->x ? dataset->channel_origin : dataset->target_origin;
    const int64_t height = dataset->height, width = dataset->width;
    for (int v = 0; v < count; v++) {
        const struct variable *variable = &variables[v];
        const int64_t values = variable->channels * height * width;
        int64_t sample;
        const int64_t file = file_series_find(&self->series, record, variable->offset, &sample);
        const struct array_box box = variable_window(variable, sample, top, left, height, width);
        const int number = variables == self->x ? v : self->x_count + v;
        for (int64_t i = 0; file < 0 && i < values; i++)
            to[i] = NAN;
        if (file >= 0 && !variable_read(variable, &self->file[file].array[number], &box,
                                        height * width, origin, to, error))
            return false;
        value_transform_apply(variable->transform, to, values);
        if (!dataset->is_finite && !values_are_finite(to, values))
            return error_set(error, ERROR_DATA,
                             "%s: sample %lld: %s has an infinite or too large value; mark missing "
                             "values with NaN",
                             self->file[file].path, (long long)sample, variable->name);
        to += values;
        origin += variable->channels;
    }
    return true;
}

/* Make ignored classes of pixels NaN, and check the others. */
static bool pixel_classes_check(const struct dataset *dataset, int64_t record, float *classes,
                                struct error *error)
{
    const struct arrays *self = dataset->self;
    char name[ERROR_TEXT_SIZE / 2];
    const float ignored = (float)self->ignored, count = (float)dataset->classes;
    for (int64_t i = 0; i < dataset->target.height * dataset->target.width; i++) {
        const float value = classes[i];
        if (value == ignored)
            classes[i] = NAN;
        if (isnan(classes[i]) || (value >= 0 && value < count && value == floorf(value)))
            continue;
        dataset->format->name_record(dataset, record, name, sizeof name);
        return error_set(error, ERROR_DATA,
                         "%s: %s has a pixel of class %g, and there are %lld classes, 0, 1, ...; "
                         "train.ignore_label leaves the pixels of one number out",
                         name, self->y[0].name, (double)value, (long long)dataset->classes);
    }
    return true;
}

static bool arrays_read(struct dataset *dataset, int64_t record, int64_t top, int64_t left,
                        void *values, int32_t *label, struct error *error)
{
    const struct arrays *self = dataset->self;
    float *target = dataset_targets(dataset, values);
    *label = self->label != NULL ? self->label[record] : 0;
    if (!planes_read(dataset, self->x, self->x_count, record, top, left, values, error))
        return false;
    for (int64_t i = 0;
         dataset->unlabelled && i < (int64_t)(target_bytes(&dataset->target) / sizeof *target); i++)
        target[i] = NAN;
    if (self->target != NULL)
        memcpy(target, self->target + record * dataset->target.count,
               (size_t)dataset->target.count * sizeof *target);
    return !self->has_planes ||
           (planes_read(dataset, self->y, self->y_count, record, top, left, target, error) &&
            (!dataset->target_is_class || pixel_classes_check(dataset, record, target, error)));
}

/* Numbers are in memory; planes are read with the pixels. */
static bool arrays_use_origins(struct dataset *dataset, struct error *error)
{
    const struct arrays *self = dataset->self;
    bool is_wide = false;
    for (int v = 0; v < self->y_count; v++)
        is_wide = is_wide || self->y[v].is_wide;
    return self->target == NULL || !is_wide || targets_read(dataset, error);
}

static bool arrays_label(struct dataset *dataset, int64_t record, int32_t *label,
                         struct error *error)
{
    const struct arrays *self = dataset->self;
    (void)error;
    *label = self->label != NULL ? self->label[record] : 0;
    return true;
}

int64_t arrays_find(const struct dataset *dataset, int64_t record, int64_t *sample)
{
    const struct arrays *self = dataset->self;
    return file_series_find(&self->series, record, 0, sample);
}

static void arrays_name_record(const struct dataset *dataset, int64_t record, char *text,
                               size_t size)
{
    const struct arrays *self = dataset->self;
    int64_t sample;
    const int64_t file = arrays_find(dataset, record, &sample);
    snprintf(text, size, "%s: sample %lld", self->file[file].path, (long long)sample);
}

/* Samples without times have their number over all files. */
static void arrays_span(const struct dataset *dataset, int64_t record, double span[3])
{
    const struct arrays *self = dataset->self;
    const struct file_series *series = &self->series;
    const struct dimension *samples = grid_dimension(&self->grid, 0, 0);
    span[0] = span[1] = span[2] = (double)record;
    if (!dataset->has_offsets && (samples == NULL || samples->kind != DIMENSION_TIME))
        return;
    span[0] = span[1] = span[2] = file_series_instant(series, record, 0);
    for (int o = 0; o < series->offset_count; o++) {
        const double instant = file_series_instant(series, record, series->offset[o]);
        span[1] = fmin(span[1], instant);
        span[2] = fmax(span[2], instant);
    }
}

bool arrays_view(const struct dataset *dataset, struct arrays_view *view)
{
    const struct arrays *self = dataset->self;
    if (dataset->format != &dataset_arrays)
        return false;
    *view = (struct arrays_view){.x = self->x,
                                 .y = self->y,
                                 .x_count = self->x_count,
                                 .y_count = self->y_count,
                                 .has_targets = !dataset->unlabelled,
                                 .series = &self->series,
                                 .grid = &self->grid};
    return true;
}

bool arrays_check_grid(struct dataset *dataset, const char *text, const char *path,
                       struct error *error)
{
    struct arrays *self = dataset->self;
    struct grid trained;
    if (text == NULL || dataset->grid == NULL)
        return true;
    grid_parse(text, path, &trained);
    bool good = grid_compare(&trained, dataset->grid, error);
    if (good && trained.step.ruler != RULER_NONE && samples_at_ends(&self->series) == 0) {
        self->series.step = trained.step;
        good = file_series_pair(&self->series, false, error) &&
               (self->target == NULL || targets_read(dataset, error));
    }
    grid_close(&trained);
    return good;
}

static void arrays_close(struct dataset *dataset)
{
    struct arrays *self = dataset->self;
    if (self == NULL)
        return;
    for (int64_t i = 0; i < self->file_count; i++)
        file_close(&self->file[i]);
    array_cache_free(dataset->chunks);
    split_files_free(&self->files);
    free(self->file);
    file_series_close(&self->series);
    grid_close(&self->grid);
    free(self->x);
    free(self->y);
    free(self->target);
    free(self->label);
    free(self);
}

const struct dataset_format dataset_arrays = {
    .name = "arrays",
    .open = arrays_open,
    .read_window = arrays_read,
    .label = arrays_label,
    .chunk = arrays_chunk,
    .span = arrays_span,
    .name_record = arrays_name_record,
    .use_origins = arrays_use_origins,
    .close = arrays_close,
    .splits = true,
};
