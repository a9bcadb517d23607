// SPDX-License-Identifier: BSD-3-Clause
/* The command `data describe` lists the arrays of a file or folder and the options that train with
 * them. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* strcasestr */
#endif
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "arrays/arrays.h"
#include "arrays/decode.h"
#include "arrays/grid.h"
#include "base/allocate.h"
#include "base/base.h"
#include "base/text.h"
#include "commands/app.h"
#include "options/option_types.h"
#include "options/options.h"

/* An array, with everything that is known without reading its values. */
struct entry {
    char *path; /* as in data.x: "/group/u" */
    struct array array;
    char kind;          /* of the values: 'i', 'u', 'f', 'b' (Boolean); '\0': they cannot be read */
    bool is_coordinate; /* or bounds of coordinates or a grid mapping, not data */
    int dimensions;     /* of `extent`: without runs, with at most one of channels */
    int64_t extent[4];  /* of images [N, H, W] or [N, C, H, W]; else of the array */
    int64_t times;      /* of each run; without runs, the samples */
    bool channels_last; /* in the file */
    json_t *attributes;
    char *reason; /* why the array cannot be read; "": it can */
};

/* The arrays of a file or folder. */
struct list {
    struct hdf5_reader reader;
    struct array_path source;
    struct entry *entry;
    size_t count;
};

/* ---- the list of arrays ---- */

/* Set the members that depend on attributes. xarray writes Booleans as int8, and the names of
 * dimensions as an attribute; its coordinates have the name of their dimension. */
static void attributes_set(struct entry *entry, const struct array_path *source)
{
    const json_t *attributes = entry->attributes = array_attributes(source, entry->path);
    const json_t *dimension = json_object_get(attributes, ZARR_DIMENSIONS);
    if (json_array_size(dimension) == 1)
        dimension = json_array_get(dimension, 0);
    if (entry->kind != '\0' && strcmp(array_attribute_text(attributes, "dtype"), "bool") == 0)
        entry->kind = 'b';
    if (entry->kind != '\0' && (json_object_get(attributes, "scale_factor") != NULL ||
                                json_object_get(attributes, "add_offset") != NULL))
        entry->kind = 'f'; /* of the values, not of the stored integers */
    entry->is_coordinate =
        strcmp(array_attribute_text(attributes, "CLASS"), "DIMENSION_SCALE") == 0 ||
        (json_is_string(dimension) &&
         strcmp(json_string_value(dimension), text_base_name(entry->path)) == 0);
}

/* Decide the order of the dimensions of an array that may be images, and its shape as images. */
static void order_set(struct entry *entry, const struct array_path *source)
{
    struct error error = {0};
    struct grid grid = {0};
    grid_add(&grid, source, entry->path + 1, &entry->array);
    if (!grid_set_roles(&grid, 0, entry->array.extent, DATA_ORDER_AUTO, "", &error)) {
        entry->kind = '\0';
        free(entry->reason);
        entry->reason = allocate_text("it %s", strstr(error.text, "has the dimensions"));
    }
    int64_t size[ROLES] = {1, 1, 1, 1, 1};
    int channels = 0;
    for (int d = 0; d < entry->dimensions; d++) {
        const enum dimension_role role = grid.array[0].role[d];
        channels += role == ROLE_CHANNEL;
        size[role] *= entry->array.extent[d];
    }
    entry->channels_last = channels > 0 && grid.array[0].role[1] == ROLE_ROW;
    entry->times = size[ROLE_SAMPLE];
    if (channels <= CHANNEL_DIMENSIONS) {
        entry->dimensions = channels > 0 ? 4 : 3;
        entry->extent[0] = size[ROLE_RUN] * size[ROLE_SAMPLE];
        entry->extent[1] = size[ROLE_CHANNEL];
        entry->extent[entry->dimensions - 2] = size[ROLE_ROW];
        entry->extent[entry->dimensions - 1] = size[ROLE_COLUMN];
    }
    error_clear(&error);
    grid_close(&grid);
}

static void entry_read(struct list *list, const char *name, struct entry *entry)
{
    static const char prefix[] = "': ";
    const struct array *array = &entry->array;
    struct error error = {0};
    entry->path = allocate_text("/%s", name);
    if (array_path_array(&list->source, name, &entry->array, &error))
        entry->kind = array->is_bool ? 'b' : array->kind;
    /* The reason follows "FILE: cannot read 'NAME". */
    const char *quoted = strstr(error.text, "cannot read '");
    const char *reason = quoted != NULL ? strstr(quoted, prefix) : NULL;
    entry->reason = allocate_copy(reason != NULL ? reason + strlen(prefix) : error.text);
    error_clear(&error);
    attributes_set(entry, &list->source);
    entry->dimensions = array->dimensions;
    entry->times = array->extent[0];
    memcpy(entry->extent, array->extent, sizeof entry->extent);
    if (entry->kind != '\0' && array->dimensions > 2)
        order_set(entry, &list->source);
}

/* Mark the arrays of its group to which an array refers by the CF conventions. */
static void references_mark(struct list *list, const struct entry *from)
{
    static const char *const attributes[] = {"coordinates", "bounds", "climatology",
                                             "grid_mapping"};
    const int group = (int)(text_base_name(from->path) - from->path);
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        OWNED char *names = allocate_copy(array_attribute_text(from->attributes, attributes[i]));
        char *rest = NULL;
        for (char *name = strtok_r(names, " ", &rest); name != NULL;
             name = strtok_r(NULL, " ", &rest))
            for (size_t n = 0; n < list->count; n++)
                list->entry[n].is_coordinate |=
                    strncmp(list->entry[n].path, from->path, (size_t)group) == 0 &&
                    strcmp(list->entry[n].path + group, name) == 0;
    }
}

/* Call list_free in any case. */
static bool list_read(const char *path, struct list *list, struct error *error)
{
    struct listing names = {0};
    *list = (struct list){.reader = {.kind = ERROR_DATA, .purpose = "arrays"}};
    const bool good = array_path_open(&list->source, path, &list->reader, error) &&
                      array_path_list(&list->source, &names, error);
    list->entry = allocate(names.count, sizeof *list->entry);
    for (; list->count < names.count; list->count++)
        entry_read(list, names.names[list->count], &list->entry[list->count]);
    for (size_t n = 0; n < list->count; n++)
        references_mark(list, &list->entry[n]);
    listing_free(&names);
    return good;
}

static void list_free(struct list *list)
{
    for (size_t n = 0; n < list->count; n++) {
        struct entry *entry = &list->entry[n];
        array_close(&entry->array);
        free(entry->path);
        json_decref(entry->attributes);
        free(entry->reason);
    }
    free(list->entry);
    hdf5_reader_close(&list->reader);
    array_path_close(&list->source);
}

static void sizes_print(const int64_t *sizes, int count)
{
    for (int d = 0; d < count; d++)
        printf("%s%lld", d == 0 ? "[" : ", ", (long long)sizes[d]);
    printf(count > 0 ? "]" : "scalar");
}

/* Print NumPy's name of a type ("float32", "big-endian int16"), or "text" or "not numeric". */
static void type_print(const struct array *array)
{
    const char kind = array->kind;
    const char *name = kind == 'i' ? "int" : kind == 'u' ? "uint" : kind == 'f' ? "float" : NULL;
    const char *other =
        __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? "big-endian " : "little-endian ";
    if (array->is_bool)
        printf("bool ");
    else if (name == NULL)
        printf("%s ", kind == 'S' || kind == 'O' ? "text" : "not numeric");
    else
        printf("%s%s%lld ", array->swapped ? other : "", name, 8 * (long long)array->element_bytes);
}

static void chunks_print(const struct array *array)
{
    char filter[FILTER_NAME], missing[80] = "";
    printf(", chunks ");
    sizes_print(array->chunk, array->dimensions);
    if (array->filter_count == 0)
        printf(", no filter");
    for (int n = 0; n < array->filter_count; n++) {
        filter_find(array->filter[n], filter);
        printf(", %s", filter);
    }
    array_missing_write(array, missing, sizeof missing);
    printf("%s%s", missing[0] != '\0' ? ", " : "", missing);
}

/* Print "; NAME=VALUE". */
static void attribute_print(const json_t *attributes, const char *name)
{
    enum { MOST_NUMBERS = 4 };
    const json_t *attribute = json_object_get(attributes, name);
    double values[MOST_NUMBERS];
    char text[80];
    const int count = array_attribute_numbers(attributes, name, values, MOST_NUMBERS);
    snprintf(text, sizeof text, "%s", array_attribute_text(attributes, name));
    text_remove_control(text);
    if (count == 0 && text[0] != '\0')
        printf("; %s=%s%s", name, text, json_array_size(attribute) > 1 ? ", ..." : "");
    for (int i = 0; i < count; i++) {
        text_shortest_decimal(values[i], false, text, sizeof text);
        printf("%s%s%s%s", i > 0 ? "," : "; ", i > 0 ? "" : name, i > 0 ? "" : "=", text);
    }
}

static void entry_print(const struct entry *entry)
{
    /* Those that change how values are read or describe them. */
    static const char *const shown[] = {"units",      "long_name",     "scale_factor", "add_offset",
                                        "_FillValue", "missing_value", "valid_range",  "valid_min",
                                        "valid_max",  "class_names"};
    const struct array *array = &entry->array;
    OWNED char *path = allocate_copy(entry->path);
    text_remove_control(path);
    printf("  %-24s ", path);
    if (array->has_shape) {
        type_print(array);
        sizes_print(array->extent, array->dimensions);
        if (array->is_chunked && array->dimensions > 0)
            chunks_print(array);
        for (size_t n = 0; n < sizeof shown / sizeof shown[0]; n++)
            attribute_print(entry->attributes, shown[n]);
    }
    if (entry->reason[0] != '\0')
        printf("%scannot be read: %s", array->has_shape ? "; " : "", entry->reason);
    printf("\n");
}

/* ---- suggestions ---- */

/* What a data set can be as data.y, the best last. */
enum role {
    ROLE_NONE,
    ROLE_BOOLEAN,
    ROLE_LABELS,
    ROLE_PLANES,
    ROLE_NUMBERS,
    ROLE_MASKS,
    ROLE_CLASSES
};

/* A sample of a segmentation seldom has more classes. Fewer samples are not split. */
enum { CLASSES_IN_SAMPLE = 16, SAMPLES_SPLIT = 10, PIXELS_READ = 1 << 26 };

struct suggestion {
    const struct entry *x, *y; /* NULL: none */
    enum role role;            /* of y */
    bool has_time;             /* the samples have coordinates in time */
    bool has_coordinates;      /* of dimensions: the arrays are fields */
    int64_t files;
    char x_list[OPTION_TEXT]; /* value of data.x: x, and others of its shape if it is [N, H, W] */
};

static bool is_time(const struct entry *entry)
{
    return entry->array.dimensions == 1 &&
           (strcasecmp(text_base_name(entry->path), "time") == 0 ||
            (entry->is_coordinate &&
             strstr(array_attribute_text(entry->attributes, "units"), " since ") != NULL));
}

/* True if the name of a data set is that of labels. */
static bool has_label_name(const struct entry *entry)
{
    static const char *const words[] = {"label", "class", "target", "mask", "annotation"};
    const char *name = text_base_name(entry->path);
    for (size_t n = 0; n < sizeof words / sizeof words[0]; n++)
        if (strcasestr(name, words[n]) != NULL)
            return true;
    return strcmp(name, "y") == 0;
}

static bool is_image(const struct entry *entry, bool allows_labels)
{
    return entry->kind != '\0' && entry->kind != 'b' && !entry->is_coordinate &&
           (entry->dimensions == 3 || entry->dimensions == 4) && entry->extent[0] > 0 &&
           (allows_labels || !has_label_name(entry));
}

/* Keep the largest array of images. Others of the same shape [N, H, W] are added as channels, if
 * both are real or integers. */
static void suggest_x(struct suggestion *suggestion, const struct entry *entry)
{
    const struct entry *x = suggestion->x;
    const size_t used = strlen(suggestion->x_list);
    const bool has_shape_of_x = x != NULL && x->dimensions == entry->dimensions &&
                                memcmp(x->extent, entry->extent, sizeof x->extent) == 0;
    if (has_shape_of_x && entry->dimensions == 3 && (x->kind == 'f') == (entry->kind == 'f')) {
        if (used + strlen(entry->path) + 2 < sizeof suggestion->x_list)
            snprintf(suggestion->x_list + used, sizeof suggestion->x_list - used, ",%s",
                     entry->path);
    } else if (x == NULL || array_elements(&entry->array) > array_elements(&x->array) ||
               (array_elements(&entry->array) == array_elements(&x->array) && x->kind != 'f' &&
                entry->kind == 'f')) {
        suggestion->x = entry;
        snprintf(suggestion->x_list, sizeof suggestion->x_list, "%s", entry->path);
    }
}

/* Return the dimension of the rows of images. */
static int plane_row(const struct entry *entry)
{
    return entry->dimensions == 4 ? 2 : 1;
}

static enum role role_of(const struct suggestion *suggestion, const struct entry *entry)
{
    const struct entry *x = suggestion->x;
    const bool is_real = entry->kind == 'f';
    const int row = plane_row(x), y_row = plane_row(entry);
    if (entry->kind == '\0' || entry->dimensions < 1 || entry->dimensions > 4 ||
        entry->extent[0] != x->extent[0] || entry->is_coordinate || is_time(entry) ||
        text_has_item(suggestion->x_list, entry->path) ||
        (entry->dimensions > 2 && (x->extent[row] != entry->extent[y_row] ||
                                   x->extent[row + 1] != entry->extent[y_row + 1])))
        return ROLE_NONE;
    if (entry->dimensions == 2 && !is_real)
        return ROLE_LABELS;
    if (entry->dimensions == 4)
        return is_real ? ROLE_PLANES : ROLE_NONE;
    if (entry->kind == 'b')
        return ROLE_BOOLEAN;
    if (entry->dimensions == 3)
        return is_real ? ROLE_PLANES : ROLE_MASKS;
    return is_real ? ROLE_NUMBERS : ROLE_CLASSES;
}

/* Keep the best array for data.y: one with the name of labels, or the one with the best role. */
static void suggest_y(struct suggestion *suggestion, const struct entry *entry)
{
    const enum role role = role_of(suggestion, entry);
    const bool named = role > ROLE_BOOLEAN && has_label_name(entry);
    const bool y_named =
        suggestion->y != NULL && suggestion->role > ROLE_BOOLEAN && has_label_name(suggestion->y);
    if (role == ROLE_NONE || (y_named && !named))
        return;
    if (suggestion->y == NULL || (named && !y_named) || role > suggestion->role) {
        suggestion->y = entry;
        suggestion->role = role;
    }
}

static void suggest(struct suggestion *suggestion, const struct list *list)
{
    for (int allows_labels = 0; suggestion->x == NULL && allows_labels < 2; allows_labels++)
        for (size_t n = 0; n < list->count; n++)
            if (is_image(&list->entry[n], allows_labels == 1))
                suggest_x(suggestion, &list->entry[n]);
    for (size_t n = 0; suggestion->x != NULL && n < list->count; n++) {
        suggest_y(suggestion, &list->entry[n]);
        suggestion->has_coordinates |= list->entry[n].is_coordinate;
        suggestion->has_time |=
            is_time(&list->entry[n]) && list->entry[n].array.extent[0] == suggestion->x->times;
    }
    if (suggestion->has_time && suggestion->role == ROLE_BOOLEAN)
        suggestion->y = NULL;
}

/* Print a word of a command, in quotes if the shell would change it. */
static void word_print(const char *key, const char *value)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "/._,:=+@%-";
    OWNED char *word = allocate_copy(value);
    text_remove_control(word);
    const bool quoted = word[strspn(word, plain)] != '\0';
    printf(" %s%s=", quoted ? "'" : "", key);
    for (const char *c = word; *c != '\0'; c++)
        printf("%s%c", *c == '\'' ? "'\\'" : "", *c);
    printf("%s", quoted ? "'" : "");
}

static void root_print(const struct suggestion *suggestion, const char *path)
{
    printf("  vittrain data.format=arrays");
    word_print("data.root", path);
    word_print("data.x", suggestion->x_list);
}

/* The default model has patches of 4 x 4 pixels and, on CPUs, attention to at most TOKENS_MOST of
 * them. Planes are not resized. */
enum { PATCH_DEFAULT = 4, PATCH_MOST = 16, TOKENS_MOST = 2500, BATCH_TOKENS = 65536 };
enum { WINDOW = 256, WINDOW_PATCH = 8 };

static int64_t tokens_of(int64_t height, int64_t width, int64_t patch)
{
    return round_up_division(height, patch) * round_up_division(width, patch);
}

/* Print the options with which a model of planes of this size needs a few GB of memory: a patch, or
 * windows, and a batch size. */
static void size_print(int64_t height, int64_t width)
{
    int64_t patch = PATCH_DEFAULT, batch = BATCH_DEFAULT;
    if (tokens_of(height, width, PATCH_MOST) > TOKENS_MOST) {
        height = smaller(height, WINDOW);
        width = smaller(width, WINDOW);
        patch = WINDOW_PATCH;
        printf(" augment.crop=random model.image=%lld model.image_width=%lld", (long long)height,
               (long long)width);
    }
    while (tokens_of(height, width, patch) > TOKENS_MOST)
        patch *= 2;
    while (batch > 1 && batch * tokens_of(height, width, patch) > BATCH_TOKENS)
        batch /= 2;
    if (patch > PATCH_DEFAULT)
        printf(" model.patch=%lld", (long long)patch);
    if (batch < BATCH_DEFAULT)
        printf(" train.batch=%lld", (long long)batch);
}

/* Print the options that all tasks need. Few samples are not split. */
static void options_end(const struct suggestion *suggestion, bool is_dense, bool from_end)
{
    const int64_t *extent = suggestion->x->extent, *plane = extent + plane_row(suggestion->x);
    const char *val = extent[0] * suggestion->files < SAMPLES_SPLIT ? " data.val=none"
                      : from_end ? " data.val=0.1 data.val_from=end"
                                 : " data.val=0.1";
    if (is_dense && plane[0] * plane[1] > 1) {
        printf(" model.head=dense");
        size_print(plane[0], plane[1]);
    }
    printf("%s%s\n", extent[0] == 1 ? " data.join=on" : "", val);
}

/* Print the options with which the next step is predicted from each one. */
static void forecast_print(const struct suggestion *suggestion, const char *path)
{
    struct text_stream list;
    size_t length;
    text_stream_open(&list);
    for (const char *item = text_next_item(suggestion->x_list, &length); item != NULL;
         item = text_next_item(item + length, &length))
        fprintf(list.stream, "%s%.*s@+1", item > suggestion->x_list ? "," : "", (int)length, item);
    OWNED char *next = text_stream_close(&list);
    printf("%s\n", suggestion->y != NULL
                       ? "or predict the next step with these:"
                       : "train with these options, which predict the next step:");
    root_print(suggestion, path);
    word_print("data.y", next);
    printf(" data.task=regression");
    options_end(suggestion, true, true);
}

/* Values of a mask. */
struct mask_values {
    int64_t samples;  /* that were read, from the first one on; 0: none could be read */
    int64_t distinct; /* in the first sample */
    double least, largest;
};

/* Read a mask, or the first samples of a large one. The file is opened again because its
 * description has no chunks (hdf5_reader.datasets). */
static struct mask_values mask_read(const struct entry *mask, const char *described)
{
    const int64_t *extent = mask->array.extent, pixels = extent[1] * extent[2];
    const int64_t samples = smaller(extent[0], PIXELS_READ / larger(1, pixels));
    const struct array_box box = {.count = {samples, extent[1], extent[2]},
                                  .stride = {pixels, extent[2], 1}};
    const char *name = mask->path + 1; /* without the slash */
    struct hdf5_reader reader = {.kind = ERROR_DATA, .purpose = "arrays", .datasets = name};
    struct array_path source;
    struct array array = {.path = NULL};
    struct error ignored = {0};
    OWNED float *values = allocate((size_t)(samples * pixels), sizeof *values);
    struct mask_values found = {.samples = 0};
    if (array_path_open(&source, described, &reader, &ignored) && samples > 0 &&
        array_path_array(&source, name, &array, &ignored) &&
        array_read(&array, &box, values, &ignored)) {
        found.samples = samples;
        for (int64_t i = 0; i < samples * pixels; i++) {
            found.least = fmin(found.least, (double)values[i]);
            found.largest = fmax(found.largest, (double)values[i]);
        }
        qsort(values, (size_t)pixels, sizeof *values, compare_uint32);
        for (int64_t i = 0; i < pixels; i++)
            found.distinct += i == 0 || values[i] != values[i - 1];
    }
    array_close(&array);
    array_path_close(&source);
    hdf5_reader_close(&reader);
    return found;
}

/* Print a note on the classes of a mask without names. */
static void mask_print(const struct entry *mask, const struct mask_values *values)
{
    if (values->distinct > CLASSES_IN_SAMPLE)
        printf("  (the first sample of %s has %lld values: if they number objects, they are "
               "instances and not classes; replace them by the classes of the objects)\n",
               mask->path, (long long)values->distinct);
    else if (values->samples > 0 && values->least >= 0)
        printf("  (the values of %s are at most %g in %s%lld samples; if V marks pixels without a "
               "class, add train.ignore_label=V)\n",
               mask->path, values->largest,
               values->samples < mask->array.extent[0] ? "the first " : "its ",
               (long long)values->samples);
    else if (values->samples == 0)
        printf("  (add model.classes=K, the number of classes in %s)\n", mask->path);
}

static void suggestion_print(const struct suggestion *suggestion, const char *path,
                             const char *described)
{
    const struct entry *y = suggestion->y;
    const enum role role = suggestion->role;
    const bool is_mask = y != NULL && y->array.dimensions == 3 && role != ROLE_PLANES;
    const bool is_unnamed = is_mask && json_object_get(y->attributes, "class_names") == NULL;
    struct mask_values values = {.samples = 0};
    if (suggestion->x == NULL) {
        printf("no data set has the shape of images: [N, C, H, W], [N, H, W, C] or [N, H, W]\n");
        return;
    }
    if (suggestion->x->extent[0] * suggestion->files == 1) {
        printf("%s has the shape of images, but only one sample: set data.root to a folder with "
               "files of more samples\n",
               suggestion->x->path);
        return;
    }
    if (y != NULL || !suggestion->has_time) {
        const bool is_copied = y == NULL && suggestion->has_coordinates;
        const bool is_planes = role == ROLE_PLANES || is_copied;
        printf("train with these options%s:\n",
               is_copied   ? ", which predict the images themselves, or set data.y=PATH"
               : y == NULL ? " and data.y=PATH, a data set of labels [N]"
                           : "");
        root_print(suggestion, path);
        if (y != NULL || is_copied)
            word_print("data.y", y != NULL ? y->path : suggestion->x_list);
        printf("%s%s", role == ROLE_NUMBERS || is_planes ? " data.task=regression" : "",
               role == ROLE_LABELS ? " train.loss=bce" : "");
        if (is_unnamed)
            values = mask_read(y, described);
        if (values.samples > 0)
            printf(" model.classes=%lld", (long long)values.largest + 1);
        if (values.least < 0)
            printf(" train.ignore_label=%.0f", values.least);
        options_end(suggestion, is_planes || is_mask, false);
    }
    if (is_unnamed)
        mask_print(y, &values);
    if (suggestion->has_time)
        forecast_print(suggestion, path);
    const bool hwc = suggestion->x->channels_last;
    const int64_t channels = suggestion->x->extent[1];
    if (suggestion->x->dimensions == 4)
        printf("  (%lld channel%s, order %s; if channels are %s, add data.order=%s)\n",
               (long long)channels, channels == 1 ? "" : "s", hwc ? "hwc" : "chw",
               hwc ? "first" : "last", hwc ? "chw" : "hwc");
}

static void path_describe(const char *path, struct error *error)
{
    struct list list = {.count = 0};
    struct split_files files = {0};
    struct stat status;
    if (array_path_find(path, &files, NULL, error) && list_read(files.path[0], &list, error)) {
        const char *described = files.path[0];
        struct suggestion suggestion = {.files = files.count};
        suggest(&suggestion, &list);
        printf("%s, %s", described, array_path_format(&list.source));
        if (stat(described, &status) == 0 && S_ISREG(status.st_mode))
            printf(", %.1f MB", (double)status.st_size / 1e6);
        if (files.count > 1)
            printf(", the first of %lld files", (long long)files.count);
        printf("\n");
        for (size_t n = 0; n < list.count; n++)
            entry_print(&list.entry[n]);
        suggestion_print(&suggestion, path, described);
    }
    list_free(&list);
    split_files_free(&files);
    error_defer(app_output_arrived(error));
}

static void data_run(const struct options *options, const struct command_line *line,
                     struct comm *world, struct error *error)
{
    (void)options;
    if (line->operand_count != 2 || strcmp(line->operand[0], "describe") != 0)
        error_set(error, ERROR_USAGE,
                  "data needs `describe` and a file or folder: vittrain data describe FILE.h5");
    else if (world->rank == 0)
        path_describe(line->operand[1], error);
    comm_agree(world, error);
}

const struct command command_data = {
    .name = "data",
    .synopsis = "data describe FILE.h5|FILE.nc|STORE.zarr|FOLDER",
    .summary = "list the arrays of an HDF5 or NetCDF-4 file, a Zarr store or .npy files",
    .detail =
        "Prints each data set of the file or of the first file of a folder: path, type, shape, "
        "chunks, filters and the attributes that change how values are read. If data.format=arrays "
        "cannot read a data "
        "set, its line has the reason and how to rewrite it. Then follow options that train with "
        "the file, for each task that its arrays suit.",
    .run = data_run};
