// SPDX-License-Identifier: BSD-3-Clause
/* Names of packed files, NAME.h5 or several NAME-00000-of-00004.h5, and their header: attributes,
 * class names and the positions of the records. HDF5 writes and reads it; records are accessed
 * without HDF5. */
#include "data/packed.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/crc32c.h"
#include "core/durable.h"
#include "core/folder.h"
#include "core/hdf5_file.h"
#include "core/subprocess.h"
#include "core/text.h"
#include "data/data_root.h"

const char *const packed_split_name[PACKED_SPLITS] = {"train", "validation", "test"};

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
    DIR *entries = NULL;
    for (const char *entry; (entry = folder_next(&entries, folder)) != NULL;) {
        int64_t file = 0, count = 1;
        const int length = snprintf(path, sizeof path, "%s/%s", folder, entry);
        if (length >= (int)sizeof path || !text_ends_with(entry, ending) ||
            (take_numbered(path, &file, &count) && file > 0))
            continue;
        name_of(path, found_name);
        if (wanted != NULL && (count == 1 || strcmp(found_name + strlen(folder) + 1, wanted) != 0))
            continue;
        memcpy(name, found_name, sizeof found_name);
        *files = count;
        found++;
    }
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
    hid_t group = hdf5_group_make(file, packed_split_name[split]);
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

/* Check the file before HDF5 reads it. */
static bool examine(const char *path, int64_t *bytes, struct error *error)
{
    struct stat file;
    if (stat(path, &file) != 0)
        return error_set(error, ERROR_DATA, "%s: %s; see data.root", path, strerror(errno));
    *bytes = (int64_t)file.st_size;
    if (!S_ISREG(file.st_mode))
        return error_set(error, ERROR_DATA, "%s: it is not a regular file", path);
    if (access(path, R_OK) != 0)
        return error_set(error, ERROR_DATA, "%s: %s", path, strerror(errno));
    return *bytes > 0 || error_set(error, ERROR_DATA, "%s is empty: pack it again", path);
}

/* Reads the headers of a set in a child process, since a damaged file can crash HDF5 or keep it
 * busy. */
struct header_reader {
    struct subprocess child;
    bool in_child;
    char path[PACKED_PATH]; /* of the last file */
};

static bool reader_open(struct header_reader *reader, const char *name, int64_t files,
                        struct error *error)
{
    char number[32];
    const char *const words[] = {PACKED_READ_FRAMES, name, number, NULL};
    snprintf(number, sizeof number, "%lld", (long long)files);
    reader->in_child = subprocess_has_program();
    return !reader->in_child || subprocess_start(&reader->child, words, error);
}

/* True if an array of `count` elements is inside the file. */
static bool inside(int64_t offset, int64_t count, int64_t size, int64_t bytes)
{
    return offset >= 0 && offset <= bytes && count >= 0 && count <= (bytes - offset) / size;
}

static bool part_is_valid(const struct packed_set *set, int split, const struct packed_part *part,
                          int64_t bytes)
{
    int64_t pixels = 0;
    if (part->records == 0)
        return true;
    if (part->records < 0 || part->records > UINT32_MAX || part->first < 0 ||
        set->total[split] < part->records || set->total[split] > UINT32_MAX ||
        part->first > set->total[split] - part->records ||
        __builtin_mul_overflow(part->records, set->channels * set->height * set->width, &pixels))
        return false;
    return (set->encoded ? inside(part->offset, part->records + 1, sizeof(int64_t), bytes)
                         : part->byte_count == pixels) &&
           inside(part->bytes, part->byte_count, 1, bytes) &&
           inside(part->label, part->records, sizeof(int32_t), bytes) &&
           inside(part->crc, part->records, sizeof(uint32_t), bytes);
}

static bool set_is_valid(const struct packed_set *set, int64_t number, int64_t bytes)
{
    const int64_t least = set->encoded ? 0 : 1, most = set->encoded ? 0 : PACKED_MOST_SIDE;
    bool good = set->channels >= 1 && set->channels <= IMAGE_CHANNELS && set->height >= least &&
                set->height <= most && set->width >= least && set->width <= most &&
                set->files >= 1 && set->files <= PACKED_MOST_FILES &&
                memchr(set->source, '\0', sizeof set->source) != NULL &&
                memchr(set->program, '\0', sizeof set->program) != NULL;
    for (int64_t c = 0; good && set->normalised && c < set->channels; c++)
        good = isfinite(set->mean[c]) && isfinite(set->std[c]) && set->std[c] >= 0;
    for (int split = 0; good && split < PACKED_SPLITS; split++)
        good = part_is_valid(set, split, &set->part[number][split], bytes);
    return good;
}

static bool read_file(struct header_reader *reader, const char *path, struct packed_set *set,
                      int64_t number, struct error *error)
{
    int64_t bytes = 0;
    struct error theirs = {.kind = ERROR_NONE};
    snprintf(reader->path, sizeof reader->path, "%s", path);
    if (!examine(path, &bytes, error))
        return false;
    if (!reader->in_child) {
        if (!packed_frame_read(path, bytes, set, number, error))
            return false;
    } else if (!packed_message_receive(&reader->child, bytes, set, number, &theirs))
        return false; /* reader_close describes the error */
    if (theirs.kind != ERROR_NONE)
        return error_set(error, ERROR_DATA, "%s", theirs.text);
    return set_is_valid(set, number, bytes) ||
           error_set(error, ERROR_DATA,
                     "cannot use %s as packed data: a number in its header is out of range", path);
}

static bool reader_close(struct header_reader *reader, bool good, struct error *error)
{
    if (reader->in_child)
        error_defer(subprocess_end(&reader->child, good, reader->path, ERROR_DATA, error));
    return good && error->kind == ERROR_NONE;
}

static void names_free(struct packed_set *set)
{
    for (int64_t i = 0; set->class_name != NULL && i < set->classes; i++)
        free(set->class_name[i]);
    free(set->class_name);
    set->class_name = NULL;
}

/* Read another file of the set. */
static bool add_file(struct header_reader *reader, const char *path, struct packed_set *set,
                     int64_t number, struct error *error)
{
    struct packed_set other = {.part = set->part};
    const bool good = read_file(reader, path, &other, number, error);
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
                             packed_split_name[split]);
    }
    return true;
}

static bool read_files(struct header_reader *reader, const char *name, int64_t files,
                       struct packed_set *set, struct error *error)
{
    char path[PACKED_PATH];
    packed_path(path, name, 0, files);
    if (!read_file(reader, path, set, 0, error))
        return false;
    if (set->files != files)
        return error_set(error, ERROR_DATA, "%s: it is one of %lld files, but its name says %lld",
                         path, (long long)set->files, (long long)files);
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
    struct header_reader reader;
    memset(set, 0, sizeof *set);
    set->part = calloc((size_t)files, sizeof *set->part);
    if (set->part == NULL)
        return error_set(error, ERROR_MEMORY, "no memory to open %s", name);
    if (!reader_open(&reader, name, files, error))
        return false;
    const bool good = read_files(&reader, name, files, set, error);
    return reader_close(&reader, good, error);
}

void packed_set_free(struct packed_set *set)
{
    names_free(set);
    free(set->part);
    set->part = NULL;
}
