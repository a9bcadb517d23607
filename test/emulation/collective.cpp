// SPDX-License-Identifier: BSD-3-Clause
/* Collectives of emulated GPUs, between processes of one machine, over shared memory named by the
 * id. Each rank writes a chunk of its elements into its area; when all ranks have written, each
 * reads what it needs from all areas. Sums are in the order of ranks, and in the opposite order
 * unless NCCL_NVLS_ENABLE=0: NCCL may sum in the switch then. A collective runs when its stream
 * executes it. As in NCCL, the first all-to-all returns when all ranks have called it.
 * VITTRAIN_EMULATION_NCCL is the version, 22809 by default. VITTRAIN_EMULATION_COLLECTIVE is a
 * comma-separated list of FAULT:RANK:NUMBER: that rank of a group fails at its collective of that
 * number, counted from 1; number 0 is the opening. FAULT is `error`: only collective_error reports
 * it; `hang`: the collective does not start; `refuse`: it is not queued; `stuck`, with number 0:
 * collective_abort does not return. */
#include "collective.h"

#include <algorithm>
#include <atomic>
#include <fcntl.h>
#include <memory>
#include <new>
#include <stdio.h>
#include <stdlib.h>
#include <string_view>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <vector>

#include "internal.h"

enum { AREA = 1 << 20 };

/* Numbers of chunks, over all calls, that a rank has written and read. */
struct marks {
    alignas(64) std::atomic<uint64_t> put;
    alignas(64) std::atomic<uint64_t> taken;
    std::atomic<uint64_t> call;          /* call_signature of the newest chunk */
    std::atomic<uint64_t> ids;           /* hash of the ids of all roots */
    std::atomic<bool> aborted, connects; /* connects: the first all-to-all was called */
};

struct collective {
    int rank, size;
    size_t bytes;
    unsigned char *memory;  /* marks and one area per rank */
    uint64_t chunks;        /* chunks of all calls so far; the same on all ranks */
    int64_t calls, pending; /* pending: queued and not complete, outside of captures */
    bool failed;
    std::vector<std::weak_ptr<struct progress>> captured; /* calls in graphs */
    struct collective *next;                              /* next communicator of the process */
};

/* Progress of a call. */
struct progress {
    struct comm_call call;
    int64_t number, done; /* done: elements of each block */
    bool put, captured;
    std::vector<int> parts; /* copy of call.parts */
};

static struct collective *collectives; /* all open communicators */

int collective_version(void)
{
    const char *version = getenv("VITTRAIN_EMULATION_NCCL");
    return version != NULL ? atoi(version) : 22809;
}

void collective_library(char *text, size_t size)
{
    snprintf(text, size, "emulated NCCL");
}

bool collective_has_roots(void)
{
    return collective_version() >= 22300;
}

const char *collective_id(void *id)
{
    static int made;
    snprintf((char *)id, COLLECTIVE_ID_BYTES, "/vittrain-emulated-%d-%d", (int)getpid(), ++made);
    shm_unlink((const char *)id); /* left by a killed process with the same number */
    return NULL;
}

static bool fault_is(const struct collective *collective, const char *fault, int64_t number)
{
    char wanted[64];
    const char *set = getenv("VITTRAIN_EMULATION_COLLECTIVE");
    const int length =
        snprintf(wanted, sizeof wanted, "%s:%d:%lld", fault, collective->rank, (long long)number);
    for (; set != NULL; set = strchr(set, ',') != NULL ? strchr(set, ',') + 1 : NULL)
        if (strncmp(set, wanted, (size_t)length) == 0 && strchr(",", set[length]) != NULL)
            return true;
    return false;
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

/* True if all ranks have written, or read, `chunks` chunks. */
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

static bool is_aborted(const struct collective *collective)
{
    for (int rank = 0; rank < collective->size; rank++)
        if (marks_of(collective, rank)->aborted.load())
            return true;
    return false;
}

/* With NCCL an abort frees the communicator. */
static void must_not_be_aborted(const struct collective *collective)
{
    if (marks_of(collective, collective->rank)->aborted.load())
        emulated_fault("a communicator is used after its abort");
}

/* Return the block of ranks that have the same root. */
static int block_of(int rank, int roots, int size)
{
    const int each = size / roots, more = size % roots;
    return rank < more * (each + 1) ? rank / (each + 1) : (rank - more) / each;
}

/* Fault unless the first rank of each block made its id, and all ranks have the same ids. */
static void ids_check(const struct collective *collective, const char *ids, int roots)
{
    const int rank = collective->rank, block = block_of(rank, roots, collective->size);
    char own[64];
    snprintf(own, sizeof own, "/vittrain-emulated-%d-", (int)getpid());
    const bool is_own = strncmp(ids + block * COLLECTIVE_ID_BYTES, own, strlen(own)) == 0;
    if (is_own != (rank == 0 || block_of(rank - 1, roots, collective->size) != block))
        emulated_fault("the id of block %d is not of its first rank", block);
    for (int other = 0; other < collective->size; other++)
        if (marks_of(collective, other)->ids.load() != marks_of(collective, rank)->ids.load())
            emulated_fault("ranks have different ids");
    if (rank == 0 && roots > 1)
        fprintf(stderr, "emulated NCCL: %d roots\n", roots);
}

/* All ranks have joined when all have written and read an empty chunk. */
const char *collective_open(const void *ids, int roots, int rank, int size,
                            struct collective **opened)
{
    const char *name = (const char *)ids;
    const std::string_view all(name, (size_t)roots * COLLECTIVE_ID_BYTES);
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
    marks_of(collective, rank)->ids.store(std::hash<std::string_view>()(all));
    marks_of(collective, rank)->put.store(1);
    while (!all_have(collective, &marks::put, 1))
        pause_shortly();
    ids_check(collective, name, roots);
    marks_of(collective, rank)->taken.store(1);
    collective->chunks = 1;
    shm_unlink(name); /* the first rank removes the name; it is not needed any more */
    collective->next = collectives;
    collectives = collective;
    *opened = collective;
    return NULL;
}

void collective_close(struct collective *collective)
{
    must_not_be_aborted(collective);
    for (const std::weak_ptr<struct progress> &call : collective->captured)
        if (!call.expired()) /* NCCL waits until the graph is destroyed */
            emulated_fault(
                "a communicator is closed before the graphs that contain its collectives");
    struct collective **link = &collectives;
    while (*link != collective)
        link = &(*link)->next;
    *link = collective->next;
    munmap(collective->memory, collective->bytes);
    delete collective;
}

void collective_abort(struct collective *const *collectives, int count)
{
    for (int i = 0; i < count; i++) {
        must_not_be_aborted(collectives[i]);
        marks_of(collectives[i], collectives[i]->rank)->aborted.store(true);
    }
    fprintf(stderr, "emulated NCCL: aborted communicators: %d\n", count);
    while (fault_is(collectives[0], "stuck", 0))
        pause_shortly();
}

const char *collective_error(struct collective *collective)
{
    must_not_be_aborted(collective);
    if (collective->failed)
        return "emulated NCCL: unhandled system error";
    return is_aborted(collective) ? "emulated NCCL: remote process has exited" : NULL;
}

void collective_use_memory(struct collective *, void *memory, size_t bytes)
{
    if (!memory_is_known(memory, bytes))
        emulated_fault("registered memory is not the device's");
}

/* ---- Chunks */

/* Return the number of blocks of `count` elements that a rank writes. */
static int blocks_put(const struct collective *collective, const struct comm_call *call)
{
    return call->action == COMM_REDUCE_SCATTER || call->action == COMM_ALL_TO_ALL ? collective->size
                                                                                  : 1;
}

/* Return the number of elements of a block. In an all-to-all the blocks of all partial values for a
 * rank are one block, and ranks may have shorter ones. */
static int64_t block_count(const struct progress *progress)
{
    int64_t count = progress->call.count;
    for (const int parts : progress->parts)
        count = std::max(count, parts * progress->call.count);
    return count;
}

static int64_t chunk_count(const struct collective *collective, const struct progress *progress)
{
    const struct comm_call *call = &progress->call;
    const int64_t room = AREA / comm_type_size(call->type) / blocks_put(collective, call);
    const int64_t rest = block_count(progress) - progress->done;
    return rest < room ? rest : room;
}

/* Return the address of the chunk in this rank's buffer. */
static unsigned char *chunk_at(const struct progress *progress, int64_t block)
{
    const struct comm_call *call = &progress->call;
    const int64_t element = block * call->count + progress->done;
    return (unsigned char *)call->buffer + element * comm_type_size(call->type);
}

/* Write the elements of all blocks that exist on this rank. */
static void parts_put(const struct collective *collective, const struct progress *progress)
{
    const struct comm_call *call = &progress->call;
    const int64_t width = comm_type_size(call->type), count = chunk_count(collective, progress);
    unsigned char *area = area_of(collective, collective->rank);
    for (int64_t i = 0; i < collective->size * count; i++, area += width) {
        const int64_t block = i / count, element = progress->done + i % count;
        const int64_t part = element / call->count;
        const int64_t at = part * call->stride + block * call->count + element % call->count;
        if (part < call->parts[collective->rank])
            memcpy(area, (unsigned char *)call->buffer + at * width, (size_t)width);
    }
}

static void parts_take(const struct collective *collective, const struct progress *progress)
{
    const struct comm_call *call = &progress->call;
    const int64_t width = comm_type_size(call->type), count = chunk_count(collective, progress);
    for (int rank = 0; rank < collective->size; rank++) {
        const int64_t rest = call->parts[rank] * call->count - progress->done;
        const int64_t at = comm_parts_before(call->parts, rank) * call->count + progress->done;
        if (rest > 0)
            memcpy((unsigned char *)call->received + at * width,
                   area_of(collective, rank) + collective->rank * count * width,
                   (size_t)(std::min(count, rest) * width));
    }
}

static void chunk_put(const struct collective *collective, const struct progress *progress)
{
    const struct comm_call *call = &progress->call;
    const size_t bytes = (size_t)(chunk_count(collective, progress) * comm_type_size(call->type));
    unsigned char *area = area_of(collective, collective->rank);
    if (call->action == COMM_ALL_TO_ALL)
        parts_put(collective, progress);
    else if (call->action == COMM_ALL_GATHER)
        memcpy(area, chunk_at(progress, collective->rank), bytes);
    else
        for (int block = 0; block < blocks_put(collective, call); block++)
            memcpy(area + (size_t)block * bytes, chunk_at(progress, block), bytes);
}

static void chunk_reduce(const struct collective *collective, const struct progress *progress)
{
    const struct comm_call *call = &progress->call;
    const int block = call->action == COMM_REDUCE_SCATTER ? collective->rank : 0;
    const int64_t count = chunk_count(collective, progress);
    const size_t bytes = (size_t)(count * comm_type_size(call->type));
    const char *in_switch = getenv("NCCL_NVLS_ENABLE");
    const bool ordered = in_switch != NULL && strcmp(in_switch, "0") == 0;
    unsigned char *into = chunk_at(progress, block);
    for (int i = 0; i < collective->size; i++) {
        const int rank = ordered ? i : collective->size - 1 - i;
        const unsigned char *from = area_of(collective, rank) + (size_t)block * bytes;
        if (i == 0)
            memcpy(into, from, bytes);
        else
            combine(call->type, call->operation, into, from, count);
    }
}

static void chunk_take(const struct collective *collective, const struct progress *progress)
{
    const struct comm_call *call = &progress->call;
    const size_t bytes = (size_t)(chunk_count(collective, progress) * comm_type_size(call->type));
    switch (call->action) {
    case COMM_ALL_REDUCE:
    case COMM_REDUCE_SCATTER:
        chunk_reduce(collective, progress);
        break;
    case COMM_ALL_GATHER:
        for (int rank = 0; rank < collective->size; rank++)
            memcpy(chunk_at(progress, rank), area_of(collective, rank), bytes);
        break;
    case COMM_BROADCAST:
        memcpy(chunk_at(progress, 0), area_of(collective, call->peer), bytes);
        break;
    case COMM_ALL_TO_ALL:
        parts_take(collective, progress);
        break;
    case COMM_SEND:
    case COMM_RECEIVE:
        break;
    }
}

/* Return a hash of everything that must be the same on all ranks of a call. */
static uint64_t call_signature(const struct progress *progress)
{
    const struct comm_call *call = &progress->call;
    uint64_t parts = 0;
    for (const int number : progress->parts)
        parts = 31 * parts + (uint64_t)number;
    return (parts << 32 ^ (uint64_t)call->count << 24) | (uint64_t)call->peer << 12 |
           (uint64_t)call->action << 9 | (uint64_t)call->type << 5 |
           (uint64_t)call->operation << 1 | progress->captured;
}

static void call_compare(const struct collective *collective, uint64_t own)
{
    for (int rank = 0; rank < collective->size; rank++) {
        const uint64_t other = marks_of(collective, rank)->call.load();
        if ((other ^ own) == 1)
            emulated_fault("a collective is captured in a graph on some ranks only");
        if (other != own)
            emulated_fault("ranks call different collectives");
    }
}

/* Advance the call as far as the other ranks allow. Return true if it is complete; in a graph it
 * can then run again. */
static bool call_turn(struct collective *collective, struct progress *progress)
{
    struct marks *own = marks_of(collective, collective->rank);
    if (fault_is(collective, "hang", progress->number) || is_aborted(collective))
        return false;
    collective->failed = collective->failed || fault_is(collective, "error", progress->number);
    while (!collective->failed && progress->done < block_count(progress)) {
        if (!progress->put) {
            if (!all_have(collective, &marks::taken, collective->chunks))
                return false;
            chunk_put(collective, progress);
            own->call.store(call_signature(progress));
            own->put.store(collective->chunks + 1, std::memory_order_release);
            progress->put = true;
        }
        if (!all_have(collective, &marks::put, collective->chunks + 1))
            return false;
        call_compare(collective, call_signature(progress));
        chunk_take(collective, progress);
        own->taken.store(++collective->chunks, std::memory_order_release);
        progress->done += chunk_count(collective, progress);
        progress->put = false;
    }
    progress->done = 0;
    collective->pending -= !collective->failed && !progress->captured;
    return !collective->failed;
}

/* Kernels of two communicators may wait for each other on a GPU. */
static void order_check(const struct collective *collective)
{
    const char *ordered = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    for (const struct collective *other = collectives; other != NULL; other = other->next)
        if (other != collective && other->pending > 0 &&
            (ordered == NULL || strcmp(ordered, "1") != 0))
            emulated_fault("collectives of two communicators overlap without "
                           "NCCL_LAUNCH_ORDER_IMPLICIT=1");
}

/* Fault unless the call's buffers are in device memory. */
static void call_check_memory(const struct collective *collective, const struct comm_call *call)
{
    const bool whole = call->action == COMM_ALL_REDUCE || call->action == COMM_BROADCAST;
    const int64_t width = comm_type_size(call->type);
    int64_t elements = call->count * (whole ? 1 : collective->size), received = 0;
    if (call->action == COMM_ALL_TO_ALL) {
        const int parts = call->parts[collective->rank];
        elements = parts > 0 ? elements + (parts - 1) * call->stride : 0;
        received = comm_parts_before(call->parts, collective->size) * call->count;
    }
    if ((elements > 0 && !memory_is_known(call->buffer, (size_t)(elements * width))) ||
        (received > 0 && !memory_is_known(call->received, (size_t)(received * width))))
        emulated_fault("a collective of %lld elements outside of device memory",
                       (long long)elements);
}

/* Wait until all ranks have called their first all-to-all. Meanwhile the stream runs, unless it is
 * being captured. */
static void call_connect(const struct collective *collective, cudaStream_t stream, bool captured)
{
    marks_of(collective, collective->rank)->connects.store(true);
    for (int rank = 0; rank < collective->size; rank++)
        while (!marks_of(collective, rank)->connects.load()) {
            if (!captured)
                (void)cudaStreamQuery(stream);
            pause_shortly();
        }
}

const char *collective_run(struct collective *collective, const struct comm_call *call,
                           cudaStream_t stream)
{
    call_check_memory(collective, call);
    must_not_be_aborted(collective);
    std::shared_ptr<struct progress> progress(new struct progress());
    progress->call = *call;
    if (call->action == COMM_ALL_TO_ALL)
        progress->parts.assign(call->parts, call->parts + collective->size);
    progress->call.parts = progress->parts.data();
    progress->number = ++collective->calls;
    enum cudaStreamCaptureStatus capture;
    cudaStreamIsCapturing(stream, &capture);
    progress->captured = capture == cudaStreamCaptureStatusActive;
    if (fault_is(collective, "refuse", progress->number))
        return "emulated NCCL: unhandled system error";
    order_check(collective);
    if (call->action == COMM_ALL_TO_ALL)
        call_connect(collective, stream, progress->captured);
    if (progress->captured)
        collective->captured.push_back(progress);
    else
        collective->pending++;
    emulated_enqueue_turns(stream, "collective",
                           [=]() { return call_turn(collective, progress.get()); });
    return NULL;
}
