// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3
/* Each file operation of a checkpoint, in the foreground and in the background, fails once, on the
 * first and on the last rank: all ranks get the error, no files are left, the older file is valid,
 * and the next checkpoint works. The operations are replaced below. `test_checkpoint_faults
 * write|die|check ...` are called by test_checkpoint_kill.sh. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/text.h"
#include "checkpoint/safetensors.h"
#include "hdf5/hdf5_open.h"
#include "model_fixture.h"

static const struct fixture_shape usual = {.hidden = 100};

/* ---- failing calls ---- */

enum call { CALL_PWRITE, CALL_FSYNC, CALL_RENAME, CALL_FALLOCATE, CALLS };
static const char *const call_name[CALLS] = {"pwrite", "fsync", "rename", "fallocate"};

static struct {
    int countdown[CALLS]; /* calls until the failing one; negative: none fails */
    int failure;          /* errno of the failing call; 0: kill the process */
    bool happened;
    bool cannot_reserve; /* fallocate is not supported */
    bool full;           /* and almost no space is free */
} faults = {.countdown = {-1, -1, -1, -1}};

static void disarm(void)
{
    for (int call = 0; call < CALLS; call++)
        faults.countdown[call] = -1;
    faults.happened = false;
}

static void arm(enum call call, int countdown, int failure)
{
    disarm();
    faults.countdown[call] = countdown;
    faults.failure = failure;
}

static bool fails(enum call call)
{
    if (faults.countdown[call] < 0 || faults.countdown[call]-- > 0)
        return false;
    if (faults.failure == 0)
        raise(SIGKILL);
    faults.happened = true;
    errno = faults.failure;
    return true;
}

/* Files in memory (memfd) do not fail like a disk. */
static bool is_on_disk(int descriptor)
{
    char link[64], target[256] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    return readlink(link, target, sizeof target - 1) < 0 || strncmp(target, "/memfd:", 7) != 0;
}

ssize_t pwrite(int descriptor, const void *data, size_t bytes, off_t offset)
{
    if (is_on_disk(descriptor) && fails(CALL_PWRITE))
        return -1;
    return syscall(SYS_pwrite64, descriptor, data, bytes, offset);
}

ssize_t pwrite64(int descriptor, const void *data, size_t bytes, off64_t offset)
{
    return pwrite(descriptor, data, bytes, offset);
}

int fsync(int descriptor)
{
    return fails(CALL_FSYNC) ? -1 : (int)syscall(SYS_fsync, descriptor);
}

int rename(const char *from, const char *to)
{
    return fails(CALL_RENAME) ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int fallocate(int descriptor, int mode, off_t offset, off_t bytes)
{
    if (faults.cannot_reserve) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (fails(CALL_FALLOCATE))
        return -1;
    return (int)syscall(SYS_fallocate, descriptor, mode, offset, bytes);
}

int fallocate64(int descriptor, int mode, off64_t offset, off64_t bytes)
{
    return fallocate(descriptor, mode, offset, bytes);
}

int fstatvfs(int descriptor, struct statvfs *disk)
{
    (void)descriptor;
    *disk = (struct statvfs){.f_frsize = 4096, .f_bavail = faults.full ? 3 : 1 << 20};
    return 0;
}

int fstatvfs64(int descriptor, struct statvfs64 *disk)
{
    return fstatvfs(descriptor, (struct statvfs *)disk);
}

/* ---- checkpoints ---- */

enum way { AT_ONCE, BY_NODE0, IN_BACKGROUND };

/* As in a run: the error may occur at the start, in a step or at the end. */
static bool write_in_background(struct fixture *fixture, int64_t step)
{
    const struct checkpoint_target target = {.directory = folder, .writers = WRITERS_ALL};
    const struct training_state state = {.step = step};
    const struct checkpoint_order order = {.options = &fixture->options, .state = &state};
    float *snapshot = malloc(checkpoint_divide(&fixture->flat).snapshot_bytes);
    ENSURE_MEMORY(snapshot != NULL, "no memory for a test");
    fixture_fill(fixture, (uint32_t)step);
    struct checkpoint_writer *writer = checkpoint_writer_open(&target, &fixture->flat, snapshot);
    bool good = checkpoint_writer_start(writer, &order, &error);
    for (int n = 0; good && n < 3; n++) {
        int64_t busy = checkpoint_writer_is_busy(writer);
        comm_all_reduce(world, &busy, 1, COMM_INT64, COMM_MAX);
        good = checkpoint_writer_follow(writer, busy != 0, &error);
    }
    good = good && checkpoint_writer_finish(writer, &error);
    checkpoint_writer_close(writer);
    free(snapshot);
    return good;
}

static bool write_step(struct fixture *fixture, enum way way, int64_t step)
{
    if (way == IN_BACKGROUND)
        return write_in_background(fixture, step);
    return fixture_write(fixture, way == BY_NODE0 ? WRITERS_NODE0 : WRITERS_ALL, step, &error);
}

/* Return the step of the newest valid checkpoint after checking its content; -1 if it is wrong. */
static int64_t newest(struct fixture *fixture)
{
    struct checkpoint_target target = {.directory = folder, .writers = WRITERS_ALL};
    error_clear(&error);
    struct training_state state = {.step = -1};
    char path[256];
    bool good = checkpoint_find(&target, world, path, sizeof path, &error) &&
                checkpoint_read(path, &target, &fixture->flat, &state, false, &error);
    int64_t wrong = fixture_all_wrong(fixture, (uint32_t)state.step);
    return good && fixture_total(wrong) == 0 ? state.step : -1;
}

static bool there(int64_t step)
{
    return folder_has(text_base_name(folder_step(step)));
}

/* Let the call fail at its first, second, third, fifth, ... time on this rank until it is not
 * reached. Return false if it is never reached. */
static bool fail_each(struct fixture *fixture, enum way way, enum call call, int victim,
                      int failure)
{
    for (int turn = 0;; turn += 1 + turn / 2) {
        error_clear(&error);
        if (world->rank == victim)
            arm(call, turn, failure);
        bool good = write_step(fixture, way, 2);
        int64_t happened = fixture_total(faults.happened);
        disarm();
        assert_int_equal(good, happened == 0);
        if (!good)
            assert_error(&error, ERROR_FILE, folder);
        /* if syncing the folder fails, the file and its link are already complete */
        bool named = call == CALL_FSYNC || (call == CALL_RENAME && turn > 0);
        assert_true(good || named || !there(2));
        assert_int_equal(newest(fixture), there(2) ? 2 : 1);
        assert_false(folder_has("step-00000002.h5.part"));
        if (world->rank == 0)
            unlink(folder_step(2));
        comm_barrier(world);
        if (good)
            return turn > 0;
    }
}

/* Without space that can be reserved, the free space is checked, and writes report errors. */
static void fail_without_reservation(struct fixture *fixture, enum way way)
{
    faults.cannot_reserve = true;
    fail_each(fixture, way, CALL_PWRITE, world->size - 1, ENOSPC);
    faults.full = true;
    error_clear(&error);
    assert_false(write_step(fixture, way, 2));
    faults.cannot_reserve = faults.full = false;
    assert_error(&error, ERROR_FILE, folder);
    assert_false(there(2));
}

static void fail_every_call(enum way way)
{
    int last = world->size - 1;
    FIXTURE(fixture, world->size, &usual, 1, false);
    error_clear(&error);
    write_step(&fixture, way, 1);
    assert_string_equal(error.text, "");
    for (enum call call = 0; call < CALLS; call++) {
        assert_true(fail_each(&fixture, way, call, 0, ENOSPC));
        if (last > 0) {
            bool writes = call == CALL_PWRITE && way != BY_NODE0;
            bool syncs = call == CALL_FSYNC && way != BY_NODE0;
            assert_int_equal(fail_each(&fixture, way, call, last, EIO), writes || syncs);
        }
    }
    fail_without_reservation(&fixture, way);
}

TEST(every_call_fails)
{
    for (enum way way = AT_ONCE; way <= IN_BACKGROUND; way++)
        fail_every_call(way);
}

/* HDF5's own writes fail: no error but one, and none at MPI_Finalize or exit, where HDF5 would
 * crash (hdf5_library_open). */
TEST(frame_fails)
{
    struct rlimit limit, before;
    if (H5_VERS_MAJOR >= 2)
        SKIP_BECAUSE("HDF5 2 ends at an assertion when a write fails");
    FIXTURE(fixture, 1, &usual, 1, false);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    faults.cannot_reserve = true;
    for (limit.rlim_cur = 40; limit.rlim_cur < 8000; limit.rlim_cur += 3500) {
        error_clear(&error);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        assert_false(write_step(&fixture, AT_ONCE, 3));
        assert_error(&error, ERROR_FILE, "ulimit -f");
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    faults.cannot_reserve = false;
    assert_false(there(3));
}

/* ---- weights ---- */

TEST(every_call_fails_for_weights)
{
    char path[128];
    FIXTURE(fixture, world->size, &usual, 0, false);
    snprintf(path, sizeof path, "%s", folder_path("weights.safetensors"));
    fixture_fill(&fixture, 1);
    assert_true(safetensors_write(path, &fixture.flat, NULL, &error));
    for (enum call call = 0; call < CALLS; call++)
        for (int turn = 0; turn == 0 || error.kind != ERROR_NONE; turn++) {
            error_clear(&error);
            fixture_fill(&fixture, 1);
            if (world->rank == 0)
                arm(call, turn, ENOSPC);
            bool good = safetensors_write(path, &fixture.flat, NULL, &error);
            int64_t happened = fixture_total(faults.happened);
            disarm();
            assert_int_equal(good, happened == 0);
            assert_int_equal(error.kind, good ? ERROR_NONE : ERROR_FILE);
            struct error none = {.kind = ERROR_NONE};
            fixture_fill(&fixture, 2);
            error_defer(safetensors_read(path, true, &fixture.flat, &none));
            assert_string_equal(none.text, "");
            assert_int_equal(fixture_total(fixture_all_wrong(&fixture, 1)), 0);
        }
}

/* ---- commands of test_checkpoint_kill.sh ---- */

/* write STEP | die STEP CALL TURN RANK at-once|background | check: print the newest step. */
static int run_part(int count, char **word)
{
    struct fixture fixture;
    int result = 0;
    snprintf(folder, sizeof folder, ".");
    fixture_open(&fixture, world->size, &usual, 1, false);
    if (count > 5 && strcmp(word[1], "die") == 0 && atoi(word[5]) == world->rank)
        for (enum call call = 0; call < CALLS; call++)
            if (strcmp(word[3], call_name[call]) == 0)
                arm(call, atoi(word[4]), 0);
    enum way way = count > 6 && strcmp(word[6], "background") == 0 ? IN_BACKGROUND : AT_ONCE;
    if (strcmp(word[1], "check") != 0) {
        result = write_step(&fixture, way, atoi(word[2])) ? 0 : 1;
    } else {
        int64_t step = newest(&fixture);
        if (world->rank == 0) {
            checkpoint_prune(folder, 0, 10);
            printf("newest %lld\n", (long long)step);
        }
    }
    fixture_close(&fixture);
    return result;
}

int main(int argc, char **argv)
{
    fixture_world_open(&argc, &argv);
    int failed = argc > 1
                     ? run_part(argc, argv)
                     : TESTS_RUN(.before = fixture_folder_make, .after = fixture_folder_remove);
    comm_world_close(world);
    return failed;
}
