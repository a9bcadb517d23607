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

#include "core/clock.h"
#include "core/status.h"

static size_t request_bytes(const struct comm_request *request)
{
    return (size_t)(request->count * comm_type_size(request->type));
}

/* The slot of a rank for exchange `number`. */
static unsigned char *slot_of(const struct window *window, int rank, uint64_t number)
{
    return window_area(window, rank) + WINDOW_SLOTS * (WINDOW_CHUNK + window->part_bytes) +
           number % EXCHANGE_SLOTS * SMALL_BYTES;
}

/* True if the exchange has reached the state on all ranks. */
static bool all_reached(const struct window *window, enum exchange_state state, uint64_t number)
{
    for (int rank = 0; rank < window->size; rank++) {
        const struct window_counters *counters = window_counters(window, rank);
        if (counter_read(state == EXCHANGE_READ ? &counters->read : &counters->posted) < number)
            return false;
    }
    return true;
}

void exchange_poll(const struct comm_request *request)
{
    struct idle idle = {.request = request};
    while (!all_reached(request->group->window, request->awaits, request->number))
        progress_idle(&idle, false);
}

/* Wait until the exchange has reached the state on all ranks: poll for 20 us, then with sleeps in
 * between. After 5 ms the communication thread polls instead, which also answers queries and ends
 * the job at the timeout. */
static void exchange_await(const struct comm_request *request, enum exchange_state state,
                           uint64_t number)
{
    const double spin = 20e-6, longest = 5e-3;
    const struct window *window = request->group->window;
    struct idle idle = {0};
    if (all_reached(window, state, number))
        return;
    double begin = clock_now(), now = begin;
    bool reached;
    status_set_waiting(true);
    while (!(reached = all_reached(window, state, number)) && now < begin + longest) {
        if (now > begin + spin)
            idle_sleep(&idle);
        now = clock_now();
    }
    status_set_waiting(false);
    progress_count(clock_now() - begin);
    if (reached)
        return;
    struct comm_request rest = *request;
    rest.awaits = state;
    rest.number = number;
    progress_wait(progress_start(&rest));
}

/* Reduce the slots of `span` ranks to `into`: the lower ranks, whose number is a power of two, then
 * the upper ranks. */
static void slots_combine(const struct comm_request *request, int first, int span,
                          unsigned char *into)
{
    const struct window *window = request->group->window;
    int lower = 1;
    if (span == 1) {
        memcpy(into, slot_of(window, first, request->number), request_bytes(request));
        return;
    }
    while (2 * lower < span)
        lower *= 2;
    _Alignas(64) unsigned char upper[SMALL_BYTES];
    slots_combine(request, first, lower, into);
    slots_combine(request, first + lower, span - lower, upper);
    combine(request->type, request->operation, into, upper, request->count);
}

/* Finish the oldest exchange in progress. */
static void exchange_finish(struct window *window)
{
    struct comm_request *request = window->exchange[(window->finished + 1) % EXCHANGE_SLOTS];
    exchange_await(request, EXCHANGE_POSTED, request->number);
    slots_combine(request, 0, window->size, request->buffer);
    request->done = true;
    counter_set(&window_counters(window, window->rank)->read, ++window->finished);
}

bool exchange_fits(const struct comm_request *request)
{
    return request->action == ACTION_ALL_REDUCE && request->group->window != NULL &&
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
        exchange_await(request, EXCHANGE_READ, request->number - EXCHANGE_SLOTS);
    progress_wait_event(request);
    memcpy(slot_of(window, window->rank, request->number), request->buffer, request_bytes(request));
    window->exchange[request->number % EXCHANGE_SLOTS] = request;
    group->posted = request->sequence;
    counter_set(&window_counters(window, window->rank)->posted, ++window->started);
    return request;
}

void exchange_wait(struct comm_request *request)
{
    while (!request->done)
        exchange_finish(request->group->window);
    progress_release(request);
}
