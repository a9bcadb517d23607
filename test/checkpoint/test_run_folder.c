// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3
// joined
/* The choice of the run folder, its errors, and that all ranks agree. All ranks run the same tests
 * in a temporary folder that rank 0 creates and fills. */
#include "checkpoint/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "options/options.h"
#include "rank_tests.h"
#include "temporary.h"

static struct mesh mesh;
static char start[1024]; /* the folder in which the program was started */
static struct options options;

static bool is_first(void)
{
    return world->rank == 0;
}

/* All ranks change to a temporary folder. The options are the defaults with another
 * name. */
static void enter_folder(void)
{
    shared_folder_make();
    options_default(&options);
    snprintf(options.run.name, sizeof options.run.name, "tiny");
    assert_int_equal(chdir(shared_folder), 0);
}

static void leave_folder(void)
{
    assert_int_equal(chdir(start), 0);
    shared_folder_remove();
}

/* Rank 0 changes the folder before the others continue. */
static void put_file(const char *name, const char *text)
{
    if (is_first())
        temporary_write(name, text);
    comm_barrier(world);
}

/* Create a previous run: its deck with the current options, and a checkpoint. */
static void put_run(const char *folder)
{
    char name[OPTION_TEXT];
    char *deck = options_to_run_deck(&options);

    snprintf(name, sizeof name, "%s/checkpoints/step-10.h5", folder);
    put_file(name, "x");
    snprintf(name, sizeof name, "%s/deck.ini", folder);
    put_file(name, deck);
    free(deck);
}

static struct run_folder open_folder(void)
{
    struct run_folder folder;

    assert_ok(run_folder_open(&folder, &mesh, &options, &error), &error);
    assert_true(comm_same(world, folder.path, sizeof folder.path));
    return folder;
}

/* Open and close the folder. Return whether the run resumes. */
static bool resumes(void)
{
    struct run_folder folder = open_folder();
    run_folder_close(&folder);
    return folder.resuming;
}

static void assert_refused(enum error_kind kind, const char *part)
{
    struct run_folder folder;

    assert_false(run_folder_open(&folder, &mesh, &options, &error));
    assert_error(&error, kind, part);
    error_clear(&error);
}

static void set(const char *assignment)
{
    assert_ok(options_set(assignment, &options, &error), &error);
}

TEST(new_runs_get_names_of_their_own)
{
    struct run_folder folders[3];

    for (int i = 0; i < 3; i++) {
        folders[i] = open_folder();
        assert_false(folders[i].resuming);
        assert_int_equal(strncmp(folders[i].path, "runs/tiny-", 10), 0);
        assert_int_equal(strspn(folders[i].path + 10, "0123456789"), 8);
        assert_int_equal(access(folders[i].checkpoints, F_OK), 0);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(folders[i].path, folders[j].path);
    }
    for (int i = 0; i < 3; i++)
        run_folder_close(&folders[i]);
}

TEST(given_folder_is_made_with_those_above)
{
    set("run.dir=a/b/c");
    set("train.epochs=17");
    struct run_folder folder = open_folder();
    assert_string_equal(folder.path, "a/b/c");
    assert_string_equal(folder.checkpoints, "a/b/c/checkpoints");
    assert_false(folder.resuming);
    assert_int_equal(access("a/b/c/train.log", F_OK), 0);
    assert_int_equal(access("a/b/c/deck.ini", F_OK), -1); /* the run may fail to start */
    comm_barrier(world);
    assert_true(!is_first() || run_folder_save_deck(&folder, &options, &error));
    comm_barrier(world);
    assert_true(options_read_file("a/b/c/deck.ini", &options, &error));
    assert_int_equal(options.train.epochs, 17);
    run_folder_close(&folder);
    assert_false(resumes()); /* without checkpoints there is no run to resume */
    comm_barrier(world);
    put_file("a/b/c/checkpoints/step-10.h5.part", "x");
    assert_false(resumes());
}

/* Check the text of a/.lock on the first rank. */
static void assert_lock(int attempt, const char *word)
{
    if (is_first()) {
        OWNED char *text = text_file_read("a/.lock", NULL);
        OWNED char *expected = allocate_text("attempt %d %-8s\n", attempt, word);
        assert_string_equal(text, expected);
    }
}

/* The second of three attempts ends without an error. */
TEST(lock_shows_the_end_of_an_attempt)
{
    set("run.dir=a");
    for (int attempt = 1; attempt <= 3; attempt++) {
        struct run_folder folder = open_folder();
        assert_lock(attempt, "running");
        if (is_first() && attempt == 2)
            run_folder_mark(&folder, true);
        assert_lock(attempt, attempt == 2 ? "ended" : "running");
        run_folder_close(&folder);
        comm_barrier(world);
    }
}

/* Open the folder of a run with this result.json. Return the number of steps of a finished run. */
static int64_t finished_steps(const char *result)
{
    put_file("runs/tiny-20250101-000000/result.json", result);
    struct run_folder folder = open_folder();
    assert_true(folder.resuming);
    run_folder_close(&folder);
    comm_barrier(world);
    return folder.finished_steps;
}

TEST(given_folder_with_checkpoints_is_gone_on_with)
{
    set("run.dir=runs/tiny-20250101-000000");
    put_run("runs/tiny-20250101-000000");
    assert_true(resumes());
    assert_int_equal(finished_steps("{\"finished\": true, \"steps\": 10}"), 10);
    assert_int_equal(finished_steps("{\"finished\": false, \"steps\": 10}"), -1);
}

/* In the newest run, and in a given folder. */
TEST(a_damaged_result_is_set_aside)
{
    static const char *const damaged[] = {"{\"finished\": true, \"steps\": 10", "[]"};
    put_run("runs/tiny-20250101-000000");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(finished_steps(damaged[i]), -1);
        assert_int_equal(access("runs/tiny-20250101-000000/result.json", F_OK), -1);
        OWNED char *text = text_file_read("runs/tiny-20250101-000000/result.json.damaged", NULL);
        assert_string_equal(text, damaged[i]);
        comm_barrier(world);
        set("run.dir=runs/tiny-20250101-000000");
    }
}

TEST(never_resume_refuses_a_used_folder)
{
    set("run.dir=a");
    set("checkpoint.resume=never");
    if (is_first())
        temporary_directory("a");
    put_file("a/slurm-17.out", "other files are welcome");
    struct run_folder folder = open_folder();
    assert_true(!is_first() || run_folder_save_deck(&folder, &options, &error));
    run_folder_close(&folder);
    comm_barrier(world);
    assert_refused(ERROR_USAGE, "a holds a run already");
}

TEST(newest_unfinished_run_is_found)
{
    put_run("runs/tiny-20240101-000000");
    put_run("runs/tiny-20240101-000000-2");
    put_run("runs/tiny-20240101-000000-10"); /* the newest one */
    put_run("runs/tiny-20250101-000000");    /* but finished */
    put_file("runs/tiny-20250101-000000/result.json", "{\"finished\": true, \"steps\": 10}");
    put_run("runs/tiny-other-20260101-000000"); /* another name */
    put_run("runs/tiny-20260101");              /* not a date */
    put_file("runs/tiny-20260202-000000", "no folder");
    set("train.batch=7"); /* another deck */
    put_run("runs/tiny-20260101-000000");
    options_default(&options);
    set("run.name=tiny");
    set("train.epochs=1000"); /* options that may change between attempts */
    set("checkpoint.keep=9");
    set("output.log_every=3");
    struct run_folder folder = open_folder();
    assert_string_equal(folder.path, "runs/tiny-20240101-000000-10");
    assert_true(folder.resuming);
    run_folder_close(&folder);
}

TEST(a_run_of_a_newer_version_is_an_error)
{
    put_run("runs/tiny-20250101-000000");
    put_file("runs/tiny-20250101-000000/result.json", "{\"format\": 3, \"finished\": false}");
    assert_refused(ERROR_USAGE, "newer version");
    set("run.dir=runs/tiny-20250101-000000");
    assert_refused(ERROR_USAGE, "runs/tiny-20250101-000000/result.json has format 3");
}

TEST(which_runs_are_gone_on_with)
{
    static const char *const rows[][2] = {{"optim.lr=0.5", "optim.lr=0.1"}, /* another deck */
                                          {"checkpoint.resume=never", "checkpoint.resume=some.h5"}};
    put_run("runs/tiny-20240101-000000");
    put_file("runs/tiny-20240101-000000/result.json", "{\"finished\": false}");
    assert_true(resumes()); /* ended by train.max_seconds */
    for (int i = 0; i < 4; i++) {
        set(rows[i / 2][i % 2]);
        assert_false(resumes());
    }
    options_default(&options);
    set("run.name=tiny");
    put_file("runs/tiny-20240101-000000/deck.ini", "[nonsense\n");
    assert_false(resumes());
}

/* A lock of another job, simulated by a second descriptor in this process. */
TEST(folder_of_a_running_job_is_left_alone)
{
    int lock = -1;

    set("run.dir=runs/tiny-20240101-000000");
    put_run("runs/tiny-20240101-000000");
    if (is_first()) {
        lock = open("runs/tiny-20240101-000000/.lock", O_RDWR | O_CREAT, 0666);
        assert_int_equal(flock(lock, LOCK_EX), 0);
    }
    comm_barrier(world);
    assert_refused(ERROR_USAGE, "another job is writing to runs/tiny-20240101-000000");
    set("run.dir=");
    assert_false(resumes());
    if (is_first())
        close(lock);
}

TEST(unwritable_places_are_errors)
{
    static const char *const rows[][2] = {
        {"run.dir=file", "run.dir"},
        {"run.dir=file/run", "run.dir"},
        {"run.dir=/proc/self/run", "/proc/self/run"},
        {"run.dir=/proc/self", "/proc/self"},
        {"run.dir=a", "a/train.log"},
        {"run.dir=", "run.dir"},
    };
    put_file("file", "x");
    put_file("runs", "x");
    if (is_first())
        temporary_directory("a/train.log");
    comm_barrier(world);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        set(rows[i][0]);
        assert_refused(ERROR_FILE, rows[i][1]);
    }
}

/* Every rank is a node with its own disk. */
TEST(private_disks_get_a_folder_each)
{
    struct mesh apart = {.world = world, .node = world->backend->split(world, world->rank, 0)};
    struct mesh together = mesh;
    char disk[32];

    snprintf(disk, sizeof disk, "disk-%d", world->rank);
    assert_int_equal(mkdir(disk, 0777), 0);
    assert_int_equal(chdir(disk), 0);
    mesh = apart;
    set("run.dir=a/b");
    struct run_folder folder = open_folder();
    assert_int_equal(access("a/b/checkpoints", F_OK), 0);
    assert_int_equal(access("a/b/train.log", F_OK), is_first() ? 0 : -1);
    run_folder_close(&folder);
    /* The last node's disk is not writable: all ranks get the error. */
    set("run.dir=c");
    if (world->rank == world->size - 1)
        close(open("c", O_WRONLY | O_CREAT, 0666));
    assert_refused(ERROR_FILE, "choose another by run.dir");
    mesh = together;
    apart.node->backend->close(apart.node);
}

TEST(names_must_be_names)
{
    static const char *const names[] = {"", "a/b", ".."};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(options.run.name, sizeof options.run.name, "%s", names[i]);
        assert_refused(ERROR_USAGE, "run.name=");
    }
    memset(options.run.name, 'x', sizeof options.run.name - 1);
    assert_refused(ERROR_USAGE, "run.name is too long");
    options.run.name[300] = '\0';
    assert_refused(ERROR_FILE, "cannot create the folder");
}

static void mesh_make(void)
{
    mesh = (struct mesh){.world = world, .node = world->backend->split_node(world)};
    assert_non_null(getcwd(start, sizeof start));
}

static void mesh_drop(void)
{
    mesh.node->backend->close(mesh.node);
}

TEST_MAIN_WORLD(.setup = mesh_make, .teardown = mesh_drop, .before = enter_folder,
                .after = leave_folder)
