/* Frame and format of a checkpoint file. One rank writes the frame with HDF5's POSIX driver; then
 * all ranks write the vectors with pwrite, since HDF5's parallel driver (MPI-IO) hangs on a full
 * disk and is not faster (docs/checkpoint.md). In the file format of HDF5 1.8 all metadata have
 * checksums; tables and texts have a CRC32C as an attribute. Numbers are stored in native byte
 * order, and a machine of the other byte order refuses the file. */
#include "checkpoint/checkpoint_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"
#include "core/clock.h"
#include "core/crc32c.h"
#include "core/durable.h"
#include "core/hdf5_file.h"

enum {
    MOST_RANKS = 1 << 20,
    WRITER_ALIGNMENT = 1024 /* elements: writers begin at multiples of 4 KiB of their shard */
};

/* ---- format ---- */

/* A row of the table `tensors` of a unit. */
struct tensor_row {
    char name[TENSOR_NAME];
    int64_t dimensions, shape[TENSOR_DIMENSIONS];
    int64_t offset, count; /* elements, in the unit's vectors */
    int64_t kind;          /* enum tensor_kind */
};

enum number_type { INTEGER, UNSIGNED, REAL };

/* A number that is stored as an attribute of the root group. */
struct number {
    const char *name;
    enum number_type type;
    size_t offset; /* in struct checkpoint_contents */
    int64_t since; /* first format that has it; 0 when an older file is read */
};

/* clang-format off */
#define NUMBER(name, type) {#name, type, offsetof(struct checkpoint_contents, name), 1}
#define STATE(name, type) {#name, type, offsetof(struct checkpoint_contents, state.name), 1}
#define STATE_2(name, type) {#name, type, offsetof(struct checkpoint_contents, state.name), 2}
/* clang-format on */

static const struct number numbers[] = {
    STATE(step, INTEGER),
    STATE(epoch, INTEGER),
    STATE(epoch_step, INTEGER),
    STATE(global_batch, INTEGER),
    STATE(seed, UNSIGNED),
    STATE(best_metric, REAL),
    STATE(best_step, INTEGER),
    STATE(evaluations_without_gain, INTEGER),
    STATE(plateau_rate_factor, REAL),
    STATE(plateau_best, REAL),
    STATE(plateau_bad, INTEGER),
    STATE(epoch_loss_sum, REAL),
    STATE(epoch_top1_sum, REAL),
    STATE(epoch_top5_sum, REAL),
    STATE(epoch_samples, REAL),
    STATE(train_seconds, REAL),
    STATE(without_setup_seconds, REAL),
    STATE(total_seconds, REAL),
    STATE(parts, INTEGER),
    STATE_2(loss_scale, REAL),
    STATE_2(loss_scale_good_steps, INTEGER),
    STATE_2(skipped_steps, INTEGER),
    NUMBER(finished, INTEGER),
    NUMBER(moments, INTEGER),
    NUMBER(averaged, INTEGER),
    NUMBER(replica, INTEGER),
    NUMBER(shard, INTEGER),
};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

/* A new field of the state needs an entry above and a new format number. */
_Static_assert(sizeof(struct training_state) == 23 * 8, "struct training_state has changed");

static hid_t number_type(enum number_type type)
{
    switch (type) {
    case INTEGER:
        return H5T_NATIVE_INT64;
    case UNSIGNED:
        return H5T_NATIVE_UINT64;
    default:
        return H5T_NATIVE_DOUBLE;
    }
}

/* New HDF5 types of the rows of both tables; the caller closes them. Negative on failure. */
static hid_t tensor_row_type(void)
{
    hsize_t dimensions = TENSOR_DIMENSIONS;
    hid_t integer = H5T_NATIVE_INT64;
    hid_t name = hdf5_text_type(TENSOR_NAME);
    hid_t shape = H5Tarray_create2(integer, 1, &dimensions);
    hid_t row = H5Tcreate(H5T_COMPOUND, sizeof(struct tensor_row));
    bool good =
        name >= 0 && shape >= 0 && row >= 0 &&
        H5Tinsert(row, "name", offsetof(struct tensor_row, name), name) >= 0 &&
        H5Tinsert(row, "dimensions", offsetof(struct tensor_row, dimensions), integer) >= 0 &&
        H5Tinsert(row, "shape", offsetof(struct tensor_row, shape), shape) >= 0 &&
        H5Tinsert(row, "offset", offsetof(struct tensor_row, offset), integer) >= 0 &&
        H5Tinsert(row, "count", offsetof(struct tensor_row, count), integer) >= 0 &&
        H5Tinsert(row, "kind", offsetof(struct tensor_row, kind), integer) >= 0;
    H5Tclose(name);
    H5Tclose(shape);
    if (good)
        return row;
    H5Tclose(row);
    return -1;
}

static hid_t piece_type(void)
{
    _Static_assert(sizeof(struct checkpoint_piece) == 32, "rows of the table have no padding");
    hid_t row = H5Tcreate(H5T_COMPOUND, sizeof(struct checkpoint_piece));
    bool good =
        row >= 0 &&
        H5Tinsert(row, "begin", offsetof(struct checkpoint_piece, begin), H5T_NATIVE_INT64) >= 0 &&
        H5Tinsert(row, "count", offsetof(struct checkpoint_piece, count), H5T_NATIVE_INT64) >= 0;
    for (enum state_kind kind = 0; good && kind < STATE_KINDS; kind++) {
        char name[32];
        snprintf(name, sizeof name, "crc32c_%s", state_name[kind]);
        size_t offset = offsetof(struct checkpoint_piece, crc) + (size_t)kind * sizeof(uint32_t);
        good = H5Tinsert(row, name, offset, H5T_NATIVE_UINT32) >= 0;
    }
    if (good)
        return row;
    H5Tclose(row);
    return -1;
}

void checkpoint_contents_open(struct checkpoint_contents *contents, const struct unit *units,
                              int unit_count, const char *model, const char *compute,
                              const char *deck)
{
    size_t count = (size_t)unit_count;
    *contents = (struct checkpoint_contents){.deck = strdup(deck),
                                             .units = calloc(count, sizeof *contents->units),
                                             .units_borrowed = true,
                                             .unit_count = unit_count,
                                             .layout = calloc(count, sizeof *contents->layout)};
    ENSURE(contents->deck != NULL && contents->units != NULL && contents->layout != NULL,
           "no memory for a checkpoint's plan");
    snprintf(contents->model, sizeof contents->model, "%s", model);
    snprintf(contents->compute, sizeof contents->compute, "%s", compute);
    snprintf(contents->program, sizeof contents->program, "%s", PACKAGE_STRING);
    clock_stamp(contents->date, sizeof contents->date);
    memcpy(contents->units, units, count * sizeof *units);
    for (size_t u = 0; u < count; u++) {
        snprintf(contents->layout[u].name, TENSOR_NAME, "%s", units[u].name);
        contents->layout[u].count = units[u].count;
    }
}

bool checkpoint_has(const struct checkpoint_contents *contents, enum state_kind kind)
{
    switch (kind) {
    case STATE_PARAMETER:
        return true;
    case STATE_MOMENT1:
        return contents->moments >= 1;
    case STATE_MOMENT2:
        return contents->moments >= 2;
    default:
        return contents->averaged != 0;
    }
}

int64_t checkpoint_piece_offset(const struct checkpoint_contents *contents, int64_t u,
                                enum state_kind kind, int64_t p)
{
    return contents->layout[u].offset[kind] + contents->pieces[p].begin * (int64_t)sizeof(float);
}

/* The first element of writer `number` of `writers` in a shard of this length. */
static int64_t writer_begin(int64_t length, int64_t number, int64_t writers)
{
    if (number == writers)
        return length;
    return length * number / writers / WRITER_ALIGNMENT * WRITER_ALIGNMENT;
}

void checkpoint_range(const struct checkpoint_contents *contents, int64_t u, int64_t shard,
                      int64_t replica, int64_t *begin, int64_t *end)
{
    int64_t count = contents->units[u].count;
    int64_t length = flat_shard_count(count, (int)contents->shard);
    int64_t first = shard * length;
    if (length > count - first)
        length = count > first ? count - first : 0;
    *begin = first + writer_begin(length, replica, contents->replica);
    *end = first + writer_begin(length, replica + 1, contents->replica);
}

/* ---- create ---- */

static bool write_tensors(hid_t group, const struct unit *unit)
{
    struct tensor_row *rows = calloc((size_t)unit->tensor_count, sizeof *rows);
    if (rows == NULL)
        return false;
    for (int t = 0; t < unit->tensor_count; t++) {
        const struct unit_tensor *tensor = &unit->tensors[t];
        snprintf(rows[t].name, sizeof rows[t].name, "%s", tensor->name);
        rows[t].dimensions = tensor->dimensions;
        for (int d = 0; d < tensor->dimensions; d++)
            rows[t].shape[d] = tensor->shape[d];
        rows[t].offset = tensor->offset;
        rows[t].count = tensor->count;
        rows[t].kind = tensor->kind;
    }
    hid_t type = tensor_row_type();
    bool good = type >= 0 && hdf5_table_write(group, "tensors", type, unit->tensor_count, rows);
    H5Tclose(type);
    free(rows);
    return good;
}

static bool make_unit(hid_t units, const struct checkpoint_contents *contents, int64_t number)
{
    const struct unit *unit = &contents->units[number];
    struct checkpoint_layout *layout = &contents->layout[number];
    hsize_t pieces = (hsize_t)layout->piece_count, count = (hsize_t)unit->count;
    hid_t group = hdf5_group_make(units, unit->name);
    hid_t piece = piece_type();
    bool good = group >= 0 && piece >= 0 && write_tensors(group, unit) &&
                hdf5_space_leave(group, "pieces", piece, 1, &pieces, &layout->table_offset);
    for (enum state_kind kind = 0; good && kind < STATE_KINDS; kind++) {
        layout->offset[kind] = -1;
        if (checkpoint_has(contents, kind))
            good = hdf5_space_leave(group, state_name[kind], H5T_NATIVE_FLOAT, 1, &count,
                                    &layout->offset[kind]);
    }
    H5Tclose(piece);
    H5Gclose(group);
    return good;
}

static bool write_attributes(hid_t file, const struct checkpoint_contents *contents)
{
    int64_t format = CHECKPOINT_FORMAT;
    bool good = hdf5_attribute_write(file, "format", H5T_NATIVE_INT64, &format) &&
                hdf5_text_write(file, "program", contents->program) &&
                hdf5_text_write(file, "date", contents->date) &&
                hdf5_text_write(file, "model", contents->model) &&
                hdf5_text_write(file, "compute", contents->compute);
    for (int n = 0; good && n < NUMBERS; n++)
        good = hdf5_attribute_write(file, numbers[n].name, number_type(numbers[n].type),
                                    (const char *)contents + numbers[n].offset);
    return good;
}

static bool write_text(hid_t file, const char *name, const char *text)
{
    hid_t type = hdf5_text_type(strlen(text) + 1);
    bool good = type >= 0 && hdf5_table_write(file, name, type, -1, text);
    H5Tclose(type);
    return good;
}

static bool write_frame(hid_t file, void *context)
{
    struct checkpoint_contents *contents = context;
    hid_t units = hdf5_group_make(file, "units");
    bool good =
        units >= 0 && write_attributes(file, contents) && write_text(file, "deck", contents->deck);
    if (good && contents->metadata != NULL)
        good = write_text(file, "metadata", contents->metadata);
    if (good && contents->algorithms != NULL)
        good = write_text(file, "algorithms", contents->algorithms);
    for (int64_t unit = 0; good && unit < contents->unit_count; unit++)
        good = make_unit(units, contents, unit);
    H5Gclose(units);
    return good;
}

/* Upper bound of the file's size. */
static int64_t expected_bytes(const struct checkpoint_contents *contents)
{
    int64_t bytes = (1 << 16) + (int64_t)strlen(contents->deck) +
                    contents->piece_count * (int64_t)sizeof(struct checkpoint_piece);
    if (contents->metadata != NULL)
        bytes += (int64_t)strlen(contents->metadata) + 4096;
    if (contents->algorithms != NULL)
        bytes += (int64_t)strlen(contents->algorithms) + 4096;
    for (int64_t u = 0; u < contents->unit_count; u++) {
        const struct unit *unit = &contents->units[u];
        bytes += 16384 + unit->tensor_count * (int64_t)sizeof(struct tensor_row);
        for (enum state_kind kind = 0; kind < STATE_KINDS; kind++)
            if (checkpoint_has(contents, kind))
                bytes += unit->count * (int64_t)sizeof(float) + 4096;
    }
    return bytes;
}

bool checkpoint_file_create(const char *path, struct checkpoint_contents *contents,
                            struct error *error)
{
    int descriptor = durable_create(path, error);
    if (descriptor < 0)
        return false;
    int frame = durable_reserve(descriptor, path, expected_bytes(contents), error)
                    ? hdf5_frame_make(path, write_frame, contents, &contents->bytes, error)
                    : -1;
    bool good = frame >= 0 && hdf5_frame_copy(frame, descriptor, path, contents->bytes, error);
    if (frame >= 0)
        close(frame);
    return durable_close(descriptor, path, error) && good;
}

/* ---- read ---- */

struct reading {
    struct checkpoint_contents *contents;
    char fault[HDF5_REASON]; /* first fault that was found; empty if only HDF5 reported one */
    const char *unit;        /* in which reading failed, or NULL */
};

__attribute__((format(printf, 2, 3))) static bool fault(struct reading *reading, const char *format,
                                                        ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (reading->fault[0] == '\0')
        vsnprintf(reading->fault, sizeof reading->fault, format, arguments);
    va_end(arguments);
    return false;
}

static bool read_attributes(hid_t file, struct reading *reading)
{
    struct checkpoint_contents *contents = reading->contents;
    int64_t format;
    if (!hdf5_number_read(file, "format", H5T_NATIVE_INT64, &format))
        return fault(reading, "it is an HDF5 file, but not a checkpoint of vittrain");
    if (format < CHECKPOINT_FORMAT_OLDEST || format > CHECKPOINT_FORMAT)
        return fault(reading, "its format is %lld, this program reads %d to %d", (long long)format,
                     CHECKPOINT_FORMAT_OLDEST, CHECKPOINT_FORMAT);
    contents->format = format;
    bool good = hdf5_text_read(file, "model", contents->model, sizeof contents->model) &&
                hdf5_text_read(file, "compute", contents->compute, sizeof contents->compute) &&
                hdf5_text_read(file, "program", contents->program, sizeof contents->program) &&
                hdf5_text_read(file, "date", contents->date, sizeof contents->date);
    for (int n = 0; good && n < NUMBERS; n++)
        if (format >= numbers[n].since)
            good = hdf5_number_read(file, numbers[n].name, number_type(numbers[n].type),
                                    (char *)contents + numbers[n].offset);
    contents->state.finished = contents->finished != 0;
    if (good && (contents->replica < 1 || contents->shard < 1 || contents->replica > MOST_RANKS ||
                 contents->shard > MOST_RANKS))
        good = fault(reading, "its mesh of replica %lld x shard %lld is invalid",
                     (long long)contents->replica, (long long)contents->shard);
    return good;
}

/* Find the offset and the number of rows of a contiguous data set of this type. */
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
        fault(reading, "a data set has an unexpected type");
    else if (address == HADDR_UNDEF || (int64_t)address > reading->contents->bytes ||
             points > (reading->contents->bytes - (int64_t)address) / row)
        good = fault(reading, "a data set is outside the file");
    *rows = points;
    *offset = (int64_t)address;
    H5Sclose(space);
    H5Tclose(stored);
    return good;
}

/* Read a table into new memory and verify its CRC32C. Return NULL on failure. */
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
            good = fault(reading, "the checksum of its table '%s' is wrong: the file is damaged",
                         name);
        if (!good) {
            free(data);
            data = NULL;
        }
    }
    H5Dclose(dataset);
    return data;
}

/* Read a text into new memory and verify its CRC32C. Return NULL on failure. */
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

/* Set *text if the file has it. Return false if it cannot be read. */
static bool read_optional(hid_t file, struct reading *reading, const char *name, char **text)
{
    const htri_t exists = H5Lexists(file, name, H5P_DEFAULT);
    if (exists > 0)
        *text = read_text(file, reading, name);
    return exists == 0 || *text != NULL;
}

static bool read_texts(hid_t file, struct reading *reading)
{
    struct checkpoint_contents *contents = reading->contents;
    contents->deck = read_text(file, reading, "deck");
    return contents->deck != NULL &&
           read_optional(file, reading, "metadata", &contents->metadata) &&
           read_optional(file, reading, "algorithms", &contents->algorithms);
}

static bool tensor_parse(struct unit_tensor *tensor, const struct tensor_row *row)
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
    hid_t type = tensor_row_type();
    struct tensor_row *row = type < 0 ? NULL : read_table(reading, group, "tensors", type, &rows);
    H5Tclose(type);
    bool good = row != NULL && rows < INT32_MAX;
    if (good)
        unit->tensors = calloc((size_t)rows, sizeof *unit->tensors);
    good = good && unit->tensors != NULL;
    for (int64_t t = 0; good && t < rows; t++) {
        good = tensor_parse(&unit->tensors[t], &row[t]) ||
               fault(reading, "the table of tensors of unit %s is invalid", unit->name);
        unit->tensor_count++;
    }
    free(row);
    return good;
}

/* True if the tensors do not overlap, are inside the unit, and have the size of their shape. */
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

/* True if the pieces cover the unit's `count` elements in order, without gaps or overlaps. */
static bool pieces_cover(const struct checkpoint_piece *pieces, int64_t piece_count, int64_t count)
{
    int64_t next = 0;
    for (int64_t p = 0; p < piece_count; p++) {
        if (pieces[p].begin != next || pieces[p].count < 1 || pieces[p].count > STATE_BLOCK ||
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
    hid_t type = piece_type();
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

static bool find_vector(hid_t group, struct reading *reading, enum state_kind kind,
                        struct checkpoint_layout *layout)
{
    int64_t count = 0;
    hid_t dataset = H5Dopen2(group, state_name[kind], H5P_DEFAULT);
    bool good = dataset >= 0 &&
                find_dataset(reading, dataset, H5T_NATIVE_FLOAT, &count, &layout->offset[kind]);
    H5Dclose(dataset);
    if (kind == STATE_PARAMETER)
        layout->count = count;
    if (good && count != layout->count)
        good = fault(reading, "vectors of one unit differ in length");
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
    for (enum state_kind kind = 0; good && kind < STATE_KINDS; kind++) {
        layout->offset[kind] = -1;
        if (checkpoint_has(contents, kind))
            good = find_vector(group, reading, kind, layout);
    }
    unit->count = layout->count;
    if (good && !tensors_fit(unit))
        good = fault(reading, "the table of tensors of unit %s is invalid", unit->name);
    if (good &&
        !pieces_cover(contents->pieces + layout->first_piece, layout->piece_count, layout->count))
        good = fault(reading, "the table of pieces of unit %s is invalid: the file is damaged",
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

/* Check that the file is a regular file and not empty, for clearer messages than HDF5's. */
static bool examine(const char *path, int64_t *bytes, struct error *error)
{
    struct stat file;
    /* O_NONBLOCK: opening a FIFO must not block. */
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

/* Set reading->fault from HDF5's message, unless a fault was found before. */
static void explain(struct reading *reading, const char *reason)
{
    int64_t bytes, needed;
    if (hdf5_is_cut(reason, &bytes, &needed))
        fault(reading, "it is truncated: it has %lld of its %lld bytes", (long long)bytes,
              (long long)needed);
    else if (reading->unit != NULL)
        fault(reading, "unit %s: %s", reading->unit,
              reason[0] != '\0' ? reason : "an object is missing");
    else
        fault(reading, "%s", reason[0] != '\0' ? reason : "an object is missing");
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
                     reading.fault);
}

bool checkpoint_piece_read(int descriptor, const char *path,
                           const struct checkpoint_contents *contents, int64_t u, int64_t p,
                           enum state_kind kind, float *block, struct error *error)
{
    const struct checkpoint_piece *piece = &contents->pieces[p];
    size_t bytes = (size_t)piece->count * sizeof(float);
    int64_t offset = checkpoint_piece_offset(contents, u, kind, p);
    if (!durable_read(descriptor, path, block, bytes, offset, error))
        return false;
    if (crc32c_update(0, block, bytes) == piece->crc[kind])
        return true;
    return error_set(
        error, ERROR_CHECKPOINT,
        "%s is damaged: the checksum of bytes %lld to %lld is wrong (%s of unit %s); use "
        "another checkpoint",
        path, (long long)offset, (long long)offset + (long long)bytes - 1, state_name[kind],
        contents->layout[u].name);
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
    free(contents->metadata);
    free(contents->algorithms);
    memset(contents, 0, sizeof *contents);
}
