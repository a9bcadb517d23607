// SPDX-License-Identifier: BSD-3-Clause
/* The header of packed files: attributes, class names and the positions of the records. HDF5 writes
 * it and describes it; records are accessed without HDF5. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/allocate.h"
#include "core/crc32c.h"
#include "core/hdf5_file.h"
#include "core/hdf5_reader.h"
#include "data/packed.h"

#define REAL HDF5_NATIVE "f8"

static const char *const split_name[PACKED_SPLITS] = {"train", "validation", "test"};

/* Attributes of the root group and of a split's group. */
struct header {
    struct packed_set *set;
    int64_t version, channels, height, width, files, file, shuffled;
};

struct part_header {
    int64_t records, first, total;
};

#define HEADER(name, member, least, most)                                                          \
    {                                                                                              \
        name, HDF5_INTEGER, offsetof(struct header, member), least, most                           \
    }
#define PART(name)                                                                                 \
    {                                                                                              \
#name, HDF5_INTEGER, offsetof(struct part_header, name), 0, UINT32_MAX                     \
    }

static const struct hdf5_number version_number = HEADER("packed", version, 0, 0);
static const struct hdf5_number header_numbers[] = {
    HEADER("channels", channels, 1, INT32_MAX),  HEADER("height", height, 0, PACKED_MOST_SIDE),
    HEADER("width", width, 0, PACKED_MOST_SIDE), HEADER("files", files, 1, PACKED_MOST_FILES),
    HEADER("file", file, 0, PACKED_MOST_FILES),  HEADER("shuffled", shuffled, 0, 1)};
static const struct hdf5_number part_numbers[] = {PART(records), PART(first), PART(total)};

enum {
    HEADER_NUMBERS = sizeof header_numbers / sizeof *header_numbers,
    PART_NUMBERS = sizeof part_numbers / sizeof *part_numbers
};

uint32_t packed_crc(const uint8_t *bytes, size_t count, int32_t label)
{
    return crc32c_update(crc32c_update(0, bytes, count), &label, sizeof label);
}

/* ---- writing ---- */

/* Names of equal length, padded with zeros. */
static void classes_write(hid_t file, const struct packed_set *set)
{
    const size_t classes = (size_t)set->classes;
    size_t size = 1;
    for (size_t i = 0; i < classes; i++)
        size = strlen(set->class_name[i]) >= size ? strlen(set->class_name[i]) + 1 : size;
    char *table = allocate(classes, size);
    for (size_t i = 0; i < classes; i++)
        memcpy(table + i * size, set->class_name[i], strlen(set->class_name[i]));
    hdf5_text_table_write(file, "classes", size, set->classes, table);
    free(table);
}

static void part_make(hid_t file, const struct packed_set *set, struct packed_part *part, int split)
{
    const struct part_header header = {part->records, part->first, set->total[split]};
    const int64_t ends = part->records + 1;
    const int64_t decoded[4] = {part->records, set->channels, set->height, set->width};
    hid_t group = hdf5_group_make(file, split_name[split]);
    for (int n = 0; n < PART_NUMBERS; n++)
        hdf5_number_write(group, &part_numbers[n], &header);
    hdf5_dataset_reserve(group, "bytes", H5T_NATIVE_UINT8, set->encoded ? 1 : 4,
                         set->encoded ? &part->byte_count : decoded, &part->bytes);
    hdf5_dataset_reserve(group, "label", H5T_NATIVE_INT32, 1, decoded, &part->label);
    hdf5_dataset_reserve(group, "crc", H5T_NATIVE_UINT32, 1, decoded, &part->crc);
    part->offset = -1;
    if (set->encoded)
        hdf5_dataset_reserve(group, "offset", H5T_NATIVE_INT64, 1, &ends, &part->offset);
    H5Gclose(group);
}

static void frame_fill(hid_t file, void *context)
{
    const struct header *header = context;
    const struct packed_set *set = header->set;
    hdf5_number_write(file, &version_number, header);
    hdf5_text_write(file, "kind", set->encoded ? "encoded" : "decoded");
    for (int n = 0; n < HEADER_NUMBERS; n++)
        hdf5_number_write(file, &header_numbers[n], header);
    hdf5_text_write(file, "source", set->source);
    hdf5_text_write(file, "program", set->program);
    classes_write(file, set);
    if (set->normalised) {
        hdf5_table_write(file, "mean", H5T_NATIVE_DOUBLE, set->channels, set->mean);
        hdf5_table_write(file, "std", H5T_NATIVE_DOUBLE, set->channels, set->std);
    }
    for (int split = 0; split < PACKED_SPLITS; split++)
        if (set->part[header->file][split].records > 0)
            part_make(file, set, &set->part[header->file][split], split);
}

bool packed_frame_create(int descriptor, const char *path, struct packed_set *set, int64_t file,
                         int64_t *bytes, struct error *error)
{
    struct header header = {set,        PACKED_VERSION, set->channels, set->height,
                            set->width, set->files,     file,          set->shuffled};
    return hdf5_frame_create(descriptor, path, frame_fill, &header, true, bytes, error);
}

/* ---- reading ---- */

static bool kind_read(const struct hdf5_reader *file, struct packed_set *set, struct error *error)
{
    const struct hdf5_object *root = file->file.objects;
    int64_t version;
    char kind[16];
    if (!hdf5_number_get(file, root, "packed", HDF5_INTEGER, &version))
        return hdf5_refuse(file, error,
                           "it is an HDF5 file, but not a packed data set of vittrain");
    if (version != PACKED_VERSION)
        return hdf5_refuse(file, error, "its format is %lld, this program supports %d",
                           (long long)version, PACKED_VERSION);
    if (!hdf5_text_read(file, root, "kind", kind, sizeof kind, error))
        return false;
    set->encoded = strcmp(kind, "encoded") == 0;
    return set->encoded || strcmp(kind, "decoded") == 0 ||
           hdf5_refuse(file, error, "its kind is '%s', this program supports encoded and decoded",
                       kind);
}

/* Encoded images have any size and 3 channels, and their size is stored as 0. */
static bool attributes_read(const struct hdf5_reader *file, struct packed_set *set, int64_t number,
                            struct error *error)
{
    const struct hdf5_object *root = file->file.objects;
    struct header header = {.set = set};
    for (int n = 0; n < HEADER_NUMBERS; n++)
        if (!hdf5_number_read(file, root, &header_numbers[n], &header, error))
            return false;
    set->channels = header.channels;
    set->height = header.height;
    set->width = header.width;
    set->files = header.files;
    set->shuffled = header.shuffled != 0;
    if (set->channels > IMAGE_CHANNELS) /* the most that the transform of images supports */
        return hdf5_refuse(
            file, error, "its images have %lld channels, this program reads images with at most %d",
            (long long)set->channels, IMAGE_CHANNELS);
    if (set->encoded ? set->channels != 3 || set->height != 0 || set->width != 0
                     : set->height == 0 || set->width == 0)
        return hdf5_refuse(file, error, "its %s images have the invalid shape [%lld, %lld, %lld]",
                           set->encoded ? "encoded" : "decoded", (long long)set->channels,
                           (long long)set->height, (long long)set->width);
    if (header.file != number)
        return hdf5_refuse(file, error,
                           "its header states file %lld of its set, its name file %lld",
                           (long long)header.file, (long long)number);
    return hdf5_text_read(file, root, "source", set->source, sizeof set->source, error) &&
           hdf5_text_read(file, root, "program", set->program, sizeof set->program, error);
}

static bool classes_read(struct hdf5_reader *file, struct packed_set *set, struct error *error)
{
    const struct hdf5_object *found =
        hdf5_dataset_find(file, file->file.objects, "classes", "|S", error);
    if (found != NULL && (hdf5_elements(found) > CLASSES_MOST || found->element_bytes > 4096))
        return hdf5_refuse(file, error,
                           "its table 'classes' has more than %d classes, or a name "
                           "of more than 4096 bytes",
                           CLASSES_MOST);
    char *table = found != NULL ? hdf5_dataset_read(file, found, error) : NULL;
    if (table == NULL)
        return false;
    set->classes = hdf5_elements(found);
    set->class_name = allocate((size_t)set->classes, sizeof *set->class_name);
    for (int64_t i = 0; i < set->classes; i++) {
        set->class_name[i] =
            strndup(table + i * found->element_bytes, (size_t)found->element_bytes);
        ENSURE_MEMORY(set->class_name[i] != NULL, "no memory for the names of classes");
    }
    free(table);
    return true;
}

/* Read one number per channel, which is finite and not less than `least`. */
static bool normalisation_read(struct hdf5_reader *file, const char *name, int64_t channels,
                               double least, double values[IMAGE_CHANNELS], struct error *error)
{
    const struct hdf5_object *found =
        hdf5_dataset_find(file, file->file.objects, name, REAL, error);
    double *table = found != NULL ? hdf5_dataset_read(file, found, error) : NULL;
    if (table == NULL)
        return false;
    bool good = hdf5_elements(found) == channels;
    for (int64_t c = 0; good && c < channels; c++) {
        values[c] = table[c];
        good = isfinite(table[c]) && table[c] >= least;
    }
    free(table);
    return good || hdf5_refuse(file, error,
                               "its table '%s' does not have one valid number per channel", name);
}

/* Return the position of a data set of this extent, or -1. */
static int64_t position_find(const struct hdf5_reader *file, const struct hdf5_object *group,
                             const char *name, const char *type, int dimensions,
                             const int64_t *extent, struct error *error)
{
    const struct hdf5_object *found = hdf5_dataset_find(file, group, name, type, error);
    if (found != NULL && found->dimensions == dimensions &&
        memcmp(found->extent, extent, (size_t)dimensions * sizeof *extent) == 0)
        return found->offset;
    if (found != NULL)
        hdf5_refuse(file, error, "its data set '%s' has the wrong size", name);
    return -1;
}

static bool part_read(const struct hdf5_reader *file, const struct hdf5_object *group,
                      const struct packed_set *set, struct packed_part *part, int64_t *total,
                      struct error *error)
{
    struct part_header header = {0};
    if (group->kind != HDF5_GROUP)
        return hdf5_refuse(file, error, "its group '%s' is a link or a data set", group->name);
    for (int n = 0; n < PART_NUMBERS; n++)
        if (!hdf5_number_read(file, group, &part_numbers[n], &header, error))
            return false;
    if (header.records < 1 || header.first > header.total - header.records)
        return hdf5_refuse(file, error, "its group '%s' has %lld records from %lld of %lld",
                           group->name, (long long)header.records, (long long)header.first,
                           (long long)header.total);
    const int64_t ends = header.records + 1;
    const int64_t decoded[4] = {header.records, set->channels, set->height, set->width};
    const struct hdf5_object *bytes = hdf5_dataset_find(file, group, "bytes", "|u1", error);
    if (bytes == NULL)
        return false;
    *total = header.total;
    *part = (struct packed_part){
        .records = header.records, .first = header.first, .byte_count = hdf5_elements(bytes)};
    part->bytes = position_find(file, group, "bytes", "|u1", set->encoded ? 1 : 4,
                                set->encoded ? &part->byte_count : decoded, error);
    part->offset =
        set->encoded ? position_find(file, group, "offset", HDF5_NATIVE "i8", 1, &ends, error) : -1;
    part->label = position_find(file, group, "label", HDF5_NATIVE "i4", 1, decoded, error);
    part->crc = position_find(file, group, "crc", HDF5_NATIVE "u4", 1, decoded, error);
    return error->kind == ERROR_NONE;
}

/* Read the header of file number `number` of a set into `set`, which is zero except for `part`. */
static bool header_read(struct hdf5_reader *file, const char *path, struct packed_set *set,
                        int64_t number, struct error *error)
{
    if (!hdf5_reader_open(file, path, error) || !kind_read(file, set, error) ||
        !attributes_read(file, set, number, error) || !classes_read(file, set, error))
        return false;
    const struct hdf5_object *root = file->file.objects;
    set->normalised = hdf5_find(file, root, "mean") != NULL;
    if (set->normalised &&
        (!normalisation_read(file, "mean", set->channels, -HUGE_VAL, set->mean, error) ||
         !normalisation_read(file, "std", set->channels, 0, set->std, error)))
        return false;
    for (int split = 0; split < PACKED_SPLITS; split++) {
        const struct hdf5_object *group = hdf5_find(file, root, split_name[split]);
        if (group != NULL &&
            !part_read(file, group, set, &set->part[number][split], &set->total[split], error))
            return false;
    }
    return true;
}

static void names_free(struct packed_set *set)
{
    for (int64_t i = 0; set->class_name != NULL && i < set->classes; i++)
        free(set->class_name[i]);
    free(set->class_name);
    set->class_name = NULL;
}

/* Read another file of the set. */
static bool add_file(struct hdf5_reader *reader, const char *path, struct packed_set *set,
                     int64_t number, struct error *error)
{
    struct packed_set other = {.part = set->part};
    const bool good = header_read(reader, path, &other, number, error);
    bool same = set->encoded == other.encoded && set->shuffled == other.shuffled &&
                set->channels == other.channels && set->height == other.height &&
                set->width == other.width && set->classes == other.classes &&
                set->files == other.files && strcmp(set->source, other.source) == 0;
    for (int64_t i = 0; good && same && i < set->classes; i++)
        same = strcmp(set->class_name[i], other.class_name[i]) == 0;
    for (int split = 0; good && same && split < PACKED_SPLITS; split++) {
        if (set->part[number][split].records == 0)
            continue;
        if (set->total[split] == 0)
            set->total[split] = other.total[split];
        same = set->total[split] == other.total[split];
    }
    names_free(&other);
    if (good && !same)
        return error_set(error, ERROR_DATA,
                         "%s belongs to another data set than the files before it", path);
    return good;
}

/* Check that the parts of each split are complete and in order. */
static bool check_parts(const char *name, const struct packed_set *set, struct error *error)
{
    for (int split = 0; split < PACKED_SPLITS; split++) {
        int64_t next = 0;
        bool good = true;
        for (int64_t file = 0; file < set->files; file++) {
            const struct packed_part *part = &set->part[file][split];
            good = good && (part->records == 0 || part->first == next);
            next += part->records;
        }
        if (!good || next != set->total[split])
            return error_set(error, ERROR_DATA,
                             "%s: the files do not form one data set: they have %lld of %lld "
                             "records of the split %s",
                             name, (long long)next, (long long)set->total[split],
                             split_name[split]);
    }
    return true;
}

static bool read_files(struct hdf5_reader *reader, const char *name, int64_t files,
                       struct packed_set *set, struct error *error)
{
    char path[PACKED_PATH];
    packed_path(path, name, 0, files);
    if (!header_read(reader, path, set, 0, error))
        return false;
    if (set->files != files)
        return error_set(error, ERROR_DATA, "%s: its header states %lld files, its name %lld", path,
                         (long long)set->files, (long long)files);
    for (int64_t file = 1; file < files; file++) {
        packed_path(path, name, file, files);
        if (!add_file(reader, path, set, file, error))
            return false;
    }
    return check_parts(name, set, error);
}

bool packed_frames_read(const char *name, int64_t files, struct packed_set *set,
                        struct error *error)
{
    struct hdf5_reader reader = {.kind = ERROR_DATA, .purpose = "packed data"};
    memset(set, 0, sizeof *set);
    set->part = allocate((size_t)files, sizeof *set->part);
    const bool good = read_files(&reader, name, files, set, error);
    hdf5_reader_close(&reader);
    return good;
}

void packed_set_free(struct packed_set *set)
{
    names_free(set);
    free(set->part);
    set->part = NULL;
}
