/* Collectives of emulated GPUs, between processes of one machine, over shared memory that the id
 * names: each rank puts a chunk of its elements into its part of it, and when all have, takes what
 * it needs of all of them; sums go by rank. It happens in the stream's turn.
 * VITTRAIN_EMULATION_COLLECTIVE=FAULT:RANK:NUMBER makes that rank of a group fail at its collective
 * of that number, from 1: FAULT is `error`, which nobody hears of but who asks (collective_error);
 * `hang`, which does not begin; `refuse`, which is not queued; number 0 is the opening. */
#include "../collective.h"

#include <atomic>
#include <fcntl.h>
#include <memory>
#include <new>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

enum { AREA = 1 << 20 };

/* How many chunks of all calls a rank has put there, and taken. */
struct marks {
    alignas(64) std::atomic<uint64_t> put;
    alignas(64) std::atomic<uint64_t> taken;
};

struct collective {
    int rank, size;
    size_t bytes;
    unsigned char *memory; /* marks and an area a rank */
    uint64_t chunks;       /* of all calls so far; the same on all ranks */
    int64_t calls;
    bool failed;
};

/* Where a call has come to. */
struct progress {
    struct collective_call call;
    int64_t number, done; /* elements a rank */
    bool put;
};

void collective_library(char *text, size_t size)
{
    snprintf(text, size, "emulated NCCL");
}

const char *collective_id(void *id)
{
    static int made;
    snprintf((char *)id, COLLECTIVE_ID_BYTES, "/vittrain-emulated-%d-%d", (int)getpid(), ++made);
    shm_unlink((const char *)id); /* of a process of the same number that was killed in its opening */
    return NULL;
}

static bool fault_is(const struct collective *collective, const char *fault, int64_t number)
{
    char wanted[64];
    const char *set = getenv("VITTRAIN_EMULATION_COLLECTIVE");
    snprintf(wanted, sizeof wanted, "%s:%d:%lld", fault, collective->rank, (long long)number);
    return set != NULL && strcmp(set, wanted) == 0;
}

static struct marks *marks_of(const struct collective *collective, int rank)
{
    return (struct marks *)(void *)collective->memory + rank;
}

static unsigned char *area_of(const struct collective *collective, int rank)
{
    return collective->memory + (size_t)collective->size * sizeof(struct marks) +
           (size_t)rank * AREA;
}

/* Have all ranks put, taken so many chunks? */
static bool all_have(const struct collective *collective, std::atomic<uint64_t> marks::*mark,
                     uint64_t chunks)
{
    for (int rank = 0; rank < collective->size; rank++)
        if ((marks_of(collective, rank)->*mark).load(std::memory_order_acquire) < chunks)
            return false;
    return true;
}

static void pause_shortly(void)
{
    const struct timespec pause = {0, 100 * 1000};
    nanosleep(&pause, NULL);
}

/* All have come when all have put and taken a chunk of nothing. */
const char *collective_open(const void *id, int rank, int size, struct collective **opened)
{
    const char *name = (const char *)id;
    struct collective *collective = new struct collective();
    collective->rank = rank;
    collective->size = size;
    collective->bytes = (size_t)size * (sizeof(struct marks) + AREA);
    while (fault_is(collective, "hang", 0))
        pause_shortly();
    int file = shm_open(name, O_RDWR | O_CREAT, 0600);
    if (file < 0 || fault_is(collective, "refuse", 0)) {
        delete collective;
        return "no shared memory";
    }
    ENSURE(ftruncate(file, (off_t)collective->bytes) == 0, "no shared memory for collectives");
    void *memory = mmap(NULL, collective->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ENSURE(memory != MAP_FAILED, "no shared memory for collectives");
    close(file);
    collective->memory = (unsigned char *)memory;
    marks_of(collective, rank)->put.store(1);
    while (!all_have(collective, &marks::put, 1))
        pause_shortly();
    marks_of(collective, rank)->taken.store(1);
    collective->chunks = 1;
    shm_unlink(name); /* the first one does; it is not needed any more */
    *opened = collective;
    return NULL;
}

void collective_close(struct collective *collective)
{
    munmap(collective->memory, collective->bytes);
    delete collective;
}

const char *collective_error(struct collective *collective)
{
    return collective->failed ? "emulated NCCL: remote process has exited" : NULL;
}

void collective_use_memory(struct collective *, void *memory, size_t bytes)
{
    if (!memory_is_known(memory, bytes))
        emulated_fault("collectives shall use memory that is not the device's");
}

/* ---- Chunks. */

/* Blocks of `count` elements that a rank puts. */
static int blocks_put(const struct collective *collective, const struct collective_call *call)
{
    return call->kind == CALL_REDUCE_SCATTER ? collective->size : 1;
}

static int64_t chunk_count(const struct collective *collective, const struct progress *progress)
{
    const struct collective_call *call = &progress->call;
    const int64_t room = AREA / comm_type_size(call->type) / blocks_put(collective, call);
    const int64_t rest = call->count - progress->done;
    return rest < room ? rest : room;
}

/* Where the chunk lies in this rank's buffer. */
static unsigned char *chunk_at(const struct progress *progress, int64_t block)
{
    const struct collective_call *call = &progress->call;
    const int64_t element = block * call->count + progress->done;
    return (unsigned char *)call->buffer + element * comm_type_size(call->type);
}

static void chunk_put(const struct collective *collective, const struct progress *progress)
{
    const struct collective_call *call = &progress->call;
    const size_t bytes = (size_t)(chunk_count(collective, progress) * comm_type_size(call->type));
    unsigned char *area = area_of(collective, collective->rank);
    if (call->kind == CALL_ALL_GATHER)
        memcpy(area, chunk_at(progress, collective->rank), bytes);
    else
        for (int block = 0; block < blocks_put(collective, call); block++)
            memcpy(area + (size_t)block * bytes, chunk_at(progress, block), bytes);
}

static void chunk_reduce(const struct collective *collective, const struct progress *progress)
{
    const struct collective_call *call = &progress->call;
    const int block = call->kind == CALL_REDUCE_SCATTER ? collective->rank : 0;
    const int64_t count = chunk_count(collective, progress);
    const size_t bytes = (size_t)(count * comm_type_size(call->type));
    unsigned char *into = chunk_at(progress, block);
    memcpy(into, area_of(collective, 0) + (size_t)block * bytes, bytes);
    for (int rank = 1; rank < collective->size; rank++)
        combine(call->type, call->operation, into,
                area_of(collective, rank) + (size_t)block * bytes, count);
}

static void chunk_take(const struct collective *collective, const struct progress *progress)
{
    const struct collective_call *call = &progress->call;
    const size_t bytes = (size_t)(chunk_count(collective, progress) * comm_type_size(call->type));
    switch (call->kind) {
    case CALL_ALL_REDUCE:
    case CALL_REDUCE_SCATTER:
        chunk_reduce(collective, progress);
        break;
    case CALL_ALL_GATHER:
        for (int rank = 0; rank < collective->size; rank++)
            memcpy(chunk_at(progress, rank), area_of(collective, rank), bytes);
        break;
    case CALL_BROADCAST:
        memcpy(chunk_at(progress, 0), area_of(collective, call->root), bytes);
        break;
    }
}

/* As far as the other ranks let it: is the call over? Then it can run again, in a graph. */
static bool call_turn(struct collective *collective, struct progress *progress)
{
    struct marks *own = marks_of(collective, collective->rank);
    if (fault_is(collective, "hang", progress->number))
        return false;
    collective->failed = collective->failed || fault_is(collective, "error", progress->number);
    while (!collective->failed && progress->done < progress->call.count) {
        if (!progress->put) {
            if (!all_have(collective, &marks::taken, collective->chunks))
                return false;
            chunk_put(collective, progress);
            own->put.store(collective->chunks + 1, std::memory_order_release);
            progress->put = true;
        }
        if (!all_have(collective, &marks::put, collective->chunks + 1))
            return false;
        chunk_take(collective, progress);
        own->taken.store(++collective->chunks, std::memory_order_release);
        progress->done += chunk_count(collective, progress);
        progress->put = false;
    }
    progress->done = 0;
    return !collective->failed;
}

const char *collective_run(struct collective *collective, const struct collective_call *call,
                           cudaStream_t stream)
{
    const bool whole = call->kind == CALL_ALL_REDUCE || call->kind == CALL_BROADCAST;
    const int64_t elements = call->count * (whole ? 1 : collective->size);
    if (!memory_is_known(call->buffer, (size_t)(elements * comm_type_size(call->type))))
        emulated_fault("a collective of %lld elements outside of device memory",
                       (long long)elements);
    std::shared_ptr<struct progress> progress(new struct progress());
    progress->call = *call;
    progress->number = ++collective->calls;
    if (fault_is(collective, "refuse", progress->number))
        return "emulated NCCL: unhandled system error";
    emulated_enqueue_turns(stream, "collective",
                           [=]() { return call_turn(collective, progress.get()); });
    return NULL;
}
