// SPDX-License-Identifier: BSD-3-Clause
/* Step parameters reach a device that runs far behind the host unchanged, and the host waits only
 * when the ring is full. The device of this test queues copies and runs them when the host waits.
 */
#include "train/batch_upload.h"

#include "test.h"

enum { UPLOADS = 3 * PARAMS_SLOTS + 1 };

struct event {
    int recorded_after; /* copies queued before it */
};

static struct {
    void *to;
    const void *from;
} queued[UPLOADS];
static int queued_count, done_count, waits, open_events;
static bool short_of_memory;

static void *pinned_allocate(struct device *device, size_t bytes, struct error *failure)
{
    (void)device;
    if (!short_of_memory)
        return malloc(bytes);
    error_set(failure, ERROR_MEMORY, "no pinned memory");
    return NULL;
}

static void pinned_release(struct device *device, void *memory)
{
    (void)device;
    free(memory);
}

static struct event *event_open(struct device *device)
{
    (void)device;
    open_events++;
    return calloc(1, sizeof(struct event));
}

static void event_close(struct event *event)
{
    open_events--;
    free(event);
}

static void event_record(struct event *event, struct stream *stream)
{
    (void)stream;
    event->recorded_after = queued_count;
}

static void event_synchronize(struct event *event)
{
    waits += done_count < event->recorded_after;
    for (; done_count < event->recorded_after; done_count++)
        memcpy(queued[done_count].to, queued[done_count].from, sizeof(struct step_params));
}

static void copy_queue(struct stream *stream, void *to, const void *from, size_t bytes)
{
    (void)stream;
    assert_int_equal(bytes, sizeof(struct step_params));
    queued[queued_count].to = to;
    queued[queued_count++].from = from;
}

static const struct device_backend backend = {.allocate_pinned = pinned_allocate,
                                              .release_pinned = pinned_release,
                                              .event_open = event_open,
                                              .event_close = event_close,
                                              .event_record = event_record,
                                              .event_synchronize = event_synchronize,
                                              .copy = copy_queue};
static struct device device = {.backend = &backend};

TEST(parameters_arrive_unchanged)
{
    struct step_io io = {0};
    struct step_params arrived[UPLOADS] = {{0}};
    assert_true(step_io_open(&io, &device, false, &error));
    for (int i = 0; i < UPLOADS; i++) {
        const struct step_params params = {.step = (uint32_t)i, .update = i + 1, .rate = 0.5 * i};
        io.params = &arrived[i];
        step_io_upload_params(&io, NULL, &params);
        assert_int_equal(waits, i < PARAMS_SLOTS ? 0 : i - PARAMS_SLOTS + 1);
    }
    struct event last = {queued_count};
    event_synchronize(&last);
    for (int i = 0; i < UPLOADS; i++) {
        assert_int_equal(arrived[i].step, i);
        assert_int_equal(arrived[i].update, i + 1);
        assert_true(arrived[i].rate == 0.5 * i);
    }
    step_io_close(&io);
    assert_int_equal(open_events, 0);
}

TEST(without_pinned_memory_nothing_is_open)
{
    struct step_io io = {0};
    short_of_memory = true;
    assert_false(step_io_open(&io, &device, false, &error));
    assert_string_equal(error.text, "no pinned memory");
    step_io_close(&io);
    assert_int_equal(open_events, 0);
}

TEST_MAIN()
