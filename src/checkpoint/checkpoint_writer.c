// SPDX-License-Identifier: BSD-3-Clause
/* Rank 0 creates the frame of NAME.part. Then each piece is written at its offset in the file by
 * one rank, its writer. Ranks that hold the same shard divide it. If shards are short, several form
 * one piece, and their ranks send them to its writer. If the folder is private to rank 0's node,
 * the pieces are sent there. Then rank 0 writes the tables and renames the file. After each stage
 * all ranks agree on errors, so that no rank waits for one that failed.
 *
 * In the background, threads do the work of the stages. Between them the main threads agree on
 * errors, join the pieces and combine the checksums. Only main threads start collectives, since two
 * threads would start them in a different order on each rank. */
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

/* ---- division ---- */

/* In elements. A range of a long shard has about 1 MiB of each vector or more, and begins at a
 * multiple of 4 KiB in the shard. A range of short shards has up to 1 MiB. */
enum { WRITER_LEAST = 1 << 18, WRITER_ALIGNMENT = 1024 };

/* The division of a unit. */
struct division {
    int64_t shard;  /* elements of a shard, with padding */
    int64_t joined; /* consecutive shards that are divided together; 1 for long shards */
    int64_t ranges; /* number of parts of `joined` shards, each for one writer */
};

static struct division unit_divide(const struct flat_model *flat, int64_t u)
{
    const struct mesh *mesh = flat->mesh;
    const int64_t shard = flat->buffers[u].shard_count;
    return (struct division){.shard = shard,
                             .joined = integer_clamp(WRITER_LEAST / shard, 1, mesh->shard->size),
                             .ranges = integer_clamp(shard / WRITER_LEAST, 1, mesh->replica->size)};
}

/* Return the first element of range `i` of the shards from `first` on. */
static int64_t range_begin(const struct division *division, int64_t first, int64_t i)
{
    const int64_t length = division->joined * division->shard;
    const int64_t begin = length * i / division->ranges;
    return first * division->shard +
           (i < division->ranges ? begin / WRITER_ALIGNMENT * WRITER_ALIGNMENT : length);
}

/* Set the units, their layout without offsets, the pieces and their writers. The ranges of all
 * units are numbered. Range n is written by replica n modulo the number of replicas. Each
 * round of all replicas uses the next of the joined shards. */
static void pieces_divide(struct checkpoint_part *part)
{
    struct checkpoint_contents *contents = &part->contents;
    const int64_t replicas = part->flat->mesh->replica->size;
    size_t most = 0; /* all but the last piece of a unit have over half of WRITER_LEAST elements */
    contents->units = part->flat->buffers[0].unit; /* the first element of the array of all units */
    contents->unit_count = part->flat->count;
    contents->moments = part->flat->moments;
    contents->averaged = part->flat->averaged;
    contents->layout = allocate((size_t)contents->unit_count, sizeof *contents->layout);
    for (int64_t u = 0; u < contents->unit_count; u++)
        most += 2 * (size_t)(contents->units[u].count / WRITER_LEAST + 1);
    contents->pieces = allocate(most, sizeof *contents->pieces);
    part->writer = allocate(most, sizeof *part->writer);
    for (int64_t u = 0, ranges = 0; u < contents->unit_count; u++) {
        struct checkpoint_layout *layout = &contents->layout[u];
        const struct division division = unit_divide(part->flat, u);
        memcpy(layout->name, contents->units[u].name, sizeof layout->name);
        layout->count = contents->units[u].count;
        layout->first_piece = contents->piece_count;
        for (int64_t first = 0; first * division.shard < layout->count; first += division.joined)
            for (int64_t i = 0; i < division.ranges; i++) {
                int64_t begin = range_begin(&division, first, i);
                const int64_t end = smaller(range_begin(&division, first, i + 1), layout->count);
                const int64_t members = (end - 1) / division.shard - first + 1;
                const int64_t shard = first + (ranges + i) / replicas % members;
                for (; begin < end; begin += VECTOR_BLOCK) {
                    part->writer[contents->piece_count] =
                        (int)(shard * replicas + (ranges + i) % replicas);
                    contents->pieces[contents->piece_count++] = (struct checkpoint_piece){
                        .begin = begin, .count = smaller(end - begin, VECTOR_BLOCK)};
                }
            }
        layout->piece_count = contents->piece_count - layout->first_piece;
        ranges += division.ranges;
    }
}

/* The elements of a block that a rank has in memory while the block is written. */
struct share {
    int64_t stored;       /* all elements on the writer, else `count` */
    int64_t begin, count; /* in the unit: of the rank's shard; `count` is 0 on other replicas */
    int64_t at;           /* position of element `begin` in memory */
};

/* Return the share of the rank at a mesh position. */
static struct share share_of(const struct checkpoint_part *part,
                             const struct checkpoint_block *block, int64_t position)
{
    const struct mesh *mesh = part->flat->mesh;
    const struct checkpoint_piece *piece = block->piece;
    const int64_t replicas = mesh->replica->size, writer = part->writer[block->p];
    const int64_t shard = part->flat->buffers[block->u].shard_count;
    struct share share = {.count = 0};
    if (position % replicas == writer % replicas)
        share.begin = vector_overlap(piece->begin, piece->count, position / replicas * shard, shard,
                                     &share.count);
    share.stored = position == writer ? piece->count : share.count;
    share.at = position == writer ? share.begin - piece->begin : 0;
    return share;
}

static struct share own_share(const struct checkpoint_part *part,
                              const struct checkpoint_block *block)
{
    const struct mesh *mesh = part->flat->mesh;
    return share_of(part, block,
                    mesh->shard->rank * (int64_t)mesh->replica->size + mesh->replica->rank);
}

struct checkpoint_division checkpoint_divide(const struct flat_model *flat)
{
    struct checkpoint_part part = {.flat = flat};
    struct checkpoint_division division = {.pieces = 0};
    OWNED size_t *bytes = allocate((size_t)flat->mesh->world->size, sizeof *bytes);
    OWNED bool *writes = allocate((size_t)flat->mesh->world->size, sizeof *writes);
    pieces_divide(&part);
    for (struct checkpoint_block block = {.u = 0}; checkpoint_next(&part.contents, &block);) {
        const int64_t writer = part.writer[block.p], replicas = flat->mesh->replica->size;
        const int64_t shard = flat->buffers[block.u].shard_count, first = block.piece->begin;
        for (int64_t n = first / shard; n * shard < first + block.piece->count; n++) {
            const int64_t position = n * replicas + writer % replicas;
            bytes[position] += (size_t)share_of(&part, &block, position).stored * sizeof(float);
            if (bytes[position] > division.snapshot_bytes)
                division.snapshot_bytes = bytes[position];
        }
        division.writers += !writes[writer];
        writes[writer] = true;
    }
    division.pieces = part.contents.piece_count;
    checkpoint_contents_free(&part.contents);
    free(part.writer);
    return division;
}

/* ---- one file ---- */

void checkpoint_part_plan(struct checkpoint_part *part, const char *directory,
                          const struct flat_model *flat, const struct checkpoint_order *order)
{
    struct checkpoint_contents *contents = &part->contents;
    const struct device_backend *backend = flat->device->backend;
    struct comm *world = flat->mesh->world;
    char name[CHECKPOINT_NAME];
    checkpoint_name(name, order->state->step);
    *part = (struct checkpoint_part){.flat = flat, .world = world, .descriptor = -1};
    part->final_path = allocate_text("%s/%s", directory, name);
    part->path = allocate_text("%s.part", part->final_path);
    *contents = (struct checkpoint_contents){
        .format = CHECKPOINT_FORMAT,
        .state = *order->state,
        .replica = flat->mesh->replica->size,
        .shard = flat->mesh->shard->size,
        .compute = type_name(flat->type),
        .text = {options_to_run_deck(order->options),
                 order->metadata != NULL ? allocate_copy(order->metadata) : NULL,
                 order->data != NULL ? allocate_copy(order->data) : NULL,
                 backend->choices_export != NULL && world->rank == 0
                     ? backend->choices_export(flat->device)
                     : NULL}};
    snprintf(contents->model, sizeof contents->model, "%.63s", order->options->model.name);
    pieces_divide(part);
    part->rank_at = vector_ranks(flat->mesh);
    part->receiver = allocate((size_t)world->size, sizeof *part->receiver);
    for (int rank = 0; rank < world->size; rank++)
        part->receiver[rank] = rank;
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

/* Queue the copy of this rank's share to memory on the model's stream. */
static void share_copy(const struct checkpoint_part *part, const struct checkpoint_block *block,
                       const struct share *share, float *memory)
{
    vector_copy_start(part->flat, block->u, block->kind, share->begin, share->count,
                      memory + share->at);
}

/* Collective over the ranks with a share of the block. Send the share to the writer, which receives
 * the shares of all other ranks. */
static void share_join(const struct checkpoint_part *part, const struct checkpoint_block *block,
                       const struct share *share, float *memory)
{
    const int64_t replicas = part->flat->mesh->replica->size, writer = part->writer[block->p];
    const int64_t shard = part->flat->buffers[block->u].shard_count;
    const int64_t begin = block->piece->begin, end = begin + block->piece->count;
    if (part->rank_at[writer] != part->world->rank) {
        comm_send(part->world, memory, (size_t)share->count * sizeof *memory,
                  part->rank_at[writer]);
        return;
    }
    for (int64_t n = begin / shard; n * shard < end; n++) {
        const int64_t position = n * replicas + writer % replicas;
        const struct share other = share_of(part, block, position);
        if (position != writer)
            comm_receive(part->world, memory + (other.begin - begin),
                         (size_t)other.count * sizeof *memory, part->rank_at[position]);
    }
}

void checkpoint_part_write(struct checkpoint_part *part, struct error *error)
{
    const int self = part->world->rank;
    OWNED float *staging = allocate(part->snapshot == NULL ? VECTOR_BLOCK : 0, sizeof *staging);
    float *taken = part->snapshot;
    for (struct checkpoint_block block = {.u = 0}; checkpoint_next(&part->contents, &block);) {
        struct checkpoint_piece *piece = block.piece;
        const struct share share = own_share(part, &block);
        const int writer = checkpoint_piece_writer(part, block.p),
                  receiver = part->receiver[writer];
        const bool is_mapped = part->mapped != NULL && (writer == self || receiver == self);
        float *memory = is_mapped       ? (float *)(void *)(part->mapped + block.offset)
                        : taken != NULL ? taken
                                        : staging;
        if (taken != NULL) {
            taken += share.stored;
        } else if (share.stored > 0) {
            vector_copy(part->flat, block.u, block.kind, share.begin, share.count,
                        memory + share.at);
            share_join(part, &block, &share, memory);
        }
        if (writer == self) {
            piece->crc[block.kind] = crc32c_update(0, memory, block.bytes);
            if (receiver != self)
                comm_send(part->world, memory, block.bytes, receiver);
        } else if (receiver == self) {
            comm_receive(part->world, memory, block.bytes, writer);
        }
        if (receiver == self && part->mapped == NULL && error->kind == ERROR_NONE)
            error_defer(durable_write(part->descriptor, part->path, memory, block.bytes,
                                      block.offset, error));
    }
}

/* The checksums of a piece are zero on all ranks except its writer, so their sum is the result. */
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
    free(part->rank_at);
    free(part->writer);
    free(part->receiver);
}

/* ---- the writer ---- */

enum stage { STAGE_NONE, STAGE_SNAPSHOT, STAGE_PIECES, STAGE_NAME };

struct checkpoint_writer {
    struct checkpoint_target target;
    const struct flat_model *flat;
    float *snapshot; /* NULL: write in the foreground */
    size_t snapshot_bytes;
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

/* Copy the shares of this rank to the snapshot, in the order of the stream; or, collective, join
 * them when the copies are complete. */
static void snapshot_walk(struct checkpoint_writer *writer, bool joins)
{
    const struct checkpoint_part *part = &writer->part;
    float *memory = writer->snapshot;
    for (struct checkpoint_block block = {.u = 0}; checkpoint_next(&part->contents, &block);) {
        const struct share share = own_share(part, &block);
        if (share.stored > 0)
            (joins ? share_join : share_copy)(part, &block, &share, memory);
        memory += share.stored;
    }
    ENSURE((size_t)(memory - writer->snapshot) * sizeof *memory <= writer->snapshot_bytes,
           "a snapshot is larger than was planned");
}

static void phase_set(const struct checkpoint_writer *writer, enum phase phase)
{
    (writer->snapshot != NULL ? status_set_background : status_set_phase)((int)phase);
}

/* Do the work of a stage: wait for the snapshot; write and sync the pieces; then, on rank 0, write
 * the tables, give the file its name and set the links. Rank 0 syncs its pieces with the tables. */
static void *stage_work(void *argument)
{
    struct checkpoint_writer *writer = argument;
    struct checkpoint_part *part = &writer->part;
    struct error *error = &writer->error;
    const bool is_first = part->world->rank == 0;
    if (writer->stage == STAGE_SNAPSHOT) {
        phase_set(writer, PHASE_CHECKPOINT_WRITE);
        writer->flat->device->backend->event_synchronize(writer->taken);
    } else if (writer->stage == STAGE_PIECES) {
        phase_set(writer, PHASE_CHECKPOINT_WRITE);
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
    if (good && writer->stage == STAGE_SNAPSHOT) {
        snapshot_walk(writer, true);
        writer->stage = STAGE_PIECES;
        stage_begin(writer);
        return true;
    }
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
    writer->snapshot_bytes = checkpoint_divide(flat).snapshot_bytes;
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
        writes = writes || part->receiver[checkpoint_piece_writer(part, p)] == world->rank;
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
        part->snapshot = writer->snapshot;
        writer->stage = writer->snapshot != NULL ? STAGE_SNAPSHOT : STAGE_PIECES;
        if (writer->snapshot != NULL) {
            snapshot_walk(writer, false);
            writer->flat->device->backend->event_record(writer->taken, writer->flat->stream);
        }
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
