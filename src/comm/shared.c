// SPDX-License-Identifier: BSD-3-Clause
/* Collectives within a node through shared memory, without messages. A collective is divided into
 * chunks: chunk c is the c-th part of each rank's block. For each chunk every rank
 *
 *   copies its parts of the others' blocks into its slot of the window    (reductions)
 *   reduces its own block's part over all slots and publishes the result  (reductions, gathers)
 *   copies the others' results to its buffer                              (gathers)
 *
 * and increments a counter after each step. The other ranks poll the counters. There are several
 * slots, so ranks may be some chunks apart. Counters continue from one collective to the next and
 * are never reset.
 *
 * An all-to-all copies the others' parts out of the slots instead of reducing them.
 *
 * If the buffers of all ranks are in memory of share_memory, no values are copied to slots. After
 * all ranks have started the collective, each rank reduces its own block, with intermediate sums in
 * the others' buffers, and writes the result to these. The counters treat it as one chunk. A rank
 * returns when no other rank reads or writes its buffer any more.
 *
 * Each sum is computed on one rank in the order of the ring algorithm, which gives the same bits.
 */
#include "comm/internal.h"

#include <string.h>

#include "base/base.h"

struct shared {
    const struct stage *stage;
    struct window *window;
    int64_t part;        /* elements of a block in a chunk */
    ptrdiff_t stride;    /* bytes between the buffers of consecutive ranks; 0: use slots */
    uint64_t begin, end; /* this collective's chunks, counted since the window opened */
    uint64_t done[CHUNK_GATHERED + 1]; /* this rank's counters */
};

/* The slot into which a rank copies: one part per block, window->part_bytes apart. */
static unsigned char *slot_of(const struct window *window, int rank, uint64_t chunk)
{
    return window_area(window, rank) + chunk % WINDOW_SLOTS * WINDOW_CHUNK;
}

/* The slot with the rank's own part: the result of a reduction, the input of a gather. */
static unsigned char *result_of(const struct window *window, int rank, uint64_t chunk)
{
    return slot_of(window, rank, 0) + WINDOW_SLOTS * WINDOW_CHUNK +
           chunk % WINDOW_SLOTS * window->part_bytes;
}

/* True if the slot of this chunk is free: the chunk WINDOW_SLOTS before it has been read. */
static bool slot_is_free(const struct window *window, enum window_step readers, uint64_t chunk)
{
    return chunk < WINDOW_SLOTS || window_reached(window, readers, chunk + 1 - WINDOW_SLOTS);
}

static void chunk_count(struct shared *shared, enum window_step step)
{
    window_count(shared->window, step, ++shared->done[step]);
}

static int64_t shared_part(const struct shared *shared, int block, uint64_t chunk,
                           unsigned char **part)
{
    return stage_part(shared->stage, block, (int64_t)(chunk - shared->begin) * shared->part,
                      shared->part, part);
}

static bool copy_in(struct shared *shared)
{
    struct window *window = shared->window;
    const uint64_t chunk = shared->done[CHUNK_COPIED];
    int64_t width = comm_type_size(shared->stage->request->call.type);
    if (chunk == shared->end || !slot_is_free(window, CHUNK_REDUCED, chunk))
        return false;
    unsigned char *slot = slot_of(window, window->rank, chunk), *part;
    for (int block = 0; block < window->size; block++) {
        int64_t count = shared_part(shared, block, chunk, &part);
        if (block != window->rank)
            memcpy(slot + window->part_bytes * (size_t)block, part, (size_t)(count * width));
    }
    chunk_count(shared, CHUNK_COPIED);
    return true;
}

/* In the order of the ring: the next rank's values first, this rank's last. */
static void part_reduce(const struct shared *shared, unsigned char *own, int64_t count)
{
    const struct window *window = shared->window;
    const struct comm_request *request = shared->stage->request;
    const unsigned char *sum = NULL;
    for (int i = 1; i < window->size; i++) {
        const int rank = (window->rank + i) % window->size;
        unsigned char *other = shared->stride != 0
                                   ? own + (rank - window->rank) * shared->stride
                                   : slot_of(window, rank, shared->done[CHUNK_REDUCED]) +
                                         window->part_bytes * (size_t)window->rank;
        if (sum != NULL)
            combine(request->call.type, request->call.operation, other, sum, count);
        sum = other;
    }
    combine(request->call.type, request->call.operation, own, sum, count);
}

static bool chunk_reduce(struct shared *shared)
{
    struct window *window = shared->window;
    const struct stage *stage = shared->stage;
    const uint64_t chunk = shared->done[CHUNK_REDUCED];
    if (chunk == shared->end ||
        (stage->reduces && !window_reached(window, CHUNK_COPIED, chunk + 1)) ||
        (stage->gathers && !slot_is_free(window, CHUNK_GATHERED, chunk)))
        return false;
    unsigned char *own;
    int64_t count = shared_part(shared, window->rank, chunk, &own);
    if (stage->reduces)
        part_reduce(shared, own, count);
    if (stage->gathers)
        memcpy(result_of(window, window->rank, chunk), own,
               (size_t)(count * comm_type_size(stage->request->call.type)));
    chunk_count(shared, CHUNK_REDUCED);
    return true;
}

static bool copy_out(struct shared *shared)
{
    struct window *window = shared->window;
    const uint64_t chunk = shared->done[CHUNK_GATHERED];
    int64_t width = comm_type_size(shared->stage->request->call.type);
    if (chunk == shared->end || !window_reached(window, CHUNK_REDUCED, chunk + 1))
        return false;
    for (int i = 1; i < window->size; i++) {
        int rank = (window->rank + i) % window->size;
        unsigned char *part;
        int64_t count = shared_part(shared, rank, chunk, &part);
        memcpy(part, result_of(window, rank, chunk), (size_t)(count * width));
    }
    chunk_count(shared, CHUNK_GATHERED);
    return true;
}

/* Counters of states that the collective does not have are set to the end at once. */
static void shared_begin(struct shared *shared, int64_t chunks, bool copies, bool gathers)
{
    const bool has[] = {copies, true, gathers};
    shared->begin = shared->window->chunks;
    shared->end = shared->window->chunks += (uint64_t)chunks;
    for (int step = CHUNK_COPIED; step <= CHUNK_GATHERED; step++) {
        shared->done[step] = has[step] ? shared->begin : shared->end;
        window_count(shared->window, (enum window_step)step, shared->done[step]);
    }
}

/* True if this rank has done all steps of the collective. */
static bool shared_is_over(const struct shared *shared)
{
    return shared->done[CHUNK_COPIED] == shared->end &&
           shared->done[CHUNK_REDUCED] == shared->end &&
           shared->done[CHUNK_GATHERED] == shared->end;
}

/* Set the size of a part and return the number of chunks. Even small blocks are divided into a few
 * chunks, so that the steps overlap. */
static int64_t shared_divide(struct shared *shared, int64_t block, enum comm_type type)
{
    int64_t width = comm_type_size(type);
    int64_t bytes = block * width / 4, most = (int64_t)shared->window->part_bytes;
    bytes = bytes < SMALL_BYTES ? SMALL_BYTES : bytes;
    shared->part = (bytes > most ? most : bytes) / width;
    return round_up_division(block, shared->part);
}

/* True if the buffer of the stage is in this rank's area of the group's shared memory. */
static bool stage_in_area(const struct stage *stage)
{
    const struct group *group = stage->group;
    const uintptr_t buffer = (uintptr_t)stage->buffer;
    const uintptr_t area = (uintptr_t)group->node_memory + group->common_bytes +
                           group->area_bytes * (uintptr_t)group->comm.rank;
    return group->node_memory != NULL && buffer >= area && buffer < area + group->area_bytes;
}

/* Wait until all ranks have done that step of the only chunk. */
static void shared_await(const struct shared *shared, enum window_step step)
{
    struct idle idle = {.request = shared->stage->request};
    while (!window_reached(shared->window, step, shared->end))
        progress_idle(&idle, false);
}

/* Bytes of a block that are reduced at a time: those of all ranks of a node fit into a cache. */
enum { PIECE_BYTES = 64 << 10 };

static void shared_run_in_place(const struct stage *stage)
{
    struct shared shared = {.stage = stage,
                            .window = stage->group->window,
                            .stride = (ptrdiff_t)stage->group->area_bytes};
    const int own = shared.window->rank, ranks = stage->gathers ? shared.window->size : 0;
    const int64_t width = comm_type_size(stage->request->call.type), piece = PIECE_BYTES / width;
    unsigned char *block;
    shared_begin(&shared, 1, true, false);
    chunk_count(&shared, CHUNK_COPIED);
    shared_await(&shared, CHUNK_COPIED);
    for (int64_t first = 0; first < stage->block; first += piece) {
        int64_t count = stage_part(stage, own, first, piece, &block);
        if (stage->reduces)
            part_reduce(&shared, block, count);
        for (int rank = 0; rank < ranks; rank++)
            if (rank != own)
                memcpy(block + (rank - own) * shared.stride, block, (size_t)(count * width));
    }
    chunk_count(&shared, CHUNK_REDUCED);
    shared_await(&shared, CHUNK_REDUCED);
}

void shared_run(const struct stage *stage)
{
    struct shared shared = {.stage = stage, .window = stage->group->window};
    struct idle idle = {.request = stage->request};
    if (stage_in_area(stage)) {
        shared_run_in_place(stage);
        return;
    }
    shared_begin(&shared, shared_divide(&shared, stage->block, stage->request->call.type),
                 stage->reduces, stage->gathers);
    while (!shared_is_over(&shared)) {
        bool moved = copy_out(&shared);
        moved = chunk_reduce(&shared) || moved;
        moved = copy_in(&shared) || moved;
        progress_idle(&idle, moved);
    }
}

static bool parts_copy_out(struct shared *shared, int part)
{
    const struct comm_request *request = shared->stage->request;
    struct window *window = shared->window;
    const int64_t width = comm_type_size(request->call.type);
    const uint64_t chunk = shared->done[CHUNK_REDUCED];
    const int64_t first = (int64_t)(chunk - shared->begin) * shared->part;
    const int64_t left = request->call.count - first;
    const size_t bytes = (size_t)((left < shared->part ? left : shared->part) * width);
    if (chunk == shared->end || !window_reached(window, CHUNK_COPIED, chunk + 1))
        return false;
    for (int i = 0; i < window->size; i++) {
        const int rank = (window->rank + i) % window->size;
        const unsigned char *from =
            i == 0 ? part_sent(request, rank, part) + first * width
                   : slot_of(window, rank, chunk) + window->part_bytes * (size_t)window->rank;
        if (part < request->call.parts[rank])
            memcpy(part_received(request, comm_parts_before(request->call.parts, rank) + part) +
                       first * width,
                   from, bytes);
    }
    chunk_count(shared, CHUNK_REDUCED);
    return true;
}

/* Like a reduction, one partial value after the other, but the values of the other ranks are copied
 * and not added. A chunk that was read counts as reduced. */
void shared_all_to_all(const struct comm_request *request)
{
    const struct comm_call *call = &request->call;
    struct window *window = request->group->window;
    struct idle idle = {.request = request};
    int most = 0;
    for (int rank = 0; rank < window->size; rank++)
        most = call->parts[rank] > most ? call->parts[rank] : most;
    for (int part = 0; part < most; part++) {
        const struct stage stage = {
            .request = request,
            .group = request->group,
            .buffer = part_sent(request, 0, part),
            .block = call->count,
            .stride = call->count,
            .total = part < call->parts[window->rank] ? call->count * window->size : 0};
        struct shared shared = {.stage = &stage, .window = window};
        shared_begin(&shared, shared_divide(&shared, call->count, call->type), true, false);
        while (!shared_is_over(&shared)) {
            bool moved = parts_copy_out(&shared, part);
            moved = copy_in(&shared) || moved;
            progress_idle(&idle, moved);
        }
    }
}
