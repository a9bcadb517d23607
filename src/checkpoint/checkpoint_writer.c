// SPDX-License-Identifier: BSD-3-Clause
/* Rank 0 creates the frame of NAME.part; then each rank writes its pieces of each vector at their
 * offsets in the file. Ranks that hold the same shard divide it. If the folder is private to rank
 * 0's node, the pieces are sent there. Then rank 0 writes the tables and renames the file. After
 * each stage all ranks agree on errors, so that no rank waits for one that failed.
 *
 * In the background threads do the work of both stages. Between them the main threads agree on
 * errors and combine the checksums. Only main threads start collectives, since two threads would
 * start them in a different order on each rank. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/status.h"
#include "base/text.h"
#include "base/thread.h"
#include "checkpoint/checkpoint_file.h"
#include "options/options.h"

/* Elements: the ranks that write a shard begin at multiples of 4 KiB of it. */
enum { WRITER_ALIGNMENT = 1024 };

/* Set elements [*begin, *end) of a unit of `count` elements that the rank at mesh position
 * shard * replicas + replica writes. Ranks that hold the same shard divide it. May be empty. */
static void range_set(int64_t count, const struct mesh *mesh, int position, int64_t *begin,
                      int64_t *end)
{
    const int replicas = mesh->replica->size, replica = position % replicas;
    const int64_t whole = flat_shard_count(count, mesh->shard->size);
    const int64_t first = position / replicas * whole;
    const int64_t length = integer_clamp(count - first, 0, whole);
    *begin = first + length * replica / replicas / WRITER_ALIGNMENT * WRITER_ALIGNMENT;
    *end = first + length * (replica + 1) / replicas / WRITER_ALIGNMENT * WRITER_ALIGNMENT;
    if (replica + 1 == replicas)
        *end = first + length;
}

size_t checkpoint_snapshot_bytes(const struct flat_model *flat)
{
    int64_t elements = 0, vectors = 1 + flat->moments + flat->averaged;
    for (int u = 0; u < flat->count; u++) {
        int64_t most = 0;
        for (int replica = 0; replica < flat->mesh->replica->size; replica++) {
            int64_t begin, end; /* in shard 0; no shard is longer */
            range_set(flat->buffers[u].unit->count, flat->mesh, replica, &begin, &end);
            most = larger(most, end - begin);
        }
        elements += most;
    }
    return (size_t)(elements * vectors) * sizeof(float);
}

/* ---- one file ---- */

void checkpoint_part_plan(struct checkpoint_part *part, const char *directory,
                          const struct flat_model *flat, const struct checkpoint_order *order)
{
    struct checkpoint_contents *contents = &part->contents;
    const struct device_backend *backend = flat->device->backend;
    struct comm *world = flat->mesh->world;
    const int replicas = flat->mesh->replica->size;
    char name[CHECKPOINT_NAME];
    size_t most = 0; /* each rank has at most one short piece per unit */
    checkpoint_name(name, order->state->step);
    *part = (struct checkpoint_part){.flat = flat, .world = world, .descriptor = -1};
    part->final_path = allocate_text("%s/%s", directory, name);
    part->path = allocate_text("%s.part", part->final_path);
    *contents = (struct checkpoint_contents){
        .format = CHECKPOINT_FORMAT,
        .state = *order->state,
        .moments = flat->moments,
        .averaged = flat->averaged,
        .replica = replicas,
        .shard = flat->mesh->shard->size,
        .compute = type_name(flat->type),
        .text = {options_to_run_deck(order->options),
                 order->metadata != NULL ? allocate_copy(order->metadata) : NULL,
                 order->data != NULL ? allocate_copy(order->data) : NULL,
                 backend->choices_export != NULL && world->rank == 0
                     ? backend->choices_export(flat->device)
                     : NULL},
        .units = flat->buffers[0].unit, /* the first element of the array of all units */
        .unit_count = flat->count,
        .layout = allocate((size_t)flat->count, sizeof *contents->layout)};
    snprintf(contents->model, sizeof contents->model, "%.63s", order->options->model.name);
    for (int u = 0; u < flat->count; u++)
        most += (size_t)(contents->units[u].count / VECTOR_BLOCK + world->size);
    contents->pieces = allocate(most, sizeof *contents->pieces);
    part->owner = allocate(most, sizeof *part->owner);
    part->receiver = allocate((size_t)world->size, sizeof *part->receiver);
    for (int rank = 0; rank < world->size; rank++)
        part->receiver[rank] = rank;
    OWNED int *rank_at = vector_ranks(flat->mesh);
    for (int u = 0; u < flat->count; u++) {
        struct checkpoint_layout *layout = &contents->layout[u];
        memcpy(layout->name, contents->units[u].name, sizeof layout->name);
        layout->count = contents->units[u].count;
        layout->first_piece = contents->piece_count;
        for (int position = 0; position < world->size; position++) {
            int64_t begin, end;
            range_set(layout->count, flat->mesh, position, &begin, &end);
            for (; begin < end; begin += VECTOR_BLOCK) {
                part->owner[contents->piece_count] = rank_at[position];
                contents->pieces[contents->piece_count++] = (struct checkpoint_piece){
                    .begin = begin, .count = smaller(end - begin, VECTOR_BLOCK)};
            }
        }
        layout->piece_count = contents->piece_count - layout->first_piece;
    }
}

bool checkpoint_part_frame(struct checkpoint_part *part, int descriptor, bool reserves,
                           struct error *error)
{
    struct checkpoint_contents *contents = &part->contents;
    if (part->world->rank == 0 && descriptor >= 0)
        error_defer(checkpoint_frame_write(descriptor, part->path, contents, reserves, error));
    if (!comm_agree(part->world, error))
        return false;
    comm_broadcast(part->world, contents->layout,
                   contents->unit_count * (int64_t)sizeof *contents->layout, COMM_BYTE, 0);
    comm_broadcast(part->world, &contents->bytes, 1, COMM_INT64, 0);
    return true;
}

void checkpoint_part_write(struct checkpoint_part *part, struct error *error)
{
    const int self = part->world->rank;
    OWNED float *staging = allocate(
        part->snapshot == NULL && part->mapped == NULL ? VECTOR_BLOCK : 0, sizeof *staging);
    float *taken = part->snapshot;
    for (struct checkpoint_block block = {.u = 0}; checkpoint_next(&part->contents, &block);) {
        struct checkpoint_piece *piece = block.piece;
        const int owner = part->owner[block.p], receiver = part->receiver[owner];
        float *memory = part->mapped != NULL ? (float *)(void *)(part->mapped + block.offset)
                        : taken != NULL      ? taken
                                             : staging;
        if (owner == self) {
            if (taken == NULL)
                vector_copy(part->flat, block.u, block.kind, piece->begin, piece->count, memory);
            else
                taken += piece->count;
            piece->crc[block.kind] = crc32c_update(0, memory, block.bytes);
            if (receiver != self)
                comm_send(part->world, memory, block.bytes, receiver);
        } else if (receiver == self) {
            comm_receive(part->world, memory, block.bytes, owner);
        }
        if (receiver == self && part->mapped == NULL && error->kind == ERROR_NONE)
            error_defer(durable_write(part->descriptor, part->path, memory, block.bytes,
                                      block.offset, error));
    }
}

/* Other ranks than the owner have zeros as checksums of a piece. */
void checkpoint_part_gather_sums(struct checkpoint_part *part)
{
    comm_all_reduce(part->world, part->contents.pieces,
                    part->contents.piece_count * (int64_t)sizeof *part->contents.pieces, COMM_BYTE,
                    COMM_MAX);
}

void checkpoint_part_end(struct checkpoint_part *part, bool good)
{
    if (part->descriptor >= 0)
        close(part->descriptor);
    if (!good && part->world->rank == 0)
        unlink(part->path);
    checkpoint_contents_free(&part->contents);
    free(part->path);
    free(part->final_path);
    free(part->owner);
    free(part->receiver);
}

/* ---- the writer ---- */

enum stage { STAGE_NONE, STAGE_PIECES, STAGE_NAME };

struct checkpoint_writer {
    struct checkpoint_target target;
    const struct flat_model *flat;
    float *snapshot;        /* NULL: write in the foreground */
    struct event *taken;    /* recorded after the copies to the snapshot */
    double blocked, waited; /* seconds, see checkpoint_writer_times */

    /* The current checkpoint. Used only by the thread while it is busy. */
    enum stage stage;
    struct checkpoint_part part;
    bool best;
    int64_t keep;
    struct error error; /* of the thread */

    pthread_t thread; /* of the current stage */
    bool has_thread;
    _Atomic bool busy; /* the thread works */
};

/* Copy the pieces of this rank to the snapshot, in the order of the stream. */
static void snapshot_take(struct checkpoint_writer *writer)
{
    struct checkpoint_part *part = &writer->part;
    float *memory = part->snapshot = writer->snapshot;
    for (struct checkpoint_block block = {.u = 0}; checkpoint_next(&part->contents, &block);)
        if (part->owner[block.p] == part->world->rank) {
            vector_copy_start(writer->flat, block.u, block.kind, block.piece->begin,
                              block.piece->count, memory);
            memory += block.piece->count;
        }
    ENSURE((size_t)(memory - writer->snapshot) * sizeof *memory <=
               checkpoint_snapshot_bytes(writer->flat),
           "a snapshot is larger than was planned");
    writer->flat->device->backend->event_record(writer->taken, writer->flat->stream);
}

static void phase_set(const struct checkpoint_writer *writer, enum phase phase)
{
    (writer->snapshot != NULL ? status_set_background : status_set_phase)((int)phase);
}

/* Do the work of a stage: write and sync the pieces; then, on rank 0, write the tables, give the
 * file its name and set the links. Rank 0 syncs its pieces with the tables. */
static void *stage_work(void *argument)
{
    struct checkpoint_writer *writer = argument;
    struct checkpoint_part *part = &writer->part;
    struct error *error = &writer->error;
    const bool is_first = part->world->rank == 0;
    if (writer->stage == STAGE_PIECES) {
        phase_set(writer, PHASE_CHECKPOINT_WRITE);
        if (writer->snapshot != NULL)
            writer->flat->device->backend->event_synchronize(writer->taken);
        checkpoint_part_write(part, error);
        if (!is_first && part->descriptor >= 0 && error->kind == ERROR_NONE)
            error_defer(durable_sync(part->descriptor, part->path, error));
    } else {
        phase_set(writer, PHASE_CHECKPOINT_NAME);
        const bool named =
            is_first &&
            checkpoint_tables_write(part->descriptor, part->path, &part->contents, error) &&
            durable_sync(part->descriptor, part->path, error) &&
            durable_rename(part->path, part->final_path, error);
        phase_set(writer, PHASE_CHECKPOINT_LINK);
        if (named)
            error_defer(checkpoint_publish(writer->target.directory, part->contents.state.step,
                                           writer->best, part->contents.state.best_step,
                                           writer->keep, error));
    }
    if (writer->snapshot != NULL)
        status_set_background(PHASE_START);
    writer->busy = false;
    return NULL;
}

/* Begin the work of a stage in a thread. In the foreground, or if the system has no thread for it,
 * it is done at once. */
static void stage_begin(struct checkpoint_writer *writer)
{
    writer->busy = true;
    writer->has_thread = writer->snapshot != NULL &&
                         thread_start(&writer->thread, "checkpoint", stage_work, writer) == 0;
    if (!writer->has_thread)
        stage_work(writer);
}

static void thread_wait(struct checkpoint_writer *writer)
{
    if (writer->has_thread)
        pthread_join(writer->thread, NULL);
    writer->has_thread = false;
}

/* Collective. Wait for the threads, agree on errors and begin the next stage. */
static bool stage_end(struct checkpoint_writer *writer, struct error *error)
{
    struct checkpoint_part *part = &writer->part;
    thread_wait(writer);
    if (writer->error.kind != ERROR_NONE)
        *error = writer->error;
    bool good = comm_agree(part->world, error);
    if (good && writer->stage == STAGE_PIECES) {
        checkpoint_part_gather_sums(part);
        writer->stage = STAGE_NAME;
        if (writer->snapshot == NULL || part->world->rank == 0)
            stage_begin(writer);
        return true;
    }
    checkpoint_part_end(part, good);
    writer->stage = STAGE_NONE;
    return good;
}

/* ---- the interface ---- */

struct checkpoint_writer *checkpoint_writer_open(const struct checkpoint_target *target,
                                                 const struct flat_model *flat, float *snapshot)
{
    struct checkpoint_writer *writer = allocate(1, sizeof *writer);
    writer->target = *target;
    writer->flat = flat;
    writer->snapshot = target->writers != WRITERS_NODE0 ? snapshot : NULL;
    if (writer->snapshot != NULL)
        writer->taken = flat->device->backend->event_open(flat->device);
    return writer;
}

bool checkpoint_writer_finish(struct checkpoint_writer *writer, struct error *error)
{
    const double begin = clock_now();
    bool good = true;
    if (writer->stage != STAGE_NONE)
        status_set_phase(PHASE_CHECKPOINT_WAIT);
    while (good && writer->stage != STAGE_NONE)
        good = stage_end(writer, error);
    const double seconds = clock_now() - begin;
    writer->waited += seconds;
    writer->blocked += seconds;
    return good;
}

bool checkpoint_writer_start(struct checkpoint_writer *writer, const struct checkpoint_order *order,
                             struct error *error)
{
    struct checkpoint_part *part = &writer->part;
    struct comm *world = writer->flat->mesh->world;
    bool writes = false; /* this rank writes pieces */
    if (!checkpoint_writer_finish(writer, error))
        return false;
    const double begin = clock_now();
    status_set_phase(PHASE_CHECKPOINT_BEGIN);
    writer->best = order->best;
    writer->keep = order->options->checkpoint.keep;
    error_clear(&writer->error);
    checkpoint_part_plan(part, writer->target.directory, writer->flat, order);
    if (writer->target.writers == WRITERS_NODE0)
        memset(part->receiver, 0, (size_t)world->size * sizeof *part->receiver);
    for (int64_t p = 0; p < part->contents.piece_count; p++)
        writes = writes || part->receiver[part->owner[p]] == world->rank;
    if (world->rank == 0)
        part->descriptor = durable_create(part->path, error);
    bool good = checkpoint_part_frame(part, part->descriptor, true, error);
    if (good && world->rank != 0 && writes) {
        struct stat file;
        part->descriptor = durable_open(part->path, error);
        if (part->descriptor >= 0 &&
            (fstat(part->descriptor, &file) != 0 || file.st_size != part->contents.bytes))
            error_set(error, ERROR_FILE,
                      "%s is not the file that rank 0 created: the folder is not shared by all "
                      "nodes; set checkpoint.writers=node0",
                      part->path);
    }
    good = good && comm_agree(world, error);
    if (good) {
        if (writer->snapshot != NULL)
            snapshot_take(writer);
        writer->stage = STAGE_PIECES;
        stage_begin(writer);
    } else {
        checkpoint_part_end(part, false);
    }
    while (good && writer->snapshot == NULL && writer->stage != STAGE_NONE)
        good = stage_end(writer, error);
    writer->blocked += clock_now() - begin;
    return good;
}

bool checkpoint_writer_is_busy(const struct checkpoint_writer *writer)
{
    return writer != NULL && writer->busy;
}

bool checkpoint_writer_is_writing(const struct checkpoint_writer *writer)
{
    return writer->stage != STAGE_NONE;
}

bool checkpoint_writer_writes_best(const struct checkpoint_writer *writer)
{
    return writer->stage != STAGE_NONE && writer->best;
}

bool checkpoint_writer_follow(struct checkpoint_writer *writer, bool busy, struct error *error)
{
    if (writer == NULL || writer->stage == STAGE_NONE || busy)
        return true;
    double begin = clock_now();
    bool good = stage_end(writer, error);
    writer->blocked += clock_now() - begin;
    return good;
}

void checkpoint_writer_times(const struct checkpoint_writer *writer, double *blocked,
                             double *waited)
{
    *blocked = writer->blocked;
    *waited = writer->waited;
}

void checkpoint_writer_close(struct checkpoint_writer *writer)
{
    if (writer == NULL)
        return;
    if (writer->stage != STAGE_NONE) {
        thread_wait(writer);
        checkpoint_part_end(&writer->part, false);
    }
    if (writer->taken != NULL)
        writer->flat->device->backend->event_close(writer->taken);
    free(writer);
}
