/* Writes a checkpoint at once. Rank 0 makes the frame of NAME.part; then each rank writes its part
 * of every vector at the offset that it has in the file. Ranks that hold the same shard split it
 * between them, so all write. Where the folder is private to rank 0's node the pieces travel there
 * one by one. After every step all ranks agree whether to go on, so that nobody waits for a rank
 * that failed. The same steps but one make a checkpoint in the background (checkpoint_writer.c). */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/checkpoint_writing.h"
#include "config.h"
#include "config/phase.h"
#include "config/run_options.h"
#include "core/clock.h"
#include "core/crc32c.h"
#include "core/durable.h"
#include "core/status.h"

/* Where a shard is cut for several writers: a multiple of 4 KiB. */
enum { WRITER_ALIGNMENT = 1024 };

/* Cuts [begin, end) of unit number u into pieces of `owner`. While `pieces` is NULL they are only
 * counted. */
static void cut_range(struct checkpoint_writing *writing, int64_t u, int64_t begin, int64_t end,
                      int owner)
{
    struct checkpoint_contents *contents = &writing->contents;
    for (int64_t next = begin; next < end; next += VECTOR_BLOCK) {
        int64_t left = end - next;
        if (contents->pieces != NULL) {
            struct checkpoint_piece *piece = &contents->pieces[contents->piece_count];
            piece->begin = next;
            piece->count = left < VECTOR_BLOCK ? left : VECTOR_BLOCK;
            writing->owner[contents->piece_count] = owner;
        }
        contents->layout[u].piece_count++;
        contents->piece_count++;
    }
}

/* Where writer number `part` of `parts` begins in a shard of this length. */
static int64_t writer_begin(int64_t length, int64_t part, int64_t parts)
{
    if (part == parts)
        return length;
    return length * part / parts / WRITER_ALIGNMENT * WRITER_ALIGNMENT;
}

void checkpoint_part(const struct checkpoint_contents *contents, int64_t u, int64_t shard,
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

size_t checkpoint_snapshot_bytes(const struct flat_model *flat)
{
    int64_t elements = 0, vectors = 1 + flat->moments + flat->averaged;
    for (int u = 0; u < flat->count; u++) {
        struct unit unit = *flat->buffers[u].unit;
        const struct checkpoint_contents one = {
            .units = &unit, .shard = flat->mesh->shard->size, .replica = flat->mesh->replica->size};
        int64_t most = 0;
        for (int64_t replica = 0; replica < one.replica; replica++) {
            int64_t begin, end;
            checkpoint_part(&one, 0, 0, replica, &begin,
                            &end); /* no shard is longer than the first */
            most = end - begin > most ? end - begin : most;
        }
        elements += most;
    }
    return (size_t)(elements * vectors) * sizeof(float);
}

static void cut_unit(struct checkpoint_writing *writing, int64_t u, const int *rank)
{
    struct checkpoint_contents *contents = &writing->contents;
    struct checkpoint_layout *layout = &contents->layout[u];
    snprintf(layout->name, sizeof layout->name, "%s", contents->units[u].name);
    layout->count = contents->units[u].count;
    layout->first_piece = contents->piece_count;
    layout->piece_count = 0;
    for (int64_t shard = 0; shard < contents->shard; shard++)
        for (int64_t replica = 0; replica < contents->replica; replica++) {
            int64_t begin, end;
            checkpoint_part(contents, u, shard, replica, &begin, &end);
            cut_range(writing, u, begin, end, rank[shard * contents->replica + replica]);
        }
}

static void cut_units(struct checkpoint_writing *writing, const int *rank)
{
    writing->contents.piece_count = 0;
    for (int64_t u = 0; u < writing->contents.unit_count; u++)
        cut_unit(writing, u, rank);
}

/* The algorithms of rank 0's device, which makes the frame; NULL: none. */
static char *algorithms_export(const struct flat_model *flat)
{
    const struct device_backend *backend = flat->device->backend;
    if (backend->choices_export == NULL || flat->mesh->world->rank != 0)
        return NULL;
    char *text = backend->choices_export(flat->device);
    if (text[0] != '\0')
        return text;
    free(text);
    return NULL;
}

/* What will be in the file. Collective; the same on all ranks, but for the algorithms. */
static void plan(struct checkpoint_writing *writing, const char *model_name,
                 const struct training_state *state, const char *deck_text)
{
    const struct flat_model *flat = writing->flat;
    struct checkpoint_contents *contents = &writing->contents;
    size_t units = (size_t)flat->count;
    snprintf(contents->model, sizeof contents->model, "%s", model_name);
    snprintf(contents->compute, sizeof contents->compute, "%s", type_name(flat->type));
    snprintf(contents->program, sizeof contents->program, "%s", PACKAGE_STRING);
    clock_stamp(contents->date, sizeof contents->date);
    contents->state = *state;
    contents->finished = state->finished;
    contents->moments = flat->moments;
    contents->averaged = flat->averaged;
    contents->replica = flat->mesh->replica->size;
    contents->shard = flat->mesh->shard->size;
    contents->deck = strdup(deck_text);
    contents->algorithms = algorithms_export(flat);
    contents->units = calloc(units, sizeof *contents->units);
    contents->units_borrowed = true;
    contents->layout = calloc(units, sizeof *contents->layout);
    ENSURE(contents->deck != NULL && contents->units != NULL && contents->layout != NULL,
           "no memory for a checkpoint's plan");
    contents->unit_count = flat->count;
    for (size_t u = 0; u < units; u++)
        contents->units[u] = *flat->buffers[u].unit;
    int *rank = vector_ranks(flat->mesh);
    cut_units(writing, rank);
    contents->pieces = calloc((size_t)contents->piece_count, sizeof *contents->pieces);
    writing->owner = calloc((size_t)contents->piece_count, sizeof *writing->owner);
    ENSURE(contents->pieces != NULL && writing->owner != NULL, "no memory for a checkpoint's plan");
    cut_units(writing, rank);
    free(rank);
}

/* Ranks other than 0: is the file that this rank sees the one that rank 0 made? */
static bool open_part(struct checkpoint_writing *writing, struct error *error)
{
    struct stat file;
    writing->descriptor = durable_open(writing->part, error);
    if (writing->descriptor < 0)
        return false;
    if (fstat(writing->descriptor, &file) != 0)
        return durable_failed(error, "examine", writing->part, errno);
    if (file.st_size != writing->contents.bytes)
        return error_set(error, ERROR_FILE,
                         "%s is not the file that rank 0 made: the folder is not the same on all "
                         "nodes; set checkpoint.writers=node0",
                         writing->part);
    return true;
}

/* Collective: the frame is made, and whoever writes has it open. */
static bool make_frame(struct checkpoint_writing *writing, struct error *error)
{
    struct checkpoint_contents *contents = &writing->contents;
    struct comm *world = writing->world;
    if (world->rank == 0)
        checkpoint_file_create(writing->part, contents, error);
    if (!comm_agree(world, error))
        return false;
    comm_broadcast(world, contents->layout,
                   contents->unit_count * (int64_t)sizeof *contents->layout, COMM_BYTE, 0);
    comm_broadcast(world, &contents->bytes, 1, COMM_INT64, 0);
    if (writing->by_all || world->rank == 0)
        open_part(writing, error);
    return comm_agree(world, error);
}

bool checkpoint_writing_begin(struct checkpoint_writing *writing,
                              const struct checkpoint_target *target, const char *name,
                              const struct flat_model *flat, const char *model_name,
                              const struct training_state *state, const char *deck_text,
                              struct error *error)
{
    *writing = (struct checkpoint_writing){.flat = flat,
                                           .world = flat->mesh->world,
                                           .by_all = target->writers != WRITERS_NODE0,
                                           .descriptor = -1};
    if (writing->by_all || writing->world->rank == 0) {
        int length =
            snprintf(writing->part, sizeof writing->part, "%s/%s.part", target->directory, name);
        snprintf(writing->final, sizeof writing->final, "%s/%s", target->directory, name);
        if (length >= (int)sizeof writing->part)
            error_set(error, ERROR_FILE, "the name %s/%s is too long", target->directory, name);
    }
    plan(writing, model_name, state, deck_text);
    return comm_agree(writing->world, error) && make_frame(writing, error);
}

void checkpoint_writing_gather_sums(struct checkpoint_writing *writing)
{
    const struct checkpoint_contents *contents = &writing->contents;
    int64_t sums = contents->piece_count * VECTOR_KINDS;
    int64_t *sum = calloc((size_t)sums, sizeof *sum);
    ENSURE(sum != NULL, "no memory for a checkpoint's sums");
    for (int64_t n = 0; n < sums; n++)
        sum[n] = contents->pieces[n / VECTOR_KINDS].crc[n % VECTOR_KINDS];
    comm_all_reduce(writing->world, sum, sums, COMM_INT64, COMM_SUM);
    for (int64_t n = 0; n < sums; n++)
        contents->pieces[n / VECTOR_KINDS].crc[n % VECTOR_KINDS] = (uint32_t)sum[n];
    free(sum);
}

bool checkpoint_writing_put_tables(const struct checkpoint_writing *writing, struct error *error)
{
    const struct checkpoint_contents *contents = &writing->contents;
    for (int64_t u = 0; u < contents->unit_count; u++) {
        const struct checkpoint_layout *layout = &contents->layout[u];
        if (!durable_write(writing->descriptor, writing->part,
                           contents->pieces + layout->first_piece,
                           (size_t)layout->piece_count * sizeof *contents->pieces,
                           layout->table_offset, error))
            return false;
    }
    return true;
}

bool checkpoint_writing_close(struct checkpoint_writing *writing, struct error *error)
{
    if (writing->descriptor < 0)
        return true;
    bool good = durable_close(writing->descriptor, writing->part, error);
    writing->descriptor = -1;
    return good;
}

void checkpoint_writing_end(struct checkpoint_writing *writing, bool good)
{
    if (writing->descriptor >= 0)
        close(writing->descriptor);
    if (!good && writing->world->rank == 0)
        unlink(writing->part);
    checkpoint_contents_free(&writing->contents);
    free(writing->owner);
}

/* ---- at once ---- */

/* Brings a piece from where it lies to whoever writes it, and writes it. After an error nothing
 * more is written, but the pieces still travel, as others wait for them. */
static void put_piece(struct checkpoint_writing *writing, float *staging, int64_t u,
                      enum vector_kind kind, int64_t p, struct error *error)
{
    struct checkpoint_piece *piece = &writing->contents.pieces[p];
    size_t bytes = (size_t)piece->count * sizeof(float);
    int rank = writing->world->rank, owner = writing->owner[p];
    int writer = writing->by_all ? owner : 0;
    if (owner == rank) {
        vector_take(writing->flat, (int)u, kind, piece->begin, piece->count, staging);
        piece->crc[kind] = crc32c_update(0, staging, bytes);
        if (writer != rank)
            comm_send(writing->world, staging, bytes, writer);
    }
    if (writer != rank)
        return;
    if (owner != rank)
        comm_receive(writing->world, staging, bytes, owner);
    int64_t offset = checkpoint_piece_offset(&writing->contents, u, kind, p);
    if (error->kind == ERROR_NONE)
        durable_write(writing->descriptor, writing->part, staging, bytes, offset, error);
}

/* Collective. */
static bool put_vectors(struct checkpoint_writing *writing, struct error *error)
{
    const struct checkpoint_contents *contents = &writing->contents;
    float *staging = malloc(VECTOR_BLOCK * sizeof(float));
    ENSURE(staging != NULL, "no memory for a piece of a checkpoint");
    for (int64_t u = 0; u < contents->unit_count; u++) {
        const struct checkpoint_layout *layout = &contents->layout[u];
        for (enum vector_kind kind = 0; kind < VECTOR_KINDS; kind++)
            for (int64_t p = 0; checkpoint_has(contents, kind) && p < layout->piece_count; p++)
                put_piece(writing, staging, u, kind, layout->first_piece + p, error);
    }
    free(staging);
    return comm_agree(writing->world, error);
}

/* Collective: everybody's sums come together, rank 0 writes the tables. */
static bool put_tables(struct checkpoint_writing *writing, struct error *error)
{
    checkpoint_writing_gather_sums(writing);
    if (writing->world->rank == 0)
        checkpoint_writing_put_tables(writing, error);
    return comm_agree(writing->world, error);
}

/* Collective. One rank of each node syncs: the file's pages are the node's. The rename comes after
 * all of them. */
static bool finish(struct checkpoint_writing *writing, struct error *error)
{
    struct comm *world = writing->world;
    bool syncs = writing->flat->mesh->node->rank == 0 || world->rank == 0;
    if (writing->descriptor >= 0 && syncs)
        durable_sync(writing->descriptor, writing->part, error);
    checkpoint_writing_close(writing, error);
    if (!comm_agree(world, error))
        return false;
    status_set_phase(PHASE_CHECKPOINT_NAME);
    if (world->rank == 0)
        durable_rename(writing->part, writing->final, error);
    return comm_agree(world, error);
}

bool checkpoint_write(const struct checkpoint_target *target, const char *name,
                      const struct flat_model *flat, const char *model_name,
                      const struct training_state *state, const char *deck_text,
                      struct error *error)
{
    struct checkpoint_writing writing;
    bool good = checkpoint_writing_begin(&writing, target, name, flat, model_name, state, deck_text,
                                         error) &&
                put_vectors(&writing, error) && put_tables(&writing, error) &&
                finish(&writing, error);
    checkpoint_writing_end(&writing, good);
    return good;
}
