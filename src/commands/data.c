// SPDX-License-Identifier: BSD-3-Clause
/* The command `data describe` lists the arrays of a file or folder and the options that train with
 * them. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* strcasestr */
#endif
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "app/app.h"
#include "config/command_line.h"
#include "config/option_types.h"
#include "core/allocate.h"
#include "core/integer.h"
#include "core/text.h"
#include "data/array_list.h"
#include "data/array_path.h"

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
    const struct array_entry *x, *y; /* NULL: none */
    const struct array_entry *mask;  /* [H, W] of one image x [H, W, C], or NULL */
    enum role role;                  /* of y */
    bool has_time;                   /* the samples have coordinates in time */
    bool has_coordinates;            /* of dimensions: the arrays are fields */
    int64_t files;
    char x_list[OPTION_TEXT]; /* value of data.x: x, and others of its shape if it is [N, H, W] */
};

static void sizes_print(const int64_t *sizes, int count)
{
    for (int d = 0; d < count; d++)
        printf("%s%lld", d == 0 ? "[" : ", ", (long long)sizes[d]);
    printf(count > 0 ? "]" : "scalar");
}

static void entry_print(const struct array_entry *entry)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", entry->path);
    text_remove_control(path);
    printf("  %-24s ", path);
    if (entry->has_shape) {
        printf("%s ", entry->type);
        sizes_print(entry->extent, entry->dimensions);
        if (entry->is_chunked) {
            printf(", chunks ");
            sizes_print(entry->chunk, entry->dimensions);
            printf(", %s%s%s", entry->filters, entry->missing[0] != '\0' ? ", " : "",
                   entry->missing);
        }
        printf("%s", entry->attributes != NULL ? entry->attributes : "");
    }
    if (entry->reason[0] != '\0')
        printf("%scannot be read: %s", entry->has_shape ? "; " : "", entry->reason);
    printf("\n");
}

/* ---- suggestions ---- */

static bool is_time(const struct array_entry *entry)
{
    return entry->dimensions == 1 && (strcasecmp(text_base_name(entry->path), "time") == 0 ||
                                      (entry->is_coordinate && entry->attributes != NULL &&
                                       strstr(entry->attributes, " since ") != NULL));
}

/* True if the name of a data set is that of labels. */
static bool has_label_name(const struct array_entry *entry)
{
    static const char *const words[] = {"label", "class", "target", "mask", "annotation"};
    const char *name = text_base_name(entry->path);
    for (size_t n = 0; n < sizeof words / sizeof words[0]; n++)
        if (strcasestr(name, words[n]) != NULL)
            return true;
    return strcmp(name, "y") == 0;
}

static int64_t elements(const struct array_entry *entry)
{
    int64_t count = 1;
    for (int d = 0; d < entry->dimensions; d++)
        if (__builtin_mul_overflow(count, entry->extent[d], &count))
            return INT64_MAX;
    return count;
}

static bool same_shape(const struct array_entry *one, const struct array_entry *other)
{
    return one->dimensions == other->dimensions &&
           memcmp(one->extent, other->extent, (size_t)one->dimensions * sizeof *one->extent) == 0;
}

static bool is_image(const struct array_entry *entry, bool allows_labels)
{
    return entry->kind != '\0' && entry->kind != 'b' && !entry->is_coordinate &&
           (entry->dimensions == 3 || entry->dimensions == 4) && entry->extent[0] > 0 &&
           (allows_labels || !has_label_name(entry));
}

/* Keep the largest array of images. Others of the same shape [N, H, W] are added as channels, if
 * both are real or integers. */
static void suggest_x(struct suggestion *suggestion, const struct array_entry *entry)
{
    const struct array_entry *x = suggestion->x;
    const size_t used = strlen(suggestion->x_list);
    if (x != NULL && entry->dimensions == 3 && same_shape(x, entry) &&
        (x->kind == 'f') == (entry->kind == 'f')) {
        if (used + strlen(entry->path) + 2 < sizeof suggestion->x_list)
            snprintf(suggestion->x_list + used, sizeof suggestion->x_list - used, ",%s",
                     entry->path);
    } else if (x == NULL || elements(entry) > elements(x) ||
               (elements(entry) == elements(x) && x->kind != 'f' && entry->kind == 'f')) {
        suggestion->x = entry;
        snprintf(suggestion->x_list, sizeof suggestion->x_list, "%s", entry->path);
    }
}

static bool is_in_list(const char *list, const char *path)
{
    size_t length;
    for (const char *item = text_next_item(list, &length); item != NULL;
         item = text_next_item(item + length, &length))
        if (strlen(path) == length && strncmp(item, path, length) == 0)
            return true;
    return false;
}

/* Return the dimension of the rows of images. */
static int plane_row(const struct array_entry *entry)
{
    return entry->dimensions == 4 && !entry->channels_last ? 2 : 1;
}

/* True if the planes of both have the same size. */
static bool same_planes(const struct array_entry *x, const struct array_entry *y)
{
    const int row = plane_row(x), y_row = plane_row(y);
    return x->extent[row] == y->extent[y_row] && x->extent[row + 1] == y->extent[y_row + 1];
}

static enum role role_of(const struct suggestion *suggestion, const struct array_entry *entry)
{
    const bool is_real = entry->kind == 'f';
    if (entry->kind == '\0' || entry->dimensions < 1 || entry->dimensions > 4 ||
        entry->extent[0] != suggestion->x->extent[0] || entry->is_coordinate || is_time(entry) ||
        is_in_list(suggestion->x_list, entry->path) ||
        (entry->dimensions > 2 && !same_planes(suggestion->x, entry)))
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
static void suggest_y(struct suggestion *suggestion, const struct array_entry *entry)
{
    const struct array_entry *x = suggestion->x;
    if (array_is_mask(x->dimensions, x->extent, entry->dimensions, entry->extent)) {
        suggestion->mask = entry;
        return;
    }
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

static void suggest(struct suggestion *suggestion, const struct array_list *list)
{
    for (int allows_labels = 0; suggestion->x == NULL && allows_labels < 2; allows_labels++)
        for (size_t n = 0; n < list->count; n++)
            if (is_image(&list->entry[n], allows_labels == 1))
                suggest_x(suggestion, &list->entry[n]);
    for (size_t n = 0; suggestion->x != NULL && n < list->count; n++) {
        suggest_y(suggestion, &list->entry[n]);
        suggestion->has_coordinates |= list->entry[n].is_coordinate;
        suggestion->has_time |=
            is_time(&list->entry[n]) && list->entry[n].extent[0] == suggestion->x->extent[0];
    }
    if (suggestion->has_time && suggestion->role == ROLE_BOOLEAN)
        suggestion->y = NULL;
}

/* Print a word of a command, in quotes if the shell would change it. */
static void word_print(const char *key, const char *value)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "/._,:=+@%-";
    char word[PATH_MAX + 3 * OPTION_TEXT];
    snprintf(word, sizeof word, "%s", value);
    text_remove_control(word);
    const bool quoted = word[strspn(word, plain)] != '\0';
    printf(" %s%s=", quoted ? "'" : "", key);
    for (const char *c = word; *c != '\0'; c++)
        printf("%s%c", *c == '\'' ? "'\\'" : "", *c);
    printf("%s", quoted ? "'" : "");
}

/* Print the note on the order of dimensions if the images have four. */
static void order_print(const struct array_entry *x)
{
    const bool hwc = x->channels_last;
    const int64_t channels = x->extent[hwc ? 3 : 1];
    if (x->dimensions == 4)
        printf("  (%lld channel%s, order %s; if channels are %s, add data.order=%s)\n",
               (long long)channels, channels == 1 ? "" : "s", hwc ? "hwc" : "chw",
               hwc ? "first" : "last", hwc ? "chw" : "hwc");
}

static void root_print(const struct suggestion *suggestion, const char *path)
{
    printf("  vittrain data.format=arrays");
    word_print("data.root", path);
    word_print("data.x", suggestion->x_list);
}

/* Print the options that all tasks need. The default model divides images into patches of 4 x 4
 * pixels. Few samples are not split. */
static void options_end(const struct suggestion *suggestion, bool is_dense, bool from_end)
{
    const int64_t *extent = suggestion->x->extent, *plane = extent + plane_row(suggestion->x);
    const bool is_divided = plane[0] % 4 == 0 && plane[1] % 4 == 0;
    const char *val = extent[0] * suggestion->files < SAMPLES_SPLIT ? " data.val=none"
                      : from_end ? " data.val=0.1 data.val_from=end"
                                 : " data.val=0.1";
    printf("%s%s%s%s\n", is_dense && plane[0] * plane[1] > 1 ? " model.head=dense" : "",
           is_divided ? "" : " model.name=resnet18", extent[0] == 1 ? " data.join=on" : "", val);
}

/* Print the options with which the next step is predicted from each one. */
static void forecast_print(const struct suggestion *suggestion, const char *path)
{
    char next[3 * OPTION_TEXT] = "";
    size_t used = 0, length;
    for (const char *item = text_next_item(suggestion->x_list, &length); item != NULL;
         item = text_next_item(item + length, &length))
        used += (size_t)snprintf(next + used, sizeof next - used, "%s%.*s@+1", used > 0 ? "," : "",
                                 (int)length, item);
    printf("%s\n", suggestion->y != NULL
                       ? "or predict the next step with these:"
                       : "train with these options, which predict the next step:");
    root_print(suggestion, path);
    word_print("data.y", next);
    printf(" data.task=regression");
    options_end(suggestion, true, true);
}

/* Print notes on the classes of a mask without names, from the values of its first sample. */
static void mask_print(const struct array_entry *mask, const char *root)
{
    const int64_t height = mask->extent[1], width = mask->extent[2], pixels = height * width;
    const struct array_box box = {.count = {1, height, width}, .stride = {pixels, width, 1}};
    const char *name = mask->path + 1; /* without the slash */
    struct hdf5_reader reader = {.kind = ERROR_DATA, .purpose = "arrays", .datasets = name};
    struct array_path source;
    struct array array = {.path = NULL};
    struct error ignored = {0};
    float *values = allocate((size_t)smaller(pixels, PIXELS_READ), sizeof *values), largest = 0;
    int64_t count = 0;
    if (array_path_open(&source, root, &reader, &ignored) && pixels <= PIXELS_READ &&
        array_path_array(&source, name, &array, &ignored) &&
        array_read(&array, &box, values, &ignored)) {
        qsort(values, (size_t)pixels, sizeof *values, compare_uint32);
        for (int64_t i = 0; i < pixels; i++) {
            count += i == 0 || values[i] != values[i - 1];
            largest = fmaxf(largest, values[i]);
        }
    }
    array_close(&array);
    array_path_close(&source);
    hdf5_reader_close(&reader);
    free(values);
    if (count > CLASSES_IN_SAMPLE)
        printf("  (the first sample of %s has %lld values up to %g: if they number objects, they "
               "are instances and not classes; replace them by the classes of the objects)\n",
               mask->path, (long long)count, (double)largest);
    else
        printf("  (add model.classes=K, the number of classes in %s)\n", mask->path);
}

static void suggestion_print(const struct suggestion *suggestion, const char *path,
                             const char *described)
{
    const struct array_entry *y = suggestion->y;
    const enum role role = suggestion->role;
    const bool is_mask = y != NULL && y->dimensions == 3 && role != ROLE_PLANES;
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
    if (suggestion->mask != NULL && y == NULL) {
        printf("%s and %s have the shapes of one image and its mask: give both a first dimension "
               "of 1, the samples, in NumPy x[None] and y[None]\n",
               suggestion->x->path, suggestion->mask->path);
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
        options_end(suggestion, is_planes || is_mask, false);
    }
    if (is_mask && strstr(y->attributes != NULL ? y->attributes : "", "; class_names=") == NULL)
        mask_print(y, described);
    if (suggestion->has_time)
        forecast_print(suggestion, path);
    order_print(suggestion->x);
}

/* Read the first file that has samples, or the last one. Return its number, or -1. */
static int64_t list_read(const struct split_files *files, struct array_list *list,
                         struct suggestion *suggestion, struct error *error)
{
    for (int64_t n = 0; array_list_read(files->file[n].path, list, error); n++) {
        suggest(suggestion, list);
        if (suggestion->x != NULL || n + 1 == files->count || !list->has_empty)
            return n;
        array_list_free(list);
        *list = (struct array_list){0};
        *suggestion = (struct suggestion){.x = NULL};
    }
    return -1;
}

static void path_describe(const char *path, struct error *error)
{
    struct array_list list = {0};
    struct suggestion suggestion = {0};
    struct split_files files = {0};
    struct stat status;
    const int64_t number = array_path_find(path, &files, NULL, error)
                               ? list_read(&files, &list, &suggestion, error)
                               : -1;
    if (number >= 0) {
        const char *described = files.file[number].path;
        printf("%s, %s", described, list.container);
        if (stat(described, &status) == 0 && S_ISREG(status.st_mode))
            printf(", %.1f MB", (double)status.st_size / 1e6);
        if (files.count > 1)
            printf(number > 0 && suggestion.x != NULL ? ", the first of %lld files that has samples"
                                                      : ", the first of %lld files",
                   (long long)files.count);
        printf("\n");
        for (size_t n = 0; n < list.count; n++)
            entry_print(&list.entry[n]);
        suggestion.files = files.count;
        suggestion_print(&suggestion, path, described);
    }
    array_list_free(&list);
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
        "Prints each data set of the file or of the first file with samples of a folder: path, "
        "type, shape, "
        "chunks, filters and the "
        "attributes that change how values are read. If data.format=arrays cannot read a data "
        "set, its line has the reason and how to rewrite it. Then follow options that train with "
        "the file, for each task that its arrays suit.",
    .run = data_run};
