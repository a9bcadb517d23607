// SPDX-License-Identifier: BSD-3-Clause
/* The command `data describe` lists the data sets of an HDF5 or NetCDF-4 file and the options that
 * train with them. */
#include <stdio.h>
#include <string.h>

#include "app/app.h"
#include "config/command_line.h"
#include "config/option_types.h"
#include "core/text.h"
#include "data/array_hdf5.h"

enum { DEEPEST = 32, PATH_SIZE = 1024 };

/* A data set with its path. */
struct found {
    const struct hdf5_object *object;
    char path[PATH_SIZE];
};

struct description {
    struct hdf5_reader reader;
    int64_t count;
    struct found x, y;        /* suggested for data.x and data.y; object NULL: none */
    char x_list[OPTION_TEXT]; /* value of data.x: x, and others of its shape if it is [N, H, W] */
};

static void sizes_print(const int64_t *sizes, int64_t count)
{
    for (int64_t d = 0; d < count; d++)
        printf("%s%lld", d == 0 ? "[" : ", ", (long long)sizes[d]);
    printf(count > 0 ? "]" : "scalar");
}

/* Print the attributes that change how values are read, and those that describe them. */
static void attributes_print(const struct hdf5_reader *reader, const struct hdf5_object *object)
{
    static const char *const names[] = {"units",      "long_name",     "scale_factor", "add_offset",
                                        "_FillValue", "missing_value", "valid_range",  "valid_min",
                                        "valid_max",  "class_names"};
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        const struct hdf5_attribute *attribute = hdf5_attribute_find(reader, object, names[n]);
        double values[4];
        const int count = hdf5_reals_get(reader, object, names[n], values, 4);
        char text[80];
        if (attribute != NULL && attribute->kind == HDF5_TEXT) {
            snprintf(text, sizeof text, "%s", reader->file.values + attribute->offset);
            text_remove_control(text);
            printf("; %s=%s%s", names[n], text, attribute->count > 1 ? ", ..." : "");
        }
        for (int i = 0; i < count; i++) {
            text_shortest_decimal(values[i], false, text, sizeof text);
            printf("%s%s%s", i > 0 ? "," : "; ", i > 0 ? "" : names[n], i > 0 ? "" : "=");
            printf("%s", text);
        }
    }
}

static void dataset_print(struct description *description, const struct found *found)
{
    const struct hdf5_object *object = found->object;
    const bool has_shape =
        object->kind == HDF5_DATASET && object->layout != HDF5_VIRTUAL && object->fault[0] == '\0';
    char type[32], filters[128], reason[ARRAY_REASON], path[PATH_SIZE];
    snprintf(path, sizeof path, "%s", found->path);
    text_remove_control(path);
    printf("  %-24s ", path);
    if (has_shape) {
        array_hdf5_type_name(object, type, sizeof type);
        array_hdf5_filter_names(object, filters, sizeof filters);
        printf("%s ", type);
        sizes_print(object->extent, object->dimensions);
        if (object->layout == HDF5_CHUNKED) {
            printf(", chunks ");
            sizes_print(object->chunk, object->dimensions);
            printf(", %s", filters);
        }
        attributes_print(&description->reader, object);
    }
    if (!array_hdf5_readable(object, reason))
        printf("%scannot be read: %s", has_shape ? "; " : "", reason);
    printf("\n");
}

/* ---- suggestions ---- */

static bool is_coordinate(const struct hdf5_reader *reader, const struct hdf5_object *object)
{
    const struct hdf5_attribute *kind = hdf5_attribute_find(reader, object, "CLASS");
    return kind != NULL && kind->kind == HDF5_TEXT &&
           strcmp(reader->file.values + kind->offset, "DIMENSION_SCALE") == 0;
}

static bool same_shape(const struct hdf5_object *one, const struct hdf5_object *other)
{
    return one->dimensions == other->dimensions &&
           memcmp(one->extent, other->extent, (size_t)one->dimensions * sizeof *one->extent) == 0;
}

/* Keep the largest array of images. Others of the same shape [N, H, W] are added as channels. */
static void suggest_x(struct description *description, const struct found *found)
{
    const struct hdf5_object *object = found->object, *x = description->x.object;
    const size_t used = strlen(description->x_list);
    if (object->dimensions != 3 && object->dimensions != 4)
        return;
    if (x != NULL && object->dimensions == 3 && same_shape(x, object) &&
        used + strlen(found->path) + 2 < sizeof description->x_list) {
        snprintf(description->x_list + used, sizeof description->x_list - used, ",%s", found->path);
    } else if (x == NULL || hdf5_elements(object) > hdf5_elements(x)) {
        description->x = *found;
        snprintf(description->x_list, sizeof description->x_list, "%s", found->path);
    }
}

/* Keep the first array with one number per image; prefer integers. */
static void suggest_y(struct description *description, const struct found *found)
{
    const struct hdf5_object *object = found->object, *y = description->y.object;
    if (object->dimensions != 1 || object->extent[0] != description->x.object->extent[0] ||
        is_coordinate(&description->reader, object))
        return;
    if (y == NULL || (y->type[1] == 'f' && object->type[1] != 'f'))
        description->y = *found;
}

static void members_visit(struct description *description, const struct hdf5_object *group,
                          const char *path, int depth,
                          void (*visit)(struct description *description, const struct found *found))
{
    struct found found;
    const struct hdf5_object *member = NULL;
    char reason[ARRAY_REASON];
    while (depth < DEEPEST && (member = hdf5_next(&description->reader, group, member)) != NULL) {
        if (snprintf(found.path, sizeof found.path, "%s/%s", path, member->name) >= PATH_SIZE)
            continue;
        found.object = member;
        if (member->kind == HDF5_GROUP)
            members_visit(description, member, found.path, depth + 1, visit);
        else if (visit == dataset_print || array_hdf5_readable(member, reason))
            visit(description, &found);
    }
}

/* Print a word of a command, in quotes if the shell would change it. */
static void word_print(const char *key, const char *value)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "/._,:=+@%-";
    char word[PATH_SIZE + OPTION_TEXT];
    snprintf(word, sizeof word, "%s", value);
    text_remove_control(word);
    const bool quoted = word[strspn(word, plain)] != '\0';
    printf(" %s%s=", quoted ? "'" : "", key);
    for (const char *c = word; *c != '\0'; c++)
        printf("%s%c", *c == '\'' ? "'\\'" : "", *c);
    printf("%s", quoted ? "'" : "");
}

static void order_print(const struct hdf5_object *x)
{
    const bool hwc = array_order_is_hwc(x->extent);
    const int64_t channels = x->extent[hwc ? 3 : 1];
    printf("  (%lld channel%s, order %s; if channels are %s, add data.order=%s)\n",
           (long long)channels, channels == 1 ? "" : "s", hwc ? "hwc" : "chw",
           hwc ? "first" : "last", hwc ? "chw" : "hwc");
}

static void suggestion_print(const struct description *description, const char *path)
{
    const struct hdf5_object *y = description->y.object;
    if (description->x.object == NULL) {
        printf("no data set has the shape of images: [N, C, H, W], [N, H, W, C] or [N, H, W]\n");
        return;
    }
    printf("train with these options%s:\n",
           y == NULL ? " and data.y=PATH, a data set of labels [N]" : "");
    printf("  vittrain data.format=arrays");
    word_print("data.root", path);
    word_print("data.x", description->x_list);
    if (y != NULL)
        word_print("data.y", description->y.path);
    if (y != NULL && y->type[1] == 'f')
        printf(" data.task=regression checkpoint.monitor=loss");
    printf(" data.val=0.1\n");
    if (description->x.object->dimensions == 4)
        order_print(description->x.object);
}

static void file_describe(const char *path, struct error *error)
{
    struct description description = {.reader = {.kind = ERROR_DATA, .purpose = "arrays"}};
    if (array_hdf5_file_open(&description.reader, path, error)) {
        const struct hdf5_object *root = description.reader.file.objects;
        printf("%s, %.1f MB\n", path, (double)description.reader.bytes / 1e6);
        members_visit(&description, root, "", 0, dataset_print);
        members_visit(&description, root, "", 0, suggest_x);
        if (description.x.object != NULL)
            members_visit(&description, root, "", 0, suggest_y);
        suggestion_print(&description, path);
    }
    hdf5_reader_close(&description.reader);
    error_defer(app_output_arrived(error));
}

static void data_run(const struct options *options, const struct command_line *line,
                     struct comm *world, struct error *error)
{
    (void)options;
    if (line->operand_count != 2 || strcmp(line->operand[0], "describe") != 0)
        error_set(error, ERROR_USAGE,
                  "data needs `describe` and a file: vittrain data describe FILE.h5");
    else if (world->rank == 0)
        file_describe(line->operand[1], error);
    comm_agree(world, error);
}

const struct command command_data = {
    .name = "data",
    .synopsis = "data describe FILE.h5|FILE.nc",
    .summary = "list the arrays of an HDF5 or NetCDF-4 file",
    .detail =
        "Prints each data set of the file: path, type, shape, chunks, filters and the "
        "attributes that change how values are read. If data.format=arrays cannot read a data "
        "set, its line has the reason and how to rewrite it. The last line has options that "
        "train with the file.",
    .run = data_run};
