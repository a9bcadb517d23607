// SPDX-License-Identifier: BSD-3-Clause
#include "commands/prediction_arrays.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/columns.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "data/dataset.h"
#include "hdf5/hdf5_writer.h"
#include "options/options.h"
#include "record/scores.h"

/* An attribute has at most 64 KiB: 16 bytes for each name. */
enum { SOURCES = 3, FILE_NAMES_MOST = 4000 };

bool prediction_arrays_is_file(const char *path)
{
    for (const char *const *ending = array_hdf5_endings; *ending != NULL; ending++)
        if (text_ends_with(path, *ending))
            return true;
    return false;
}

/* ---- variables ---- */

static void extent_add(struct prediction_variable *variable, enum coordinate_axis axis,
                       int64_t extent)
{
    variable->axis[variable->dimensions] = axis;
    variable->extent[variable->dimensions++] = extent;
}

/* Add a variable of `outputs` outputs, from output `first` on. Its shape is [N, K, H, W] without H
 * and W if there is one value for each output. K are the dimensions of channels of `y`; if it is
 * NULL, one dimension if has_outputs. */
static void variable_add(struct prediction_arrays *self, const char *name,
                         enum prediction_kind kind, int64_t first, int64_t outputs,
                         bool has_outputs, const struct variable *y)
{
    enum coordinate_axis axis = AXIS_OUTPUTS;
    const int64_t height = self->model->output.height, width = self->model->output.width;
    struct prediction_variable *variable = &self->variable[self->count++];
    *variable = (struct prediction_variable){.kind = kind, .outputs = outputs, .first = first};
    snprintf(variable->name, sizeof variable->name, "%s", name);
    extent_add(variable, AXIS_SAMPLES, window_records(self->dataset));
    for (int d = 0; y != NULL && d < y->dimensions; d++)
        if (y->dimension[d].role == ROLE_CHANNEL)
            extent_add(variable, axis++, y->dimension[d].count);
    if (y == NULL && has_outputs)
        extent_add(variable, axis, outputs);
    if (height * width > 1) {
        const bool is_tiled = self->dataset->tiles > 0;
        extent_add(variable, AXIS_ROWS, is_tiled ? self->dataset->field.height : height);
        extent_add(variable, AXIS_COLUMNS, is_tiled ? self->dataset->field.width : width);
    }
    variable->value_bytes =
        kind == PREDICTION_CLASS && self->model->classes <= UINT8_MAX + 1 ? 1 : sizeof(float);
    for (int64_t c = 0; kind == PREDICTION_VALUES && c < outputs; c++)
        if (self->dataset->target_origin[first + c] != 0) /* float32 has too few digits */
            variable->value_bytes = sizeof(double);
    variable->row_bytes = (size_t)(height * width * outputs * variable->value_bytes);
}

static bool name_is_taken(const struct prediction_arrays *self, const char *name)
{
    for (int v = 0; v < self->count; v++)
        if (strcmp(self->variable[v].name, name) == 0)
            return true;
    return false;
}

/* Write the name of a variable's predictions: that of its data set without slashes. If it is taken,
 * the offset or a number follows. */
static void variable_name(const struct prediction_arrays *self, const struct variable *y,
                          char name[ARRAY_NAME])
{
    char suffix[OFFSET_TEXT];
    snprintf(suffix, sizeof suffix, "%s", y->at[0] != '\0' ? y->at : "@+0");
    snprintf(name, ARRAY_NAME - sizeof suffix, "%.*s", ARRAY_NAME - (int)sizeof suffix - 1,
             y->name);
    const size_t length = strlen(name);
    for (char *c = name; *c != '\0'; c++)
        if (*c == '/')
            *c = '_';
    for (int n = 2; name_is_taken(self, name); n++) {
        snprintf(name + length, sizeof suffix, "%s", suffix);
        snprintf(suffix, sizeof suffix, "_%d", n);
    }
}

/* Add a variable for each data set of data.y. If the files do not have it, a list of several has
 * one output each. */
static void values_add(struct prediction_arrays *self)
{
    const int64_t total = self->model->classes;
    const bool has_targets = !self->dataset->unlabelled;
    const int listed = has_targets || self->arrays->y_count == total ? self->arrays->y_count : 1;
    int64_t first = 0;
    for (int v = 0; v < listed; v++) {
        const struct variable *y = &self->arrays->y[v];
        const int64_t outputs = has_targets ? y->channels : listed == 1 ? total : 1;
        char name[ARRAY_NAME] = "prediction";
        if (listed == self->arrays->y_count)
            variable_name(self, y, name);
        variable_add(self, name, PREDICTION_VALUES, first, outputs, outputs > 1,
                     has_targets ? y : NULL);
        if (has_targets)
            self->variable[self->count - 1].attributes =
                json_incref(self->arrays->grid.array[self->arrays->x_count + v].attributes);
        first += outputs;
    }
}

/* Add an attribute of texts to the last variable. */
static void texts_add(struct prediction_arrays *self, const char *name, const char *const *texts,
                      int64_t count)
{
    json_t *attributes = json_object(), *list = json_array();
    for (int64_t n = 0; n < count; n++)
        value_append(list, value_name(texts[n]));
    value_put(attributes, name, list);
    self->variable[self->count - 1].attributes = attributes;
}

/* Add the attribute class_names to the last variable, if the classes have names. */
static void class_names_add(struct prediction_arrays *self)
{
    const struct dataset *dataset = self->dataset;
    if (dataset->class_name != NULL && dataset->classes > 0)
        texts_add(self, "class_names", (const char *const *)dataset->class_name, dataset->classes);
}

static void variables_set(struct prediction_arrays *self)
{
    const size_t most = (size_t)larger(self->arrays->y_count, 2);
    self->variable = allocate(most + SOURCES, sizeof *self->variable);
    if (self->inference->session.options.data.task == TASK_REGRESSION) {
        values_add(self);
        return;
    }
    if (self->dataset->target.count == 0 || self->dataset->target_is_class) {
        variable_add(self, "class", PREDICTION_CLASS, 0, 1, false, NULL);
        class_names_add(self);
    }
    if (!self->dataset->target_is_class) {
        variable_add(self, "probability", PREDICTION_PROBABILITY, 0, self->model->classes, true,
                     NULL);
        class_names_add(self);
    }
}

/* ---- sources ---- */

/* Add the record, the file and the number in the file of each sample, if the samples are not those
 * of one whole file. Names that variables or coordinates have are left out. */
static void sources_add(struct prediction_arrays *self)
{
    static const char *const names[SOURCES] = {"record", "file", "file_sample"};
    const int64_t files = self->arrays->series.count;
    if (self->dataset->subset == NULL && files == 1 && self->arrays->series.file[0].run == 0)
        return;
    const char **paths = allocate((size_t)files, sizeof *paths);
    for (int64_t f = 0; f < files; f++)
        paths[f] = self->arrays->series.file[f].path;
    for (int s = 0; s < SOURCES; s++) {
        bool is_taken = name_is_taken(self, names[s]);
        for (int n = 0; n < self->predicted * AXES; n++)
            is_taken |= self->axes[n].dimension != NULL &&
                        strcmp(self->axes[n].dimension->name, names[s]) == 0;
        if (is_taken)
            continue;
        struct prediction_variable *variable = &self->variable[self->count++];
        *variable = (struct prediction_variable){.kind = PREDICTION_SOURCE,
                                                 .first = s,
                                                 .dimensions = 1,
                                                 .extent = {window_records(self->dataset)},
                                                 .value_bytes = sizeof(int64_t)};
        snprintf(variable->name, sizeof variable->name, "%s", names[s]);
        if (s == 1 && files <= FILE_NAMES_MOST)
            texts_add(self, "file_names", paths, files);
    }
    free(paths);
}

static bool sources_write(const struct prediction_arrays *self, struct error *error)
{
    const int64_t records = window_records(self->dataset);
    int64_t *values = allocate((size_t)records, sizeof *values);
    bool good = true;
    for (int v = self->predicted; good && v < self->count; v++) {
        for (int64_t n = 0; n < records; n++) {
            int64_t source[SOURCES];
            source[0] = dataset_record(self->dataset, self->dataset->count / records * n);
            source[1] = file_series_find(&self->arrays->series, source[0], 0, &source[2]);
            values[n] = source[self->variable[v].first];
        }
        good = durable_write(self->descriptor, self->path, values, (size_t)records * sizeof *values,
                             self->variable[v].offset, error);
    }
    free(values);
    return good;
}

/* ---- the file ---- */

/* True if an attribute of this name describes the values. False if it describes how the file stores
 * them, or refers to other arrays. */
static bool attribute_describes(const char *name)
{
    static const char *const names[] = {
        "CLASS",       "NAME",          HDF5_SCALE_USES,    HDF5_SCALES,    ZARR_DIMENSIONS,
        "_FillValue",  "missing_value", "scale_factor",     "add_offset",   "_Unsigned",
        "valid_range", "valid_min",     "valid_max",        "dtype",        "coordinates",
        "bounds",      "grid_mapping",  "DIMENSION_LABELS", "_NCProperties"};
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++)
        if (strcmp(name, names[n]) == 0)
            return false;
    return strncmp(name, "_Netcdf4", strlen("_Netcdf4")) != 0;
}

static void attributes_write(hid_t object, json_t *attributes)
{
    const char *name;
    json_t *value;
    json_object_foreach(attributes, name, value)
    {
        if (attribute_describes(name))
            hdf5_attribute_write(object, name, value);
    }
}

/* Return the coordinates of an axis of a variable. Sources have those of the first variable. */
static const struct coordinate *axis_find(const struct prediction_arrays *self, int v,
                                          enum coordinate_axis axis)
{
    return &self->axes[(v < self->predicted ? v : 0) * AXES + (int)axis];
}

/* Write the name of a dimension of a variable: that of its coordinates, else "sample", "row",
 * "column", or "output". The name of an axis of outputs that another variable has with other
 * coordinates follows the name of the variable. */
static void dimension_name(const struct prediction_arrays *self, int v, enum coordinate_axis axis,
                           char name[ARRAY_NAME])
{
    static const char *const names[AXES] = {"sample", "row", "column", "output", "inner"};
    const struct dimension *dimension = axis_find(self, v, axis)->dimension;
    bool is_shared = axis < AXIS_OUTPUTS || self->predicted == 1 || dimension != NULL;
    for (int other = 0; axis >= AXIS_OUTPUTS && dimension != NULL && other < v; other++) {
        const struct dimension *known = axis_find(self, other, axis)->dimension;
        is_shared &=
            known == NULL || known == dimension || strcmp(known->name, dimension->name) != 0;
    }
    snprintf(name, ARRAY_NAME, "%.100s%s%.100s", is_shared ? "" : self->variable[v].name,
             is_shared ? "" : "_", dimension != NULL ? dimension->name : names[axis]);
    if (name_is_taken(self, name))
        snprintf(name, ARRAY_NAME, "%s_dimension", names[axis]);
}

/* Create a variable and those scales of its dimensions that do not exist yet. Set `uses`, one for
 * each dimension. */
static void variable_create(hid_t file, struct prediction_arrays *self, int v,
                            struct hdf5_scale_use *uses)
{
    struct prediction_variable *variable = &self->variable[v];
    const bool is_class = variable->kind == PREDICTION_CLASS;
    hid_t type = variable->kind == PREDICTION_SOURCE       ? H5T_NATIVE_INT64
                 : is_class && variable->value_bytes == 1  ? H5T_NATIVE_UINT8
                 : is_class                                ? H5T_NATIVE_INT32
                 : variable->value_bytes == sizeof(double) ? H5T_NATIVE_DOUBLE
                                                           : H5T_NATIVE_FLOAT;
    hdf5_dataset_reserve(file, variable->name, type, variable->dimensions, variable->extent,
                         &variable->offset);
    hid_t object = H5Dopen2(file, variable->name, H5P_DEFAULT);
    attributes_write(object, variable->attributes);
    H5Dclose(object);
    for (int d = 0; d < variable->dimensions; d++) {
        const enum coordinate_axis axis = variable->axis[d];
        const struct coordinate *from = axis_find(self, v, axis);
        const struct dimension *dimension = from->dimension;
        uses[d] = (struct hdf5_scale_use){.dataset = variable->name, .dimension = d};
        dimension_name(self, v, axis, uses[d].scale);
        if (H5Lexists(file, uses[d].scale, H5P_DEFAULT) > 0)
            continue;
        hid_t scale = hdf5_scale_make(
            file, uses[d].scale, variable->extent[d],
            from->values != NULL || dimension == NULL ? from->values : dimension->values);
        if (dimension != NULL)
            attributes_write(scale, dimension->attributes);
        H5Dclose(scale);
    }
}

/* Write the attributes of the first file, and a line of history before its own. */
static void history_write(hid_t file, const struct prediction_arrays *self)
{
    const char *before = array_attribute_text(self->arrays->grid.attributes, "history");
    struct text_stream text;
    fprintf(text_stream_open(&text), "vittrain %s predict, %s%s%s", version_number,
            self->inference->session.options.model.name, before[0] != '\0' ? "\n" : "", before);
    char *written = text_stream_close(&text);
    json_t *attributes = json_object();
    json_object_update(attributes, self->arrays->grid.attributes);
    value_put(attributes, "history", value_name(written));
    attributes_write(file, attributes);
    json_decref(attributes);
    free(written);
}

static void file_fill(hid_t file, void *context)
{
    struct prediction_arrays *self = context;
    history_write(file, self);
    int count = 0;
    struct hdf5_scale_use *uses = allocate((size_t)self->count * ARRAY_DIMENSIONS, sizeof *uses);
    for (int v = 0; v < self->count; count += self->variable[v++].dimensions)
        variable_create(file, self, v, uses + count);
    hdf5_scales_attach(file, uses, count);
    free(uses);
}

/* Set the coordinates. Leave out those of pixels if the outputs do not have the size of the images,
 * and those with the name of a variable. */
static void coordinates_set(struct prediction_arrays *self)
{
    const struct image_size *output = &self->model->output;
    const bool resized =
        output->height != self->dataset->height || output->width != self->dataset->width;
    const bool has_values = self->variable[0].kind == PREDICTION_VALUES;
    self->axes = allocate((size_t)(self->count * AXES), sizeof *self->axes);
    for (int v = 0; v < self->count; v++)
        for (enum coordinate_axis axis = 0; axis < AXES; axis++) {
            struct coordinate *to = &self->axes[v * AXES + (int)axis];
            if ((axis >= AXIS_OUTPUTS && (!has_values || self->count != self->arrays->y_count)) ||
                (resized && (axis == AXIS_ROWS || axis == AXIS_COLUMNS)))
                continue;
            arrays_coordinate(self->dataset, axis >= AXIS_OUTPUTS ? v : 0, axis, to);
            if (to->dimension != NULL && name_is_taken(self, to->dimension->name)) {
                free(to->values);
                *to = (struct coordinate){.values = NULL};
            }
        }
    /* Warn of variables that have other times than the first one. */
    for (int v = 1; self->axes[AXIS_SAMPLES].values != NULL && v < self->arrays->y_count; v++) {
        const long long steps = variable_steps(self->arrays, &self->arrays->y[v]) -
                                variable_steps(self->arrays, &self->arrays->y[0]);
        char first[VARIABLE_TEXT], name[VARIABLE_TEXT];
        if (steps == 0)
            continue;
        variable_write(&self->arrays->y[0], first);
        variable_write(&self->arrays->y[v], name);
        log_warn("%s: '%s' has the times of %s; the values of %s are %lld step%s %s", self->path,
                 self->axes[AXIS_SAMPLES].dimension->name, first, name, llabs(steps),
                 llabs(steps) == 1 ? "" : "s", steps > 0 ? "later" : "earlier");
    }
}

bool prediction_arrays_open(struct prediction_arrays *self, const struct inference *inference,
                            const char *path, struct comm *world, struct error *error)
{
    const struct dataset *dataset = &inference->session.validation.dataset;
    *self = (struct prediction_arrays){.inference = inference,
                                       .dataset = dataset,
                                       .arrays = arrays_of(dataset),
                                       .model = inference->session.model,
                                       .path = path,
                                       .descriptor = -1};
    if (self->arrays == NULL) {
        error_set(error, ERROR_USAGE,
                  "predict.output=%s: an HDF5 file is written for data.format=arrays only: choose "
                  "a name that ends in .csv or .json",
                  path);
    } else {
        variables_set(self);
        self->predicted = self->count;
    }
    if (world->rank == 0 && error->kind == ERROR_NONE) {
        int64_t bytes;
        coordinates_set(self);
        sources_add(self);
        snprintf(self->part, sizeof self->part, "%s.part", path);
        self->descriptor = durable_create(self->part, error);
        if (self->descriptor >= 0 &&
            hdf5_frame_create(self->descriptor, path, file_fill, self, true, &bytes, error))
            error_defer(sources_write(self, error));
    }
    return comm_agree(world, error);
}

/* ---- rows ---- */

static void row_convert(const struct prediction_arrays *self,
                        const struct prediction_variable *variable, int32_t predicted,
                        const float *outputs, FILE *rows)
{
    const double *origin = self->dataset->target_origin;
    const int64_t plane = self->model->output.height * self->model->output.width;
    const int64_t begin = variable->first * plane, end = begin + variable->outputs * plane;
    const bool is_logit = self->model->loss == LOSS_TARGETS;
    if (variable->kind == PREDICTION_CLASS) {
        for (int64_t p = 0; p < plane; p++) {
            const int32_t number =
                is_logit ? (int32_t)pixel_class(outputs + p, self->model->classes, plane)
                         : predicted;
            const uint8_t byte = (uint8_t)number;
            fwrite(variable->value_bytes == 1 ? (const void *)&byte : &number,
                   (size_t)variable->value_bytes, 1, rows);
        }
    } else if (variable->kind == PREDICTION_PROBABILITY && is_logit) {
        for (int64_t c = 0; c < variable->outputs; c++) {
            const float probability = label_probability(outputs[c]);
            fwrite(&probability, sizeof probability, 1, rows);
        }
    } else if (variable->value_bytes == sizeof(double)) {
        for (int64_t i = begin; i < end; i++) {
            const double value = origin[i / plane] + (double)outputs[i];
            fwrite(&value, sizeof value, 1, rows);
        }
    } else {
        fwrite(outputs + begin, 1, variable->row_bytes, rows);
    }
}

void prediction_arrays_convert(const struct prediction_arrays *self, int64_t count,
                               const int32_t *predicted, const float *outputs, FILE *rows)
{
    const int64_t values = model_output_count(self->model);
    for (int v = 0; v < self->count; v++)
        for (int64_t n = 0; n < count; n++)
            row_convert(self, &self->variable[v], predicted[n], outputs + n * values, rows);
}

/* Write the predictions of a tile into its field, without pixels that belong to an earlier tile. */
static bool tile_write(const struct prediction_arrays *self,
                       const struct prediction_variable *variable, int64_t index,
                       const char *values, struct error *error)
{
    const struct window_tile tile = window_tile_of(self->dataset, index);
    const struct image_size *field = &self->dataset->field;
    const int64_t height = self->dataset->height, bytes = variable->value_bytes;
    const int64_t lines =
        (int64_t)variable->row_bytes / (self->dataset->width * bytes);     /* all planes */
    const int64_t first = index / self->dataset->tiles * (lines / height); /* plane in the file */
    bool good = true;
    for (int64_t n = 0; good && n < lines; n++) {
        const int64_t y = (first + n / height) * field->height + tile.top + n % height;
        const int64_t offset = (y * field->width + tile.left + tile.columns) * bytes;
        if (n % height >= tile.rows)
            good = durable_write(self->descriptor, self->path,
                                 values + (n * self->dataset->width + tile.columns) * bytes,
                                 (size_t)((self->dataset->width - tile.columns) * bytes),
                                 variable->offset + offset, error);
    }
    return good;
}

bool prediction_arrays_write(struct prediction_arrays *self, const char *rows, size_t bytes,
                             struct error *error)
{
    size_t sample_bytes = 0;
    bool good = true;
    for (int v = 0; v < self->count; v++)
        sample_bytes += self->variable[v].row_bytes;
    const int64_t count = (int64_t)(bytes / sample_bytes);
    ENSURE(self->rows_written + count <= self->dataset->count, "more predictions than samples");
    for (int v = 0; good && v < self->count; v++) {
        const struct prediction_variable *variable = &self->variable[v];
        const size_t size = (size_t)count * variable->row_bytes;
        if (self->dataset->tiles == 0)
            good = durable_write(
                self->descriptor, self->path, rows, size,
                variable->offset + self->rows_written * (int64_t)variable->row_bytes, error);
        for (int64_t n = 0; good && self->dataset->tiles > 0 && n < count; n++)
            good = tile_write(self, variable, self->rows_written + n,
                              rows + (size_t)n * variable->row_bytes, error);
        rows += size;
    }
    self->rows_written += count;
    return good;
}

void prediction_arrays_close(struct prediction_arrays *self, struct error *error)
{
    if (self->descriptor >= 0 && error->kind == ERROR_NONE) {
        error_defer(durable_commit(self->descriptor, self->part, self->path, error));
    } else if (self->descriptor >= 0) {
        close(self->descriptor);
        unlink(self->part);
    }
    for (int n = 0; self->axes != NULL && n < self->predicted * AXES; n++)
        free(self->axes[n].values);
    for (int v = 0; v < self->count; v++)
        json_decref(self->variable[v].attributes);
    free(self->axes);
    free(self->variable);
    *self = (struct prediction_arrays){.descriptor = -1};
}
