// SPDX-License-Identifier: BSD-3-Clause
/* Rank 0 creates the frame of NAME.part; then each rank writes its pieces of each vector at their
 * offsets in the file. Ranks that hold the same shard divide it. If the folder is private to rank
 * 0's node, the pieces are sent there. Then rank 0 writes the tables and renames the file. After
 * each stage all ranks agree on errors, so that no rank waits for one that failed.
 *
 * In the background threads do the work of both stages. Between them the main threads agree on
 * errors and combine the checksums. Only main threads start collectives, since two threads would
 * start them in a different order on each rank. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "base/thread.h"
#include "checkpoint/checkpoint_file.h"
#include "options/options.h"
#include "options/phase.h"

size_t checkpoint_snapshot_bytes(const struct flat_model *flat)
{
    const int64_t shards = flat->mesh->shard->size, replicas = flat->mesh->replica->size;
    int64_t elements = 0, vectors = 1 + flat->moments + flat->averaged;
    for (int u = 0; u < flat->count; u++) {
        int64_t most = 0;
        for (int64_t replica = 0; replica < replicas; replica++) {
            int64_t begin, end; /* in shard 0; no shard is longer */
            checkpoint_range(flat->buffers[u].unit->count, shards, replicas, replica, &begin, &end);
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
    char name[CHECKPOINT_NAME];
    *part = (struct checkpoint_part){.flat = flat,
                                     .world = world,
                                     .descriptor = -1,
                                     .receiver = allocate((size_t)world->size, sizeof(int))};
    checkpoint_name(name, order->state->step);
    part->final_path = allocate_text("%s/%s", directory, name);
    part->path = allocate_text("%s.part", part->final_path);
    checkpoint_contents_open(contents, flat->buffers[0].unit, flat->count, order->options,
                             type_name(flat->type));
    contents->metadata = order->metadata != NULL ? allocate_copy(order->metadata) : NULL;
    contents->data = order->data != NULL ? allocate_copy(order->data) : NULL;
    if (backend->choices_export != NULL && world->rank == 0)
        contents->algorithms = backend->choices_export(flat->device);
    contents->state = *order->state;
    contents->moments = flat->moments;
    contents->averaged = flat->averaged;
    contents->replica = flat->mesh->replica->size;
    contents->shard = flat->mesh->shard->size;
    part->owner = checkpoint_contents_divide(contents);
    OWNED int *rank_at = vector_ranks(flat->mesh);
    for (int64_t p = 0; p < contents->piece_count; p++)
        part->owner[p] = rank_at[part->owner[p]];
    for (int rank = 0; rank < world->size; rank++)
        part->receiver[rank] = rank;
}

/* Collective. Plan the file, create its frame (rank 0, HDF5) and open it on the ranks that write
 * pieces. Always call checkpoint_part_end, also on failure. */
static bool part_begin(struct checkpoint_part *part, const struct checkpoint_target *target,
                       const struct flat_model *flat, const struct checkpoint_order *order,
                       struct error *error)
{
    checkpoint_part_plan(part, target->directory, flat, order);
    struct comm *world = part->world;
    struct stat file;
    bool writes = false; /* this rank writes pieces */
    if (target->writers == WRITERS_NODE0)
        memset(part->receiver, 0, (size_t)world->size * sizeof *part->receiver);
    for (int64_t p = 0; p < part->contents.piece_count; p++)
        writes = writes || part->receiver[part->owner[p]] == world->rank;
    if (world->rank == 0)
        part->descriptor = durable_create(part->path, error);
    if (part->descriptor >= 0) {
        error_defer(
            checkpoint_frame_write(part->descriptor, part->path, &part->contents, true, error));
        flock(part->descriptor, LOCK_SH | LOCK_NB); /* shared with other ranks (durable_open) */
    }
    if (!comm_agree(world, error))
        return false;
    checkpoint_layout_share(&part->contents, world);
    if (world->rank != 0 && writes) {
        part->descriptor = durable_open(part->path, error);
        if (part->descriptor >= 0 && fstat(part->descriptor, &file) != 0)
            durable_failed(error, "examine", part->path, errno);
        else if (part->descriptor >= 0 && file.st_size != part->contents.bytes)
            error_set(error, ERROR_FILE,
                      "%s is not the file that rank 0 created: the folder is not shared by all "
                      "nodes; set checkpoint.writers=node0",
                      part->path);
    }
    return comm_agree(world, error);
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

void checkpoint_part_gather_sums(struct checkpoint_part *part)
{
    const struct checkpoint_contents *contents = &part->contents;
    int64_t sums = contents->piece_count * FLAT_VECTORS;
    OWNED int64_t *sum = allocate((size_t)sums, sizeof *sum);
    for (int64_t n = 0; n < sums; n++)
        sum[n] = contents->pieces[n / FLAT_VECTORS].crc[n % FLAT_VECTORS];
    comm_all_reduce(part->world, sum, sums, COMM_INT64, COMM_SUM);
    for (int64_t n = 0; n < sums; n++)
        contents->pieces[n / FLAT_VECTORS].crc[n % FLAT_VECTORS] = (uint32_t)sum[n];
}

static bool part_close(struct checkpoint_part *part, struct error *error)
{
    const int descriptor = part->descriptor;
    part->descriptor = -1;
    return durable_close(descriptor, part->path, error);
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
    double began;
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
            error_defer(durable_sync(part->descriptor, part->path, error) &&
                        part_close(part, error));
    } else {
        phase_set(writer, PHASE_CHECKPOINT_NAME);
        const bool named =
            is_first &&
            checkpoint_tables_write(part->descriptor, part->path, &part->contents, error) &&
            durable_sync(part->descriptor, part->path, error) && part_close(part, error) &&
            durable_rename(part->path, part->final_path, error);
        phase_set(writer, PHASE_CHECKPOINT_LINK);
        if (named)
            error_defer(checkpoint_publish(writer->target.directory,
                                           text_base_name(part->final_path), writer->best,
                                           part->contents.state.best_step, writer->keep, error));
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
    if (good)
        log_debug("%s written in %.2f s", part->final_path, clock_now() - writer->began);
    checkpoint_part_end(part, good);
    writer->stage = STAGE_NONE;
    return good;
}

/* Collective. End all stages. */
static bool stages_end(struct checkpoint_writer *writer, struct error *error)
{
    bool good = true;
    while (good && writer->stage != STAGE_NONE)
        good = stage_end(writer, error);
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
    if (writer->stage != STAGE_NONE)
        status_set_phase(PHASE_CHECKPOINT_WAIT);
    const bool good = stages_end(writer, error);
    const double seconds = clock_now() - begin;
    writer->waited += seconds;
    writer->blocked += seconds;
    return good;
}

bool checkpoint_writer_start(struct checkpoint_writer *writer, const struct checkpoint_order *order,
                             struct error *error)
{
    if (!checkpoint_writer_finish(writer, error))
        return false;
    writer->began = clock_now();
    status_set_phase(PHASE_CHECKPOINT_BEGIN);
    writer->best = order->best;
    writer->keep = order->options->checkpoint.keep;
    error_clear(&writer->error);
    bool good = part_begin(&writer->part, &writer->target, writer->flat, order, error);
    if (good) {
        if (writer->snapshot != NULL)
            snapshot_take(writer);
        writer->stage = STAGE_PIECES;
        stage_begin(writer);
        good = writer->snapshot != NULL || stages_end(writer, error);
    } else {
        checkpoint_part_end(&writer->part, false);
    }
    writer->blocked += clock_now() - writer->began;
    return good;
}

bool checkpoint_write(const struct checkpoint_target *target, const struct flat_model *flat,
                      const struct checkpoint_order *order, struct error *error)
{
    struct checkpoint_writer *writer = checkpoint_writer_open(target, flat, NULL);
    const bool good = checkpoint_writer_start(writer, order, error);
    checkpoint_writer_close(writer);
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
