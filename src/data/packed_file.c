/* Names of packed files, NAME.h5 or several NAME-00000-of-00004.h5, and their header: attributes,
 * class names and the positions of the records. HDF5 writes and reads it; records are accessed
 * without HDF5. */
#include "data/packed.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/crc32c.h"
#include "core/durable.h"
#include "core/hdf5_file.h"
#include "core/text.h"
#include "data/data_root.h"

static const char *const split_name[PACKED_SPLITS] = {"train", "validation", "test"};

enum { MOST_CLASSES = 500000, MOST_SIDE = 1 << 16 };

uint32_t packed_crc(const uint8_t *bytes, size_t count, int32_t label)
{
    return crc32c_update(crc32c_update(0, bytes, count), &label, sizeof label);
}

/* ---- names ---- */

static const char ending[] = ".h5";
static const char advice[] = "make packed data with `vittrain convert data`";

enum { ENDING = sizeof ending - 1, NUMBERED_ENDING = sizeof "-00000-of-00000.h5" - 1 };

void packed_path(char path[PACKED_PATH], const char *name, int64_t file, int64_t files)
{
    const int stem = (int)strlen(name) - ENDING;
    if (files == 1)
        snprintf(path, PACKED_PATH, "%s", name);
    else
        snprintf(path, PACKED_PATH, "%.*s-%05lld-of-%05lld%s", stem, name, (long long)file,
                 (long long)files, ending);
}

/* True if it is the name of one of several files. */
static bool take_numbered(const char *path, int64_t *file, int64_t *files)
{
    const size_t length = strlen(path);
    int number, count, end = 0;
    if (length <= NUMBERED_ENDING ||
        sscanf(path + length - NUMBERED_ENDING, "-%5d-of-%5d.h5%n", &number, &count, &end) != 2 ||
        end != NUMBERED_ENDING || number < 0 || count < 2 || number >= count)
        return false;
    *file = number;
    *files = count;
    return true;
}

/* The common name of a set, from the name of any of its files. */
static int64_t name_of(const char *path, char name[PACKED_PATH])
{
    int64_t file, files = 1;
    if (take_numbered(path, &file, &files))
        snprintf(name, PACKED_PATH, "%.*s%s", (int)(strlen(path) - NUMBERED_ENDING), path, ending);
    else
        snprintf(name, PACKED_PATH, "%s", path);
    return files;
}

/* List the sets in a folder: all of them (wanted NULL), or those of one name. Of several files only
 * the first counts. Returns the number of sets. */
static int search(const char *folder, const char *wanted, char name[PACKED_PATH], int64_t *files)
{
    char path[PACKED_PATH], found_name[PACKED_PATH];
    int found = 0;
    DIR *listing = opendir(folder);
    if (listing == NULL)
        return 0;
    for (const struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        int64_t file = 0, count = 1;
        const int length = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (length >= (int)sizeof path || !text_ends_with(entry->d_name, ending) ||
            (take_numbered(path, &file, &count) && file > 0))
            continue;
        name_of(path, found_name);
        if (wanted != NULL && (count == 1 || strcmp(found_name + strlen(folder) + 1, wanted) != 0))
            continue;
        memcpy(name, found_name, sizeof found_name);
        *files = count;
        found++;
    }
    closedir(listing);
    return found;
}

/* NAME.h5 does not exist: look for the files of a set of this name. */
static bool find_numbered(const char *given, char name[PACKED_PATH], int64_t *files,
                          struct error *error)
{
    char folder[PACKED_PATH];
    snprintf(folder, sizeof folder, "%s", given);
    char *slash = strrchr(folder, '/');
    if (slash == NULL)
        memcpy(folder, ".", 2);
    else
        *slash = '\0';
    const int found = search(slash == folder ? "/" : folder,
                             slash == NULL ? given : given + (slash - folder) + 1, name, files);
    if (found == 1)
        return true;
    if (found > 1)
        return error_set(
            error, ERROR_DATA,
            "data.root=%s: there are files of several data sets: name the first file of one",
            given);
    return data_root_check(given, advice, error) &&
           error_set(error, ERROR_DATA, "data.root=%s: changed while it was opened", given);
}

bool packed_find(const char *given, char name[PACKED_PATH], int64_t *files, struct error *error)
{
    struct stat status;
    if (given[0] == '\0')
        return error_set(error, ERROR_USAGE, "data.format=packed needs data.root=FILE.h5");
    const bool there = stat(given, &status) == 0;
    if (there && S_ISDIR(status.st_mode)) {
        const int found = search(given, NULL, name, files);
        if (found > 1)
            return error_set(error, ERROR_DATA,
                             "data.root=%s: several packed data sets (*.h5) in this folder: name "
                             "the file",
                             given);
        return found == 1 ||
               (data_root_check(given, advice, error) &&
                data_root_unexpected(given, "packed", "no packed data (*.h5)", advice, error));
    }
    *files = name_of(given, name);
    if (there || *files > 1)
        return true;
    return find_numbered(given, name, files, error);
}

/* ---- writing ---- */

struct making {
    struct packed_set *set;
    int64_t file;
};

static bool write_number(hid_t object, const char *name, int64_t value)
{
    return hdf5_attribute_write(object, name, H5T_NATIVE_INT64, &value);
}

/* Names of equal length, padded with zeros. */
static bool write_classes(hid_t file, const struct packed_set *set)
{
    size_t size = 1;
    for (int64_t i = 0; i < set->classes; i++)
        size = strlen(set->class_name[i]) >= size ? strlen(set->class_name[i]) + 1 : size;
    char *table = calloc((size_t)set->classes, size);
    hid_t type = hdf5_text_type(size);
    for (int64_t i = 0; table != NULL && i < set->classes; i++)
        memcpy(table + (size_t)i * size, set->class_name[i], strlen(set->class_name[i]));
    bool good =
        table != NULL && type >= 0 && hdf5_table_write(file, "classes", type, set->classes, table);
    H5Tclose(type);
    free(table);
    return good;
}

static bool write_attributes(hid_t file, const struct packed_set *set, int64_t number)
{
    return write_number(file, "packed", PACKED_VERSION) &&
           hdf5_text_write(file, "kind", set->encoded ? "encoded" : "decoded") &&
           write_number(file, "channels", set->channels) &&
           write_number(file, "height", set->height) && write_number(file, "width", set->width) &&
           write_number(file, "files", set->files) && write_number(file, "file", number) &&
           write_number(file, "shuffled", set->shuffled) &&
           hdf5_text_write(file, "source", set->source) &&
           hdf5_text_write(file, "program", set->program) && write_classes(file, set) &&
           (!set->normalised ||
            (hdf5_table_write(file, "mean", H5T_NATIVE_DOUBLE, set->channels, set->mean) &&
             hdf5_table_write(file, "std", H5T_NATIVE_DOUBLE, set->channels, set->std)));
}

static bool make_part(hid_t file, struct packed_set *set, int64_t number, int split)
{
    struct packed_part *part = &set->part[number][split];
    const hsize_t rows = (hsize_t)part->records, ends = rows + 1;
    const hsize_t encoded = (hsize_t)part->byte_count;
    const hsize_t decoded[4] = {rows, (hsize_t)set->channels, (hsize_t)set->height,
                                (hsize_t)set->width};
    hid_t group = hdf5_group_make(file, split_name[split]);
    bool good = group >= 0 && write_number(group, "records", part->records) &&
                write_number(group, "first", part->first) &&
                write_number(group, "total", set->total[split]) &&
                hdf5_space_leave(group, "bytes", H5T_NATIVE_UINT8, set->encoded ? 1 : 4,
                                 set->encoded ? &encoded : decoded, &part->bytes) &&
                hdf5_space_leave(group, "label", H5T_NATIVE_INT32, 1, &rows, &part->label) &&
                hdf5_space_leave(group, "crc", H5T_NATIVE_UINT32, 1, &rows, &part->crc);
    part->offset = -1;
    if (good && set->encoded)
        good = hdf5_space_leave(group, "offset", H5T_NATIVE_INT64, 1, &ends, &part->offset);
    H5Gclose(group);
    return good;
}

static bool fill_frame(hid_t file, void *context)
{
    const struct making *making = context;
    bool good = write_attributes(file, making->set, making->file);
    for (int split = 0; good && split < PACKED_SPLITS; split++)
        if (making->set->part[making->file][split].records > 0)
            good = make_part(file, making->set, making->file, split);
    return good;
}

/* An upper bound of the file's header. */
static int64_t expected_bytes(const struct packed_set *set, int64_t file)
{
    int64_t bytes = (1 << 17) + PACKED_TEXT;
    size_t longest = 0;
    for (int64_t i = 0; i < set->classes; i++)
        longest = strlen(set->class_name[i]) > longest ? strlen(set->class_name[i]) : longest;
    bytes += set->classes * (int64_t)(longest + 1);
    for (int split = 0; split < PACKED_SPLITS; split++)
        bytes += set->part[file][split].byte_count + set->part[file][split].records * 16 +
                 5 * HDF5_ALIGNMENT;
    return bytes;
}

bool packed_frame_create(int descriptor, const char *path, struct packed_set *set, int64_t file,
                         int64_t *bytes, struct error *error)
{
    struct making making = {.set = set, .file = file};
    if (!durable_reserve(descriptor, path, expected_bytes(set, file), error))
        return false;
    const int frame = hdf5_frame_make(path, fill_frame, &making, bytes, error);
    if (frame < 0)
        return false;
    const bool good = hdf5_frame_copy(frame, descriptor, path, *bytes, error);
    close(frame);
    return good;
}

/* ---- reading ---- */

/* A file that is being read, and the problem found: one sentence, or empty if HDF5 failed. */
struct reading {
    struct packed_set *set;
    int64_t file, bytes;
    char wrong[HDF5_REASON];
};

__attribute__((format(printf, 2, 3))) static bool wrong(struct reading *reading, const char *format,
                                                        ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (reading->wrong[0] == '\0')
        vsnprintf(reading->wrong, sizeof reading->wrong, format, arguments);
    va_end(arguments);
    return false;
}

static bool read_number(hid_t object, const char *name, int64_t least, int64_t most, int64_t *value,
                        struct reading *reading)
{
    if (!hdf5_number_read(object, name, H5T_NATIVE_INT64, value))
        return wrong(reading, "its attribute '%s' is missing or not a number", name);
    return (*value >= least && *value <= most) ||
           wrong(reading, "its attribute '%s' is invalid: %lld", name, (long long)*value);
}

static bool read_kind(hid_t file, struct reading *reading)
{
    int64_t version;
    char kind[16];
    if (!hdf5_number_read(file, "packed", H5T_NATIVE_INT64, &version))
        return wrong(reading, "it is an HDF5 file, but not a packed data set of vittrain");
    if (version != PACKED_VERSION)
        return wrong(reading, "its format is %lld, this program supports %d", (long long)version,
                     PACKED_VERSION);
    if (!hdf5_text_read(file, "kind", kind, sizeof kind))
        return wrong(reading, "its attribute 'kind' is missing or not a text");
    reading->set->encoded = strcmp(kind, "encoded") == 0;
    return reading->set->encoded || strcmp(kind, "decoded") == 0 ||
           wrong(reading, "its kind is '%s', this program supports encoded and decoded", kind);
}

static bool read_attributes(hid_t file, struct reading *reading)
{
    struct packed_set *set = reading->set;
    const int64_t side = set->encoded ? 0 : 1, most_side = set->encoded ? 0 : MOST_SIDE;
    int64_t number, shuffled;
    const bool good = read_number(file, "channels", set->encoded ? 3 : 1,
                                  set->encoded ? 3 : PACKED_CHANNELS, &set->channels, reading) &&
                      read_number(file, "height", side, most_side, &set->height, reading) &&
                      read_number(file, "width", side, most_side, &set->width, reading) &&
                      read_number(file, "files", 1, PACKED_MOST_FILES, &set->files, reading) &&
                      read_number(file, "file", 0, set->files - 1, &number, reading) &&
                      read_number(file, "shuffled", 0, 1, &shuffled, reading) &&
                      hdf5_text_read(file, "source", set->source, sizeof set->source) &&
                      hdf5_text_read(file, "program", set->program, sizeof set->program);
    set->shuffled = good && shuffled != 0;
    return good && (number == reading->file ||
                    wrong(reading, "it is file %lld of its set, but its name says %lld",
                          (long long)number, (long long)reading->file));
}

/* Return the position of a data set of this type and extent; its bytes must be contiguous and
 * inside the file. */
static bool find_dataset(hid_t group, const char *name, hid_t type, int dimensions,
                         const int64_t *extent, int64_t *offset, struct reading *reading)
{
    hsize_t found[4] = {0};
    hid_t dataset = H5Dopen2(group, name, H5P_DEFAULT);
    hid_t stored = dataset < 0 ? -1 : H5Dget_type(dataset);
    hid_t space = dataset < 0 ? -1 : H5Dget_space(dataset);
    bool good = stored >= 0 && space >= 0 && H5Tequal(stored, type) > 0 &&
                H5Sget_simple_extent_ndims(space) == dimensions &&
                H5Sget_simple_extent_dims(space, found, NULL) == dimensions;
    int64_t bytes = good ? (int64_t)H5Tget_size(type) : 1;
    for (int d = 0; good && d < dimensions; d++)
        good = found[d] == (hsize_t)extent[d] && !__builtin_mul_overflow(bytes, extent[d], &bytes);
    haddr_t address = good ? H5Dget_offset(dataset) : HADDR_UNDEF;
    if (!good)
        wrong(reading, "its data set '%s' has the wrong type or size", name);
    else if (address == HADDR_UNDEF || bytes > reading->bytes ||
             (int64_t)address > reading->bytes - bytes)
        good = wrong(reading, "its data set '%s' is outside the file", name);
    *offset = (int64_t)address;
    H5Sclose(space);
    H5Tclose(stored);
    H5Dclose(dataset);
    return good;
}

/* Read a small table and verify its checksum. *size: bytes of a row. */
static char *read_table(hid_t file, const char *name, bool text, int64_t *rows, size_t *size,
                        struct reading *reading)
{
    uint32_t expected;
    char *data = NULL;
    hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    hid_t type = dataset < 0 ? -1 : H5Dget_type(dataset);
    hid_t space = dataset < 0 ? -1 : H5Dget_space(dataset);
    const hssize_t points = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
    *size = type < 0 ? 0 : H5Tget_size(type);
    bool good = points > 0 && *size > 0 && points <= MOST_CLASSES && *size <= 4096 &&
                (text ? H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0
                      : H5Tequal(type, H5T_NATIVE_DOUBLE) > 0) &&
                hdf5_number_read(dataset, "crc32c", H5T_NATIVE_UINT32, &expected) &&
                (data = malloc((size_t)points * *size)) != NULL &&
                H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
    *rows = points;
    if (good && crc32c_update(0, data, (size_t)points * *size) != expected)
        good = wrong(reading, "wrong checksum of its table '%s': the file is damaged", name);
    H5Sclose(space);
    H5Tclose(type);
    H5Dclose(dataset);
    if (good)
        return data;
    wrong(reading, "its table '%s' is missing or invalid", name);
    free(data);
    return NULL;
}

static bool read_classes(hid_t file, struct reading *reading)
{
    struct packed_set *set = reading->set;
    size_t size;
    char *table = read_table(file, "classes", true, &set->classes, &size, reading);
    if (table == NULL)
        return false;
    set->class_name = calloc((size_t)set->classes, sizeof *set->class_name);
    bool good = set->class_name != NULL;
    for (int64_t i = 0; good && i < set->classes; i++) {
        set->class_name[i] = strndup(table + (size_t)i * size, size);
        good = set->class_name[i] != NULL;
    }
    free(table);
    return good || wrong(reading, "no memory for its class names");
}

static bool read_normalisation(hid_t file, const char *name, double values[PACKED_CHANNELS],
                               struct reading *reading)
{
    int64_t rows;
    size_t size;
    char *table = read_table(file, name, false, &rows, &size, reading);
    const bool good =
        table != NULL && (rows == reading->set->channels ||
                          wrong(reading, "its table '%s' does not have one row per channel", name));
    if (good)
        memcpy(values, table, (size_t)rows * sizeof *values);
    free(table);
    return good;
}

static bool read_part(hid_t file, int split, struct reading *reading)
{
    struct packed_set *set = reading->set;
    struct packed_part *part = &set->part[reading->file][split];
    hid_t group = H5Gopen2(file, split_name[split], H5P_DEFAULT);
    const int64_t most = UINT32_MAX;
    bool good =
        group >= 0 && read_number(group, "records", 1, most, &part->records, reading) &&
        read_number(group, "total", part->records, most, &set->total[split], reading) &&
        read_number(group, "first", 0, set->total[split] - part->records, &part->first, reading);
    const int64_t ends = part->records + 1;
    const int64_t decoded[4] = {part->records, set->channels, set->height, set->width};
    if (good && set->encoded) {
        hid_t bytes = H5Dopen2(group, "bytes", H5P_DEFAULT);
        hid_t space = bytes < 0 ? -1 : H5Dget_space(bytes);
        part->byte_count = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
        H5Sclose(space);
        H5Dclose(bytes);
        good = find_dataset(group, "bytes", H5T_NATIVE_UINT8, 1, &part->byte_count, &part->bytes,
                            reading) &&
               find_dataset(group, "offset", H5T_NATIVE_INT64, 1, &ends, &part->offset, reading);
    } else if (good) {
        good = find_dataset(group, "bytes", H5T_NATIVE_UINT8, 4, decoded, &part->bytes, reading);
        part->byte_count = good ? part->records * set->channels * set->height * set->width : 0;
    }
    good = good &&
           find_dataset(group, "label", H5T_NATIVE_INT32, 1, decoded, &part->label, reading) &&
           find_dataset(group, "crc", H5T_NATIVE_UINT32, 1, decoded, &part->crc, reading);
    H5Gclose(group);
    return good;
}

static bool read_frame(hid_t file, struct reading *reading)
{
    struct packed_set *set = reading->set;
    bool good =
        read_kind(file, reading) && read_attributes(file, reading) && read_classes(file, reading);
    set->normalised = good && H5Lexists(file, "mean", H5P_DEFAULT) > 0;
    if (set->normalised)
        good = read_normalisation(file, "mean", set->mean, reading) &&
               read_normalisation(file, "std", set->std, reading);
    for (int split = 0; good && split < PACKED_SPLITS; split++)
        if (H5Lexists(file, split_name[split], H5P_DEFAULT) > 0)
            good = read_part(file, split, reading);
    return good;
}

/* Check the file before HDF5 reads it. */
static bool examine(const char *path, int64_t *bytes, struct error *error)
{
    struct stat file;
    if (stat(path, &file) != 0)
        return error_set(error, ERROR_DATA, "%s: %s; see data.root", path, strerror(errno));
    *bytes = (int64_t)file.st_size;
    if (!S_ISREG(file.st_mode))
        return error_set(error, ERROR_DATA, "%s: it is not a file", path);
    if (access(path, R_OK) != 0)
        return error_set(error, ERROR_DATA, "%s: %s", path, strerror(errno));
    return *bytes > 0 || error_set(error, ERROR_DATA, "%s is empty: pack it again", path);
}

static bool read_file(const char *path, struct packed_set *set, int64_t number, struct error *error)
{
    struct reading reading = {.set = set, .file = number};
    struct hdf5_errors errors;
    int64_t have, needed;
    if (!examine(path, &reading.bytes, error))
        return false;
    hdf5_errors_begin(&errors);
    hid_t properties = hdf5_file_access();
    hid_t file = properties < 0 ? -1 : H5Fopen(path, H5F_ACC_RDONLY, properties);
    const bool good = file >= 0 && read_frame(file, &reading);
    H5Fclose(file);
    H5Pclose(properties);
    if (hdf5_errors_end(&errors) && good)
        return true;
    if (hdf5_is_cut(errors.reason, &have, &needed))
        wrong(&reading, "it is truncated: it has %lld of %lld bytes", (long long)have,
              (long long)needed);
    wrong(&reading, "%s", errors.reason[0] != '\0' ? errors.reason : "a part of it is missing");
    return error_set(error, ERROR_DATA, "cannot use %s as packed data: %s", path, reading.wrong);
}

static void names_free(struct packed_set *set)
{
    for (int64_t i = 0; set->class_name != NULL && i < set->classes; i++)
        free(set->class_name[i]);
    free(set->class_name);
    set->class_name = NULL;
}

/* Read another file of the set. */
static bool add_file(const char *path, struct packed_set *set, int64_t number, struct error *error)
{
    struct packed_set other = {.part = set->part};
    const bool good = read_file(path, &other, number, error);
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

bool packed_frames_read(const char *name, int64_t files, struct packed_set *set,
                        struct error *error)
{
    char path[PACKED_PATH];
    memset(set, 0, sizeof *set);
    set->part = calloc((size_t)files, sizeof *set->part);
    if (set->part == NULL)
        return error_set(error, ERROR_MEMORY, "no memory to open %s", name);
    packed_path(path, name, 0, files);
    if (!read_file(path, set, 0, error))
        return false;
    if (set->files != files)
        return error_set(error, ERROR_DATA, "%s: it is one of %lld files, but its name says %lld",
                         path, (long long)set->files, (long long)files);
    for (int64_t file = 1; file < files; file++) {
        packed_path(path, name, file, files);
        if (!add_file(path, set, file, error))
            return false;
    }
    return check_parts(name, set, error);
}

void packed_set_free(struct packed_set *set)
{
    names_free(set);
    free(set->part);
    set->part = NULL;
}
