// SPDX-License-Identifier: BSD-3-Clause
/* Opening of data.format=arrays: the files and their descriptions, which the ranks share. */
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
#include "comm/comm.h"
#include "options/options.h"

enum { FILES_EACH = 64 }; /* one rank describes files for each 64 of them, at most all ranks */

/* Set offsets, and decide if the files have data.y, which they need not have with allows_none. A
 * data set of the first file whose name is "u@+6" has priority over an offset. Samples of planes or
 * numbers are predicted (allows_none) even if their targets are after the end of the series. */
static bool variables_resolve(struct dataset *dataset, const struct options *options,
                              const struct array_path *place, bool allows_none, struct error *error)
{
    struct arrays *self = dataset->self;
    const bool predicts_beyond =
        allows_none && (options->data.task == TASK_REGRESSION || options->model.head == HEAD_DENSE);
    for (int v = 0; v < self->x_count + self->y_count; v++) {
        struct variable *variable = &self->variable[v];
        char name[VARIABLE_TEXT];
        variable_write(variable, name);
        if (variable->at[0] != '\0' && array_path_has(place, name)) {
            variable->at[0] = '\0';
            variable->shift = (struct series_offset){.steps = 0};
            snprintf(variable->name, sizeof variable->name, "%.*s", (int)sizeof variable->name - 1,
                     name);
        }
        variable->shift.required =
            !variable->is_target || !predicts_beyond || variable->shift.steps < 0;
        variable->offset = file_series_use(&self->series, &variable->shift);
        if (variable->offset < 0)
            return error_set(
                error, ERROR_USAGE,
                "data.x, data.y and data.forcings: more than %d offsets (@); use fewer",
                SERIES_OFFSETS);
    }
    const bool by_time =
        !allows_none &&
        (options->data.val == VALIDATION_PERIODS ||
         (options->data.val == VALIDATION_FRACTION && options->data.val_from == VAL_FROM_END));
    self->series.is_ordered = !self->series.counts && (self->series.joined || by_time ||
                                                       file_series_ends(&self->series) > 0);
    for (int v = 0; allows_none && v < self->y_count; v++)
        dataset->unlabelled |= !array_path_has(place, self->y[v].name);
    self->array_count = self->x_count + (dataset->unlabelled ? 0 : self->y_count);
    return true;
}

/* Set the transforms of data.transform, a list such as "log1p:u,sqrt:v". Each name of the list must
 * be in data.x or data.y, once. Classes in data.y have no transform. */
static bool variables_transform(struct arrays *self, const struct options *options,
                                struct error *error)
{
    char text[OPTION_TEXT];
    size_t length;
    for (const char *item = text_next_item(options->data.transform, &length); item != NULL;
         item = text_next_item(item + length, &length)) {
        snprintf(text, sizeof text, "%.*s", (int)length, item);
        const char *colon = strchr(text, ':');
        const enum value_transform transform =
            value_transform_find(text, colon != NULL ? (size_t)(colon - text) : 0);
        const char *fault = transform == TRANSFORM_NONE
                                ? "it must be log1p:NAME, log10:NAME or sqrt:NAME"
                                : "the name is neither in data.x nor in data.y";
        for (int v = 0; transform != TRANSFORM_NONE && v < self->x_count + self->y_count; v++) {
            struct variable *variable = &self->variable[v];
            if (strcmp(variable->name, variable_name_begin(colon + 1)) != 0)
                continue;
            fault = variable->transform != TRANSFORM_NONE
                        ? "the name has another transform: name one"
                    : variable->is_target && options->data.task != TASK_REGRESSION
                        ? "data.y has classes: set data.task=regression"
                        : NULL;
            if (fault != NULL)
                break;
            variable->transform = transform;
        }
        if (fault != NULL)
            return error_set(error, ERROR_USAGE, "data.transform=%s: %s", text, fault);
    }
    return true;
}

/* Set the shape from the array of the first file and its roles. */
static bool variable_set_shape(struct variable *variable, const struct array *array,
                               const enum dimension_role *role, struct error *error)
{
    const int dimensions = array->dimensions;
    int64_t size[ROLES] = {1, 1, 1, 1, 1};
    variable->dimensions = dimensions;
    int count[ROLES] = {0};
    for (int d = 0; d < dimensions; d++) {
        count[role[d]]++;
        variable->dimension[d].role = role[d];
        variable->dimension[d].extent = role_is_sample(role[d]) ? 0 : array->extent[d];
        variable->dimension[d].count = variable->dimension[d].extent;
        size[role[d]] *= array->extent[d];
    }
    variable->height = size[ROLE_ROW];
    variable->width = size[ROLE_COLUMN];
    variable->channels = size[ROLE_CHANNEL];
    if (count[ROLE_CHANNEL] > CHANNEL_DIMENSIONS || (count[ROLE_ROW] == 0 && !variable->is_target))
        return error_set(error, ERROR_DATA,
                         "%s=%s has %d dimensions: it must be %s[samples, height, width], "
                         "[samples, channels, height, width] or [samples, height, width, "
                         "channels], with at most %d dimensions of channels",
                         variable_option(variable), variable->name, dimensions,
                         variable->is_target ? "[samples], [samples, outputs], " : "",
                         CHANNEL_DIMENSIONS);
    return true;
}

/* Set the shape of the records and the transforms from the first file. */
static bool shape_set(struct dataset *dataset, const struct options *options,
                      const struct arrays_file *file, struct error *error)
{
    struct arrays *self = dataset->self;
    struct target_shape *target = &dataset->target;
    if (!variables_transform(self, options, error))
        return false;
    for (int v = 0; v < self->array_count; v++)
        if (!variable_set_shape(&self->variable[v], &file->array[v], self->grid.array[v].role,
                                error))
            return false;
    while (self->sampled < self->x_count - 1 &&
           variable_find_role(&self->variable[self->sampled], ROLE_SAMPLE) == GRID_NONE)
        self->sampled++;
    if (variable_find_role(&self->variable[self->sampled], ROLE_SAMPLE) == GRID_NONE)
        return error_set(error, ERROR_DATA,
                         "data.x=%s: no data set has samples; add one with the shape [samples, "
                         "height, width]",
                         options->data.x);
    if (!self->series.counts && !grid_check(&self->grid, error))
        return false;
    self->has_planes = variable_find_role(self->y, ROLE_ROW) != GRID_NONE;
    for (int v = 0; v < self->array_count; v++) {
        const struct variable *variable = &self->variable[v];
        const bool is_number = variable->is_target && !self->has_planes;
        const struct variable *first = is_number ? self->y : self->variable;
        const int64_t height = is_number ? 1 : self->variable[0].height;
        const int64_t width = is_number ? 1 : self->variable[0].width;
        if (variable->height != height || variable->width != width)
            return error_set(error, ERROR_DATA,
                             "%s: %s has images of %lldx%lld, %s of %lldx%lld: name data sets with "
                             "images of the same size",
                             variable_option(variable), first->name, (long long)height,
                             (long long)width, variable->name, (long long)variable->height,
                             (long long)variable->width);
    }
    if (!arrays_select(self, options, error))
        return false;
    arrays_cut_grid(self, &self->grid);
    for (int v = 0; v < self->array_count; v++)
        *(v < self->x_count ? &dataset->channels : &target->count) += self->variable[v].channels;
    dataset->height = self->variable[0].height;
    dataset->width = self->variable[0].width;
    target->height = self->has_planes ? dataset->height : 1;
    target->width = self->has_planes ? dataset->width : 1;
    variables_list_transforms(self->variable, self->x_count, dataset->channels,
                              dataset->channel_transform);
    variables_list_transforms(self->y, self->y_count, target->count, dataset->target_transform);
    return true;
}

/* ---- files ---- */

/* Move the times of the samples from the grid of a file, where they are a coordinate. */
static bool times_take(struct arrays *self, struct arrays_file *file, const struct grid *grid,
                       struct error *error)
{
    struct file_series *series = &self->series;
    struct series_file *times = &file->times;
    struct dimension *samples = grid_role_dimension(grid, self->sampled, ROLE_SAMPLE);
    *times = (struct series_file){
        .path = file->path,
        .samples = variable_samples(&self->variable[self->sampled], &file->array[self->sampled])};
    if (self->variable[self->sampled].dimension[0].role == ROLE_RUN)
        times->run = file->array[self->sampled]
                         .extent[variable_find_role(&self->variable[self->sampled], ROLE_SAMPLE)];
    if (times->run > 0 && series->joined)
        return error_set(error, ERROR_DATA,
                         "%s: data.join=on: data.x=%s has runs, which are series of their own; set "
                         "data.join=off",
                         file->path, self->variable[self->sampled].name);
    if (samples == NULL || samples->values == NULL)
        return true;
    const char *calendar = array_attribute_text(samples->attributes, "calendar");
    if (samples->kind != DIMENSION_TIME && !series->joined && file_series_ends(series) == 0)
        series->is_ordered = false; /* numbers that are no times do not decide about splits */
    if (!time_units_parse(samples->units, calendar, &times->units)) {
        times->units = (struct time_units){0};
        if (series->is_ordered)
            return error_set(error, ERROR_DATA,
                             "%s: cannot decode the units '%.60s' of '%s' in the calendar '%.40s': "
                             "write UNIT since DATE, or set data.coordinates=ignore",
                             file->path, samples->units, samples->name, calendar);
    }
    for (int64_t n = 0; n < samples->count; n++)
        if (!isfinite(samples->values[n]) && series->is_ordered)
            return error_set(error, ERROR_DATA,
                             "%s: '%s' has no value at sample %lld: write all times, or set "
                             "data.coordinates=ignore to count samples",
                             file->path, samples->name, (long long)n);
    samples->values =
        allocate_resized(samples->values, (size_t)times->samples * sizeof *samples->values);
    for (int64_t n = samples->count; n < times->samples; n++) /* the same times in all runs */
        samples->values[n] = samples->values[n - samples->count];
    times->time = samples->values;
    samples->values = NULL;
    return true;
}

/* Return the file that has a variable: data.static_file, or a file of samples. */
static const struct array_path *source_of(const struct arrays *self, const struct arrays_file *file,
                                          int v)
{
    return self->static_file.path != NULL &&
                   array_path_has(&self->static_file, self->variable[v].name)
               ? &self->static_file
               : &file->place;
}

/* A data set of data.static_file must not be another one than that of the same name in a file of
 * samples. */
static bool static_check(const struct arrays *self, const struct arrays_file *file,
                         const struct array *array, const char *name, struct error *error)
{
    struct array other = {.path = NULL};
    bool good = !array_path_has(&file->place, name) ||
                (array_path_array(&file->place, name, &other, error) &&
                 (array_elements(&other) == array_elements(array) ||
                  error_set(error, ERROR_DATA,
                            "%s: data.x=%s has another shape in data.static_file=%s: rename one of "
                            "them",
                            file->path, name, self->static_file.path)));
    array_close(&other);
    return good;
}

/* Use the values of a variable without samples, or compare them with those of the first file. */
static bool static_use(struct variable *variable, const struct arrays_file *file,
                       struct array *array, const struct arrays_file *first, struct error *error)
{
    const size_t bytes =
        (size_t)(variable->channels * variable->height * variable->width) * sizeof(float);
    if (variable->is_target || variable->at[0] != '\0')
        return error_set(error, ERROR_USAGE,
                         "%s=%s%s: this data set has no dimension of samples; name it in data.x, "
                         "without an offset (@)",
                         variable_option(variable), variable->name, variable->at);
    float *values = allocate(bytes, 1);
    bool good = variable_read_static(variable, array, values, error);
    if (good && variable->static_values == NULL) {
        variable->static_values = values;
        return true;
    }
    if (good && memcmp(values, variable->static_values, bytes) != 0)
        good = error_set(error, ERROR_DATA,
                         "%s: data.x=%s has no dimension of samples, and its values differ from "
                         "those in %s; write it to one file only, and set data.static_file",
                         file->path, variable->name, first->path);
    free(values);
    return good;
}

/* Read the grid of a file. The first one decides the roles of dimensions. */
static bool grid_read(struct arrays *self, const struct options *options,
                      const struct arrays_file *file, struct grid *grid, struct error *error)
{
    grid->ignores_names = self->series.counts;
    grid->path = allocate_copy(file->path);
    grid->attributes = array_attributes(&file->place, "");
    for (int v = 0; v < self->array_count; v++)
        grid_add(grid, source_of(self, file, v), self->variable[v].name, &file->array[v]);
    for (int v = 0; v < self->array_count; v++) {
        const int64_t *extent = file->array[v].extent;
        grid->array[v].is_static = source_of(self, file, v) == &self->static_file ||
                                   (grid->array[v].dimensions == 2 && v < self->x_count) ||
                                   grid_lacks_samples(grid, v);
        if (grid != &self->grid)
            memcpy(grid->array[v].role, self->grid.array[v].role, sizeof grid->array[v].role);
        else if (!grid_set_roles(grid, v, extent, options->data.order, options->data.sample_dim,
                                 error))
            return false;
        grid_find_times(grid, &file->place, v, extent);
    }
    if (grid != &self->grid)
        arrays_cut_grid(self, grid);
    return true;
}

/* Describe a file: open its arrays, and check that their shapes match those of the first file.
 * allows_none: it need not have data.y. */
static bool file_open(struct dataset *dataset, const struct options *options,
                      struct hdf5_reader *reader, const char *path, bool allows_none,
                      struct arrays_file *file, struct error *error)
{
    struct arrays *self = dataset->self;
    const bool is_first = file == self->file;
    *file = (struct arrays_file){.path = allocate_copy(path)};
    file->array = allocate((size_t)(self->x_count + self->y_count), sizeof *file->array);
    if (!array_path_open(&file->place, file->path, reader, error) ||
        (is_first && !variables_resolve(dataset, options, &file->place, allows_none, error)))
        return false;
    for (; file->opened < self->array_count; file->opened++) {
        struct array *array = &file->array[file->opened];
        const struct variable *variable = &self->variable[file->opened];
        const struct array_path *source = source_of(self, file, file->opened);
        if (variable->static_values != NULL &&
            (source != &file->place || !array_path_has(source, variable->name)))
            continue;
        if (!array_path_array(source, variable->name, array, error)) {
            array_close(array);
            return false;
        }
        if (source != &file->place && !static_check(self, file, array, variable->name, error)) {
            file->opened++;
            return false;
        }
    }
    /* Keep the grid of the first file, and compare others with it. */
    struct grid other = {0}, *grid = is_first ? &self->grid : &other;
    const bool good = grid_read(self, options, file, grid, error) &&
                      (is_first ? shape_set(dataset, options, file, error)
                                : self->series.counts || grid_compare(&self->grid, grid, error)) &&
                      times_take(self, file, grid, error);
    grid_close(&other);
    if (!good)
        return false;
    for (int v = 0; v < self->array_count; v++) {
        struct variable *variable = &self->variable[v];
        struct array *array = &file->array[v];
        if (array->path == NULL) /* only the first file has it */
            continue;
        const int64_t samples = variable_samples(variable, array);
        bool agrees = array->dimensions == variable->dimensions;
        for (int d = 0; agrees && d < array->dimensions; d++)
            agrees = role_is_sample(variable->dimension[d].role) ||
                     array->extent[d] == variable->dimension[d].extent;
        if (!agrees)
            return error_set(error, ERROR_DATA,
                             "%s: the shape of %s=%s does not match that of %s: use data sets of "
                             "the same shape",
                             file->path, variable_option(variable), variable->name,
                             self->file[0].path);
        if (variable_find_role(variable, ROLE_SAMPLE) != GRID_NONE &&
            samples != file->times.samples)
            return error_set(error, ERROR_DATA,
                             "%s: %s=%s has %lld samples, and data.x=%s has %lld: use data sets of "
                             "the same number of samples",
                             file->path, variable_option(variable), variable->name,
                             (long long)samples, self->variable[self->sampled].name,
                             (long long)file->times.samples);
        if (variable_find_role(variable, ROLE_SAMPLE) == GRID_NONE &&
            !static_use(variable, file, array, self->file, error))
            return false;
    }
    return dataset->unlabelled || options->data.task == TASK_REGRESSION ||
           arrays_class_names(dataset, file, error);
}

void arrays_file_close(struct arrays_file *file)
{
    for (int v = 0; v < file->opened; v++) {
        if (file->is_shared)
            file->array[v].chunks = NULL;
        array_close(&file->array[v]);
    }
    array_path_close(&file->place);
    if (!file->is_shared)
        free(file->times.time);
    free(file->array);
    free(file->path);
    *file = (struct arrays_file){0};
}

/* ---- descriptions of other ranks ---- */

/* A description: the number of the file, its struct, its times, and of each array its struct, the
 * path of its folder or of its own file, and its chunks. Each part fills whole words. */
static void part_put(struct byte_buffer *list, const void *part, int64_t bytes)
{
    static const char zeros[8];
    byte_buffer_append(list, part, (size_t)bytes);
    byte_buffer_append(list, zeros, (size_t)(round_up(bytes, 8) - bytes));
}

static void *part_take(uint8_t **at, int64_t bytes)
{
    uint8_t *part = *at;
    *at += round_up(bytes, 8);
    return part;
}

static int64_t times_bytes(const struct arrays_file *file)
{
    return file->times.time != NULL ? file->times.samples * (int64_t)sizeof(double) : 0;
}

static void file_put(struct byte_buffer *list, int64_t number, const struct arrays_file *file)
{
    part_put(list, &number, sizeof number);
    part_put(list, file, sizeof *file);
    part_put(list, file->times.time, times_bytes(file));
    for (int v = 0; v < file->opened; v++) {
        const struct array *array = &file->array[v];
        const char *path = array->files.folder != NULL ? array->files.folder
                           : array->owns_file          ? open_file_path(array->file)
                                                       : "";
        part_put(list, array, sizeof *array);
        part_put(list, path, (int64_t)strlen(path) + 1);
        part_put(list, array->chunks, array->chunk_count * (int64_t)sizeof *array->chunks);
    }
}

/* Set a file from a description, whose tables stay where they are. */
static void file_take(struct arrays_file *described, char *const *files, uint8_t **at)
{
    const int64_t number = *(const int64_t *)part_take(at, sizeof number);
    struct arrays_file *file = &described[number];
    arrays_file_close(file); /* the description that this rank has made */
    *file = *(const struct arrays_file *)part_take(at, sizeof *file);
    file->path = allocate_copy(files[number]);
    file->place = (struct array_path){.path = file->path};
    file->is_shared = true;
    file->times.path = file->path;
    file->times.time = times_bytes(file) > 0 ? part_take(at, times_bytes(file)) : NULL;
    file->array = allocate((size_t)file->opened, sizeof *file->array);
    for (int v = 0; v < file->opened; v++) {
        struct array *array = &file->array[v];
        *array = *(const struct array *)part_take(at, sizeof *array);
        const char *path = (const char *)*at;
        part_take(at, (int64_t)strlen(path) + 1);
        array->chunks = part_take(at, array->chunk_count * (int64_t)sizeof *array->chunks);
        array->path = file->path;
        if (array->files.folder != NULL) {
            array->files.folder = allocate_copy(path);
        } else if (array->owns_file) {
            array->file = open_file_described(path);
        } else {
            if (file->place.file == NULL)
                file->place.file = open_file_described(file->path);
            array->file = file->place.file;
        }
    }
}

/* Collective. Give the descriptions of the files that a rank has opened to all ranks. */
static void descriptions_share(struct dataset *dataset, char *const *files,
                               struct arrays_file *described, int64_t count)
{
    struct arrays *self = dataset->self;
    struct byte_buffer list = {0};
    int64_t is_ordered = self->series.is_ordered;
    struct joined_bytes *joined = &self->joined[self->joined_count++];
    for (int64_t i = 0; i < count; i++)
        if (described[i].path != NULL)
            file_put(&list, i, &described[i]);
    comm_all_reduce(dataset->comm, &is_ordered, 1, COMM_INT64, COMM_MIN);
    self->series.is_ordered = is_ordered != 0;
    comm_join(dataset->comm, list.data, (int64_t)list.count, joined);
    for (uint8_t *at = joined->data; at < joined->data + joined->bytes;)
        file_take(described, files, &at);
}

/* ---- splits ---- */

/* Collective. Let rank 0 describe an HDF5 file for the readers of all ranks. */
static bool description_broadcast(struct dataset *dataset, struct hdf5_reader *reader,
                                  const char *path, struct error *error)
{
    struct array_path place = {.path = NULL};
    if (dataset->ranks == 1)
        return true;
    if (dataset->rank == 0)
        error_defer(array_path_open(&place, path, reader, error));
    array_path_close(&place);
    if (!dataset_agree(dataset, error))
        return false;
    const char *text = reader->text != NULL ? reader->text : "";
    reader->received = comm_broadcast_text(dataset->comm, text, 0);
    return true;
}

/* Collective. Open data.static_file, and remove it from the files of samples. */
static bool static_file_open(struct dataset *dataset, const char *path, struct hdf5_reader *reader,
                             struct error *error)
{
    struct arrays *self = dataset->self;
    struct split_files *files = &self->files;
    if (path[0] == '\0')
        return true;
    for (int64_t i = files->count; i-- > 0 && files->count > 1;)
        if (strcmp(files->path[i], path) == 0) {
            free(files->path[i]);
            files->count--;
            memmove(&files->path[i], &files->path[i + 1],
                    (size_t)(files->count - i) * sizeof *files->path);
        }
    if (!description_broadcast(dataset, reader, path, error))
        return false;
    error_defer(array_path_open(&self->static_file, path, reader, error));
    free(reader->received);
    reader->received = NULL;
    return dataset_agree(dataset, error);
}

/* Describe the files of a split and append them to self->file. */
static bool split_open(struct dataset *dataset, const struct options *options,
                       struct hdf5_reader *reader, enum data_split split, struct error *error)
{
    struct arrays *self = dataset->self;
    const int64_t rank = dataset->rank, ranks = dataset->ranks;
    const bool all = split == SPLIT_ALL;
    int64_t count;
    char *const *files = all ? split_files_all(&self->files, &count)
                             : split_files_choose(&self->files, options, split, &count, error);
    if (files == NULL)
        return false;
    dataset->held_out |= split != SPLIT_TRAIN && !all && split_of_path(files[0]) == SPLIT_TRAIN;
    if (self->file_count == 0) {
        if (!description_broadcast(dataset, reader, files[0], error))
            return false;
        error_defer(file_open(dataset, options, reader, files[0], all, self->file, error));
        free(reader->received); /* not used if it is no HDF5 file */
        reader->received = NULL;
        self->file_count = 1;
        if (!dataset_agree(dataset, error))
            return false;
        files++;
        count--;
    }
    struct arrays_file *described = self->file + self->file_count;
    /* A rank that describes HDF5 files starts a child process: not for a few files. */
    const int64_t turns = smaller(ranks, round_up_division(count, FILES_EACH));
    self->file_count += count;
    for (int64_t i = rank < turns ? rank : count; error->kind == ERROR_NONE && i < count;
         i += turns)
        error_defer(file_open(dataset, options, reader, files[i], all, &described[i], error));
    if (!dataset_agree(dataset, error))
        return false;
    if (ranks > 1)
        descriptions_share(dataset, files, described, count);
    return true;
}

/* ---- all files ---- */

/* List the data sets that both options may name, for the HDF5 reader. Freed by the caller. */
static char *names_list(const struct arrays *self)
{
    const char *x = self->variable[0].name;
    struct text_stream names;
    text_stream_open(&names);
    for (int v = 0; v < self->x_count + self->y_count; v++) {
        char name[VARIABLE_TEXT];
        variable_write(&self->variable[v], name);
        fprintf(names.stream, "%s,%s,", self->variable[v].name, name);
    }
    fprintf(names.stream, "%.*stime", (int)(text_base_name(x) - x), x);
    return text_stream_close(&names);
}

/* Log a warning if files of chunks do not exist, or set an error if that is refused. */
static bool missing_report(const struct arrays *self, bool refused, struct error *error)
{
    const struct array *first = NULL;
    char found[80], value[80];
    double fill;
    for (int64_t f = 0; f < self->file_count; f++)
        for (int v = 0; first == NULL && v < self->file[f].opened; v++) {
            const struct array *array = &self->file[f].array[v];
            if (array->files.folder != NULL && array->files.count > array->chunk_count)
                first = array;
        }
    if (first == NULL)
        return true;
    array_missing_write(first, found, sizeof found);
    if (refused)
        return error_set(error, ERROR_DATA,
                         "%s: '%s': %s: copy the store again, or set data.missing=fill to read the "
                         "fill value",
                         first->path, first->name, found);
    array_values_convert(first, NULL, 1, (struct array_target){.doubles = &fill}, 0, 1);
    snprintf(value, sizeof value, isnan(fill) ? "missing (NaN)" : "the fill value %g", fill);
    log_warn("%s: '%s': %s: their values are %s; data.missing=error makes this an error",
             first->path, first->name, found, value);
    return true;
}

static int compare_times(const void *left, const void *right)
{
    const struct series_file *a = &((const struct arrays_file *)left)->times;
    const struct series_file *b = &((const struct arrays_file *)right)->times;
    const double one = time_decode(&a->units, a->time[0]);
    const double other = time_decode(&b->units, b->time[0]);
    return one != other ? (one > other) - (one < other) : strcmp(a->path, b->path);
}

bool arrays_open_files(struct dataset *dataset, const struct options *options,
                       enum data_split split, struct error *error)
{
    struct arrays *self = dataset->self;
    struct file_series *series = &self->series;
    OWNED char *names = names_list(self);
    struct hdf5_reader reader = {.kind = ERROR_DATA, .purpose = "arrays", .datasets = names};
    struct hdf5_reader static_reader = reader;
    const bool all = options->data.val == VALIDATION_REFERENCE && split != SPLIT_ALL;
    const bool refused = options->data.missing == MISSING_ERROR;
    int64_t timed = 0;
    self->file = allocate((size_t)self->files.count, sizeof *self->file);
    const bool good = static_file_open(dataset, options->data.static_file, &static_reader, error) &&
                      (!all || split_open(dataset, options, &reader, SPLIT_TRAIN, error)) &&
                      split_open(dataset, options, &reader, all ? SPLIT_TEST : split, error);
    hdf5_reader_close(&reader);
    hdf5_reader_close(&static_reader);
    if (!good || ((refused || !dataset->held_out) && !missing_report(self, refused, error)))
        return false;
    /* Make series of the files. Those of one series are ordered by time. */
    const struct dimension *samples = grid_role_dimension(&self->grid, self->sampled, ROLE_SAMPLE);
    snprintf(series->name, sizeof series->name, "%.63s", samples != NULL ? samples->name : "time");
    for (int64_t f = 0; f < self->file_count; f++)
        if (self->file[f].times.time != NULL && timed++ == 0)
            series->units = self->file[f].times.units;
    if (series->joined && timed == self->file_count && !series->counts)
        qsort(self->file, (size_t)self->file_count, sizeof *self->file, compare_times);
    for (int64_t f = 0; f < self->file_count; f++)
        file_series_add(series, &self->file[f].times);
    if (!file_series_pair(series, !dataset->held_out, error))
        return false;
    for (int64_t f = 0; f < self->file_count && !series->joined; f++)
        if (series_file_length(&series->file[f]) < file_series_ends(series))
            return error_set(error, ERROR_DATA,
                             "%s: %lld samples are too few for the offsets (@) of data.x=%s and "
                             "data.y=%s; set data.join=on to make the files one series",
                             series->file[f].path, (long long)series_file_length(&series->file[f]),
                             options->data.x, options->data.y);
    dataset->count = series->records;
    dataset->has_offsets = file_series_ends(series) > 0;
    if (dataset->has_offsets && timed == 0 && !dataset->held_out)
        log_info("offsets (@) count samples: %s has no coordinate of its samples such as 'time'",
                 self->file[0].path);
    return true;
}
