// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3 4
/* Checkpoints in the background: the file equals one written in the foreground, on any mesh and
 * while the run changes its state; it is renamed when all ranks are done and not before; the next
 * one waits. A gate in pwrite simulates a slow disk. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "config/option_types.h"
#include "core/file.h"
#include "core/text.h"
#include "model_fixture.h"
#include "test.h"

static const struct fixture_shape usual, small = {.hidden = 8}, large = {.hidden = 50003};

/* ---- a slow disk ---- */

/* The gate of writes: they wait while it is closed. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool closed;
    int waiting;
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0};

static void gate_set(bool closed)
{
    pthread_mutex_lock(&gate.lock);
    gate.closed = closed;
    pthread_cond_broadcast(&gate.change);
    pthread_mutex_unlock(&gate.lock);
}

/* Stop all threads except the main one. */
static void gate_pass(void)
{
    if (syscall(SYS_gettid) == getpid())
        return;
    pthread_mutex_lock(&gate.lock);
    gate.waiting++;
    pthread_cond_broadcast(&gate.change);
    while (gate.closed)
        pthread_cond_wait(&gate.change, &gate.lock);
    gate.waiting--;
    pthread_mutex_unlock(&gate.lock);
}

ssize_t pwrite(int descriptor, const void *data, size_t bytes, off_t offset)
{
    gate_pass();
    return syscall(SYS_pwrite64, descriptor, data, bytes, offset);
}

ssize_t pwrite64(int descriptor, const void *data, size_t bytes, off64_t offset)
{
    return pwrite(descriptor, data, bytes, offset);
}

/* ---- a constant clock, so that the date in files is equal ---- */

static atomic_bool time_stands;

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!time_stands || clock != CLOCK_REALTIME)
        return (int)syscall(SYS_clock_gettime, clock, now);
    *now = (struct timespec){.tv_sec = 1000000000};
    return 0;
}

/* ---- a device whose stream is late: its copies are made when a thread waits for the event ---- */

enum { COPIES = 1000 };

static struct {
    void *to;
    const void *from;
    size_t bytes;
} copies[COPIES];
static int queued;

static void late_copy(struct stream *stream, void *to, const void *from, size_t bytes)
{
    (void)stream;
    ENSURE(queued < COPIES, "more copies than the test has room for");
    copies[queued].to = to;
    copies[queued].from = from;
    copies[queued++].bytes = bytes;
}

static void late_event_synchronize(struct event *event)
{
    (void)event;
    gate_pass();
    for (int i = 0; i < queued; i++)
        memcpy(copies[i].to, copies[i].from, copies[i].bytes);
}

/* ---- a run ---- */

struct run {
    struct fixture fixture;
    struct checkpoint_writer *writer;
    float *snapshot;
};

static void run_open(struct run *run, int shard, const struct fixture_shape *shape, int moments,
                     bool averaged, enum writers_choice writers)
{
    const struct checkpoint_target target = {.directory = folder, .writers = writers};
    fixture_open(&run->fixture, shard, shape, moments, averaged);
    run->snapshot = malloc(checkpoint_snapshot_bytes(&run->fixture.flat));
    assert_non_null(run->snapshot);
    run->writer = checkpoint_writer_open(&target, &run->fixture.flat, run->snapshot);
}

static void run_close(struct run *run)
{
    checkpoint_writer_close(run->writer);
    free(run->snapshot);
    fixture_close(&run->fixture);
}

/* Declare and open a run that is closed at the end of the block. */
#define RUN(name, ...)                                                                             \
    __attribute__((cleanup(run_close))) struct run name;                                           \
    run_open(&name, __VA_ARGS__)

/* Start a checkpoint of a model filled with its step. */
static bool start(struct run *run, int64_t step, struct error *error)
{
    char name[CHECKPOINT_NAME];
    const struct training_state state = {.step = step, .best_metric = 0.5};
    const struct checkpoint_order order = {.name = name,
                                           .model_name = "fake",
                                           .state = &state,
                                           .deck_text = "[run]\nseed = 1\n",
                                           .best = step == 1,
                                           .keep = 2};
    checkpoint_name(name, step);
    fixture_fill(&run->fixture, (uint32_t)step);
    bool good = checkpoint_writer_start(run->writer, &order, error);
    memset(name, '?', sizeof name);
    return good;
}

/* Fill the model with other values at once. */
static bool begin(struct run *run, int64_t step, struct error *error)
{
    bool good = start(run, step, error);
    fixture_fill(&run->fixture, 99);
    return good;
}

static void must_begin(struct run *run, int64_t step)
{
    struct error error = {.kind = ERROR_NONE};
    assert_ok(begin(run, step, &error), &error);
}

static void must_finish(struct run *run)
{
    struct error error = {.kind = ERROR_NONE};
    assert_ok(checkpoint_writer_finish(run->writer, &error), &error);
}

static void follow(struct run *run, int steps)
{
    struct error error = {.kind = ERROR_NONE};
    for (int n = 0; n < steps; n++) {
        int64_t busy = checkpoint_writer_is_busy(run->writer);
        comm_all_reduce(world, &busy, 1, COMM_INT64, COMM_MAX);
        assert_true(checkpoint_writer_follow(run->writer, busy != 0, &error));
    }
}

/* True if every element of the file has the value of this step. */
static void assert_holds(struct run *run, const char *name, int64_t step)
{
    const struct checkpoint_target target = {.directory = folder, .writers = WRITERS_ALL};
    struct training_state state;
    struct error error = {.kind = ERROR_NONE};
    assert_ok(
        checkpoint_read(folder_path(name), &target, &run->fixture.flat, &state, false, &error),
        &error);
    assert_int_equal(state.step, step);
    assert_int_equal(fixture_total(fixture_all_wrong(&run->fixture, (uint32_t)step)), 0);
}

/* ---- the same bytes ---- */

static bool files_differ(const char *one, const char *other)
{
    size_t size, other_size;
    char *bytes = text_file_read(folder_path(one), &size);
    char *other_bytes = text_file_read(folder_path(other), &other_size);
    assert_true(bytes != NULL && other_bytes != NULL);
    bool differ = size != other_size || memcmp(bytes, other_bytes, size) != 0;
    free(bytes);
    free(other_bytes);
    return differ;
}

/* Both files are written at the same time, which is stored in them. */
static void write_both_ways(struct run *run)
{
    const struct checkpoint_target target = {.directory = folder, .writers = WRITERS_ALL};
    const struct training_state state = {.step = 3, .best_metric = 0.5};
    struct error error = {.kind = ERROR_NONE};
    time_stands = true;
    fixture_fill(&run->fixture, 3);
    error_defer(checkpoint_write(&target, &run->fixture.flat,
                                 &(const struct checkpoint_order){.name = "at-once.h5",
                                                                  .model_name = "fake",
                                                                  .state = &state,
                                                                  .deck_text = "[run]\nseed = 1\n"},
                                 &error));
    assert_string_equal(error.text, "");
    must_begin(run, 3);
    time_stands = false;
    must_finish(run);
}

static void same_bytes(int shard, const struct fixture_shape *shape, int moments, bool averaged)
{
    RUN(run, shard, shape, moments, averaged, WRITERS_ALL);
    write_both_ways(&run);
    assert_true(world->rank != 0 || !files_differ("at-once.h5", "step-00000003.h5"));
    assert_holds(&run, "step-00000003.h5", 3);
}

TEST(test_the_file_is_the_same)
{
    for (int shard = 1; shard <= world->size; shard++)
        if (world->size % shard == 0)
            same_bytes(shard, &usual, 2, true);
    same_bytes(1, &usual, 0, false);
    same_bytes(1, &large, 1, true);
    same_bytes(world->size, &large, 2, false);
}

/* True if this process has opened a file whose name ends so. */
static bool has_opened(const char *ending)
{
    bool found = false;
    DIR *entries = NULL;
    for (const char *name; (name = folder_next(&entries, "/proc/self/fd")) != NULL;) {
        char path[64], target[512] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", name);
        found = (readlink(path, target, sizeof target - 1) > 0 && text_ends_with(target, ending)) ||
                found;
    }
    return found;
}

/* Replicas of small units: the last rank writes all pieces, rank 0 the tables. */
TEST(test_a_rank_without_pieces_does_not_open_the_file)
{
    RUN(run, 1, &small, 2, false, WRITERS_ALL);
    gate_set(true);
    must_begin(&run, 1);
    const bool writes = world->rank == 0 || world->rank == world->size - 1;
    assert_int_equal(has_opened("/step-00000001.h5.part"), writes);
    gate_set(false);
    must_finish(&run);
    same_bytes(1, &small, 2, false);
}

/* ---- training continues ---- */

TEST(test_steps_go_on)
{
    double stood, waited;
    RUN(run, world->size, &usual, 2, true, WRITERS_ALL);
    follow(&run, 3); /* nothing is written yet */
    gate_set(world->rank == world->size - 1);
    must_begin(&run, 1);
    follow(&run, 20);
    assert_true(folder_has("step-00000001.h5.part"));
    assert_false(folder_has("step-00000001.h5"));
    gate_set(false);
    while (!folder_has("step-00000001.h5"))
        follow(&run, 1);
    must_finish(&run);
    assert_false(folder_has("step-00000001.h5.part"));
    assert_true(folder_has("last.h5"));
    assert_holds(&run, "best.h5", 1);
    checkpoint_writer_times(run.writer, &stood, &waited);
    assert_true(stood > 0 && waited >= 0 && waited <= stood);
}

/* The snapshot is taken when the stream reaches it; only the thread waits. */
TEST(test_in_the_order_of_the_stream)
{
    struct error error = {.kind = ERROR_NONE};
    RUN(run, 1, &usual, 2, true, WRITERS_ALL);
    const struct device_backend *memory = run.fixture.device->backend;
    struct device_backend late = *memory;
    late.copy = late_copy;
    late.event_synchronize = late_event_synchronize;
    run.fixture.device->backend = &late;
    gate_set(true);
    assert_true(start(&run, 1, &error));
    follow(&run, 20);
    assert_false(folder_has("step-00000001.h5"));
    gate_set(false);
    must_finish(&run);
    run.fixture.device->backend = memory;
    assert_holds(&run, "last.h5", 1);
}

/* Open the gate when a write waits for it. */
static void *gate_open_later(void *argument)
{
    (void)argument;
    pthread_mutex_lock(&gate.lock);
    while (gate.waiting == 0)
        pthread_cond_wait(&gate.change, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
    gate_set(false);
    return NULL;
}

/* Checkpoints that are due early wait for the previous one; none is skipped. */
TEST(test_due_too_early)
{
    double stood, waited;
    pthread_t opener;
    RUN(run, 1, &usual, 2, false, WRITERS_ALL);
    gate_set(true);
    must_begin(&run, 1);
    assert_int_equal(pthread_create(&opener, NULL, gate_open_later, NULL), 0);
    must_begin(&run, 2);
    pthread_join(opener, NULL);
    assert_true(folder_has("step-00000001.h5"));
    checkpoint_writer_times(run.writer, &stood, &waited);
    assert_true(waited >= 0 && stood >= waited);
    for (int step = 3; step <= 6; step++)
        must_begin(&run, step);
    must_finish(&run);
    assert_true(folder_has("step-00000001.h5")); /* the best one */
    assert_false(folder_has("step-00000004.h5"));
    assert_holds(&run, "step-00000005.h5", 5);
    assert_holds(&run, "last.h5", 6);
}

/* Closing the writer early leaves the older files and no part. */
TEST(test_not_finished)
{
    struct run run;
    pthread_t opener;
    run_open(&run, 1, &usual, 1, false, WRITERS_ALL);
    must_begin(&run, 1);
    must_finish(&run);
    gate_set(true);
    must_begin(&run, 2);
    follow(&run, 1);
    assert_int_equal(pthread_create(&opener, NULL, gate_open_later, NULL), 0);
    run_close(&run);
    pthread_join(opener, NULL);
    assert_true(folder_has("step-00000001.h5"));
    assert_false(folder_has("step-00000002.h5"));
    assert_false(folder_has("step-00000002.h5.part"));
}

/* ---- errors, and writing in the foreground ---- */

TEST(test_one_writes_for_all)
{
    RUN(run, world->size, &usual, 2, false, WRITERS_NODE0);
    must_begin(&run, 1);
    assert_true(folder_has("step-00000001.h5")); /* already complete */
    follow(&run, 2);
    must_finish(&run);
    assert_holds(&run, "best.h5", 1);
}

TEST(test_a_folder_that_is_gone)
{
    struct error error = {.kind = ERROR_NONE};
    RUN(run, 1, &usual, 1, false, WRITERS_ALL);
    comm_barrier(world);
    assert_true(world->rank != 0 || rmdir(folder) == 0);
    comm_barrier(world);
    assert_false(begin(&run, 1, &error));
    assert_error(&error, ERROR_FILE, "create the folder");
    comm_barrier(world);
    assert_true(world->rank != 0 || mkdir(folder, 0777) == 0);
    comm_barrier(world);
    must_begin(&run, 2); /* retrying works */
    must_finish(&run);
    assert_holds(&run, "last.h5", 2);
}

static int drop_folder(void **state)
{
    (void)state;
    gate_set(false);
    fixture_remove(folder);
    return 0;
}

TEST_MAIN_WORLD(.before = fixture_folder_make, .after = drop_folder)
