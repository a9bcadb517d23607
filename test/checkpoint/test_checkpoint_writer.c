// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3 4
/* Checkpoints in the background: the file has the state of its step, on any mesh and while the run
 * changes its state; it is renamed when all ranks are done and not before; the next
 * one waits. Each byte is read once. A gate in pwrite simulates a slow disk. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/text.h"
#include "model_fixture.h"

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

static int64_t bytes_read; /* of vectors by this rank, without those of small units */

ssize_t pread(int descriptor, void *data, size_t bytes, off_t offset)
{
    bytes_read += bytes >= 1 << 18 ? (int64_t)bytes : 0;
    return syscall(SYS_pread64, descriptor, data, bytes, offset);
}

ssize_t pread64(int descriptor, void *data, size_t bytes, off64_t offset)
{
    return pread(descriptor, data, bytes, offset);
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
                     bool averaged)
{
    const struct checkpoint_target target = {.directory = folder, .writers = WRITERS_ALL};
    fixture_open(&run->fixture, shard, shape, moments, averaged);
    run->snapshot = malloc(checkpoint_divide(&run->fixture.flat).snapshot_bytes);
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
static void start(struct run *run, int64_t step)
{
    struct training_state state = {.step = step, .best_metric = 0.5};
    const struct checkpoint_order order = {
        .options = &run->fixture.options, .state = &state, .best = step == 1};
    run->fixture.options.checkpoint.keep = 2;
    error_clear(&error);
    fixture_fill(&run->fixture, (uint32_t)step);
    assert_ok(checkpoint_writer_start(run->writer, &order, &error), &error);
    memset(&state, '?', sizeof state);
}

/* Fill the model with other values at once. */
static void begin(struct run *run, int64_t step)
{
    start(run, step);
    fixture_fill(&run->fixture, 99);
}

static void finish(struct run *run)
{
    assert_ok(checkpoint_writer_finish(run->writer, &error), &error);
}

static void follow(struct run *run, int steps)
{
    for (int n = 0; n < steps; n++) {
        int64_t busy = checkpoint_writer_is_busy(run->writer);
        comm_all_reduce(world, &busy, 1, COMM_INT64, COMM_MAX);
        assert_true(checkpoint_writer_follow(run->writer, busy != 0, &error));
    }
}

static void write_and_read(int shard, const struct fixture_shape *shape, int moments, bool averaged)
{
    RUN(run, shard, shape, moments, averaged);
    begin(&run, 3);
    finish(&run);
    fixture_assert_read(&run.fixture, folder_path("step-00000003.h5"), false, 3);
}

TEST(test_every_mesh)
{
    for (int shard = 1; shard <= world->size; shard++)
        if (world->size % shard == 0)
            write_and_read(shard, &usual, 2, true);
    write_and_read(1, &usual, 0, false);
    write_and_read(1, &large, 1, true);
    write_and_read(world->size, &large, 2, false);
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

/* Ranks write small units in turn, with replicas and with shards. */
TEST(test_a_rank_without_pieces_does_not_open_the_file)
{
    for (int shard = 1; shard <= world->size; shard += world->size > 1 ? world->size - 1 : 1) {
        RUN(run, shard, &small, 2, false);
        gate_set(true);
        begin(&run, 1);
        assert_int_equal(has_opened("/step-00000001.h5.part"), world->rank < FIXTURE_UNITS);
        gate_set(false);
        finish(&run);
        fixture_assert_read(&run.fixture, folder_path("step-00000001.h5"), false, 1);
    }
}

/* The block has 4.6 MiB: each rank writes and reads a part of it, once. */
TEST(test_each_byte_is_read_once)
{
    for (int shard = 1; shard <= world->size; shard += world->size > 1 ? world->size - 1 : 1) {
        struct checkpoint_contents contents;
        RUN(run, shard, &large, 2, false);
        begin(&run, 1);
        finish(&run);
        bytes_read = 0;
        fixture_assert_read(&run.fixture, folder_path("step-00000001.h5"), false, 1);
        const int64_t whole = 3 * (int64_t)sizeof(float) * run.fixture.units[1].count;
        assert_int_equal(fixture_total(bytes_read), whole);
        assert_true(bytes_read < whole / smaller(world->size, 4) + whole / 20);
        assert_true(
            checkpoint_contents_read(folder_path("step-00000001.h5"), world, 0, &contents, &error));
        assert_int_equal(contents.piece_count, checkpoint_divide(&run.fixture.flat).pieces);
        assert_int_equal(contents.layout[1].piece_count,
                         integer_clamp(world->size, 2, shard > 1 ? shard : 4));
        checkpoint_contents_free(&contents);
    }
}

/* ---- training continues ---- */

TEST(test_steps_go_on)
{
    double stood, waited;
    RUN(run, world->size, &usual, 2, true);
    follow(&run, 3); /* nothing is written yet */
    gate_set(world->rank == smaller(world->size, FIXTURE_UNITS) - 1);
    begin(&run, 1);
    follow(&run, 20);
    assert_true(folder_has("step-00000001.h5.part"));
    assert_false(folder_has("step-00000001.h5"));
    gate_set(false);
    while (!folder_has("step-00000001.h5"))
        follow(&run, 1);
    finish(&run);
    assert_false(folder_has("step-00000001.h5.part"));
    assert_true(folder_has("last.h5"));
    fixture_assert_read(&run.fixture, folder_path("best.h5"), false, 1);
    checkpoint_writer_times(run.writer, &stood, &waited);
    assert_true(stood > 0 && waited >= 0 && waited <= stood);
}

/* The snapshot is taken when the stream reaches it, and joined later; only the thread waits. */
TEST(test_in_the_order_of_the_stream)
{
    RUN(run, world->size, &usual, 2, true);
    const struct device_backend *memory = run.fixture.device->backend;
    struct device_backend late = *memory;
    late.copy = late_copy;
    late.event_synchronize = late_event_synchronize;
    run.fixture.device->backend = &late;
    gate_set(true);
    start(&run, 1);
    follow(&run, 20);
    assert_false(folder_has("step-00000001.h5"));
    gate_set(false);
    finish(&run);
    run.fixture.device->backend = memory;
    fixture_assert_read(&run.fixture, folder_path("last.h5"), false, 1);
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

/* Checkpoints that are due early wait for the previous one; none is skipped. All ranks write. */
TEST(test_due_too_early)
{
    double stood, waited;
    pthread_t opener;
    RUN(run, 1, &large, 2, false);
    gate_set(true);
    begin(&run, 1);
    assert_int_equal(pthread_create(&opener, NULL, gate_open_later, NULL), 0);
    begin(&run, 2);
    pthread_join(opener, NULL);
    assert_true(folder_has("step-00000001.h5"));
    checkpoint_writer_times(run.writer, &stood, &waited);
    assert_true(waited >= 0 && stood >= waited);
    for (int step = 3; step <= 6; step++)
        begin(&run, step);
    finish(&run);
    assert_true(folder_has("step-00000001.h5")); /* the best one */
    assert_false(folder_has("step-00000004.h5"));
    fixture_assert_read(&run.fixture, folder_path("step-00000005.h5"), false, 5);
    fixture_assert_read(&run.fixture, folder_path("last.h5"), false, 6);
}

/* Take steps until each rank waits in a write. */
static void follow_to_writes(struct run *run)
{
    for (int64_t waiting = 0; waiting == 0;) {
        follow(run, 1);
        pthread_mutex_lock(&gate.lock);
        waiting = gate.waiting;
        pthread_mutex_unlock(&gate.lock);
        comm_all_reduce(world, &waiting, 1, COMM_INT64, COMM_MIN);
    }
}

/* Closing the writer early leaves the older files and no part. */
TEST(test_not_finished)
{
    struct run run;
    run_open(&run, 1, &large, 1, false);
    begin(&run, 1);
    finish(&run);
    gate_set(true);
    begin(&run, 2);
    follow_to_writes(&run);
    gate_set(false);
    run_close(&run);
    assert_true(folder_has("step-00000001.h5"));
    assert_false(folder_has("step-00000002.h5"));
    assert_false(folder_has("step-00000002.h5.part"));
}

/* The next checkpoint works after one that could not begin. */
TEST(test_a_folder_that_is_gone)
{
    const struct training_state state = {.step = 1};
    RUN(run, 1, &usual, 1, false);
    comm_barrier(world);
    assert_true(world->rank != 0 || rmdir(folder) == 0);
    comm_barrier(world);
    assert_false(checkpoint_writer_start(
        run.writer,
        &(const struct checkpoint_order){.options = &run.fixture.options, .state = &state},
        &error));
    assert_error(&error, ERROR_FILE, "step-00000001.h5.part");
    comm_barrier(world);
    assert_true(world->rank != 0 || mkdir(folder, 0777) == 0);
    comm_barrier(world);
    begin(&run, 2);
    finish(&run);
    fixture_assert_read(&run.fixture, folder_path("step-00000002.h5"), false, 2);
}

static void drop_folder(void)
{
    gate_set(false);
    fixture_remove(folder);
}

TEST_MAIN_WORLD(.before = fixture_folder_make, .after = drop_folder)
