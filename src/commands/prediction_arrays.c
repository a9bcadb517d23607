// SPDX-License-Identifier: BSD-3-Clause
#include "commands/prediction_arrays.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands/prediction.h"
#include "config/options.h"
#include "core/durable.h"
#include "core/hdf5_scale.h"
#include "core/integer.h"
#include "core/log.h"
#include "core/text.h"
#include "runlog/class_counts.h"

bool prediction_arrays_is_file(const char *path)
{
    return text_ends_with(path, ".h5") || text_ends_with(path, ".hdf5") ||
           text_ends_with(path, ".nc") || text_ends_with(path, ".nc4");
}

/* ---- variables ---- */

/* Bytes of a class number in the file. */
static size_t class_bytes(int64_t classes)
{
    return classes <= UINT8_MAX + 1 ? 1 : classes <= UINT16_MAX + 1 ? 2 : 4;
}

/* Add a variable of `outputs` outputs. Its shape is [N, K, H, W] without K if has_outputs is false
 * and without H and W if there is one value for each output. */
static struct prediction_variable *variable_add(struct prediction_arrays *self, const char *name,
                                                enum prediction_kind kind, int64_t outputs,
                                                bool has_outputs)
{
    const struct model *model = self->inference->run.session.model;
    const int64_t height = model->output.height, width = model->output.width;
    struct prediction_variable *larger =
        realloc(self->variable, (size_t)(self->count + 1) * sizeof *self->variable);
    ENSURE_MEMORY(larger != NULL, "no memory for the variables of the output");
    self->variable = larger;
    struct prediction_variable *variable = &larger[self->count++];
    *variable = (struct prediction_variable){.kind = kind, .outputs = outputs, .dimensions = 1};
    snprintf(variable->name, sizeof variable->name, "%s", name);
    variable->extent[0] = self->inference->run.validation.dataset.count;
    if (has_outputs)
        variable->extent[variable->dimensions++] = outputs;
    if (height * width > 1) {
        variable->extent[variable->dimensions++] = height;
        variable->extent[variable->dimensions++] = width;
    }
    variable->row_bytes =
        (size_t)(height * width) *
        (kind == PREDICTION_CLASS ? class_bytes(model->classes) : (size_t)outputs * sizeof(float));
    return variable;
}

/* True if a variable before y[n] has the same data set at another offset. */
static bool name_is_taken(const struct arrays_view *view, int n)
{
    for (int v = 0; v < n; v++)
        if (strcmp(view->y[v].name, view->y[n].name) == 0)
            return true;
    return false;
}

/* Add a variable for each data set of data.y. If the files do not have it, a list of several has
 * one output each. */
static void values_add(struct prediction_arrays *self, const struct arrays_view *view)
{
    const int64_t total = self->inference->run.session.model->classes;
    const int listed = view->has_targets || view->y_count == total ? view->y_count : 1;
    int64_t first = 0;
    for (int v = 0; v < listed; v++) {
        const struct variable *y = &view->y[v];
        const int64_t outputs = view->has_targets ? y->channels : listed == 1 ? total : 1;
        const bool has_outputs =
            view->has_targets ? y->dimensions == 2 || y->dimensions == 4 : outputs > 1;
        char name[ARRAY_NAME], offset[24] = "";
        if (name_is_taken(view, v))
            snprintf(offset, sizeof offset, "@%+lld", (long long)y->offset);
        snprintf(name, sizeof name, "%s%s",
                 listed < view->y_count ? "prediction" : y->name + strspn(y->name, "/"), offset);
        for (char *c = name; *c != '\0'; c++)
            if (*c == '/')
                *c = '_';
        struct prediction_variable *added =
            variable_add(self, name, PREDICTION_VALUES, outputs, has_outputs);
        added->first = first;
        first += outputs;
    }
}

/* Add the attribute class_names, if the classes have names that are not their numbers. */
static void class_names_add(struct prediction_variable *variable, const struct dataset *dataset)
{
    struct array_attributes *to = &variable->attributes;
    size_t bytes;
    if (dataset->class_name == NULL || dataset->classes < 1)
        return;
    FILE *values = open_memstream(&to->values, &bytes);
    to->attribute = calloc(1, sizeof *to->attribute);
    ENSURE_MEMORY(values != NULL && to->attribute != NULL, "no memory for the names of classes");
    for (int64_t c = 0; c < dataset->classes; c++)
        fwrite(dataset->class_name[c], 1, strlen(dataset->class_name[c]) + 1, values);
    ENSURE_MEMORY(fclose(values) == 0, "no memory for the names of classes");
    to->attribute[0] = (struct hdf5_attribute){
        .name = "class_names", .kind = HDF5_TEXT, .count = dataset->classes};
    to->count = 1;
}

static void variables_set(struct prediction_arrays *self, const struct arrays_view *view)
{
    const struct dataset *dataset = &self->inference->run.validation.dataset;
    const int64_t classes = self->inference->run.session.model->classes;
    const bool has_labels = dataset->target.count == 0;
    if (self->inference->run.options.data.task == TASK_REGRESSION) {
        values_add(self, view);
        return;
    }
    if (has_labels || dataset->target_is_class)
        class_names_add(variable_add(self, "class", PREDICTION_CLASS, 1, false), dataset);
    if (!dataset->target_is_class)
        class_names_add(variable_add(self, "probability", PREDICTION_PROBABILITY, classes, true),
                        dataset);
}

/* Copy the attributes of the data sets of data.y in the first file. */
static void attributes_copy(struct prediction_arrays *self, const struct arrays_view *view)
{
    const struct arrays_part part = arrays_part(&self->inference->run.validation.dataset, 0);
    struct hdf5_reader reader = {.kind = ERROR_DATA, .purpose = "arrays"};
    struct array_path source;
    struct error ignored = {0};
    if (array_path_open(&source, part.path, &reader, &ignored))
        for (int v = 0; v < self->count && self->count == view->y_count; v++)
            if (self->variable[v].kind == PREDICTION_VALUES)
                array_attributes_read(&source, view->y[v].name, &self->variable[v].attributes);
    hdf5_reader_close(&reader);
    array_path_close(&source);
}

/* ---- the file ---- */

struct frame {
    struct prediction_arrays *self;
    struct coordinate axes[AXES];
};

static hid_t file_type(const struct prediction_arrays *self,
                       const struct prediction_variable *variable)
{
    const size_t bytes = class_bytes(self->inference->run.session.model->classes);
    if (variable->kind != PREDICTION_CLASS)
        return H5T_NATIVE_FLOAT;
    return bytes == 1 ? H5T_NATIVE_UINT8 : bytes == 2 ? H5T_NATIVE_UINT16 : H5T_NATIVE_INT32;
}

static void attributes_write(hid_t object, const struct array_attributes *attributes)
{
    for (int64_t n = 0; n < attributes->count; n++)
        hdf5_attribute_write(object, &attributes->attribute[n], attributes->values);
}

/* Return the axis of a dimension of a variable, or -1. */
static int axis_of(const struct prediction_variable *variable, int dimension)
{
    const bool has_planes =
        variable->dimensions > 2 &&
        variable->extent[variable->dimensions - 1] * variable->extent[variable->dimensions - 2] > 1;
    if (dimension == 0)
        return AXIS_SAMPLES;
    if (!has_planes || dimension < variable->dimensions - 2)
        return -1;
    return dimension == variable->dimensions - 2 ? AXIS_ROWS : AXIS_COLUMNS;
}

/* Write the name of a dimension of a variable: that of its coordinates, else "sample", "row",
 * "column", or "output". */
static void dimension_name(const struct frame *frame, const struct prediction_variable *variable,
                           int dimension, char name[ARRAY_NAME])
{
    static const char *const names[] = {"sample", "row", "column"};
    const struct prediction_arrays *self = frame->self;
    const int axis = axis_of(variable, dimension);
    if (axis >= 0 && frame->axes[axis].count > 0) {
        snprintf(name, ARRAY_NAME, "%s", frame->axes[axis].name);
        return;
    }
    if (axis >= 0)
        snprintf(name, ARRAY_NAME, "%s", names[axis]);
    else if (self->count == 1)
        snprintf(name, ARRAY_NAME, "output");
    else
        snprintf(name, ARRAY_NAME, "%s_output", variable->name);
    for (int v = 0; v < self->count; v++)
        if (strcmp(self->variable[v].name, name) == 0)
            snprintf(name, ARRAY_NAME, "%s_dimension", axis < 0 ? "output" : names[axis]);
}

/* Create the scales of the dimensions of a variable that do not exist, and list their uses. */
static void scales_make(hid_t file, const struct frame *frame,
                        const struct prediction_variable *variable, struct hdf5_scale_use *uses,
                        char (*names)[ARRAY_NAME])
{
    for (int d = 0; d < variable->dimensions; d++) {
        const int axis = axis_of(variable, d);
        const struct coordinate *from = axis >= 0 ? &frame->axes[axis] : NULL;
        dimension_name(frame, variable, d, names[d]);
        uses[d] =
            (struct hdf5_scale_use){.dataset = variable->name, .scale = names[d], .dimension = d};
        if (H5Lexists(file, names[d], H5P_DEFAULT) > 0)
            continue;
        hid_t scale = hdf5_scale_make(file, names[d], variable->extent[d],
                                      from != NULL && from->count > 0 ? from->values : NULL);
        if (from != NULL && from->count > 0)
            attributes_write(scale, &from->attributes);
        H5Dclose(scale);
    }
}

static void file_fill(hid_t file, void *context)
{
    struct frame *frame = context;
    struct prediction_arrays *self = frame->self;
    const size_t most = (size_t)self->count * ARRAY_DIMENSIONS;
    struct hdf5_scale_use *uses = calloc(most, sizeof *uses);
    char(*names)[ARRAY_NAME] = calloc(most, sizeof *names);
    int count = 0;
    ENSURE_MEMORY(uses != NULL && names != NULL, "no memory for the dimensions of the output");
    for (int v = 0; v < self->count; v++) {
        struct prediction_variable *variable = &self->variable[v];
        hdf5_dataset_reserve(file, variable->name, file_type(self, variable), variable->dimensions,
                             variable->extent, &variable->offset);
        hid_t object = H5Dopen2(file, variable->name, H5P_DEFAULT);
        attributes_write(object, &variable->attributes);
        H5Dclose(object);
        scales_make(file, frame, variable, uses + count, names + count);
        count += variable->dimensions;
    }
    hdf5_scales_attach(file, uses, count);
    free(uses);
    free(names);
}

/* Keep the coordinates of the predicted samples, and those of the pixels only if the outputs have
 * the size of the images. */
static void coordinates_select(const struct prediction_arrays *self, struct coordinate axes[AXES])
{
    const struct dataset *dataset = &self->inference->run.validation.dataset;
    const struct image_size *output = &self->inference->run.session.model->output;
    struct coordinate *samples = &axes[AXIS_SAMPLES];
    bool good = dataset->count <= samples->count;
    double *values = good ? malloc((size_t)dataset->count * sizeof *values) : NULL;
    for (int64_t n = 0; values != NULL && good && n < dataset->count; n++) {
        good = dataset_record(dataset, n) < samples->count;
        if (good)
            values[n] = samples->values[dataset_record(dataset, n)];
    }
    if (values != NULL && good) {
        free(samples->values);
        samples->values = values;
        samples->count = dataset->count;
    } else {
        free(values);
        coordinate_free(samples);
    }
    for (int axis = AXIS_ROWS; axis < AXES; axis++)
        if (output->height != dataset->height || output->width != dataset->width)
            coordinate_free(&axes[axis]);
    for (int axis = 0; axis < AXES; axis++)
        for (int v = 0; v < self->count; v++)
            if (strcmp(axes[axis].name, self->variable[v].name) == 0)
                coordinate_free(&axes[axis]);
}

/* Rank 0 only. */
static bool file_create(struct prediction_arrays *self, const struct arrays_view *view,
                        struct error *error)
{
    struct frame frame = {.self = self};
    int64_t bytes;
    attributes_copy(self, view);
    arrays_coordinates_read(&self->inference->run.validation.dataset, frame.axes);
    coordinates_select(self, frame.axes);
    snprintf(self->part, sizeof self->part, "%s.part", self->path);
    self->descriptor = durable_create(self->part, error);
    const bool good = self->descriptor >= 0 && hdf5_frame_create(self->descriptor, self->path,
                                                                 file_fill, &frame, &bytes, error);
    arrays_coordinates_free(frame.axes);
    return good;
}

bool prediction_arrays_open(struct prediction_arrays *self, const struct inference *inference,
                            const char *path, struct comm *world, struct error *error)
{
    struct arrays_view view;
    *self = (struct prediction_arrays){.inference = inference, .path = path, .descriptor = -1};
    if (!arrays_view(&inference->run.validation.dataset, &view)) {
        error_set(error, ERROR_USAGE,
                  "predict.output=%s: an HDF5 file is written for data.format=arrays only: choose "
                  "a name that ends in .csv or .json",
                  path);
    } else {
        variables_set(self, &view);
        if (world->rank == 0)
            error_defer(file_create(self, &view, error));
    }
    return comm_agree(world, error);
}

/* ---- rows ---- */

size_t prediction_arrays_bytes(const struct prediction_arrays *self)
{
    size_t bytes = 0;
    for (int v = 0; v < self->count; v++)
        bytes += self->variable[v].row_bytes;
    return bytes;
}

static void class_store(size_t bytes, int64_t class_number, char *to)
{
    const uint8_t small = (uint8_t)class_number;
    const uint16_t medium = (uint16_t)class_number;
    const int32_t large = (int32_t)class_number;
    memcpy(to,
           bytes == 1   ? (const void *)&small
           : bytes == 2 ? (const void *)&medium
                        : &large,
           bytes);
}

/* Store the most probable class of each pixel. */
static void classes_convert(const struct model *model, const float *outputs, char *row)
{
    const int64_t plane = model->output.height * model->output.width;
    const size_t bytes = class_bytes(model->classes);
    for (int64_t p = 0; p < plane; p++)
        class_store(bytes, pixel_class(outputs + p, model->classes, plane),
                    row + (size_t)p * bytes);
}

static void row_convert(const struct prediction_arrays *self,
                        const struct prediction_variable *variable, int32_t predicted,
                        const float *outputs, char *row)
{
    const struct model *model = self->inference->run.session.model;
    const int64_t plane = model->output.height * model->output.width;
    const bool is_logit = model->loss == LOSS_TARGETS;
    if (variable->kind == PREDICTION_CLASS && is_logit) {
        classes_convert(model, outputs, row);
    } else if (variable->kind == PREDICTION_CLASS) {
        class_store(class_bytes(model->classes), predicted, row);
    } else if (variable->kind == PREDICTION_PROBABILITY && is_logit) {
        for (int64_t c = 0; c < variable->outputs; c++) {
            const float probability = prediction_probability(outputs[c]);
            memcpy(row + (size_t)c * sizeof probability, &probability, sizeof probability);
        }
    } else {
        memcpy(row, outputs + variable->first * plane, variable->row_bytes);
    }
}

void prediction_arrays_convert(const struct prediction_arrays *self, int64_t count,
                               const int32_t *predicted, const float *outputs, char *rows)
{
    const int64_t values = model_output_count(self->inference->run.session.model);
    for (int v = 0; v < self->count; v++)
        for (int64_t n = 0; n < count; n++, rows += self->variable[v].row_bytes)
            row_convert(self, &self->variable[v], predicted[n], outputs + n * values, rows);
}

bool prediction_arrays_write(struct prediction_arrays *self, const char *rows, int64_t count,
                             struct error *error)
{
    bool good = true;
    ENSURE(self->rows_written + count <= self->variable[0].extent[0],
           "more predictions than samples");
    for (int v = 0; good && v < self->count; v++) {
        const struct prediction_variable *variable = &self->variable[v];
        const size_t bytes = (size_t)count * variable->row_bytes;
        good = durable_write(self->descriptor, self->path, rows, bytes,
                             variable->offset + self->rows_written * (int64_t)variable->row_bytes,
                             error);
        rows += bytes;
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
    for (int v = 0; v < self->count; v++)
        array_attributes_free(&self->variable[v].attributes);
    free(self->variable);
    *self = (struct prediction_arrays){.descriptor = -1};
}
