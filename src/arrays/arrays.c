// SPDX-License-Identifier: BSD-3-Clause
/* Arrays of numbers in HDF5, NetCDF-4, Zarr and .npy files, read in place. data.x names the images,
 * data.y their classes, or targets: numbers or planes. Only labels and numbers are kept in memory.
 * The HDF5 library is not called after the data set is opened, so several threads can read. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/arrays.h"
#include "arrays/decode.h"
#include "base/allocate.h"
#include "base/base.h"
#include "base/log.h"
#include "data/listing.h"
#include "data/sampler.h"
#include "options/options.h"

/* ---- targets in memory ---- */

/* Read the targets of records [begin, end) of a variable, `outputs` numbers apart. */
static bool targets_of(const struct arrays *self, int number, int64_t begin, int64_t end,
                       const double *origin, int64_t outputs, float *to, struct error *error)
{
    const struct variable *variable = &self->y[number];
    const int64_t channels = variable->channels;
    OWNED float *values = NULL;
    int64_t file, sample, last = -1;
    bool good = true;
    for (int64_t r = begin; good && r < end; r++, to += outputs) {
        file = file_series_find(&self->series, r, variable->offset, &sample);
        if (file >= 0 && file != last) {
            struct array *array = &self->file[file].array[self->x_count + number];
            const struct array_box box = variable_box(variable, 0, array->extent[0]);
            values = allocate_resized(values, (size_t)array_elements(array) * sizeof *values);
            good = variable_read(variable, array, &box, 1, origin, values, error);
            last = file;
        }
        for (int64_t c = 0; good && c < channels; c++)
            to[c] = file < 0 ? NAN : values[sample * channels + c];
        if (good)
            value_transform_apply(variable->transform, to, channels);
    }
    return good;
}

/* Read targets that are not planes into self->target. While the data set is opened each rank reads
 * a part of the records; on failure all ranks return false. */
static bool targets_read(struct dataset *dataset, struct error *error)
{
    struct arrays *self = dataset->self;
    const int64_t outputs = dataset->target.count;
    const double *origin = dataset->target_origin;
    int64_t first, count;
    cut_evenly(self->series.records, dataset->ranks, dataset->rank, &first, &count);
    const size_t bytes = (size_t)(count * outputs) * sizeof *self->target;
    float *part = allocate(bytes, 1), *to = part;
    for (int v = 0; v < self->y_count && error->kind == ERROR_NONE; v++) {
        error_defer(targets_of(self, v, first, first + count, origin, outputs, to, error));
        to += self->y[v].channels;
        origin += self->y[v].channels;
    }
    if (!dataset_agree(dataset, error)) {
        free(part);
        return false;
    }
    struct joined_bytes all;
    comm_join(dataset->comm, part, (int64_t)bytes, &all);
    free(self->target);
    self->target = allocate((size_t)all.bytes, 1);
    memcpy(self->target, all.data, (size_t)all.bytes);
    comm_joined_free(&all);
    return true;
}

/* ---- chunks ---- */

/* Return the bytes of the decoded chunks that a sample shares with other samples, or, if tiled, its
 * tiles share; 0 for numbers, which are read when the file is opened. */
static int64_t shared_bytes(const struct array *array, bool tiled)
{
    int64_t bytes = array->chunk_bytes;
    for (int d = 1; d < array->dimensions; d++)
        bytes *= array->grid[d];
    const bool is_shared = array->filter_count > 0 && (tiled || array->chunk[0] > 1);
    return array->dimensions > 2 && is_shared ? bytes : 0;
}

/* Let all files share one cache of decoded chunks. It keeps those of the last sample of each
 * thread. With data.shuffle=chunks it keeps one and a half windows, since ranks share a window, and
 * the next one begins before it ends. */
static void chunks_share(struct dataset *dataset, const struct options *options, bool by_chunks,
                         bool tiled)
{
    enum { CHUNKS = SHUFFLE_WINDOW + SHUFFLE_WINDOW / 2 };
    const int64_t most = (int64_t)1 << 28, threads = options->data.workers + 1;
    struct arrays *self = dataset->self;
    int64_t total = 0, chunks = 0, largest = 1;
    dataset->chunks = array_cache_new();
    for (int64_t i = 0; i < self->file_count; i++) {
        struct arrays_file *file = &self->file[i];
        int64_t kept = 0;
        file->first_chunk = chunks;
        file->chunk = 1;
        for (int v = 0; v < file->opened; v++) {
            struct array *array = &file->array[v];
            array_use_cache(array, dataset->chunks, &file->array[arrays_first_of(file, v)]);
            if (shared_bytes(array, tiled) > 0)
                file->chunk = larger(file->chunk, smaller(array->chunk[0], array->extent[0]));
        }
        for (int v = 0; v < file->opened; v++) {
            const struct array *array = &file->array[v];
            const int64_t shared = shared_bytes(array, tiled);
            total += shared * array->grid[0];
            if (by_chunks)
                kept += CHUNKS * round_up_division(file->chunk, array->chunk[0]) * shared;
            else if (shared > 0)
                kept += threads * larger(smaller(shared, most), array->chunk_bytes);
        }
        chunks += round_up_division(file->array[0].extent[0], file->chunk);
        largest = larger(largest, file->chunk);
        dataset->kept_bytes = larger(dataset->kept_bytes, kept);
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
    if (!variables_parse(self, options, error) ||
        !array_path_find(options->data.root, &self->files, dataset->comm, error) ||
        !arrays_open_files(dataset, options, split, error) ||
        (!self->has_planes && !dataset->unlabelled && !targets_read(dataset, error)))
        return false;
    const int64_t compared = listing_compared(self->file_count, dataset->ranks);
    for (int64_t i = 0; i < compared; i++)
        dataset->seen =
            listing_sum_size(dataset->seen, self->file[i * self->file_count / compared].path);
    variables_list_wide(self, 0, self->x_count, dataset->channel_is_wide);
    variables_list_wide(self, self->x_count, self->array_count, dataset->target_is_wide);
    const bool training = split == SPLIT_TRAIN && !dataset->held_out;
    if (!arrays_targets_use(dataset, options, training, error))
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
    for (int v = 0; training && v < self->x_count + self->y_count; v++)
        variable_log(&self->variable[v]);
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

/* Read the window at (top, left) of the variables [first, end) of a record into `to`. Values after
 * the end of the series are NaN. */
static bool planes_read(const struct dataset *dataset, int first, int end, int64_t record,
                        int64_t top, int64_t left, float *to, struct error *error)
{
    const struct arrays *self = dataset->self;
    const double *origin = first == 0 ? dataset->channel_origin : dataset->target_origin;
    const int64_t height = dataset->height, width = dataset->width;
    for (int v = first; v < end; v++) {
        const struct variable *variable = &self->variable[v];
        const int64_t values = variable->channels * height * width;
        int64_t sample;
        const int64_t file = file_series_find(&self->series, record, variable->offset, &sample);
        const struct array_box box = variable_window(variable, sample, top, left, height, width);
        for (int64_t i = 0; file < 0 && i < values; i++)
            to[i] = NAN;
        if (file >= 0 && !variable_read(variable, &self->file[file].array[v], &box, height * width,
                                        origin, to, error))
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

static bool arrays_read(const struct dataset *dataset, int64_t record, int64_t top, int64_t left,
                        void *values, struct error *error)
{
    const struct arrays *self = dataset->self;
    float *target = dataset_targets(dataset, values);
    if (!planes_read(dataset, 0, self->x_count, record, top, left, values, error))
        return false;
    for (int64_t i = 0;
         dataset->unlabelled && i < (int64_t)(target_bytes(&dataset->target) / sizeof *target); i++)
        target[i] = NAN;
    if (self->target != NULL)
        memcpy(target, self->target + record * dataset->target.count,
               (size_t)dataset->target.count * sizeof *target);
    return !self->has_planes ||
           (planes_read(dataset, self->x_count, self->x_count + self->y_count, record, top, left,
                        target, error) &&
            (!dataset->target_is_class || pixel_classes_check(dataset, record, target, error)));
}

/* Numbers are in memory; planes are read with the pixels. */
static bool arrays_use_origins(struct dataset *dataset, struct error *error)
{
    const struct arrays *self = dataset->self;
    bool is_wide = false;
    for (int64_t t = 0; t < dataset->target.count && t < IMAGE_CHANNELS; t++)
        is_wide |= dataset->target_is_wide[t];
    return self->target == NULL || !is_wide || targets_read(dataset, error);
}

static int32_t arrays_label(const struct dataset *dataset, int64_t record)
{
    const struct arrays *self = dataset->self;
    return self->label != NULL ? self->label[record] : 0;
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

const struct arrays *arrays_of(const struct dataset *dataset)
{
    return dataset->format == &dataset_arrays ? dataset->self : NULL;
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
    if (good && trained.step.ruler != RULER_NONE && file_series_ends(&self->series) == 0) {
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
        arrays_file_close(&self->file[i]);
    for (int n = 0; n < self->joined_count; n++)
        comm_joined_free(&self->joined[n]);
    array_cache_free(dataset->chunks);
    split_files_free(&self->files);
    free(self->file);
    file_series_close(&self->series);
    grid_close(&self->grid);
    free(self->variable);
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
