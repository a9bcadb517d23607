// SPDX-License-Identifier: BSD-3-Clause
/* Rank 0 creates the frame of NAME.part; then each rank writes its pieces of each vector at their
 * offsets in the file. Ranks that hold the same shard divide it. If the folder is private to rank
 * 0's node, the pieces are sent there. After each stage all ranks agree on errors, so that no rank
 * waits for one that failed. */
#include "checkpoint/checkpoint_part.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/option_types.h"
#include "core/file.h"

/* Divide a unit into the pieces of all ranks. rank: see vector_ranks. */
static void unit_divide(struct checkpoint_part *part, int64_t u, const int *rank)
{
    struct checkpoint_contents *contents = &part->contents;
    struct checkpoint_layout *layout = &contents->layout[u];
    layout->first_piece = contents->piece_count;
    for (int64_t shard = 0; shard < contents->shard; shard++)
        for (int64_t replica = 0; replica < contents->replica; replica++) {
            int64_t begin, end;
            checkpoint_range(contents, u, shard, replica, &begin, &end);
            for (; begin < end; begin += VECTOR_BLOCK) {
                struct checkpoint_piece *piece = &contents->pieces[contents->piece_count];
                piece->begin = begin;
                piece->count = end - begin < VECTOR_BLOCK ? end - begin : VECTOR_BLOCK;
                part->owner[contents->piece_count++] = rank[shard * contents->replica + replica];
            }
        }
    layout->piece_count = contents->piece_count - layout->first_piece;
}

/* The matrix product algorithms of rank 0's device; NULL on other ranks or for a device without
 * choices. */
static char *algorithms_export(const struct flat_model *flat)
{
    const struct device_backend *backend = flat->device->backend;
    if (backend->choices_export == NULL || flat->mesh->world->rank != 0)
        return NULL;
    return backend->choices_export(flat->device);
}

/* Return a copy; NULL for NULL. */
static char *text_copy(const char *text)
{
    char *copy = text != NULL ? strdup(text) : NULL;
    ENSURE_MEMORY(copy != NULL || text == NULL, "no memory for a checkpoint's plan");
    return copy;
}

void checkpoint_part_plan(struct checkpoint_part *part, const struct flat_model *flat,
                          const struct checkpoint_order *order)
{
    struct checkpoint_contents *contents = &part->contents;
    *part = (struct checkpoint_part){.flat = flat, .world = flat->mesh->world, .descriptor = -1};
    checkpoint_contents_open(contents, flat->buffers[0].unit, flat->count, order->model_name,
                             type_name(flat->type), order->deck_text);
    contents->metadata = text_copy(order->metadata);
    contents->data = text_copy(order->data);
    contents->state = *order->state;
    contents->finished = order->state->finished;
    contents->moments = flat->moments;
    contents->averaged = flat->averaged;
    contents->replica = flat->mesh->replica->size;
    contents->shard = flat->mesh->shard->size;
    contents->algorithms = algorithms_export(flat);
    size_t most = 0; /* each rank has at most one short piece per unit */
    for (int u = 0; u < flat->count; u++)
        most += (size_t)(contents->layout[u].count / VECTOR_BLOCK + flat->mesh->world->size);
    contents->pieces = calloc(most, sizeof *contents->pieces);
    part->owner = calloc(most, sizeof *part->owner);
    ENSURE_MEMORY(contents->pieces != NULL && part->owner != NULL,
                  "no memory for a checkpoint's plan");
    int *rank = vector_ranks(flat->mesh);
    for (int u = 0; u < flat->count; u++)
        unit_divide(part, u, rank);
    free(rank);
}

/* Open the file and check that it is the one that rank 0 created. */
static bool open_part(struct checkpoint_part *part, struct error *error)
{
    struct stat file;
    part->descriptor = durable_open(part->path, error);
    if (part->descriptor < 0)
        return false;
    if (fstat(part->descriptor, &file) != 0)
        return durable_failed(error, "examine", part->path, errno);
    if (file.st_size != part->contents.bytes)
        return error_set(error, ERROR_FILE,
                         "%s is not the file that rank 0 created: the folder is not shared by all "
                         "nodes; set checkpoint.writers=node0",
                         part->path);
    return true;
}

static bool owns_piece(const struct checkpoint_part *part)
{
    for (int64_t p = 0; p < part->contents.piece_count; p++)
        if (part->owner[p] == part->world->rank)
            return true;
    return false;
}

/* Collective. Create the frame and open the file on the ranks that write. */
static bool make_frame(struct checkpoint_part *part, struct error *error)
{
    struct checkpoint_contents *contents = &part->contents;
    struct comm *world = part->world;
    if (world->rank == 0)
        error_defer(checkpoint_file_create(part->path, contents, error));
    if (!comm_agree(world, error))
        return false;
    comm_broadcast(world, contents->layout,
                   contents->unit_count * (int64_t)sizeof *contents->layout, COMM_BYTE, 0);
    comm_broadcast(world, &contents->bytes, 1, COMM_INT64, 0);
    if (world->rank == 0 || (part->by_all && owns_piece(part)))
        open_part(part, error);
    return comm_agree(world, error);
}

bool checkpoint_part_begin(struct checkpoint_part *part, const struct checkpoint_target *target,
                           const struct flat_model *flat, const struct checkpoint_order *order,
                           struct error *error)
{
    const char *name = order->name;
    checkpoint_part_plan(part, flat, order);
    part->by_all = target->writers != WRITERS_NODE0;
    if (part->by_all || part->world->rank == 0) {
        int length = snprintf(part->path, sizeof part->path, "%s/%s.part", target->directory, name);
        snprintf(part->final_path, sizeof part->final_path, "%s/%s", target->directory, name);
        if (length >= (int)sizeof part->path)
            error_set(error, ERROR_FILE, "the name %s/%s is too long", target->directory, name);
    }
    return comm_agree(part->world, error) && make_frame(part, error);
}

void checkpoint_part_gather_sums(struct checkpoint_part *part)
{
    const struct checkpoint_contents *contents = &part->contents;
    int64_t sums = contents->piece_count * FLAT_VECTORS;
    int64_t *sum = calloc((size_t)sums, sizeof *sum);
    ENSURE_MEMORY(sum != NULL, "no memory for a checkpoint's sums");
    for (int64_t n = 0; n < sums; n++)
        sum[n] = contents->pieces[n / FLAT_VECTORS].crc[n % FLAT_VECTORS];
    comm_all_reduce(part->world, sum, sums, COMM_INT64, COMM_SUM);
    for (int64_t n = 0; n < sums; n++)
        contents->pieces[n / FLAT_VECTORS].crc[n % FLAT_VECTORS] = (uint32_t)sum[n];
    free(sum);
}

bool checkpoint_part_put_tables(const struct checkpoint_part *part, struct error *error)
{
    const struct checkpoint_contents *contents = &part->contents;
    for (int64_t u = 0; u < contents->unit_count; u++) {
        const struct checkpoint_layout *layout = &contents->layout[u];
        if (!durable_write(part->descriptor, part->path, contents->pieces + layout->first_piece,
                           (size_t)layout->piece_count * sizeof *contents->pieces,
                           layout->table_offset, error))
            return false;
    }
    return true;
}

bool checkpoint_part_close(struct checkpoint_part *part, struct error *error)
{
    if (part->descriptor < 0)
        return true;
    bool good = durable_close(part->descriptor, part->path, error);
    part->descriptor = -1;
    return good;
}

void checkpoint_part_end(struct checkpoint_part *part, bool good)
{
    if (part->descriptor >= 0)
        close(part->descriptor);
    if (!good && part->world->rank == 0)
        unlink(part->path);
    checkpoint_contents_free(&part->contents);
    free(part->owner);
}
