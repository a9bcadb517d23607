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
#include "base/text.h"
#include "data/listing.h"
#include "data/sampler.h"
#include "options/options.h"

/* ---- variables ---- */

const char *variable_name_begin(const char *text)
{
    const char *name = text + strspn(text, "/");
    return *name != '\0' ? name : text;
}

const char *variable_option(const struct variable *variable)
{
    return variable->is_target ? "data.y" : "data.x";
}

/* Parse "u", "u@+6", "u@-1" or "u@+12h". */
static bool variable_parse(struct variable *variable, const char *item, size_t length,
                           struct error *error)
{
    char text[OPTION_TEXT];
    snprintf(text, sizeof text, "%.*s", (int)length, item);
    snprintf(variable->name, sizeof variable->name, "%s", variable_name_begin(text));
    char *at = strrchr(variable->name, '@');
    if (at == NULL)
        return true;
    if (at == variable->name || strlen(at) >= sizeof variable->at ||
        !series_offset_parse(at + 1, &variable->shift))
        return error_set(error, ERROR_USAGE,
                         "%s=%s: the offset after @ is invalid; write a number of steps with its "
                         "sign, as in u@+6 or u@-1, or a time in d, h, min or s, as in u@+12h",
                         variable_option(variable), variable->name);
    if (variable->shift.steps != 0)
        snprintf(variable->at, sizeof variable->at, "%s", at);
    *at = '\0';
    return true;
}

/* Parse data.x and data.y. */
static bool variables_parse(struct arrays *self, const struct options *options, struct error *error)
{
    const char *const lists[] = {options->data.x, options->data.y};
    size_t length;
    if (options->data.root[0] == '\0')
        return error_set(error, ERROR_USAGE, "data.format=arrays needs data.root");
    self->variable = allocate(strlen(lists[0]) + strlen(lists[1]) + 2, sizeof *self->variable);
    self->y = self->variable;
    for (int n = 0; n < 2; n++) {
        int *count = n == 0 ? &self->x_count : &self->y_count;
        for (const char *item = text_next_item(lists[n], &length); item != NULL;
             item = text_next_item(item + length, &length)) {
            struct variable *variable = &self->y[(*count)++];
            variable->is_target = n == 1;
            if (!variable_parse(variable, item, length, error))
                return false;
        }
        if (*count == 0)
            return error_set(error, ERROR_USAGE,
                             "data.format=arrays needs data.x and data.y: %s=%s names no data set; "
                             "`vittrain data describe FILE` lists those of a file",
                             variable_option(&(struct variable){.is_target = n == 1}), lists[n]);
        self->y = self->variable + self->x_count;
    }
    return true;
}

void variables_list_transforms(const struct variable *variables, int count, int64_t total,
                               uint8_t transforms[IMAGE_CHANNELS])
{
    int64_t channel = 0;
    for (int v = 0; v < count; v++) {
        const int64_t known = variables[v].channels;
        const int64_t end = channel + (known > 0 ? known : count == 1 ? total : 1);
        for (; channel < end && channel < IMAGE_CHANNELS; channel++)
            transforms[channel] = (uint8_t)variables[v].transform;
    }
}

int variable_find_role(const struct variable *variable, enum dimension_role role)
{
    for (int d = 0; d < variable->dimensions; d++)
        if (variable->dimension[d].role == role)
            return d;
    return GRID_NONE;
}

int64_t variable_samples(const struct variable *variable, const struct array *array)
{
    int64_t samples = 1;
    for (int d = 0; d < variable->dimensions; d++)
        if (role_is_sample(variable->dimension[d].role))
            samples *= array->extent[d];
    return samples;
}

/* A part of the values of a variable: the pixels of a sample of a file, or of all samples. */
struct variable_part {
    int64_t sample; /* or ALL_SAMPLES */
    int64_t top, left, height, width;
};

enum { ALL_SAMPLES = -1 };

/* Return the box of a part in the array of a file, of selected indices. In memory it is [samples,
 * channels, height, width]. */
static struct array_box variable_box(const struct variable *variable, const struct array *array,
                                     const struct variable_part *part)
{
    const int64_t begins[ROLES] = {[ROLE_ROW] = part->top, [ROLE_COLUMN] = part->left};
    const int64_t counts[ROLES] = {[ROLE_ROW] = part->height, [ROLE_COLUMN] = part->width};
    const int64_t strides[ROLES] = {[ROLE_ROW] = part->width, [ROLE_COLUMN] = 1};
    const bool all = part->sample == ALL_SAMPLES;
    int64_t sample = part->sample, plane = part->height * part->width;
    int64_t values = variable->channels * plane;
    struct array_box box = {.begin = {0}};
    for (int d = variable->dimensions; d-- > 0;) {
        const enum dimension_role role = variable->dimension[d].role;
        int64_t *stride = role == ROLE_CHANNEL ? &plane : &values;
        if (role == ROLE_ROW || role == ROLE_COLUMN) {
            box.begin[d] = begins[role];
            box.count[d] = counts[role];
            box.stride[d] = strides[role];
            continue;
        }
        if (role_is_sample(role) && !all) {
            box.begin[d] = sample % array->extent[d];
            sample /= array->extent[d];
        }
        box.count[d] = role == ROLE_CHANNEL ? variable->dimension[d].count
                       : all                ? array->extent[d]
                                            : 1;
        box.stride[d] = box.count[d] > 1 ? *stride : 1;
        *stride *= box.count[d];
    }
    return box;
}

/* Read a box of selected indices: the parts of each dimension from `d` on, as double if `doubles`
 * is not NULL. */
static bool box_read(const struct variable *variable, struct array *array,
                     const struct array_box *box, int d, float *to, double *doubles,
                     struct error *error)
{
    while (d < variable->dimensions && variable->dimension[d].part_count == 0)
        d++;
    if (d == variable->dimensions)
        return doubles != NULL ? array_read_doubles(array, box, doubles, error)
                               : array_read(array, box, to, error);
    const struct variable_dimension *dimension = &variable->dimension[d];
    int64_t first = 0; /* the first selected index of the part */
    for (int p = 0; p < dimension->part_count; first += dimension->part[p++].count) {
        const struct index_part *part = &dimension->part[p];
        const int64_t begin = larger(box->begin[d], first);
        const int64_t end = smaller(box->begin[d] + box->count[d], first + part->count);
        const int64_t at = (begin - box->begin[d]) * box->stride[d];
        struct array_box inner = *box;
        inner.begin[d] = part->begin + begin - first;
        inner.count[d] = end - begin;
        if (begin < end && !box_read(variable, array, &inner, d + 1, to + at,
                                     doubles != NULL ? doubles + at : NULL, error))
            return false;
    }
    return true;
}

/* Read a part. origin: NULL, or [channels] numbers that are subtracted from the values. */
static bool variable_read(const struct variable *variable, struct array *array,
                          const struct variable_part *part, const double *origin, float *to,
                          struct error *error)
{
    const struct array_box box = variable_box(variable, array, part);
    const int64_t plane = part->height * part->width;
    int64_t count = variable->channels * plane;
    bool shifts = false;
    for (int64_t c = 0; origin != NULL && c < variable->channels; c++)
        shifts = shifts || origin[c] != 0;
    if (!shifts)
        return box_read(variable, array, &box, 0, to, NULL, error);
    if (part->sample == ALL_SAMPLES)
        count *= variable_samples(variable, array);
    OWNED double *values = allocate((size_t)count, sizeof *values);
    if (!box_read(variable, array, &box, 0, to, values, error))
        return false;
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)(values[i] - origin[i / plane % variable->channels]);
    return true;
}

int64_t variable_steps(const struct arrays *self, const struct variable *variable)
{
    return self->series.offset[variable->offset].steps;
}

bool variable_read_static(const struct variable *variable, struct array *array, float *to,
                          struct error *error)
{
    const struct variable_part all = {
        .sample = ALL_SAMPLES, .height = variable->height, .width = variable->width};
    return variable_read(variable, array, &all, NULL, to, error);
}

/* Copy the window of a variable without samples. */
static void static_copy(const struct variable *variable, const struct variable_part *part,
                        float *to)
{
    for (int64_t row = 0; row < variable->channels * part->height; row++) {
        const int64_t y = row / part->height * variable->height + part->top + row % part->height;
        memcpy(to + row * part->width, variable->static_values + y * variable->width + part->left,
               (size_t)part->width * sizeof *to);
    }
}

void variable_write(const struct variable *variable, char text[VARIABLE_TEXT])
{
    snprintf(text, VARIABLE_TEXT, "%s%s", variable->name, variable->at);
}

void variable_write_channel(const struct arrays *self, int number, int64_t channel,
                            char text[ARRAY_NAME])
{
    const struct variable *variable = &self->variable[number];
    char name[VARIABLE_TEXT], suffix[2 * GRID_UNITS] = "";
    int64_t outer = variable->channels;
    size_t used = 0;
    variable_write(variable, name);
    for (int d = 0; d < variable->dimensions; d++) {
        const struct dimension *known = grid_dimension(&self->grid, number, d);
        const bool has_values = known != NULL && known->values != NULL;
        if (variable->dimension[d].role != ROLE_CHANNEL)
            continue;
        outer /= variable->dimension[d].count;
        const int64_t index = channel / outer % variable->dimension[d].count;
        const bool is_level = has_values && known->kind == DIMENSION_CHANNEL;
        const bool has_units = is_level && known->units[0] != '\0' && known->units[0] != '1';
        if (has_values)
            used += (size_t)snprintf(suffix + used, sizeof suffix - used, " %.20s%s%.9g%s%.20s",
                                     is_level ? "" : known->name, is_level ? "" : " ",
                                     known->values[index], has_units ? " " : "",
                                     has_units ? known->units : "");
        else if (variable->channels > 1)
            used +=
                (size_t)snprintf(suffix + used, sizeof suffix - used, " %lld", (long long)index);
    }
    text_shorten(name, text, ARRAY_NAME - sizeof suffix);
    strcat(text, suffix);
}

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
            const struct variable_part all = {.sample = ALL_SAMPLES, .height = 1, .width = 1};
            values = allocate_resized(values, (size_t)array_elements(array) * sizeof *values);
            good = variable_read(variable, array, &all, origin, values, error);
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

/* Return the number of samples that are neighbours in a chunk of a variable; 1 if it has the same
 * values in all samples. */
static int64_t chunk_samples(const struct variable *variable, const struct array *array)
{
    const int d = variable_find_role(variable, ROLE_SAMPLE);
    return d == GRID_NONE ? 1 : smaller(array->chunk[d], array->extent[d]);
}

/* Return the bytes of the decoded chunks that a sample shares with other samples, or, if tiled, its
 * tiles share; 0 for numbers, which are read when the file is opened. Set the number of chunks
 * along the dimensions of samples. */
static int64_t shared_bytes(const struct variable *variable, const struct array *array, bool tiled,
                            int64_t *samples)
{
    int64_t bytes = array->chunk_bytes;
    bool is_shared = tiled;
    *samples = 1;
    for (int d = 0; d < array->dimensions; d++) {
        const struct variable_dimension *dimension = &variable->dimension[d];
        const int64_t parts = dimension->part_count;
        const int64_t most = dimension->count / array->chunk[d] + 2 * parts;
        const int64_t chunks = parts > 0 ? smaller(array->grid[d], most) : array->grid[d];
        is_shared |= array->chunk[d] > 1 && (role_is_sample(dimension->role) || parts > 1);
        *(role_is_sample(dimension->role) ? samples : &bytes) *= chunks;
    }
    is_shared &= array->filter_count > 0 && variable_find_role(variable, ROLE_ROW) != GRID_NONE &&
                 variable->static_values == NULL;
    return is_shared ? bytes : 0;
}

/* Return the first array of the same data set, which may be named twice: u@-1,u. */
static const struct array *original_of(const struct arrays_file *file, int number)
{
    const struct array *first = file->array;
    while (strcmp(first->name, file->array[number].name) != 0)
        first++;
    return first;
}

/* Return the number of the chunk of a sample in its file. A run begins with a new chunk. */
static int64_t chunk_of(const struct arrays_file *file, int64_t sample)
{
    const int64_t length = series_file_length(&file->times);
    return sample / length * round_up_division(length, file->chunk) + sample % length / file->chunk;
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
    int64_t total = 0, chunks = 0, largest = 1, samples;
    for (int64_t i = 0; i < self->file_count; i++) {
        struct arrays_file *file = &self->file[i];
        int64_t kept = 0;
        file->first_chunk = chunks;
        file->chunk = 1;
        for (int v = 0; v < file->opened; v++) {
            const struct array *array = &file->array[v];
            if (shared_bytes(&self->variable[v], array, tiled, &samples) > 0)
                file->chunk = larger(file->chunk, chunk_samples(&self->variable[v], array));
        }
        for (int v = 0; v < file->opened; v++) {
            const struct array *array = &file->array[v];
            const struct variable *variable = &self->variable[v];
            const int64_t shared = shared_bytes(variable, array, tiled, &samples);
            const int64_t each = chunk_samples(variable, array);
            total += shared * samples;
            if (by_chunks && each > 1)
                kept += CHUNKS * round_up_division(file->chunk, each) * shared;
            else if (shared > 0)
                kept += threads * larger(smaller(shared, most), array->chunk_bytes);
        }
        chunks += chunk_of(file, file->times.samples);
        largest = larger(largest, file->chunk);
        dataset->kept_bytes = larger(dataset->kept_bytes, kept);
    }
    dataset->kept_bytes = smaller(dataset->kept_bytes, total);
    dataset->chunks = array_cache_new(dataset->kept_bytes);
    for (int64_t i = 0; i < self->file_count; i++)
        for (int v = 0; v < self->file[i].opened; v++)
            array_use_cache(&self->file[i].array[v], dataset->chunks,
                            original_of(&self->file[i], v));
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
    return file->first_chunk + chunk_of(file, sample);
}

/* Mark the channels of the variables [first, end) that have no transform, and whose array may have
 * more digits than float32 in a file. */
static void variables_list_wide(const struct arrays *self, int first, int end,
                                bool is_wide[IMAGE_CHANNELS])
{
    int64_t channel = 0;
    for (int v = first; v < end; v++) {
        const struct variable *variable = &self->variable[v];
        bool wide = false;
        const bool can_be =
            variable->transform == TRANSFORM_NONE && variable->static_values == NULL;
        for (int64_t f = 0; can_be && f < self->file_count; f++) {
            const struct array *array = &self->file[f].array[v];
            wide |= array->element_bytes == 8 ||
                    (array->kind != 'f' && array->element_bytes == 4) ||
                    (array->rule.active && (array->rule.scale != 1 || array->rule.offset != 0));
        }
        for (int64_t c = 0; c < variable->channels && channel < IMAGE_CHANNELS; c++)
            is_wide[channel++] = wide;
    }
}

/* ---- coordinates ---- */

void arrays_coordinate(const struct dataset *dataset, int y, enum coordinate_axis axis,
                       struct coordinate *to)
{
    const struct arrays *self = arrays_of(dataset);
    *to = (struct coordinate){.values = NULL};
    if (self == NULL)
        return;
    for (int64_t f = 0; axis == AXIS_SAMPLES && f < self->series.count; f++)
        if (self->series.file[f].time == NULL || self->series.is_mixed)
            return;
    const int number = axis >= AXIS_OUTPUTS ? self->x_count + y : self->sampled;
    if (number >= self->grid.array_count)
        return;
    static const enum dimension_role roles[AXES] = {ROLE_SAMPLE, ROLE_ROW, ROLE_COLUMN,
                                                    ROLE_CHANNEL, ROLE_CHANNEL};
    const struct variable *variable = &self->variable[number];
    int skipped = axis == AXIS_INNER;
    for (int d = 0; d < variable->dimensions; d++)
        if (variable->dimension[d].role == roles[axis] && skipped-- == 0)
            to->dimension = grid_dimension(&self->grid, number, d);
    if (to->dimension == NULL || axis != AXIS_SAMPLES)
        return;
    const int64_t records = window_records(dataset), tiles = dataset->count / records;
    to->values = allocate((size_t)records, sizeof *to->values);
    for (int64_t n = 0; n < records; n++)
        to->values[n] =
            file_series_time(&self->series, dataset_record(dataset, tiles * n), self->y[y].offset);
}

/* Set the weights of the rows of the images, with a mean of 1: the cosine of the latitude
 * (WeatherBench, Rasp et al. 2020), which is the same in all files. Rows without a name are assumed
 * to be equally spaced from pole to pole. Log which of these is used. */
static bool row_weights_set(struct dataset *dataset, struct error *error)
{
    const struct arrays *self = dataset->self;
    const struct dimension *rows = grid_role_dimension(&self->grid, 0, ROLE_ROW);
    const struct variable_dimension *known =
        &self->variable->dimension[variable_find_role(self->variable, ROLE_ROW)];
    const double degree = 3.14159265358979323846 / 180;
    const int64_t count = dataset->height;
    char reason[ARRAY_NAME] = "";
    if (rows != NULL && !dimension_in_degrees(rows, DIMENSION_ROW))
        snprintf(reason, sizeof reason, "it is not a latitude in degrees");
    else if (rows != NULL && rows->values == NULL)
        snprintf(reason, sizeof reason, "it does not have one number for each of the %lld rows",
                 (long long)count);
    for (int64_t y = 0; rows != NULL && reason[0] == '\0' && y < count; y++)
        if (!(fabs(rows->values[y]) <= 90.001))
            snprintf(reason, sizeof reason, "its value %g of row %lld is not in [-90, 90]",
                     rows->values[y], (long long)y);
    if (reason[0] != '\0')
        return error_set(error, ERROR_DATA,
                         "%s: train.row_weight=latitude cannot use the rows '%s' of data.x: %s; "
                         "make it a coordinate in degrees, or set train.row_weight=none",
                         self->grid.path, rows->name, reason);
    OWNED double *cosines = allocate((size_t)count, sizeof *cosines);
    double sum = 0;
    dataset->row_weights = allocate((size_t)count, sizeof *dataset->row_weights);
    for (int64_t y = 0; y < count; y++) {
        cosines[y] = rows != NULL ? fmax(0, cos(rows->values[y] * degree))
                                  : sin(180 * degree * ((double)variable_index(known, y) + 0.5) /
                                        (double)known->extent);
        sum += cosines[y];
    }
    for (int64_t y = 0; y < count; y++)
        dataset->row_weights[y] = (float)(cosines[y] * (double)count / sum);
    if (rows != NULL)
        log_info("train.row_weight: %lld rows with the latitudes '%s' from %g to %g",
                 (long long)count, rows->name, rows->values[0], rows->values[count - 1]);
    else
        log_info("train.row_weight: the rows have no name: %lld equally spaced rows from pole to "
                 "pole are assumed",
                 (long long)count);
    return true;
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
    ENSURE(file_series_use(&self->series, &(struct series_offset){.steps = 0}) == 0, "not first");
    self->ignored =
        options->train.ignore_label == IGNORE_NONE ? NAN : (double)options->train.ignore_label;
    if (!variables_parse(self, options, error) ||
        !forcings_parse(&self->forcings, options->data.forcings, &self->series, error) ||
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
    if (self->forcings.count > 0) {
        if (!forcings_open(&self->forcings, &self->grid, &self->series, dataset->height,
                           dataset->width, error))
            return false;
        if (training)
            log_info("data.forcings=%s: the last %lld of %lld channels%s", options->data.forcings,
                     (long long)self->forcings.channels,
                     (long long)(dataset->channels + self->forcings.channels),
                     self->forcings.is_utc ? "; without longitudes, time_of_day is UTC" : "");
        dataset->channels += self->forcings.channels;
    }
    if (!arrays_targets_use(dataset, options, training, error))
        return false;
    if (dataset->has_offsets || self->forcings.counts_steps)
        self->grid.step = self->series.step;
    if (!self->series.counts)
        dataset->grid = &self->grid;
    else if (training)
        log_info("data.coordinates=ignore: names, coordinates, units and times are not checked");
    chunks_share(dataset, options, training && options->data.shuffle == SHUFFLE_CHUNKS,
                 !training && window_is_tiled(options, SPLIT_ALL));
    if (training && options->train.row_weight == ROW_WEIGHT_LATITUDE &&
        !row_weights_set(dataset, error))
        return false;
    if (training)
        arrays_log_parts(self);
    for (int v = 0; training && v < self->x_count + self->y_count; v++) {
        const struct variable *variable = &self->variable[v];
        const int channels = variable_find_role(variable, ROLE_CHANNEL);
        if (channels > 0 && variable_find_role(variable, ROLE_ROW) != GRID_NONE)
            log_info("%s=%s: %lld channels of %lldx%lld, order %s", variable_option(variable),
                     variable->name, (long long)variable->channels, (long long)variable->height,
                     (long long)variable->width,
                     channels == variable->dimensions - 1
                         ? "hwc; if channels are first, set data.order=chw"
                         : "chw; if channels are last, set data.order=hwc");
    }
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
        int64_t sample = 0;
        const int64_t file = file_series_find(&self->series, record, variable->offset, &sample);
        const struct variable_part part = {sample, top, left, height, width};
        for (int64_t i = 0; file < 0 && i < values; i++)
            to[i] = NAN;
        if (variable->static_values != NULL)
            static_copy(variable, &part, to);
        else if (file >= 0 &&
                 !variable_read(variable, &self->file[file].array[v], &part, origin, to, error))
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
    const int64_t pixels = dataset->height * dataset->width;
    float *target = dataset_targets(dataset, values);
    float *forced = (float *)values + (dataset->channels - self->forcings.channels) * pixels;
    if (!planes_read(dataset, 0, self->x_count, record, top, left, values, error) ||
        !forcings_read(&self->forcings, &self->series, record, top, left, dataset->height,
                       dataset->width, forced, error))
        return false;
    for (int64_t i = 0;
         dataset->unlabelled && i < (int64_t)(target_bytes(&dataset->target) / sizeof *target); i++)
        target[i] = NAN;
    if (self->target != NULL)
        memcpy(target, self->target + record * dataset->target.count,
               (size_t)dataset->target.count * sizeof *target);
    if (self->has_planes && !planes_read(dataset, self->x_count, self->x_count + self->y_count,
                                         record, top, left, target, error))
        return false;
    for (int64_t t = 0; dataset->residual && t < dataset->target.count; t++)
        for (int64_t p = 0; p < pixels; p++)
            target[t * pixels + p] -= ((float *)values)[dataset->persistence[t] * pixels + p];
    return !dataset->target_is_class || pixel_classes_check(dataset, record, target, error);
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

static void arrays_name_record(const struct dataset *dataset, int64_t record, char *text,
                               size_t size)
{
    const struct arrays *self = dataset->self;
    int64_t sample;
    const int64_t file = file_series_find(&self->series, record, 0, &sample);
    snprintf(text, size, "%s: sample %lld", self->file[file].path, (long long)sample);
}

/* Samples without times are numbered over all files, or in their run. */
static void arrays_span(const struct dataset *dataset, int64_t record, double span[3])
{
    const struct arrays *self = dataset->self;
    const struct file_series *series = &self->series;
    const struct dimension *samples = grid_role_dimension(&self->grid, self->sampled, ROLE_SAMPLE);
    span[0] = span[1] = span[2] = (double)record;
    if (!dataset->has_offsets && series->file[0].run == 0 &&
        (samples == NULL || samples->kind != DIMENSION_TIME))
        return;
    span[0] = span[1] = span[2] = file_series_instant(series, record, 0);
    for (int o = 0; o < series->offset_count; o++) {
        if (!series->offset[o].required)
            continue;
        const double instant = file_series_instant(series, record, o);
        span[1] = fmin(span[1], instant);
        span[2] = fmax(span[2], instant);
    }
}

static bool arrays_find_periods(const struct dataset *dataset, const char *periods, bool *held,
                                struct error *error)
{
    const struct arrays *self = dataset->self;
    return file_series_find_periods(&self->series, periods, held, error);
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
    if (good && trained.step.size > 0 && file_series_ends(&self->series) == 0) {
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
    forcings_close(&self->forcings);
    array_path_close(&self->static_file);
    for (int v = 0; v < self->array_count; v++) {
        for (int d = 0; d < self->variable[v].dimensions; d++)
            free(self->variable[v].dimension[d].part);
        free(self->variable[v].static_values);
    }
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
    .find_periods = arrays_find_periods,
    .name_record = arrays_name_record,
    .use_origins = arrays_use_origins,
    .close = arrays_close,
    .splits = true,
};
