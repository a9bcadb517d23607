// SPDX-License-Identifier: BSD-3-Clause
/* Parts of arrays: data.levels, data.rows and data.columns. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/arrays.h"
#include "base/allocate.h"
#include "base/base.h"
#include "base/log.h"
#include "base/text.h"

static const char *const part_option[ROLES] = {
    [ROLE_ROW] = "data.rows", [ROLE_COLUMN] = "data.columns"};

/* Coordinates may be rounded to float32. */
static double tolerance_of(double value)
{
    return fabs(value) * 0x1p-22;
}

static void index_add(struct variable_dimension *to, int64_t index)
{
    const struct index_part *last = to->part + to->part_count - (to->part_count > 0);
    if (to->part_count == 0 || index != last->begin + last->count) {
        to->part = allocate_resized(to->part, (size_t)(to->part_count + 1) * sizeof *to->part);
        to->part[to->part_count++] = (struct index_part){.begin = index};
    }
    to->part[to->part_count - 1].count++;
    to->count++;
}

/* Parse the number that fills text[0 .. length). */
static bool number_parse(const char *text, size_t length, double *number)
{
    char copy[32], *end;
    snprintf(copy, sizeof copy, "%.*s", (int)length, text);
    *number = strtod(copy, &end);
    return length > 0 && length < sizeof copy && !isspace(copy[0]) && *end == '\0' &&
           isfinite(*number);
}

/* Parse "BEGIN:END", a slice of Python. Return false if it is invalid. */
static bool slice_parse(const char *text, int64_t extent, int64_t ends[2])
{
    const char *colon = strchr(text, ':');
    char *end, *last;
    if (colon == NULL)
        return false;
    ends[0] = strtoll(text, &end, 10);
    ends[1] = colon[1] == '\0' ? extent : strtoll(colon + 1, &last, 10);
    for (int n = 0; n < 2; n++)
        ends[n] = larger(0, smaller(ends[n] + (ends[n] < 0 ? extent : 0), extent));
    return end == colon && (colon[1] == '\0' || *last == '\0');
}

/* Select the indices whose coordinates are between two numbers. Longitudes in degrees are selected
 * if they are east of the first and west of the second number; index 0 may follow the last one. */
static void range_select(const struct dimension *dimension, const double range[2],
                         struct variable_dimension *to)
{
    const bool turns = dimension_in_degrees(dimension, DIMENSION_COLUMN);
    const double begin = turns ? range[0] : fmin(range[0], range[1]);
    const double width = range[1] - range[0], turn = 360 * floor(fmin(width, 0) / 360);
    const int64_t count = dimension->count;
    int64_t first = turns ? count : 0;
    OWNED bool *is_in = allocate((size_t)count, sizeof *is_in);
    for (int64_t i = 0; i < count; i++) {
        const double tolerance = tolerance_of(dimension->values[i]);
        double distance = dimension->values[i] - begin;
        distance -= turns ? 360 * floor((distance + tolerance) / 360) : 0;
        is_in[i] =
            distance >= -tolerance && distance <= (turns ? width - turn : fabs(width)) + tolerance;
    }
    while (first > 0 && is_in[first - 1]) /* selected ones at the end come first */
        first--;
    for (int64_t i = first; i < first + count; i++)
        if (is_in[i % count])
            index_add(to, i % count);
}

/* Select rows or columns: "BEGIN:END" or "LEAST..MOST". */
static bool plane_select(const struct arrays *self, const char *option, const char *text,
                         const struct dimension *dimension, struct variable_dimension *to,
                         struct error *error)
{
    const char *dots = strstr(text, ".."), *path = self->grid.path;
    const bool has_values = dimension != NULL && dimension->values != NULL;
    char known[ARRAY_NAME] = "";
    double range[2];
    int64_t ends[2] = {0};
    to->count = 0;
    if (dots != NULL ? !number_parse(text, (size_t)(dots - text), &range[0]) ||
                           !number_parse(dots + 2, strlen(dots + 2), &range[1])
                     : !slice_parse(text, to->extent, ends))
        return error_set(error, ERROR_USAGE,
                         "%s=%s: not a range; set BEGIN:END (indices, as in Python) or LEAST..MOST "
                         "(coordinates)",
                         option, text);
    if (dots != NULL && !has_values)
        return error_set(error, ERROR_DATA,
                         "%s=%s: the %s in %s have no coordinates; select indices, as in 10:50",
                         option, text, strchr(option, '.') + 1, path);
    if (dots != NULL)
        range_select(dimension, range, to);
    for (int64_t i = ends[0]; i < ends[1]; i++)
        index_add(to, i);
    if (has_values)
        snprintf(known, sizeof known, ", and '%.100s' from %g to %g", dimension->name,
                 dimension->values[0], dimension->values[to->extent - 1]);
    return to->count > 0 ||
           error_set(error, ERROR_DATA,
                     "%s=%s selects nothing: %s has the indices 0 to %lld%s; choose others", option,
                     text, path, (long long)to->extent - 1, known);
}

/* Select levels by their coordinates: "500,850". */
static bool levels_select(const char *text, const struct grid *grid,
                          const struct dimension *dimension, struct variable_dimension *to,
                          struct error *error)
{
    size_t length;
    to->count = 0;
    if (dimension->values == NULL)
        return error_set(error, ERROR_DATA,
                         "data.levels=%s: the coordinates of '%s' in %s are not numbers; leave "
                         "data.levels out",
                         text, dimension->name, grid->path);
    for (const char *item = text_next_item(text, &length); item != NULL;
         item = text_next_item(item + length, &length)) {
        double level;
        int64_t i = number_parse(item, length, &level) ? 0 : to->extent;
        while (i < to->extent && !(fabs(dimension->values[i] - level) <= tolerance_of(level)))
            i++;
        if (i < to->extent) {
            index_add(to, i);
            continue;
        }
        char known[256] = "";
        for (size_t n = 0, used = 0; n < (size_t)to->extent && used < sizeof known; n++)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%.9g", n > 0 ? ", " : "",
                                     dimension->values[n]);
        return error_set(error, ERROR_DATA,
                         "data.levels=%s: '%s' in %s has no %.*s; choose from %s", text,
                         dimension->name, grid->path, (int)length, item, known);
    }
    return true;
}

bool arrays_select(struct arrays *self, const struct options *options, struct error *error)
{
    const char *const text[ROLES] = {
        [ROLE_ROW] = options->data.rows, [ROLE_COLUMN] = options->data.columns};
    const char *levels = options->data.levels;
    bool has_levels = levels[0] == '\0';
    for (int v = 0; v < self->array_count; v++) {
        struct variable *variable = &self->variable[v];
        int64_t size[ROLES] = {1, 1, 1, 1, 1};
        for (int d = 0; d < variable->dimensions; d++) {
            struct variable_dimension *to = &variable->dimension[d];
            const struct dimension *dimension = grid_dimension(&self->grid, v, d);
            const bool is_level = levels[0] != '\0' && to->role == ROLE_CHANNEL &&
                                  dimension != NULL && dimension->kind == DIMENSION_CHANNEL;
            has_levels |= is_level;
            for (int n = 0; dimension == NULL && n < self->array_count; n++)
                dimension = grid_role_dimension(&self->grid, n, to->role);
            if (text[to->role] != NULL && text[to->role][0] != '\0' &&
                !plane_select(self, part_option[to->role], text[to->role], dimension, to, error))
                return false;
            if (is_level && !levels_select(levels, &self->grid, dimension, to, error))
                return false;
            size[to->role] *= to->count;
        }
        variable->channels = size[ROLE_CHANNEL];
        variable->height = size[ROLE_ROW];
        variable->width = size[ROLE_COLUMN];
    }
    return has_levels || error_set(error, ERROR_DATA,
                                   "data.levels=%s: no data set of data.x and data.y in %s has a "
                                   "dimension of levels; leave data.levels out",
                                   levels, self->grid.path);
}

int64_t variable_index(const struct variable_dimension *dimension, int64_t selected)
{
    int p = 0;
    while (p < dimension->part_count && selected >= dimension->part[p].count)
        selected -= dimension->part[p++].count;
    return p < dimension->part_count ? dimension->part[p].begin + selected : selected;
}

void arrays_cut_grid(const struct arrays *self, struct grid *grid)
{
    for (int v = 0; v < grid->array_count; v++)
        for (int d = 0; d < self->variable[v].dimensions; d++) {
            const struct variable_dimension *from = &self->variable[v].dimension[d];
            struct dimension *dimension = grid_dimension(grid, v, d);
            if (from->part_count == 0 || dimension == NULL || dimension->is_cut ||
                dimension->count != from->extent)
                continue;
            double *all = dimension->values;
            dimension->count = from->count;
            dimension->is_cut = true;
            if (all != NULL)
                dimension->values = allocate((size_t)from->count, sizeof *all);
            for (int64_t i = 0; all != NULL && i < from->count; i++)
                dimension->values[i] = all[variable_index(from, i)];
            free(all);
        }
    /* A variable that has all indices of a cut dimension, as channels, has no coordinates of it. */
    for (int v = 0; v < grid->array_count; v++)
        for (int d = 0; d < self->variable[v].dimensions; d++) {
            const struct dimension *dimension = grid_dimension(grid, v, d);
            if (dimension != NULL && dimension->is_cut &&
                self->variable[v].dimension[d].part_count == 0)
                grid->array[v].dimension[d] = GRID_NONE;
        }
}

void arrays_log_parts(const struct arrays *self)
{
    for (int d = 0; d < self->variable->dimensions; d++) {
        const struct variable_dimension *part = &self->variable->dimension[d];
        const struct dimension *known = grid_dimension(&self->grid, 0, d);
        if (part_option[part->role] != NULL && part->part_count > 0 && known != NULL &&
            known->values != NULL)
            log_info("%s: %lld of %lld, '%s' from %g to %g", part_option[part->role],
                     (long long)part->count, (long long)part->extent, known->name, known->values[0],
                     known->values[part->count - 1]);
    }
}
