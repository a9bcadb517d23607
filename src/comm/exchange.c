// SPDX-License-Identifier: BSD-3-Clause
/* Exchanges: small all-reduces within a node, such as the statistics of synchronised batch norm,
 * with low latency. The thread that starts an exchange copies the buffer to this rank's slot of the
 * window and sets the counter `posted`. The thread that waits for it reads the slots of all ranks
 * and computes the result. Neither the communication thread nor a message is involved.
 *
 * Every rank adds in the order of the tree of messages (messages.c), so the bits are the same.
 * Exchanges finish in the order in which they were started. A slot is used again when all ranks
 * have read it, so at most EXCHANGE_SLOTS exchanges are in progress; starting another one waits. */
#include "comm/internal.h"

#include <string.h>

#include "base/clock.h"
#include "base/status.h"

/* The slot of a rank for exchange `number`. */
static unsigned char *slot_of(const struct window *window, int rank, uint64_t number)
{
    return window_area(window, rank) + WINDOW_SLOTS * (WINDOW_CHUNK + window->part_bytes) +
           number % EXCHANGE_SLOTS * SMALL_BYTES;
}

/* Wait until all ranks have posted, or read, exchange `number`: poll for 20 us, then with sleeps in
 * between. After 5 ms the communication thread reports that this thread waits. */
static void exchange_await(const struct comm_request *request, enum window_step step,
                           uint64_t number)
{
    const double spin = 20e-6, shown_after = 5e-3;
    const struct window *window = request->group->window;
    struct idle idle = {0};
    if (window_reached(window, step, number))
        return;
    struct comm_request waiting = *request;
    bool shown = false;
    double now = waiting.began = clock_now();
    status_set_waiting(true);
    while (!window_reached(window, step, number)) {
        if (now > waiting.began + spin)
            idle_sleep(&idle);
        now = clock_now();
        if (!shown && now > waiting.began + shown_after) {
            heartbeat_show(&waiting);
            shown = true;
        }
    }
    if (shown)
        heartbeat_show(NULL);
    status_set_waiting(false);
    progress_count(clock_now() - waiting.began);
}

/* Reduce the slots of `span` ranks to `into`: the lower ranks, whose number is a power of two, then
 * the upper ranks. */
static void slots_combine(const struct comm_request *request, int first, int span,
                          unsigned char *into)
{
    const struct window *window = request->group->window;
    int lower = 1;
    if (span == 1) {
        memcpy(into, slot_of(window, first, request->number), (size_t)request_bytes(request));
        return;
    }
    while (2 * lower < span)
        lower *= 2;
    _Alignas(64) unsigned char upper[SMALL_BYTES];
    slots_combine(request, first, lower, into);
    slots_combine(request, first + lower, span - lower, upper);
    combine(request->call.type, request->call.operation, into, upper, request->call.count);
}

/* Finish the oldest exchange in progress. */
static void exchange_finish(struct window *window)
{
    struct comm_request *request = window->exchange[(window->finished + 1) % EXCHANGE_SLOTS];
    exchange_await(request, POSTED, request->number);
    slots_combine(request, 0, window->size, request->call.buffer);
    request->done = true;
    window_count(window, READ, ++window->finished);
}

bool exchange_fits(const struct comm_request *request)
{
    return request->call.action == COMM_ALL_REDUCE && request->group->window != NULL &&
           request_bytes(request) <= SMALL_BYTES;
}

struct comm_request *exchange_start(const struct comm_request *wanted)
{
    struct group *group = wanted->group;
    struct window *window = group->window;
    struct comm_request *request = progress_request(wanted);
    request->number = window->started + 1;
    if (window->started - window->finished == EXCHANGE_SLOTS)
        exchange_finish(window);
    if (request->number > EXCHANGE_SLOTS)
        exchange_await(request, READ, request->number - EXCHANGE_SLOTS);
    progress_wait_event(request);
    memcpy(slot_of(window, window->rank, request->number), request->call.buffer,
           (size_t)request_bytes(request));
    window->exchange[request->number % EXCHANGE_SLOTS] = request;
    group->posted = request->sequence;
    window_count(window, POSTED, ++window->started);
    return request;
}

void exchange_wait(struct comm_request *request)
{
    while (!request->done)
        exchange_finish(request->group->window);
    progress_release(request);
}
