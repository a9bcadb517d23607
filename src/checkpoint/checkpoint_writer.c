// SPDX-License-Identifier: BSD-3-Clause
/* A checkpoint in the background has two stages: the threads of all ranks write and sync their
 * pieces; then rank 0's thread writes the tables and renames the file. Between them the main
 * threads agree on errors and combine the checksums. Only main threads start collectives, since two
 * threads would start them in a different order on each rank. */
#include "checkpoint/checkpoint_writer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint_part.h"
#include "config/option_types.h"
#include "config/phase.h"
#include "core/clock.h"
#include "core/crc32c.h"
#include "core/file.h"
#include "core/log.h"
#include "core/status.h"
#include "core/thread.h"

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
    char name[NAME_MAX + 1];
    bool best;
    int64_t best_step, keep;
    double began, blocked_before;
    struct error error; /* of the thread */

    bool has_thread;
    pthread_t thread;
    pthread_mutex_t lock; /* protects the members below */
    pthread_cond_t work, rest;
    bool busy, stop;
};

size_t checkpoint_snapshot_bytes(const struct flat_model *flat)
{
    int64_t elements = 0, vectors = 1 + flat->moments + flat->averaged;
    for (int u = 0; u < flat->count; u++) {
        struct unit unit = *flat->buffers[u].unit;
        const struct checkpoint_contents one = {
            .units = &unit, .shard = flat->mesh->shard->size, .replica = flat->mesh->replica->size};
        int64_t most = 0;
        for (int64_t replica = 0; replica < one.replica; replica++) {
            int64_t begin, end; /* in shard 0; no shard is longer */
            checkpoint_range(&one, 0, 0, replica, &begin, &end);
            most = end - begin > most ? end - begin : most;
        }
        elements += most;
    }
    return (size_t)(elements * vectors) * sizeof(float);
}

/* ---- pieces ---- */

/* Called for each piece p (of unit u) that this rank owns, with its memory in the snapshot. */
typedef void piece_action(struct checkpoint_writer *writer, int64_t u, enum flat_vector kind,
                          int64_t p, float *memory);

static void owned_pieces_visit(struct checkpoint_writer *writer, piece_action *action)
{
    const struct checkpoint_part *part = &writer->part;
    const struct checkpoint_contents *contents = &part->contents;
    float *memory = writer->snapshot;
    for (int64_t u = 0; u < contents->unit_count; u++) {
        int64_t first = contents->layout[u].first_piece, count = contents->layout[u].piece_count;
        for (enum flat_vector kind = 0; kind < FLAT_VECTORS; kind++)
            for (int64_t p = first; checkpoint_has(contents, kind) && p < first + count; p++)
                if (part->owner[p] == part->world->rank) {
                    action(writer, u, kind, p, memory);
                    memory += contents->pieces[p].count;
                }
    }
    ENSURE((size_t)(memory - writer->snapshot) * sizeof *memory <=
               checkpoint_snapshot_bytes(writer->flat),
           "a snapshot is larger than was planned");
}

static void piece_copy(struct checkpoint_writer *writer, int64_t u, enum flat_vector kind,
                       int64_t p, float *memory)
{
    const struct checkpoint_piece *piece = &writer->part.contents.pieces[p];
    vector_copy_start(writer->flat, (int)u, kind, piece->begin, piece->count, memory);
}

static void piece_write(struct checkpoint_writer *writer, int64_t u, enum flat_vector kind,
                        int64_t p, float *memory)
{
    struct checkpoint_part *part = &writer->part;
    struct checkpoint_piece *piece = &part->contents.pieces[p];
    size_t bytes = (size_t)piece->count * sizeof(float);
    if (writer->error.kind != ERROR_NONE)
        return;
    piece->crc[kind] = crc32c_update(0, memory, bytes);
    error_defer(durable_write(part->descriptor, part->path, memory, bytes,
                              checkpoint_piece_offset(&part->contents, u, kind, p),
                              &writer->error));
}

/* ---- the thread ---- */

static void pieces_work(struct checkpoint_writer *writer)
{
    struct checkpoint_part *part = &writer->part;
    writer->flat->device->backend->event_synchronize(writer->taken);
    owned_pieces_visit(writer, piece_write);
    if (writer->error.kind == ERROR_NONE && part->descriptor >= 0)
        error_defer(durable_sync(part->descriptor, part->path, &writer->error));
    if (part->world->rank != 0)
        error_defer(checkpoint_part_close(part, &writer->error));
}

/* Rank 0, after all ranks have synced their pieces. */
static void name_work(struct checkpoint_writer *writer)
{
    struct checkpoint_part *part = &writer->part;
    struct error *error = &writer->error;
    if (checkpoint_part_put_tables(part, error) &&
        durable_sync(part->descriptor, part->path, error) && checkpoint_part_close(part, error) &&
        durable_rename(part->path, part->final_path, error))
        error_defer(checkpoint_publish(writer->target.directory, writer->name, writer->best,
                                       writer->best_step, writer->keep, error));
}

static void *thread_main(void *argument)
{
    struct checkpoint_writer *writer = argument;
    pthread_mutex_lock(&writer->lock);
    while (writer->busy || !writer->stop) {
        if (!writer->busy) {
            pthread_cond_wait(&writer->work, &writer->lock);
            continue;
        }
        pthread_mutex_unlock(&writer->lock);
        status_set_background(writer->stage == STAGE_PIECES ? PHASE_CHECKPOINT_WRITE
                                                            : PHASE_CHECKPOINT_NAME);
        (writer->stage == STAGE_PIECES ? pieces_work : name_work)(writer);
        status_set_background(PHASE_START);
        pthread_mutex_lock(&writer->lock);
        writer->busy = false;
        pthread_cond_signal(&writer->rest);
    }
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

static void thread_begin(struct checkpoint_writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    writer->busy = true;
    pthread_cond_signal(&writer->work);
    pthread_mutex_unlock(&writer->lock);
}

static void thread_wait(struct checkpoint_writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    while (writer->busy)
        pthread_cond_wait(&writer->rest, &writer->lock);
    pthread_mutex_unlock(&writer->lock);
}

/* ---- collective stages ---- */

/* Collective, when all threads are idle: agree on errors and begin the next stage. */
static bool stage_end(struct checkpoint_writer *writer, struct error *error)
{
    struct checkpoint_part *part = &writer->part;
    if (writer->error.kind != ERROR_NONE)
        *error = writer->error;
    bool good = comm_agree(part->world, error);
    if (good && writer->stage == STAGE_PIECES) {
        checkpoint_part_gather_sums(part);
        writer->stage = STAGE_NAME;
        if (part->world->rank == 0)
            thread_begin(writer);
        return true;
    }
    checkpoint_part_end(part, good);
    writer->stage = STAGE_NONE;
    return good;
}

static void completion_log(const struct checkpoint_writer *writer)
{
    log_debug("checkpoint %s in %.2f s, of which training was blocked for %.2f s%s", writer->name,
              clock_now() - writer->began, writer->blocked - writer->blocked_before,
              writer->best ? "; the best so far" : "");
}

bool checkpoint_writer_finish(struct checkpoint_writer *writer, struct error *error)
{
    double begin = clock_now();
    bool good = true, waits = writer->stage != STAGE_NONE;
    if (waits)
        status_set_phase(PHASE_CHECKPOINT_WAIT);
    while (good && writer->stage != STAGE_NONE) {
        thread_wait(writer);
        good = stage_end(writer, error);
    }
    double seconds = clock_now() - begin;
    writer->waited += seconds;
    writer->blocked += seconds;
    if (good && waits)
        completion_log(writer);
    return good;
}

/* ---- in the foreground ---- */

/* Send a piece from its owner to the rank that writes, and write it. After an error pieces are
 * still sent, since other ranks wait for them, but not written. */
static void put_piece(struct checkpoint_part *part, float *staging, int64_t u,
                      enum flat_vector kind, int64_t p, struct error *error)
{
    struct checkpoint_piece *piece = &part->contents.pieces[p];
    size_t bytes = (size_t)piece->count * sizeof(float);
    int rank = part->world->rank, owner = part->owner[p];
    int writer = part->by_all ? owner : 0;
    if (owner == rank) {
        vector_copy(part->flat, (int)u, kind, piece->begin, piece->count, staging);
        piece->crc[kind] = crc32c_update(0, staging, bytes);
        if (writer != rank)
            comm_send(part->world, staging, bytes, writer);
    }
    if (writer != rank)
        return;
    if (owner != rank)
        comm_receive(part->world, staging, bytes, owner);
    int64_t offset = checkpoint_piece_offset(&part->contents, u, kind, p);
    if (error->kind == ERROR_NONE)
        error_defer(durable_write(part->descriptor, part->path, staging, bytes, offset, error));
}

/* Collective. Write all vectors. */
static bool put_vectors(struct checkpoint_part *part, struct error *error)
{
    const struct checkpoint_contents *contents = &part->contents;
    float *staging = malloc(VECTOR_BLOCK * sizeof(float));
    ENSURE_MEMORY(staging != NULL, "no memory for a piece of a checkpoint");
    for (int64_t u = 0; u < contents->unit_count; u++) {
        const struct checkpoint_layout *layout = &contents->layout[u];
        for (enum flat_vector kind = 0; kind < FLAT_VECTORS; kind++)
            for (int64_t p = 0; checkpoint_has(contents, kind) && p < layout->piece_count; p++)
                put_piece(part, staging, u, kind, layout->first_piece + p, error);
    }
    free(staging);
    return comm_agree(part->world, error);
}

/* Collective. Write the tables, sync and rename. One rank per node syncs, the first that has the
 * file open, since the page cache is the node's. */
static bool part_finish(struct checkpoint_part *part, struct error *error)
{
    struct comm *world = part->world;
    checkpoint_part_gather_sums(part);
    if (world->rank == 0)
        error_defer(checkpoint_part_put_tables(part, error));
    if (!comm_agree(world, error))
        return false;
    struct comm *node = part->flat->mesh->node;
    int64_t first = part->descriptor >= 0 ? node->rank : node->size;
    comm_all_reduce(node, &first, 1, COMM_INT64, COMM_MIN);
    if (node->rank == first)
        error_defer(durable_sync(part->descriptor, part->path, error));
    error_defer(checkpoint_part_close(part, error));
    if (!comm_agree(world, error))
        return false;
    status_set_phase(PHASE_CHECKPOINT_NAME);
    if (world->rank == 0)
        error_defer(durable_rename(part->path, part->final_path, error));
    return comm_agree(world, error);
}

bool checkpoint_write(const struct checkpoint_target *target, const struct flat_model *flat,
                      const struct checkpoint_order *order, struct error *error)
{
    struct checkpoint_part part;
    bool good = checkpoint_part_begin(&part, target, flat, order, error) &&
                put_vectors(&part, error) && part_finish(&part, error);
    checkpoint_part_end(&part, good);
    return good;
}

static bool checkpoint_start(struct checkpoint_writer *writer, const struct checkpoint_order *order,
                             struct error *error)
{
    struct comm *world = writer->flat->mesh->world;
    status_set_phase(PHASE_CHECKPOINT_BEGIN);
    snprintf(writer->name, sizeof writer->name, "%s", order->name);
    writer->best = order->best;
    writer->best_step = order->state->best_step;
    writer->keep = order->keep;
    error_clear(&writer->error);
    if (writer->snapshot == NULL) {
        status_set_phase(PHASE_CHECKPOINT_WRITE);
        if (!checkpoint_write(&writer->target, writer->flat, order, error))
            return false;
        status_set_phase(PHASE_CHECKPOINT_LINK);
        if (world->rank == 0)
            error_defer(checkpoint_publish(writer->target.directory, writer->name, writer->best,
                                           writer->best_step, writer->keep, error));
        return comm_agree(world, error);
    }
    if (!checkpoint_part_begin(&writer->part, &writer->target, writer->flat, order, error)) {
        checkpoint_part_end(&writer->part, false);
        return false;
    }
    owned_pieces_visit(writer, piece_copy);
    writer->flat->device->backend->event_record(writer->taken, writer->flat->stream);
    writer->stage = STAGE_PIECES;
    thread_begin(writer);
    return true;
}

/* ---- the interface ---- */

struct checkpoint_writer *checkpoint_writer_open(const struct checkpoint_target *target,
                                                 const struct flat_model *flat, float *snapshot,
                                                 struct error *error)
{
    struct checkpoint_writer *writer = calloc(1, sizeof *writer);
    ENSURE_MEMORY(writer != NULL, "no memory for a writer of checkpoints");
    writer->target = *target;
    writer->flat = flat;
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->work, NULL);
    pthread_cond_init(&writer->rest, NULL);
    if (snapshot == NULL || target->writers == WRITERS_NODE0)
        return writer;
    writer->snapshot = snapshot;
    writer->taken = flat->device->backend->event_open(flat->device);
    int failed = thread_start(&writer->thread, "checkpoint", thread_main, writer);
    writer->has_thread = failed == 0;
    if (writer->has_thread)
        return writer;
    error_set(error, ERROR_MEMORY,
              "cannot start the thread that writes checkpoints: %s; set checkpoint.background=no",
              strerror(failed));
    checkpoint_writer_close(writer);
    return NULL;
}

bool checkpoint_writer_start(struct checkpoint_writer *writer, const struct checkpoint_order *order,
                             struct error *error)
{
    if (!checkpoint_writer_finish(writer, error))
        return false;
    double begin = clock_now();
    writer->began = begin;
    writer->blocked_before = writer->blocked;
    bool good = checkpoint_start(writer, order, error);
    writer->blocked += clock_now() - begin;
    if (good && writer->stage == STAGE_NONE)
        completion_log(writer);
    return good;
}

bool checkpoint_writer_is_busy(struct checkpoint_writer *writer)
{
    if (writer == NULL || writer->stage == STAGE_NONE)
        return false;
    pthread_mutex_lock(&writer->lock);
    bool busy = writer->busy;
    pthread_mutex_unlock(&writer->lock);
    return busy;
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
    if (good && writer->stage == STAGE_NONE)
        completion_log(writer);
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
    if (writer->has_thread) {
        pthread_mutex_lock(&writer->lock);
        writer->stop = true;
        pthread_cond_signal(&writer->work);
        pthread_mutex_unlock(&writer->lock);
        pthread_join(writer->thread, NULL);
    }
    if (writer->taken != NULL)
        writer->flat->device->backend->event_close(writer->taken);
    pthread_cond_destroy(&writer->work);
    pthread_cond_destroy(&writer->rest);
    pthread_mutex_destroy(&writer->lock);
    free(writer);
}
