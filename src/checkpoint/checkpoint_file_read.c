/* Reads the frame of a checkpoint file and checks that it hangs together, so that what follows can
 * trust every offset and count in it. One rank does this; the vectors are read without HDF5. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/checkpoint_format.h"
#include "core/crc32c.h"

enum { MOST_RANKS = 1 << 20 };

/* What is being read, and what was found wrong with it: one sentence, or empty when HDF5 failed. */
struct reading {
    struct checkpoint_contents *contents;
    char wrong[HDF5_REASON];
    const char *unit; /* in which it was found; NULL: in none */
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

static bool read_attributes(hid_t file, struct reading *reading)
{
    struct checkpoint_contents *contents = reading->contents;
    int64_t format;
    if (!hdf5_number_read(file, "format", H5T_NATIVE_INT64, &format))
        return wrong(reading, "it is an HDF5 file, but no checkpoint of vittrain");
    if (format < CHECKPOINT_FORMAT_OLDEST || format > CHECKPOINT_FORMAT)
        return wrong(reading, "its format is %lld, this program reads %d to %d", (long long)format,
                     CHECKPOINT_FORMAT_OLDEST, CHECKPOINT_FORMAT);
    contents->format = format;
    bool good = hdf5_text_read(file, "model", contents->model, sizeof contents->model) &&
                hdf5_text_read(file, "compute", contents->compute, sizeof contents->compute) &&
                hdf5_text_read(file, "program", contents->program, sizeof contents->program) &&
                hdf5_text_read(file, "date", contents->date, sizeof contents->date);
    for (int n = 0; good && n < format_number_count; n++)
        if (format >= format_numbers[n].since)
            good = hdf5_number_read(file, format_numbers[n].name,
                                    format_number_type(format_numbers[n].type),
                                    (char *)contents + format_numbers[n].offset);
    contents->state.finished = contents->finished != 0;
    if (good && (contents->replica < 1 || contents->shard < 1 || contents->replica > MOST_RANKS ||
                 contents->shard > MOST_RANKS))
        good = wrong(reading, "a mesh of replica %lld x shard %lld makes no sense",
                     (long long)contents->replica, (long long)contents->shard);
    return good;
}

/* The address of a data set of this type whose bytes lie in one stretch inside the file, and its
 * number of rows. */
static bool find_dataset(struct reading *reading, hid_t dataset, hid_t type, int64_t *rows,
                         int64_t *offset)
{
    hid_t stored = H5Dget_type(dataset);
    hid_t space = H5Dget_space(dataset);
    hssize_t points = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
    haddr_t address = H5Dget_offset(dataset);
    bool good = stored >= 0 && points >= 1 && H5Tequal(stored, type) > 0;
    int64_t row = good ? (int64_t)H5Tget_size(type) : 1;
    if (!good)
        wrong(reading, "a data set is of another type than this program writes");
    else if (address == HADDR_UNDEF || (int64_t)address > reading->contents->bytes ||
             points > (reading->contents->bytes - (int64_t)address) / row)
        good = wrong(reading, "a data set lies outside the file");
    *rows = points;
    *offset = (int64_t)address;
    H5Sclose(space);
    H5Tclose(stored);
    return good;
}

/* A table in new memory, its sum compared. */
static void *read_table(struct reading *reading, hid_t group, const char *name, hid_t type,
                        int64_t *rows)
{
    int64_t offset;
    uint32_t expected;
    hid_t dataset = H5Dopen2(group, name, H5P_DEFAULT);
    void *data = NULL;
    if (dataset >= 0 && find_dataset(reading, dataset, type, rows, &offset) &&
        hdf5_number_read(dataset, "crc32c", H5T_NATIVE_UINT32, &expected)) {
        size_t bytes = H5Tget_size(type) * (size_t)*rows;
        data = malloc(bytes);
        bool good =
            data != NULL && H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
        if (good && crc32c_update(0, data, bytes) != expected)
            good = wrong(reading, "the sum of its table '%s' is wrong: bytes have changed", name);
        if (!good) {
            free(data);
            data = NULL;
        }
    }
    H5Dclose(dataset);
    return data;
}

/* A text in new memory, its sum compared. */
static char *read_text(hid_t file, struct reading *reading, const char *name)
{
    hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    hid_t type = dataset < 0 ? -1 : H5Dget_type(dataset);
    int64_t rows;
    bool good = type >= 0 && H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0;
    char *text = good ? read_table(reading, file, name, type, &rows) : NULL;
    if (text != NULL)
        text[H5Tget_size(type) * (size_t)rows - 1] = '\0';
    H5Tclose(type);
    H5Dclose(dataset);
    return text;
}

static bool read_texts(hid_t file, struct reading *reading)
{
    struct checkpoint_contents *contents = reading->contents;
    contents->deck = read_text(file, reading, "deck");
    if (contents->deck == NULL)
        return false;
    const htri_t chosen = H5Lexists(file, "algorithms", H5P_DEFAULT);
    if (chosen > 0)
        contents->algorithms = read_text(file, reading, "algorithms");
    return chosen == 0 || contents->algorithms != NULL;
}

static bool take_tensor(struct unit_tensor *tensor, const struct tensor_row *row)
{
    if (memchr(row->name, '\0', sizeof row->name) == NULL || row->dimensions < 0 ||
        row->dimensions > TENSOR_DIMENSIONS || row->offset < 0 || row->count < 0 ||
        row->offset > INT64_MAX - row->count)
        return false;
    memcpy(tensor->name, row->name, sizeof tensor->name);
    tensor->dimensions = (int)row->dimensions;
    memcpy(tensor->shape, row->shape, sizeof tensor->shape);
    tensor->offset = row->offset;
    tensor->count = row->count;
    tensor->kind = row->kind == TENSOR_STATE ? TENSOR_STATE : TENSOR_PARAMETER;
    return true;
}

static bool read_tensors(hid_t group, struct reading *reading, struct unit *unit)
{
    int64_t rows = 0;
    hid_t type = format_tensor_row_type();
    struct tensor_row *row = type < 0 ? NULL : read_table(reading, group, "tensors", type, &rows);
    H5Tclose(type);
    bool good = row != NULL && rows < INT32_MAX;
    if (good)
        unit->tensors = calloc((size_t)rows, sizeof *unit->tensors);
    good = good && unit->tensors != NULL;
    for (int64_t t = 0; good && t < rows; t++) {
        good = take_tensor(&unit->tensors[t], &row[t]) ||
               wrong(reading, "the table of tensors of unit %s makes no sense", unit->name);
        unit->tensor_count++;
    }
    free(row);
    return good;
}

/* Tensors lie one after another in the unit's vectors, each as large as its shape says. */
static bool tensors_fit(const struct unit *unit)
{
    int64_t end = 0;
    for (int t = 0; t < unit->tensor_count; t++) {
        const struct unit_tensor *tensor = &unit->tensors[t];
        int64_t count = 1;
        for (int d = 0; d < tensor->dimensions; d++)
            if (tensor->shape[d] < 1 || __builtin_mul_overflow(count, tensor->shape[d], &count))
                return false;
        if (count != tensor->count || tensor->offset < end ||
            tensor->count > unit->count - tensor->offset)
            return false;
        end = tensor->offset + tensor->count;
    }
    return true;
}

/* Pieces must cover the vectors from begin to end, in order. */
static bool pieces_cover(const struct checkpoint_piece *pieces, int64_t piece_count, int64_t count)
{
    int64_t next = 0;
    for (int64_t p = 0; p < piece_count; p++) {
        if (pieces[p].begin != next || pieces[p].count < 1 || pieces[p].count > VECTOR_BLOCK ||
            pieces[p].count > count - next)
            return false;
        next += pieces[p].count;
    }
    return next == count;
}

static bool read_pieces(hid_t group, struct reading *reading, struct checkpoint_layout *layout)
{
    struct checkpoint_contents *contents = reading->contents;
    hid_t dataset = H5Dopen2(group, "pieces", H5P_DEFAULT);
    hid_t type = format_piece_type();
    layout->first_piece = contents->piece_count;
    bool good = dataset >= 0 && type >= 0 &&
                find_dataset(reading, dataset, type, &layout->piece_count, &layout->table_offset);
    if (good) {
        size_t total = (size_t)(contents->piece_count + layout->piece_count);
        struct checkpoint_piece *grown = realloc(contents->pieces, total * sizeof *grown);
        good = grown != NULL;
        if (good) {
            contents->pieces = grown;
            contents->piece_count = (int64_t)total;
            good = H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                           grown + layout->first_piece) >= 0;
        }
    }
    H5Tclose(type);
    H5Dclose(dataset);
    return good;
}

static bool find_vector(hid_t group, struct reading *reading, enum vector_kind kind,
                        struct checkpoint_layout *layout)
{
    int64_t count = 0;
    hid_t dataset = H5Dopen2(group, vector_name[kind], H5P_DEFAULT);
    bool good = dataset >= 0 &&
                find_dataset(reading, dataset, H5T_NATIVE_FLOAT, &count, &layout->offset[kind]);
    H5Dclose(dataset);
    if (kind == VECTOR_MASTER)
        layout->count = count;
    if (good && count != layout->count)
        good = wrong(reading, "vectors of one unit differ in length");
    return good;
}

static bool read_unit(hid_t units, struct reading *reading, int64_t number)
{
    struct checkpoint_contents *contents = reading->contents;
    struct unit *unit = &contents->units[number];
    struct checkpoint_layout *layout = &contents->layout[number];
    ssize_t length =
        H5Lget_name_by_idx(units, ".", H5_INDEX_CRT_ORDER, H5_ITER_INC, (hsize_t)number, unit->name,
                           sizeof unit->name, H5P_DEFAULT);
    if (length < 0 || length >= (ssize_t)sizeof unit->name)
        return false;
    memcpy(layout->name, unit->name, sizeof layout->name);
    hid_t group = H5Gopen2(units, unit->name, H5P_DEFAULT);
    bool good =
        group >= 0 && read_tensors(group, reading, unit) && read_pieces(group, reading, layout);
    for (enum vector_kind kind = 0; good && kind < VECTOR_KINDS; kind++) {
        layout->offset[kind] = -1;
        if (checkpoint_has(contents, kind))
            good = find_vector(group, reading, kind, layout);
    }
    unit->count = layout->count;
    if (good && !tensors_fit(unit))
        good = wrong(reading, "the table of tensors of unit %s makes no sense", unit->name);
    if (good &&
        !pieces_cover(contents->pieces + layout->first_piece, layout->piece_count, layout->count))
        good = wrong(reading, "the table of pieces of unit %s makes no sense: bytes have changed",
                     unit->name);
    H5Gclose(group);
    reading->unit = good ? NULL : unit->name;
    return good;
}

static bool read_units(hid_t file, struct reading *reading)
{
    struct checkpoint_contents *contents = reading->contents;
    H5G_info_t info = {.nlinks = 0};
    hid_t units = H5Gopen2(file, "units", H5P_DEFAULT);
    bool good = units >= 0 && H5Gget_info(units, &info) >= 0 && info.nlinks > 0;
    if (good) {
        contents->units = calloc(info.nlinks, sizeof *contents->units);
        contents->layout = calloc(info.nlinks, sizeof *contents->layout);
        contents->unit_count = (int64_t)info.nlinks;
        good = contents->units != NULL && contents->layout != NULL;
    }
    for (int64_t unit = 0; good && unit < contents->unit_count; unit++)
        good = read_unit(units, reading, unit);
    H5Gclose(units);
    return good;
}

/* What can be said of the file before HDF5 looks at it. */
static bool examine(const char *path, int64_t *bytes, struct error *error)
{
    struct stat file;
    /* not waiting for who writes to a pipe */
    int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0 || fstat(descriptor, &file) != 0) {
        error_set(error, ERROR_CHECKPOINT, "cannot read %s: %s", path, strerror(errno));
        if (descriptor >= 0)
            close(descriptor);
        return false;
    }
    close(descriptor);
    *bytes = (int64_t)file.st_size;
    if (!S_ISREG(file.st_mode))
        return error_set(error, ERROR_CHECKPOINT, "cannot read %s: it is not a file", path);
    if (file.st_size == 0)
        return error_set(error, ERROR_CHECKPOINT, "%s is empty", path);
    return true;
}

/* What most often is wrong, in words that say it. */
static void explain(struct reading *reading, const char *reason)
{
    int64_t bytes, needed;
    if (hdf5_is_cut(reason, &bytes, &needed))
        wrong(reading, "it is cut: %lld of its %lld bytes are there", (long long)bytes,
              (long long)needed);
    else if (reading->unit != NULL)
        wrong(reading, "unit %s: %s", reading->unit,
              reason[0] != '\0' ? reason : "something is missing in it");
    else
        wrong(reading, "%s", reason[0] != '\0' ? reason : "something is missing in it");
}

bool checkpoint_file_read(const char *path, struct checkpoint_contents *contents,
                          struct error *error)
{
    memset(contents, 0, sizeof *contents);
    if (!examine(path, &contents->bytes, error))
        return false;
    struct reading reading = {.contents = contents};
    struct hdf5_errors errors;
    hdf5_errors_begin(&errors);
    hid_t access = hdf5_file_access();
    hid_t file = access < 0 ? -1 : H5Fopen(path, H5F_ACC_RDONLY, access);
    bool good = file >= 0 && read_attributes(file, &reading) && read_texts(file, &reading) &&
                read_units(file, &reading);
    H5Fclose(file);
    H5Pclose(access);
    if (hdf5_errors_end(&errors) && good)
        return true;
    explain(&reading, errors.reason);
    return error_set(error, ERROR_CHECKPOINT, "%s cannot be used as a checkpoint: %s", path,
                     reading.wrong);
}

void checkpoint_contents_free(struct checkpoint_contents *contents)
{
    for (int64_t unit = 0; !contents->units_borrowed && unit < contents->unit_count; unit++)
        if (contents->units != NULL)
            free(contents->units[unit].tensors);
    free(contents->units);
    free(contents->layout);
    free(contents->pieces);
    free(contents->deck);
    free(contents->algorithms);
    memset(contents, 0, sizeof *contents);
}
