// SPDX-License-Identifier: BSD-3-Clause
/* A checkpoint file: its contents, and its frame, which is groups, attributes, tables, and space
 * for the vectors. One rank creates the frame; then all ranks write the vectors with pwrite, since
 * HDF5's parallel driver (MPI-IO) hangs on a full disk and is not faster. In the file format of
 * HDF5 1.8 all metadata have checksums; tables and texts have a CRC32C as an attribute. Layout:
 * docs/checkpoint.md. */
#include "checkpoint/checkpoint_file.h"

#include <float.h>
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/file.h"
#include "config.h"
#include "hdf5/hdf5_reader.h"
#include "hdf5/hdf5_writer.h"
#include "options/options.h"

bool checkpoint_has(const struct checkpoint_contents *contents, enum flat_vector kind)
{
    switch (kind) {
    case FLAT_MASTER:
        return true;
    case FLAT_MOMENT1:
        return contents->moments >= 1;
    case FLAT_MOMENT2:
        return contents->moments >= 2;
    default:
        return contents->averaged != 0;
    }
}

/* ---- pieces ---- */

bool checkpoint_next(const struct checkpoint_contents *contents, struct checkpoint_block *block)
{
    int64_t i = block->piece != NULL ? block->p - contents->layout[block->u].first_piece + 1 : 0;
    for (; block->u < contents->unit_count; block->u++, block->kind = 0)
        for (; block->kind < FLAT_VECTORS; block->kind++, i = 0) {
            const struct checkpoint_layout *layout = &contents->layout[block->u];
            if (!checkpoint_has(contents, block->kind) || i >= layout->piece_count)
                continue;
            block->p = layout->first_piece + i;
            block->piece = &contents->pieces[block->p];
            block->bytes = (size_t)block->piece->count * sizeof(float);
            block->offset =
                layout->offset[block->kind] + block->piece->begin * (int64_t)sizeof(float);
            return true;
        }
    return false;
}

bool checkpoint_block_read(int descriptor, const char *path,
                           const struct checkpoint_contents *contents,
                           const struct checkpoint_block *block, float *to, struct error *error)
{
    if (!durable_read(descriptor, path, to, block->bytes, block->offset, error))
        return false;
    return crc32c_update(0, to, block->bytes) == block->piece->crc[block->kind] ||
           error_set(error, ERROR_CHECKPOINT,
                     "%s is damaged: the checksum of bytes %lld to %lld is wrong (%s of unit %s); "
                     "use another checkpoint",
                     path, (long long)block->offset,
                     (long long)block->offset + (long long)block->bytes - 1,
                     flat_vector_name[block->kind], contents->layout[block->u].name);
}

bool checkpoint_tables_write(int descriptor, const char *path,
                             const struct checkpoint_contents *contents, struct error *error)
{
    for (int64_t u = 0; u < contents->unit_count; u++) {
        const struct checkpoint_layout *layout = &contents->layout[u];
        if (!durable_write(descriptor, path, contents->pieces + layout->first_piece,
                           (size_t)layout->piece_count * sizeof *contents->pieces,
                           layout->table_offset, error))
            return false;
    }
    return true;
}

void checkpoint_contents_free(struct checkpoint_contents *contents)
{
    for (int64_t u = 0; contents->own_units != NULL && u < contents->unit_count; u++)
        free(contents->own_units[u].tensors);
    free(contents->own_units);
    free(contents->layout);
    free(contents->pieces);
    for (int t = 0; t < CHECKPOINT_TEXTS; t++)
        free(contents->text[t]);
    memset(contents, 0, sizeof *contents);
}

/* ---- the frame ---- */

#define VECTOR HDF5_NATIVE "f4"

static const char *const text_name[CHECKPOINT_TEXTS] = {"deck", "metadata", "data", "algorithms"};

/* A row of the table `tensors` of a unit. */
struct tensor_row {
    char name[TENSOR_NAME];
    int64_t dimensions, shape[TENSOR_DIMENSIONS];
    int64_t offset, count; /* elements, in the unit's vectors */
    int64_t kind;          /* enum tensor_kind */
};

/* The types of the tables as a description has them (hdf5_reader.h). */
static const char tensor_row_type[] = "|V128", piece_type[] = "|V32";
_Static_assert(sizeof(struct tensor_row) == 128 && sizeof(struct checkpoint_piece) == 32,
               "rows of the tables have no padding");

/* clang-format off */
#define STATE(name, kind, ...) \
    {#name, HDF5_##kind, offsetof(struct checkpoint_contents, state.name), __VA_ARGS__}
#define NUMBER(name, ...) \
    {#name, HDF5_INTEGER, offsetof(struct checkpoint_contents, name), __VA_ARGS__}
#define ANY 0, 0
#define COUNT 0, 9007199254740992.0 /* 2^53: int64_t and double represent it */
#define SECONDS -1, 1e12            /* a difference of clocks may be slightly negative */

/* Attributes of the root group. */
static const struct hdf5_number numbers[] = {
    STATE(step, INTEGER, COUNT),
    STATE(epoch, INTEGER, COUNT),
    STATE(epoch_step, INTEGER, COUNT),
    STATE(global_batch, INTEGER, COUNT),
    STATE(seed, UNSIGNED, ANY),
    STATE(best_metric, REAL, ANY),
    STATE(best_step, INTEGER, COUNT),
    STATE(evaluations_without_gain, INTEGER, COUNT),
    STATE(plateau_rate_factor, REAL, 0, DBL_MAX),
    STATE(plateau_best, REAL, ANY),
    STATE(plateau_bad, INTEGER, COUNT),
    STATE(epoch_loss_sum, REAL, -DBL_MAX, DBL_MAX),
    STATE(epoch_top1_sum, REAL, COUNT),
    STATE(epoch_top5_sum, REAL, COUNT),
    STATE(epoch_samples, REAL, COUNT),
    STATE(train_seconds, REAL, SECONDS),
    STATE(without_setup_seconds, REAL, SECONDS),
    STATE(total_seconds, REAL, SECONDS),
    STATE(parts, INTEGER, 0, INT32_MAX),
    STATE(loss_scale, REAL, 0, DBL_MAX),
    STATE(loss_scale_good_steps, INTEGER, COUNT),
    STATE(skipped_steps, INTEGER, COUNT),
    STATE(finished, INTEGER, 0, 1),
    NUMBER(moments, 0, 2),
    NUMBER(averaged, 0, 1),
    NUMBER(replica, 1, INT32_MAX),
    NUMBER(shard, 1, INT32_MAX),
};
/* clang-format on */

static const struct hdf5_number format_number = NUMBER(format, ANY);
enum { NUMBERS = sizeof numbers / sizeof *numbers };

/* A new field of the state needs an entry above and a new format number. */
_Static_assert(sizeof(struct training_state) == 23 * 8, "struct training_state has changed");

/* ---- create ---- */

/* clang-format off */
#define MEMBER(row, name, member, type, count) {name, offsetof(struct row, member), type, count}
/* clang-format on */

static void tensors_write(hid_t group, const struct unit *unit)
{
    const struct hdf5_member members[] = {
        MEMBER(tensor_row, "name", name, H5T_C_S1, TENSOR_NAME),
        MEMBER(tensor_row, "dimensions", dimensions, H5T_NATIVE_INT64, 1),
        MEMBER(tensor_row, "shape", shape, H5T_NATIVE_INT64, TENSOR_DIMENSIONS),
        MEMBER(tensor_row, "offset", offset, H5T_NATIVE_INT64, 1),
        MEMBER(tensor_row, "count", count, H5T_NATIVE_INT64, 1),
        MEMBER(tensor_row, "kind", kind, H5T_NATIVE_INT64, 1),
    };
    OWNED struct tensor_row *rows = allocate((size_t)unit->tensor_count, sizeof *rows);
    for (int t = 0; t < unit->tensor_count; t++) {
        const struct unit_tensor *tensor = &unit->tensors[t];
        rows[t] = (struct tensor_row){.dimensions = tensor->dimensions,
                                      .offset = tensor->offset,
                                      .count = tensor->count,
                                      .kind = tensor->kind};
        snprintf(rows[t].name, sizeof rows[t].name, "%s", tensor->name);
        memcpy(rows[t].shape, tensor->shape, (size_t)tensor->dimensions * sizeof *tensor->shape);
    }
    hid_t type = hdf5_row_type(sizeof *rows, members, sizeof members / sizeof *members);
    hdf5_table_write(group, "tensors", type, unit->tensor_count, rows);
    H5Tclose(type);
}

static void unit_write(hid_t units, const struct checkpoint_contents *contents, int64_t u)
{
    const struct hdf5_member members[] = {
        MEMBER(checkpoint_piece, "begin", begin, H5T_NATIVE_INT64, 1),
        MEMBER(checkpoint_piece, "count", count, H5T_NATIVE_INT64, 1),
        MEMBER(checkpoint_piece, "crc32c_master", crc[FLAT_MASTER], H5T_NATIVE_UINT32, 1),
        MEMBER(checkpoint_piece, "crc32c_moment1", crc[FLAT_MOMENT1], H5T_NATIVE_UINT32, 1),
        MEMBER(checkpoint_piece, "crc32c_moment2", crc[FLAT_MOMENT2], H5T_NATIVE_UINT32, 1),
        MEMBER(checkpoint_piece, "crc32c_average", crc[FLAT_AVERAGE], H5T_NATIVE_UINT32, 1),
    };
    const struct unit *unit = &contents->units[u];
    struct checkpoint_layout *layout = &contents->layout[u];
    hid_t group = hdf5_group_make(units, unit->name);
    hid_t piece =
        hdf5_row_type(sizeof(struct checkpoint_piece), members, sizeof members / sizeof *members);
    tensors_write(group, unit);
    hdf5_dataset_reserve(group, "pieces", piece, 1, &layout->piece_count, &layout->table_offset);
    for (enum flat_vector kind = 0; kind < FLAT_VECTORS; kind++) {
        layout->offset[kind] = -1;
        if (checkpoint_has(contents, kind))
            hdf5_dataset_reserve(group, flat_vector_name[kind], H5T_NATIVE_FLOAT, 1, &unit->count,
                                 &layout->offset[kind]);
    }
    H5Tclose(piece);
    H5Gclose(group);
}

static void frame_write(hid_t file, void *context)
{
    struct checkpoint_contents *contents = context;
    char date[64];
    clock_stamp(date, sizeof date);
    hid_t units = hdf5_group_make(file, "units");
    hdf5_number_write(file, &format_number, contents);
    hdf5_text_write(file, "program", PACKAGE_STRING);
    hdf5_text_write(file, "date", date);
    hdf5_text_write(file, "model", contents->model);
    hdf5_text_write(file, "compute", contents->compute);
    for (int n = 0; n < NUMBERS; n++)
        hdf5_number_write(file, &numbers[n], contents);
    for (int t = 0; t < CHECKPOINT_TEXTS; t++)
        if (contents->text[t] != NULL)
            hdf5_text_table_write(file, text_name[t], strlen(contents->text[t]) + 1, -1,
                                  contents->text[t]);
    for (int64_t u = 0; u < contents->unit_count; u++)
        unit_write(units, contents, u);
    H5Gclose(units);
}

bool checkpoint_frame_write(int descriptor, const char *path, struct checkpoint_contents *contents,
                            bool reserves, struct error *error)
{
    return hdf5_frame_create(descriptor, path, frame_write, contents, reserves, &contents->bytes,
                             error);
}

/* ---- read ---- */

static bool numbers_read(const struct hdf5_reader *file, struct checkpoint_contents *contents,
                         struct error *error)
{
    const struct training_state *state = &contents->state;
    struct error none = {0};
    if (!hdf5_number_read(file, &format_number, contents, &none))
        return hdf5_refuse(file, error, "it is an HDF5 file, but not a checkpoint of vittrain");
    if (contents->format < CHECKPOINT_FORMAT_OLDEST || contents->format > CHECKPOINT_FORMAT)
        return hdf5_refuse(file, error, "its format is %lld, this program reads %d to %d",
                           (long long)contents->format, CHECKPOINT_FORMAT_OLDEST,
                           CHECKPOINT_FORMAT);
    for (int n = 0; n < NUMBERS; n++)
        if (!hdf5_number_read(file, &numbers[n], contents, error))
            return false;
    return (state->epoch_step <= state->step && state->epoch <= state->step) ||
           hdf5_refuse(file, error,
                       "its attributes step=%lld, epoch=%lld and epoch_step=%lld contradict each "
                       "other",
                       (long long)state->step, (long long)state->epoch,
                       (long long)state->epoch_step);
}

static bool texts_read(struct hdf5_reader *file, struct checkpoint_contents *contents,
                       struct error *error)
{
    for (int t = 0; t < CHECKPOINT_TEXTS; t++) {
        struct hdf5_object dataset;
        const bool is_missing = t != TEXT_DECK && !hdf5_object_find(file, text_name[t], &dataset);
        contents->text[t] = is_missing
                                ? allocate_copy("")
                                : hdf5_dataset_read(file, text_name[t], "|S", &dataset, error);
        if (contents->text[t] == NULL)
            return false;
    }
    return true;
}

/* Read the tensor that follows `end` elements. False if it overlaps them, is not inside the unit,
 * or has another size than its shape. */
static bool tensor_parse(struct unit_tensor *tensor, const struct tensor_row *row, int64_t end,
                         int64_t unit_count)
{
    int64_t count = 1;
    if (memchr(row->name, '\0', sizeof row->name) == NULL || row->dimensions < 0 ||
        row->dimensions > TENSOR_DIMENSIONS)
        return false;
    for (int64_t d = 0; d < row->dimensions; d++)
        if (row->shape[d] < 1 || __builtin_mul_overflow(count, row->shape[d], &count))
            return false;
    memcpy(tensor->name, row->name, sizeof tensor->name);
    tensor->dimensions = (int)row->dimensions;
    memcpy(tensor->shape, row->shape, sizeof tensor->shape);
    tensor->offset = row->offset;
    tensor->count = row->count;
    tensor->kind = row->kind == TENSOR_STATE ? TENSOR_STATE : TENSOR_PARAMETER;
    return row->count == count && row->offset >= end && count <= unit_count - row->offset;
}

static bool tensors_read(struct hdf5_reader *file, struct unit *unit, struct error *error)
{
    OWNED char *path = allocate_text("units/%s/tensors", unit->name);
    struct hdf5_object table;
    OWNED struct tensor_row *row = hdf5_dataset_read(file, path, tensor_row_type, &table, error);
    if (row == NULL)
        return false;
    const int rows = (int)hdf5_elements(&table);
    int64_t end = 0;
    bool good = true;
    unit->tensors = allocate((size_t)rows, sizeof *unit->tensors);
    for (int t = 0; good && t < rows; t++) {
        good = tensor_parse(&unit->tensors[t], &row[t], end, unit->count);
        end = good ? row[t].offset + row[t].count : end;
    }
    unit->tensor_count = rows;
    return good || hdf5_refuse(file, error,
                               "the table of tensors of unit %s is invalid: the file is damaged",
                               unit->name);
}

/* Append the pieces of a unit, which cover its elements in order, without gaps or overlaps. */
static bool pieces_read(struct hdf5_reader *file, struct checkpoint_contents *contents,
                        struct checkpoint_layout *layout, struct error *error)
{
    OWNED char *path = allocate_text("units/%s/pieces", layout->name);
    struct hdf5_object table;
    OWNED struct checkpoint_piece *rows = hdf5_dataset_read(file, path, piece_type, &table, error);
    if (rows == NULL)
        return false;
    int64_t next = 0;
    bool good = true;
    layout->table_offset = table.offset;
    layout->first_piece = contents->piece_count;
    layout->piece_count = hdf5_elements(&table);
    contents->piece_count += layout->piece_count;
    contents->pieces = allocate_resized(contents->pieces,
                                        (size_t)contents->piece_count * sizeof *contents->pieces);
    memcpy(contents->pieces + layout->first_piece, rows,
           (size_t)layout->piece_count * sizeof *rows);
    for (int64_t p = 0; good && p < layout->piece_count; p++) {
        good = rows[p].begin == next && rows[p].count >= 1 && rows[p].count <= VECTOR_BLOCK &&
               rows[p].count <= layout->count - next;
        next += good ? rows[p].count : 0;
    }
    return (good && next == layout->count) ||
           hdf5_refuse(file, error,
                       "the table of pieces of unit %s is invalid: the file is damaged",
                       layout->name);
}

static bool unit_read(struct hdf5_reader *file, const char *name,
                      struct checkpoint_contents *contents, struct error *error)
{
    struct unit *unit = &contents->own_units[contents->unit_count];
    struct checkpoint_layout *layout = &contents->layout[contents->unit_count++];
    if (snprintf(unit->name, sizeof unit->name, "%s", name) >= TENSOR_NAME)
        return hdf5_refuse(file, error, "the name of a unit is too long: %s", name);
    memcpy(layout->name, unit->name, sizeof layout->name);
    for (enum flat_vector kind = 0; kind < FLAT_VECTORS; kind++) {
        OWNED char *path = allocate_text("units/%s/%s", name, flat_vector_name[kind]);
        struct hdf5_object vector;
        layout->offset[kind] = -1;
        if (!checkpoint_has(contents, kind))
            continue;
        if (!hdf5_dataset_find(file, path, VECTOR, &vector, error))
            return false;
        layout->offset[kind] = vector.offset;
        if (kind == FLAT_MASTER)
            unit->count = layout->count = hdf5_elements(&vector);
        if (hdf5_elements(&vector) != layout->count)
            return hdf5_refuse(file, error, "the vectors of unit %s differ in length", unit->name);
    }
    return tensors_read(file, unit, error) && pieces_read(file, contents, layout, error);
}

static bool units_read(struct hdf5_reader *file, struct checkpoint_contents *contents,
                       struct error *error)
{
    static const char folder[] = "units/";
    const size_t most = json_object_size(file->objects), length = strlen(folder);
    struct hdf5_object units;
    const char *path;
    json_t *object;
    if (!hdf5_object_find(file, "units", &units) || units.kind != HDF5_GROUP)
        return hdf5_refuse(file, error, "its group 'units' is missing or a link");
    contents->units = contents->own_units = allocate(most, sizeof *contents->own_units);
    contents->layout = allocate(most, sizeof *contents->layout);
    json_object_foreach(file->objects, path, object)
    {
        const char *fault = json_string_value(json_object_get(object, "fault"));
        const char *name = strncmp(path, folder, length) == 0 ? path + length : NULL;
        if (fault != NULL)
            return hdf5_refuse(file, error, "%s: %s", path, fault);
        if (name != NULL && strchr(name, '/') == NULL && !unit_read(file, name, contents, error))
            return false;
    }
    return contents->unit_count > 0 || hdf5_refuse(file, error, "it has no units");
}

bool checkpoint_file_read(const char *path, struct checkpoint_contents *contents,
                          struct error *error)
{
    struct hdf5_reader file = {.kind = ERROR_CHECKPOINT, .purpose = "a checkpoint"};
    memset(contents, 0, sizeof *contents);
    const bool good =
        hdf5_reader_open(&file, path, error) && numbers_read(&file, contents, error) &&
        hdf5_text_read(&file, "model", contents->model, sizeof contents->model, error) &&
        texts_read(&file, contents, error) && units_read(&file, contents, error);
    contents->bytes = file.stamp.bytes;
    hdf5_reader_close(&file);
    return good;
}

/* ---- vectors of a model ---- */

void vector_shape_text(const int64_t *shape, int dimensions, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (int d = 0; d < dimensions && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", d > 0 ? ", " : "",
                                 (long long)shape[d]);
    if (used < size)
        snprintf(text + used, size - used, "]");
}

int64_t vector_overlap(int64_t begin, int64_t count, int64_t other, int64_t other_count,
                       int64_t *length)
{
    const int64_t first = larger(begin, other);
    *length = larger(smaller(begin + count, other + other_count) - first, 0);
    return first;
}

int *vector_ranks(const struct mesh *mesh)
{
    struct comm *world = mesh->world;
    OWNED int64_t *position = allocate((size_t)world->size, sizeof *position);
    int *ranks = allocate((size_t)world->size, sizeof *ranks);
    position[world->rank] = mesh->shard->rank * (int64_t)mesh->replica->size + mesh->replica->rank;
    comm_all_gather(world, position, 1, COMM_INT64);
    for (int rank = 0; rank < world->size; rank++) {
        ENSURE(position[rank] >= 0 && position[rank] < world->size,
               "the mesh does not fill the world");
        ranks[position[rank]] = rank;
    }
    return ranks;
}

void vector_store(const struct flat_model *flat, int64_t u, enum flat_vector kind, int64_t begin,
                  int64_t count, const float *block)
{
    const struct flat_buffer *buffer = &flat->buffers[u];
    int64_t length;
    const int64_t first =
        vector_overlap(begin, count, buffer->shard_begin, buffer->shard_count, &length);
    if (length == 0)
        return;
    flat->device->backend->copy(flat->stream,
                                flat_vector_memory(buffer, kind) + (first - buffer->shard_begin),
                                block + (first - begin), (size_t)length * sizeof(float));
    flat->device->backend->stream_synchronize(flat->stream);
}

void vector_copy_start(const struct flat_model *flat, int64_t u, enum flat_vector kind,
                       int64_t begin, int64_t count, float *block)
{
    const struct flat_buffer *buffer = &flat->buffers[u];
    const float *memory = flat_vector_memory(buffer, kind);
    int64_t first = begin - buffer->shard_begin;
    ENSURE(memory != NULL && first >= 0 && first + count <= buffer->shard_count,
           "unit %s: this rank has no %s [%lld]", buffer->unit->name, flat_vector_name[kind],
           (long long)begin);
    if (count > 0)
        flat->device->backend->copy(flat->stream, block, memory + first,
                                    (size_t)count * sizeof(float));
}

void vector_copy(const struct flat_model *flat, int64_t u, enum flat_vector kind, int64_t begin,
                 int64_t count, float *block)
{
    vector_copy_start(flat, u, kind, begin, count, block);
    flat->device->backend->stream_synchronize(flat->stream);
}

void vector_reset_ema(const struct flat_model *flat)
{
    for (int u = 0; flat->averaged && u < flat->count; u++) {
        const struct flat_buffer *buffer = &flat->buffers[u];
        flat->device->backend->copy(flat->stream, buffer->average, buffer->master,
                                    (size_t)buffer->shard_count * sizeof(float));
    }
    flat->device->backend->stream_synchronize(flat->stream);
}
