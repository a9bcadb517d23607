// SPDX-License-Identifier: BSD-3-Clause
/* Memory that the ranks of a group within a node share: a POSIX shared memory object, unlinked as
 * soon as all ranks have opened it, so that a job that dies leaves no file. Then every rank
 * allocates its part, so that a too small /dev/shm (common in containers) is an error here and not
 * a SIGBUS later. MPI_Win_allocate_shared does not work for this: in Open MPI the other ranks wait
 * forever if the first rank finds no room. */
#include "comm/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { NAME_SIZE = 64, PAGE = 4096 };

static size_t round_up(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static void segment_failed(struct error *error, const char *what, size_t bytes)
{
    error_set(error, ERROR_MEMORY, "shared memory of %zu KiB: %s: %s", bytes >> 10, what,
              strerror(errno));
}

void *segment_open(struct comm *comm, int64_t identity, size_t bytes,
                   const struct segment_part parts[2], struct error *error)
{
    struct error own = {0};
    char name[NAME_SIZE] = "";
    void *memory = MAP_FAILED;
    int file, failed = 0;
    if (comm->rank == 0) {
        snprintf(name, NAME_SIZE, "/vittrain-%ld-%llx", (long)getpid(),
                 (unsigned long long)identity);
        file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
        if (file < 0 || ftruncate(file, (off_t)bytes) != 0)
            segment_failed(&own, file < 0 ? "shm_open" : "ftruncate", bytes);
        comm_broadcast(comm, name, sizeof name, COMM_BYTE, 0);
    } else {
        comm_broadcast(comm, name, sizeof name, COMM_BYTE, 0);
        file = shm_open(name, O_RDWR, 0);
        if (file < 0)
            segment_failed(&own, "shm_open", bytes);
    }
    bool good = comm_agree(comm, &own);
    if (comm->rank == 0 && file >= 0)
        shm_unlink(name);
    if (good) {
        for (const struct segment_part *part = parts; part < parts + 2 && failed == 0; part++)
            do
                failed = part->begin < part->end ? posix_fallocate(file, (off_t)part->begin,
                                                                   (off_t)(part->end - part->begin))
                                                 : 0;
            while (failed == EINTR);
        errno = failed;
        if (failed != 0)
            segment_failed(&own, "no room in /dev/shm", bytes);
        else
            memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (failed == 0 && memory == MAP_FAILED)
            segment_failed(&own, "mmap", bytes);
        good = comm_agree(comm, &own);
    }
    if (file >= 0)
        close(file);
    if (good)
        return memory;
    if (memory != MAP_FAILED)
        munmap(memory, bytes);
    error_set(error, ERROR_MEMORY, "%s", own.text);
    return NULL;
}

static struct window window_plan(int size, int rank)
{
    struct window window = {.size = size, .rank = rank};
    window.part_bytes = WINDOW_CHUNK / (size_t)size / 64 * 64;
    window.counters_bytes = round_up((size_t)size * WINDOW_STEPS * sizeof(struct window_counter));
    window.area_bytes =
        round_up(WINDOW_SLOTS * (WINDOW_CHUNK + window.part_bytes) + EXCHANGE_SLOTS * SMALL_BYTES);
    window.bytes = window.counters_bytes + window.area_bytes * (size_t)size;
    return window;
}

size_t comm_shared_bytes(int ranks)
{
    return window_plan(ranks, 0).bytes;
}

struct window *window_open(struct comm *comm, int64_t identity, struct error *error)
{
    struct window *window = allocate(1, sizeof *window);
    *window = window_plan(comm->size, comm->rank);
    const size_t area = window->counters_bytes + window->area_bytes * (size_t)window->rank;
    const struct segment_part parts[] = {{0, comm->rank == 0 ? window->counters_bytes : 0},
                                         {area, area + window->area_bytes}};
    window->memory = segment_open(comm, identity, window->bytes, parts, error);
    if (window->memory != NULL)
        return window;
    free(window);
    return NULL;
}

static _Atomic uint64_t *counter_of(const struct window *window, int rank, enum window_step step)
{
    return &((struct window_counter *)window->memory)[rank * WINDOW_STEPS + (int)step].value;
}

void window_count(const struct window *window, enum window_step step, uint64_t number)
{
    atomic_store_explicit(counter_of(window, window->rank, step), number, memory_order_release);
}

bool window_reached(const struct window *window, enum window_step step, uint64_t number)
{
    for (int rank = 0; rank < window->size; rank++)
        if (atomic_load_explicit(counter_of(window, rank, step), memory_order_acquire) < number)
            return false;
    return true;
}

void window_close(struct window *window)
{
    if (window != NULL)
        munmap(window->memory, window->bytes);
    free(window);
}
