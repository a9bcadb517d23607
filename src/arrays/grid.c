// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/grid.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/allocate.h"
#include "base/columns.h"
#include "base/text.h"
#include "options/option_types.h"

/* ---- kinds ---- */

enum property { AXIS, STANDARD_NAME, UNITS, NAME, PROPERTIES };

/* Words between spaces. */
static const char *const kinds[][PROPERTIES] = {
    [DIMENSION_TIME] = {" T ", " time forecast_reference_time ", "", " time t valid_time date "},
    [DIMENSION_CHANNEL] =
        {" Z ",
         " air_pressure height depth altitude model_level_number "
         "atmosphere_hybrid_sigma_pressure_coordinate atmosphere_sigma_coordinate "
         "ocean_s_coordinate ocean_sigma_coordinate geopotential_height ",
         " Pa hPa mbar millibar millibars mb ",
         " level levels lev plev pressure pressure_level isobaric model_level hybrid depth "
         "altitude z bottom_top s_rho deptht band bands channel channels c wavelength "},
    [DIMENSION_ROW] = {" Y ", " latitude grid_latitude projection_y_coordinate ",
                       " degrees_north degree_north degree_N degrees_N degreeN degreesN ",
                       " lat latitude y row rows rlat nav_lat j nj south_north eta_rho yc yh "
                       "nlat "},
    [DIMENSION_COLUMN] = {" X ", " longitude grid_longitude projection_x_coordinate ",
                          " degrees_east degree_east degree_E degrees_E degreeE degreesE ",
                          " lon longitude x column columns col rlon nav_lon i ni west_east xi_rho "
                          "xc xh nlon "},
    [DIMENSION_MEMBER] =
        {"", " realization ", "",
         " member members member_id number realization ensemble ens run runs trajectory "
         "trajectories n_trajectories simulation simulations sample "},
};

static enum dimension_kind kind_of(const struct dimension *dimension)
{
    const char *const texts[PROPERTIES] = {
        array_attribute_text(dimension->attributes, "axis"),
        array_attribute_text(dimension->attributes, "standard_name"), dimension->units,
        dimension->name};
    for (enum property property = AXIS; property < PROPERTIES; property++) {
        for (enum dimension_kind kind = DIMENSION_TIME; kind <= DIMENSION_MEMBER; kind++)
            if (time_word_is_in(kinds[kind][property], texts[property], strlen(texts[property])))
                return kind;
        if (property == UNITS && strstr(dimension->units, " since ") != NULL)
            return DIMENSION_TIME;
    }
    return DIMENSION_UNKNOWN;
}

/* ---- reading ---- */

static struct dimension *dimension_new(struct grid *grid, const char *name, int64_t count)
{
    grid->dimension = allocate_resized(grid->dimension, (size_t)(grid->dimension_count + 1) *
                                                            sizeof *grid->dimension);
    struct dimension *dimension = &grid->dimension[grid->dimension_count++];
    *dimension = (struct dimension){.count = count};
    snprintf(dimension->name, sizeof dimension->name, "%.*s", ARRAY_NAME - 1, name);
    return dimension;
}

/* Return the number of a dimension, which is added unless it is known. path: of an array with its
 * coordinates, or "". */
static int dimension_add(struct grid *grid, const struct array_path *source, const char *path,
                         const char *name, int64_t count)
{
    struct array_box box = {.begin = {0}};
    struct array array = {.path = NULL};
    struct error ignored = {0};
    for (int n = 0; n < grid->dimension_count; n++)
        if (grid->dimension[n].source == source && grid->dimension[n].count == count &&
            strcmp(grid->dimension[n].name, name) == 0 &&
            strcmp(grid->dimension[n].path, path) == 0)
            return n;
    struct dimension *dimension = dimension_new(grid, name, count);
    dimension->source = source;
    snprintf(dimension->path, sizeof dimension->path, "%.*s", HDF5_NAME - 1, path);
    if (path[0] != '\0' && array_path_has(source, path)) {
        dimension->attributes = array_attributes(source, path);
        dimension->values = allocate((size_t)count, sizeof *dimension->values);
        bool good = array_path_array(source, path, &array, &ignored) && array.dimensions > 0 &&
                    array_elements(&array) == count;
        for (int64_t d = array.dimensions, stride = 1; good && d-- > 0; stride *= array.extent[d]) {
            box.count[d] = array.extent[d];
            box.stride[d] = stride;
        }
        if (!good || !array_read_doubles(&array, &box, dimension->values, &ignored)) {
            free(dimension->values);
            dimension->values = NULL;
        }
        array_close(&array);
        error_clear(&ignored);
    }
    snprintf(dimension->units, sizeof dimension->units, "%s",
             array_attribute_text(dimension->attributes, "units"));
    dimension->kind = grid->ignores_names ? DIMENSION_UNKNOWN : kind_of(dimension);
    return grid->dimension_count - 1;
}

static struct grid_array *array_add(struct grid *grid, const char *name, int dimensions)
{
    grid->array =
        allocate_resized(grid->array, (size_t)(grid->array_count + 1) * sizeof *grid->array);
    struct grid_array *added = &grid->array[grid->array_count++];
    *added = (struct grid_array){.dimensions = dimensions, .role = {ROLE_SAMPLE, ROLE_CHANNEL}};
    snprintf(added->name, sizeof added->name, "%s", name);
    for (int d = 0; d < ARRAY_DIMENSIONS; d++)
        added->dimension[d] = GRID_NONE;
    return added;
}

/* True if a dimension has numbers, which are dates if `dated`. */
static bool has_times(const struct grid *grid, int number, bool dated)
{
    return number != GRID_NONE && grid->dimension[number].values != NULL &&
           (!dated || strstr(grid->dimension[number].units, " since ") != NULL);
}

void grid_add(struct grid *grid, const struct array_path *source, const char *name,
              const struct array *array)
{
    char path[HDF5_NAME];
    if (grid->path == NULL) {
        grid->path = allocate_copy(source->path);
        grid->attributes = array_attributes(source, "");
    }
    struct grid_array *added = array_add(grid, name, array->dimensions);
    json_t *attributes = added->attributes = array_attributes(source, name);
    snprintf(added->units, sizeof added->units, "%s", array_attribute_text(attributes, "units"));
    /* HDF5 has dimension scales; in Zarr, a coordinate is an array with the name of the dimension.
     */
    const bool is_hdf5 = source->file != NULL;
    const json_t *list = json_object_get(attributes, is_hdf5 ? HDF5_SCALES : ZARR_DIMENSIONS);
    for (int d = 0; d < array->dimensions; d++) {
        const char *text = json_string_value(json_is_array(list) ? json_array_get(list, (size_t)d)
                                             : d == 0            ? list
                                                                 : NULL);
        if (text == NULL || *text == '\0')
            continue;
        path[0] = '\0';
        if (is_hdf5) {
            json_t *scale = array_attributes(source, text);
            if (strncmp(array_attribute_text(scale, "NAME"), HDF5_DIMENSION_ONLY,
                        strlen(HDF5_DIMENSION_ONLY)) != 0)
                snprintf(path, sizeof path, "%s", text);
            json_decref(scale);
        } else if (!array_path_sibling(source, name, text, path)) {
            path[0] = '\0';
        }
        added->dimension[d] = dimension_add(
            grid, source, path, is_hdf5 ? text_base_name(text) : text, array->extent[d]);
    }
}

void grid_find_times(struct grid *grid, const struct array_path *source, int array,
                     const int64_t *extent)
{
    struct grid_array *self = &grid->array[array];
    char path[HDF5_NAME], words[HDF5_NAME], samples[ARRAY_NAME], *rest = words, *word;
    int d = 0;
    while (d < self->dimensions && self->role[d] != ROLE_SAMPLE)
        d++;
    if (d == self->dimensions)
        return;
    const bool named = self->dimension[d] != GRID_NONE;
    snprintf(samples, sizeof samples, "%s",
             named ? grid->dimension[self->dimension[d]].name : "time");
    snprintf(words, sizeof words, "%s%s", array_attribute_text(self->attributes, "coordinates"),
             named ? "" : " time");
    while (!has_times(grid, self->dimension[d], named) &&
           (word = strtok_r(rest, " ", &rest)) != NULL) {
        int64_t count = extent[d];
        for (int run = d; run >= 0 && array_path_sibling(source, self->name, word, path); run--) {
            const int other = dimension_add(grid, source, path, samples, count);
            if (has_times(grid, other, named))
                self->dimension[d] = other;
            count *= run > 0 ? extent[run - 1] : 1;
        }
    }
}

struct dimension *grid_dimension(const struct grid *grid, int array, int dimension)
{
    const int number = grid->array[array].dimension[dimension];
    return number == GRID_NONE ? NULL : &grid->dimension[number];
}

struct dimension *grid_role_dimension(const struct grid *grid, int array, enum dimension_role role)
{
    for (int d = 0; d < grid->array[array].dimensions; d++)
        if (grid->array[array].role[d] == role)
            return grid_dimension(grid, array, d);
    return NULL;
}

bool dimension_in_degrees(const struct dimension *dimension, enum dimension_kind kind)
{
    const bool is_row = kind == DIMENSION_ROW;
    const char *units = dimension->units, *name = is_row ? "latitude" : "longitude";
    const char *standard = array_attribute_text(dimension->attributes, "standard_name");
    return (units[0] == '\0' || strncmp(units, "deg", strlen("deg")) == 0) &&
           (strcmp(dimension->name, is_row ? "lat" : "lon") == 0 ||
            strcmp(dimension->name, name) == 0 || strstr(standard, name) != NULL ||
            text_ends_with(units, is_row ? "north" : "east") ||
            text_ends_with(units, is_row ? "N" : "E"));
}

void grid_close(struct grid *grid)
{
    for (int n = 0; n < grid->dimension_count; n++) {
        free(grid->dimension[n].values);
        json_decref(grid->dimension[n].attributes);
    }
    for (int n = 0; n < grid->array_count; n++)
        json_decref(grid->array[n].attributes);
    json_decref(grid->attributes);
    free(grid->dimension);
    free(grid->array);
    free(grid->path);
    *grid = (struct grid){0};
}

/* ---- the roles of dimensions ---- */

static bool is_plane(enum dimension_kind kind)
{
    return kind == DIMENSION_ROW || kind == DIMENSION_COLUMN;
}

enum { DIMENSIONS_TEXT = ARRAY_DIMENSIONS * 64 };

/* Write "(time, lat, lon)". */
static void dimensions_write(const struct grid *grid, int array, char text[DIMENSIONS_TEXT])
{
    size_t used = 0;
    for (int d = 0; d < grid->array[array].dimensions; d++) {
        const struct dimension *dimension = grid_dimension(grid, array, d);
        used += (size_t)snprintf(text + used, DIMENSIONS_TEXT - used, "%s%.60s", d > 0 ? ", " : "(",
                                 dimension != NULL ? dimension->name
                                 : d == 0          ? "samples"
                                                   : "?");
    }
    snprintf(text + used, DIMENSIONS_TEXT - used, ")");
}

static enum dimension_kind kind_at(const struct grid *grid, int array, int d)
{
    const struct dimension *known = grid_dimension(grid, array, d);
    return known != NULL ? known->kind : DIMENSION_UNKNOWN;
}

/* Return the dimension of the samples of an array: the one that `named` (its name or number) gives,
 * or GRID_NONE if the array does not have it. If `named` is "": the dimension of times if only runs
 * or members precede it, and if rows and columns follow it or the first array has runs; else 0. */
static int samples_find(const struct grid *grid, int array, const char *named)
{
    const struct grid_array *self = &grid->array[array];
    int after = 2;
    bool has_names = array == 0;
    char number[16];
    for (int other = 0; other < array; other++)
        if (!grid->array[other].is_static && grid->array[other].role[0] == ROLE_RUN)
            after = 0;
    for (int d = 0; *named != '\0' && d < self->dimensions; d++) {
        const struct dimension *known = grid_dimension(grid, array, d);
        snprintf(number, sizeof number, "%d", d);
        has_names |= known != NULL;
        if (strcmp(named, known != NULL ? known->name : number) == 0)
            return d;
    }
    if (*named != '\0')
        return has_names || self->dimensions > 2 ? GRID_NONE : 0;
    for (int d = 0; d + after < self->dimensions; d++) {
        if (kind_at(grid, array, d) == DIMENSION_TIME)
            return d;
        if (kind_at(grid, array, d) != DIMENSION_MEMBER)
            break;
    }
    return 0;
}

/* Return the dimension of the rows of images whose values have the dimensions from `first` on. The
 * next one has the columns. Set `fault` if no dimensions can be both, or if names contradict the
 * order. */
static int rows_find(const struct grid *grid, int array, const int64_t *extent, int first,
                     int order, const char **fault)
{
    const int last = grid->array[array].dimensions - 1;
    int found[ARRAY_DIMENSIONS], count = 0;
    for (int row = first; row < last; row++) {
        bool fits = true;
        for (int d = first; d <= last && last > first + 1; d++) {
            const enum dimension_kind kind = kind_at(grid, array, d);
            fits &= d == row || d == row + 1 ? kind != DIMENSION_CHANNEL && kind != DIMENSION_MEMBER
                                             : !is_plane(kind);
        }
        if (fits)
            found[count++] = row;
    }
    if (count == 0) {
        *fault = "rows and columns must be neighbours";
        return first;
    }
    const int row = found[0], other = found[count - 1];
    const bool is_smallest = extent[last] < extent[row] && extent[last] < extent[row + 1];
    if (count > 1)
        return order == DATA_ORDER_HWC || (order == DATA_ORDER_AUTO && is_smallest) ? row : other;
    if (last > first + 1 && order == (row == first ? DATA_ORDER_CHW : DATA_ORDER_HWC))
        *fault = row == first ? "channels are last, and data.order=chw"
                              : "channels are first, and data.order=hwc";
    return row;
}

bool grid_lacks_samples(const struct grid *grid, int array)
{
    const unsigned image = 1U << DIMENSION_ROW | 1U << DIMENSION_COLUMN;
    unsigned own = 0, all = 0; /* bit n: a dimension of the array, or of any, has kind n */
    for (int n = 0; n < grid->array_count; n++)
        for (int d = 0; d < grid->array[n].dimensions; d++) {
            all |= 1U << kind_at(grid, n, d);
            own |= n == array ? 1U << kind_at(grid, n, d) : 0;
        }
    return (all & 1U << DIMENSION_TIME) != 0 && (own & ~(1U << DIMENSION_CHANNEL)) == image;
}

bool grid_set_roles(struct grid *grid, int array, const int64_t *extent, int order,
                    const char *named, struct error *error)
{
    struct grid_array *self = &grid->array[array];
    const int last = self->dimensions - 1;
    const int samples = self->is_static ? GRID_NONE : samples_find(grid, array, named);
    const char *fault =
        samples == GRID_NONE && !self->is_static ? "data.sample_dim is not one of them" : NULL;
    char names[DIMENSIONS_TEXT];
    int rows = ARRAY_DIMENSIONS;
    for (int d = samples + 1; fault == NULL && !self->is_static && *named == '\0' && d <= last;
         d++) {
        const enum dimension_kind kind = kind_at(grid, array, samples);
        if (kind_at(grid, array, d) == DIMENSION_TIME &&
            ((kind != DIMENSION_UNKNOWN && kind != DIMENSION_MEMBER) || d + 1 < last))
            fault = "time must be the first, that of the samples";
        else if (last > samples + 1 && d < samples + 3 && is_plane(kind) &&
                 is_plane(kind_at(grid, array, d)))
            fault = "the first must have the samples";
    }
    if (fault == NULL && last > samples + 1)
        rows = rows_find(grid, array, extent, samples + 1, order, &fault);
    for (int d = 0; d <= last; d++) {
        const bool is_time = self->is_static && kind_at(grid, array, d) == DIMENSION_TIME;
        if (is_time && extent[d] > 1)
            return error_set(error, ERROR_DATA,
                             "data.static_file has %lld times of %s: keep one of them, or remove "
                             "it from the file",
                             (long long)extent[d], self->name);
        self->role[d] = d < samples || is_time ? ROLE_RUN
                        : d == samples         ? ROLE_SAMPLE
                        : d == rows            ? ROLE_ROW
                        : d == rows + 1        ? ROLE_COLUMN
                                               : ROLE_CHANNEL;
    }
    if (samples != GRID_NONE && kind_at(grid, array, samples) == DIMENSION_MEMBER)
        grid_dimension(grid, array, samples)->kind = DIMENSION_UNKNOWN;
    if (fault == NULL)
        return true;
    dimensions_write(grid, array, names);
    return error_set(error, ERROR_DATA,
                     "%s: %s has the dimensions %s: %s; transpose it, set data.sample_dim to that "
                     "of the samples, or set data.coordinates=ignore if the names are wrong",
                     grid->path, self->name, names, fault);
}

bool grid_is_periodic(const struct grid *grid)
{
    const struct dimension *columns = grid_role_dimension(grid, 0, ROLE_COLUMN);
    if (columns == NULL || columns->values == NULL || columns->count < 2 ||
        !dimension_in_degrees(columns, DIMENSION_COLUMN))
        return false;
    const double *values = columns->values;
    const double spacing =
        copysign(360 / (double)columns->count, remainder(values[1] - values[0], 360));
    for (int64_t x = 0; x < columns->count; x++) {
        const double distance = remainder(values[x] - values[0] - (double)x * spacing, 360);
        if (!(fabs(distance) <= 1e-2 * fabs(spacing)))
            return false;
    }
    return true;
}

/* ---- units ---- */

enum { FACTORS = 16 };

struct factor {
    char name[GRID_UNITS];
    int exponent;
};

static int compare_factors(const void *left, const void *right)
{
    return strcmp(((const struct factor *)left)->name, ((const struct factor *)right)->name);
}

/* Multiply the factors by a power of a unit. */
static int factor_add(struct factor *factors, int count, const char *word, int exponent)
{
    static const char *const names[][2] = {
        {" kelvin Kelvin degK deg_K degree_kelvin degrees_kelvin ", "K"},
        {" celsius Celsius deg_C degree_C degrees_C degree_Celsius degrees_Celsius degree_celsius "
         "degrees_celsius ",
         "degC"},
        {" meter meters metre metres ", "m"},
        {" second seconds sec secs ", "s"},
        {" hour hours hr hrs ", "h"},
        {" day days ", "d"},
        {" pascal pascals Pascal ", "Pa"},
        {" hectopascal hectopascals millibar millibars mbar mb ", "hPa"},
        {" kilogram kilograms ", "kg"},
        {" joule joules ", "J"},
        {" watt watts ", "W"},
        {" percent ", "%"},
        {" degree degrees degrees_north degree_north degree_N degrees_N degreeN degreesN "
         "degrees_east degree_east degree_E degrees_E degreeE degreesE ",
         "deg"}};
    int n = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (time_word_is_in(names[i][0], word, strlen(word)))
            word = names[i][1];
    while (n < count && strcmp(factors[n].name, word) != 0)
        n++;
    if (n == FACTORS || strcmp(word, "1") == 0)
        return count;
    snprintf(factors[n].name, sizeof factors[n].name, "%s", word);
    factors[n].exponent += exponent;
    return n == count ? count + 1 : count;
}

/* Write units in one spelling: factors with exponents, in the order of their names. A division
 * applies to the next factor, or to those in the next parentheses. */
static void units_normalise(const char *units, char text[GRID_UNITS])
{
    struct factor factors[FACTORS] = {{.exponent = 0}};
    int count = 0, sign = 1, outer = 1;
    size_t used = 0;
    for (const char *c = units; *c != '\0';) {
        const size_t length = strcspn(c, " /.*^()");
        char word[GRID_UNITS];
        int exponent = 1;
        if (length == 0) {
            sign = *c == '/' ? -outer : sign;
            outer = *c == '(' ? sign : *c == ')' ? 1 : outer;
            c++;
            continue;
        }
        snprintf(word, sizeof word, "%.*s", (int)length, c);
        c += length;
        char *digits = word + strcspn(word, "+-0123456789");
        if (digits > word && *digits != '\0') { /* "s-1" */
            exponent = atoi(digits);
            *digits = '\0';
        } else if (digits > word && (strncmp(c, "**", 2) == 0 || *c == '^')) { /* "s**-1" */
            char *end;
            exponent = (int)strtol(c + (*c == '^' ? 1 : 2), &end, 10);
            c = end;
        }
        count = factor_add(factors, count, word, sign * exponent);
        sign = outer;
    }
    qsort(factors, (size_t)count, sizeof *factors, compare_factors);
    text[0] = '\0';
    for (int n = 0; n < count && used < GRID_UNITS; n++)
        if (factors[n].exponent != 0)
            used += (size_t)snprintf(text + used, GRID_UNITS - used, "%.20s%d ", factors[n].name,
                                     factors[n].exponent);
}

/* True if two units are spelled differently at most: "m s-1" and "m/s", "K" and "kelvin". */
static bool units_agree(const char *one, const char *other)
{
    char a[GRID_UNITS], b[GRID_UNITS];
    units_normalise(one, a);
    units_normalise(other, b);
    return one[0] == '\0' || other[0] == '\0' || strcmp(a, b) == 0;
}

/* ---- comparison ---- */

/* Return the units of a coordinate of times; of others, those of numbers without a date. */
static struct time_units units_of(const struct dimension *dimension)
{
    const char *calendar = array_attribute_text(dimension->attributes, "calendar");
    struct time_units units;
    return dimension->kind == DIMENSION_TIME && time_units_parse(dimension->units, calendar, &units)
               ? units
               : (struct time_units){.has_date = false};
}

/* Return the number of the first coordinate that differs, or -1. Numbers may be rounded to
 * float32. */
static int64_t values_compare(const struct dimension *one, const struct dimension *other)
{
    const struct time_units units = units_of(one), others = units_of(other);
    const bool turns = one->kind == DIMENSION_COLUMN && strncmp(one->units, "deg", 3) == 0;
    double spacing = one->count < 2 ? fabs(one->values[0]) : (double)INFINITY;
    for (int64_t i = 1; i < one->count; i++)
        spacing = fmin(spacing, fabs(one->values[i] - one->values[i - 1]));
    for (int64_t i = 0; i < one->count; i++) {
        const double a = time_decode(&units, one->values[i]);
        const double b = time_decode(&others, other->values[i]);
        const double distance = turns ? fabs(remainder(a - b, 360)) : fabs(a - b);
        const bool both_missing = isnan(one->values[i]) && isnan(other->values[i]);
        if (!(distance <= 1e-4 * spacing + fabs(a) * 0x1p-23) && !both_missing)
            return i;
    }
    return -1;
}

/* A dimension of an array in a file. */
struct place {
    const struct grid *grid;
    const char *path; /* of the file */
    int array;
    const struct dimension *dimension;
};

static bool dimensions_compare(const struct place *one, const struct place *other,
                               struct error *error)
{
    const struct dimension *a = one->dimension, *b = other->dimension;
    char reason[2 * DIMENSIONS_TEXT + 64] = "", one_text[DIMENSIONS_TEXT], text[DIMENSIONS_TEXT];
    if (a == NULL || b == NULL)
        return true;
    const struct time_units units = units_of(a), others = units_of(b);
    const bool has_values = a->values != NULL && b->values != NULL;
    const bool named = a->kind != DIMENSION_UNKNOWN || b->kind != DIMENSION_UNKNOWN ||
                       a->values != NULL || b->values != NULL;
    if (a->kind != b->kind && a->kind != DIMENSION_UNKNOWN && b->kind != DIMENSION_UNKNOWN) {
        dimensions_write(one->grid, one->array, one_text);
        dimensions_write(other->grid, other->array, text);
        snprintf(reason, sizeof reason, "dimensions %s instead of %s", text, one_text);
    } else if (!named && strcmp(a->name, b->name) != 0)
        snprintf(reason, sizeof reason, "they have other names");
    else if (a->count != b->count)
        snprintf(reason, sizeof reason, "%lld coordinates instead of %lld", (long long)b->count,
                 (long long)a->count);
    else if (a->kind != DIMENSION_TIME && !units_agree(a->units, b->units))
        snprintf(reason, sizeof reason, "units '%.40s' instead of '%.40s'", b->units, a->units);
    else if (has_values && !time_units_comparable(&units, &others))
        snprintf(reason, sizeof reason, "its units or calendar cannot be compared");
    else if (has_values) {
        const int64_t i = values_compare(a, b);
        if (i >= 0)
            snprintf(reason, sizeof reason, "coordinate %lld is %.9g instead of %.9g", (long long)i,
                     b->values[i], a->values[i]);
    }
    return reason[0] == '\0' ||
           error_set(error, ERROR_DATA,
                     "%s: dimension '%s' of %s differs from '%s' of %s in %s: %s; use data on one "
                     "grid, or set data.coordinates=ignore",
                     other->path, b->name, other->grid->array[other->array].name, a->name,
                     one->grid->array[one->array].name, one->path, reason);
}

bool grid_check(const struct grid *grid, struct error *error)
{
    for (enum dimension_role role = 0; role < ROLES; role++) {
        struct place first = {.dimension = NULL};
        for (int n = 0; role != ROLE_CHANNEL && n < grid->array_count; n++) {
            const bool is_used = !grid->array[n].is_static || !role_is_sample(role);
            const struct dimension *found = is_used ? grid_role_dimension(grid, n, role) : NULL;
            const char *path = found != NULL ? found->source->path : grid->path;
            const struct place other = {grid, path, n, found};
            if (first.dimension == NULL)
                first = other;
            else if (first.dimension != other.dimension &&
                     !dimensions_compare(&first, &other, error))
                return false;
        }
    }
    return true;
}

/* Return the first dimension from `d` on that does not number samples, or their number. */
static int value_dimension(const struct grid_array *array, int d)
{
    while (d < array->dimensions && role_is_sample(array->role[d]))
        d++;
    return d;
}

bool grid_compare(const struct grid *first, const struct grid *other, struct error *error)
{
    char step[TIME_TEXT], other_step[TIME_TEXT];
    for (int n = 0; n < other->array_count; n++) {
        const struct grid_array *b = &other->array[n];
        int m = 0;
        while (m < first->array_count && strcmp(first->array[m].name, b->name) != 0)
            m++;
        if (m == first->array_count)
            continue;
        const struct grid_array *a = &first->array[m];
        if (!units_agree(a->units, b->units))
            return error_set(error, ERROR_DATA,
                             "%s: %s has the units '%s', in %s it has '%s': convert one of them, "
                             "or set data.coordinates=ignore",
                             other->path, b->name, b->units, first->path, a->units);
        int d = value_dimension(a, 0), e = value_dimension(b, 0);
        for (; d < a->dimensions && e < b->dimensions;
             d = value_dimension(a, d + 1), e = value_dimension(b, e + 1)) {
            const struct place one = {first, first->path, m, grid_dimension(first, m, d)};
            const struct place two = {other, other->path, n, grid_dimension(other, n, e)};
            if (!dimensions_compare(&one, &two, error))
                return false;
        }
    }
    if (time_step_agrees(&first->step, &other->step))
        return true;
    time_step_write(&first->step, true, step);
    time_step_write(&other->step, true, other_step);
    return error_set(error, ERROR_DATA,
                     "%s: its times have a step of %s, those of %s one of %s: use data of one "
                     "step, or set data.coordinates=ignore",
                     other->path, other_step, first->path, step);
}

/* ---- JSON ---- */

/* Unit of the step, of which RULER_NONE has none. */
enum { RULER_NONE, RULER_SECONDS, RULER_MONTHS = 3 };

static json_t *dimension_describe(const struct dimension *dimension)
{
    json_t *values = json_array();
    for (int64_t i = 0; dimension->values != NULL && i < dimension->count; i++)
        value_append(values, value_number(dimension->values[i]));
    return json_pack("{s:o, s:o, s:i, s:I, s:o}", "name", value_name(dimension->name), "units",
                     value_name(dimension->units), "kind", (int)dimension->kind, "count",
                     (json_int_t)dimension->count, "values", values);
}

char *grid_write(const struct grid *grid)
{
    json_t *arrays = json_array();
    for (int n = 0; n < grid->array_count; n++) {
        const struct grid_array *self = &grid->array[n];
        json_t *dimensions = json_array();
        for (int d = value_dimension(self, 0); d < self->dimensions;
             d = value_dimension(self, d + 1))
            value_append(dimensions, self->dimension[d] == GRID_NONE
                                         ? json_null()
                                         : dimension_describe(grid_dimension(grid, n, d)));
        value_append(arrays, json_pack("{s:o, s:o, s:o}", "name", value_name(self->name), "units",
                                       value_name(self->units), "dimensions", dimensions));
    }
    const int ruler = grid->step.months > 0 ? RULER_MONTHS
                      : grid->step.size > 0 ? RULER_SECONDS
                                            : RULER_NONE;
    return value_to_text(json_pack("{s:o, s:[i, f]}", "arrays", arrays, "step", ruler,
                                   ruler == RULER_MONTHS ? grid->step.months : grid->step.size));
}

/* Return the number of a dimension in the grid, or GRID_NONE if it is not known. */
static int dimension_parse(struct grid *grid, json_t *object)
{
    const char *name, *units;
    int kind;
    json_int_t count;
    json_t *values;
    if (json_unpack(object, "{s:s, s:s, s:i, s:I, s:o}", "name", &name, "units", &units, "kind",
                    &kind, "count", &count, "values", &values) != 0 ||
        kind < DIMENSION_UNKNOWN || kind > DIMENSION_MEMBER || count < 1)
        return GRID_NONE;
    struct dimension *dimension = dimension_new(grid, name, count);
    snprintf(dimension->units, sizeof dimension->units, "%s", units);
    dimension->kind = (enum dimension_kind)kind;
    if (json_array_size(values) == (size_t)count)
        dimension->values = allocate((size_t)count, sizeof *dimension->values);
    for (size_t i = 0; dimension->values != NULL && i < (size_t)count; i++) {
        const json_t *value = json_array_get(values, i);
        dimension->values[i] = json_is_number(value) ? json_number_value(value) : (double)NAN;
    }
    return grid->dimension_count - 1;
}

void grid_parse(const char *text, const char *path, struct grid *grid)
{
    json_t *object = json_loads(text, 0, NULL), *array, *dimension, *dimensions;
    const char *name, *units;
    int ruler;
    double size;
    size_t n, d;
    *grid = (struct grid){.path = allocate_copy(path)};
    json_array_foreach(json_object_get(object, "arrays"), n, array)
    {
        if (json_unpack(array, "{s:s, s:s, s:o}", "name", &name, "units", &units, "dimensions",
                        &dimensions) != 0 ||
            json_array_size(dimensions) >= ARRAY_DIMENSIONS)
            continue;
        struct grid_array *added = array_add(grid, name, (int)json_array_size(dimensions) + 1);
        snprintf(added->units, sizeof added->units, "%s", units);
        json_array_foreach(dimensions, d, dimension)
        {
            added->role[d + 1] = ROLE_CHANNEL; /* any role that does not number samples */
            added->dimension[d + 1] = dimension_parse(grid, dimension);
        }
    }
    if (json_unpack(object, "{s:[i, F]}", "step", &ruler, &size) == 0 && size > 0) {
        grid->step.size = size;
        if (ruler == RULER_MONTHS)
            grid->step = (struct time_step){.size = size * 30.44 * TIME_DAY, .months = (int)size};
    }
    json_decref(object);
}
