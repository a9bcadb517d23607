// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/arrays.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/log.h"
#include "base/text.h"

enum { OFFSET_MOST = 1 << 30 };

/* Skip the slashes before a name: "/u" and "u" are the same data set. */
static const char *name_begin(const char *text)
{
    const char *name = text + strspn(text, "/");
    return *name != '\0' ? name : text;
}

const char *variable_option(const struct variable *variable)
{
    return variable->is_target ? "data.y" : "data.x";
}

/* Parse "u", "u@+6" or "u@-1". */
static bool variable_parse(struct variable *variable, const char *item, size_t length,
                           struct error *error)
{
    char *end, text[OPTION_TEXT];
    snprintf(text, sizeof text, "%.*s", (int)length, item);
    snprintf(variable->name, sizeof variable->name, "%s", name_begin(text));
    char *at = strrchr(variable->name, '@');
    if (at == NULL)
        return true;
    const long long offset = strtoll(at + 1, &end, 10);
    if (at == variable->name || (at[1] != '+' && at[1] != '-') || end == at + 2 || *end != '\0' ||
        offset > OFFSET_MOST || offset < -OFFSET_MOST)
        return error_set(error, ERROR_USAGE,
                         "%s=%s: after @ there must be a number of samples with a sign, as in "
                         "u@+6 or u@-1",
                         variable_option(variable), variable->name);
    variable->offset = offset;
    *at = '\0';
    return true;
}

bool variables_parse(struct arrays *self, const struct options *options, struct error *error)
{
    const char *const lists[] = {options->data.x, options->data.y};
    size_t length;
    if (options->data.root[0] == '\0')
        return error_set(error, ERROR_USAGE, "data.format=arrays needs data.root");
    if (lists[0][0] == '\0' || lists[1][0] == '\0')
        return error_set(error, ERROR_USAGE,
                         "data.format=arrays needs data.x and data.y: `vittrain data describe "
                         "FILE` lists the data sets of a file");
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
            return error_set(error, ERROR_USAGE, "%s=%s names no data set",
                             variable_option(&(struct variable){.is_target = n == 1}), lists[n]);
        self->y = self->variable + self->x_count;
    }
    return true;
}

bool variables_transform(struct arrays *self, const struct options *options, struct error *error)
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
            if (strcmp(variable->name, name_begin(colon + 1)) != 0)
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

bool variable_set_shape(struct variable *variable, const struct array *array, struct error *error)
{
    const int64_t *size = array->extent;
    const int dimensions = array->dimensions;
    variable->dimensions = dimensions;
    if (dimensions > 4 || dimensions < (variable->is_target ? 1 : 3))
        return error_set(error, ERROR_DATA,
                         "%s=%s has %d dimensions: it must be %s[samples, height, width], "
                         "[samples, channels, height, width] or [samples, height, width, channels]",
                         variable_option(variable), variable->name, dimensions,
                         variable->is_target ? "[samples], [samples, outputs], " : "");
    const int rows = dimensions == 4 && !variable->channels_last ? 2 : 1;
    variable->height = dimensions < 3 ? 1 : size[rows];
    variable->width = dimensions < 3 ? 1 : size[rows + 1];
    variable->channels = dimensions == 2   ? size[1]
                         : dimensions == 4 ? size[variable->channels_last ? 3 : 1]
                                           : 1;
    return true;
}

void variable_log(const struct variable *variable)
{
    if (variable->dimensions == 4)
        log_info("%s=%s: %lld channels of %lldx%lld, order %s", variable_option(variable),
                 variable->name, (long long)variable->channels, (long long)variable->height,
                 (long long)variable->width,
                 variable->channels_last ? "hwc; if channels are first, set data.order=chw"
                                         : "chw; if channels are last, set data.order=hwc");
}

bool variable_agrees(const struct variable *variable, const struct array *array)
{
    const struct array_box box = variable_box(variable, 0, 1);
    if (array->dimensions != variable->dimensions)
        return false;
    for (int d = 1; d < array->dimensions; d++)
        if (array->extent[d] != box.count[d])
            return false;
    return true;
}

struct array_box variable_window(const struct variable *variable, int64_t sample, int64_t top,
                                 int64_t left, int64_t height, int64_t width)
{
    const int64_t channels = variable->channels, plane = height * width;
    const int64_t begins[] = {0, top, left}, counts[] = {channels, height, width};
    const int64_t strides[] = {channels > 1 ? plane : 1, width, 1};
    struct array_box box = {.begin = {sample}, .count = {1}, .stride = {channels * plane}};
    for (int d = 1; d < variable->dimensions; d++) {
        const bool rows_first = variable->channels_last || variable->dimensions == 3;
        const int part = rows_first ? d % 3 : d - 1; /* channels, rows, columns */
        box.begin[d] = begins[part];
        box.count[d] = counts[part];
        box.stride[d] = strides[part];
    }
    return box;
}

struct array_box variable_box(const struct variable *variable, int64_t sample, int64_t count)
{
    struct array_box box =
        variable_window(variable, sample, 0, 0, variable->height, variable->width);
    box.count[0] = count;
    return box;
}

bool variable_read(const struct variable *variable, struct array *array,
                   const struct array_box *box, int64_t plane, const double *origin, float *to,
                   struct error *error)
{
    const int64_t sample = variable->channels * plane;
    struct array_box dense = *box;
    bool shifts = false;
    for (int64_t c = 0; origin != NULL && c < variable->channels; c++)
        shifts = shifts || origin[c] != 0;
    if (!shifts)
        return array_read(array, box, to, error);
    dense.stride[0] = sample;
    OWNED double *values = allocate((size_t)(box->count[0] * sample), sizeof *values);
    if (!array_read_doubles(array, &dense, values, error))
        return false;
    for (int64_t n = 0; n < box->count[0]; n++)
        for (int64_t i = 0; i < sample; i++)
            to[n * box->stride[0] + i] = (float)(values[n * sample + i] - origin[i / plane]);
    return true;
}

void variables_list_wide(const struct arrays *self, int first, int end,
                         bool is_wide[IMAGE_CHANNELS])
{
    int64_t channel = 0;
    for (int v = first; v < end; v++) {
        const struct variable *variable = &self->variable[v];
        bool wide = false;
        for (int64_t f = 0; variable->transform == TRANSFORM_NONE && f < self->file_count; f++)
            wide |= v < self->file[f].opened && array_is_wide(&self->file[f].array[v]);
        for (int64_t c = 0; c < variable->channels && channel < IMAGE_CHANNELS; c++)
            is_wide[channel++] = wide;
    }
}

void variable_write(const struct variable *variable, char text[VARIABLE_TEXT])
{
    char offset[24] = "";
    if (variable->offset != 0)
        snprintf(offset, sizeof offset, "@%+lld", (long long)variable->offset);
    snprintf(text, VARIABLE_TEXT, "%s%s", variable->name, offset);
}

void variable_channel_name(const struct variable *variable, int64_t channel, char *text,
                           size_t size)
{
    char name[VARIABLE_TEXT], number[24] = "";
    variable_write(variable, name);
    if (variable->channels > 1)
        snprintf(number, sizeof number, " %lld", (long long)channel);
    text_shorten(name, text, size - sizeof number);
    strcat(text, number);
}
