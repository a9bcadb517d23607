// SPDX-License-Identifier: BSD-3-Clause
/* The checks of doctor on simulated nodes, and the facts of this one. */
#include "commands/doctor.h"

#include <signal.h>
#include <unistd.h>

#include "commands/app.h"
#include "options/options.h"
#include "temporary.h"
#include "test.h"

/* ---- the checks on two good nodes n0 and n1 of two ranks each, with one fault */

static struct options options;
static struct doctor_facts facts[4];
static struct doctor doctor;

static void doctor_make(void)
{
    memset(&options, 0, sizeof options);
    options.run.backend = BACKEND_CUDA;
    options.checkpoint.keep = 3;
    strcpy(options.data.format, "cifar10");
    memset(facts, 0, sizeof facts);
    for (int rank = 0; rank < 4; rank++) {
        struct doctor_facts *one = &facts[rank];
        snprintf(one->host, sizeof one->host, "n%d", rank / 2);
        one->rank = rank;
        one->node = rank / 2;
        one->node_ranks = 2;
        one->threads = 4;
        one->online = 8;
        one->slots = 4;
        one->cores[0] = rank % 2 == 0 ? 0x0f : 0xf0;
        one->files = 4096;
        one->locked = UINT64_MAX;
        snprintf(one->gpu.name, sizeof one->gpu.name, "H100");
        snprintf(one->gpu.identity, sizeof one->gpu.identity, "GPU-%d", rank);
        snprintf(one->survey.software, sizeof one->survey.software, "CUDA 12.8");
        one->survey.visible = 2;
        one->shared_bytes = one->shared_free = UINT64_C(1) << 34;
        one->shares_folder = one->locks_folder = 1;
        one->free = 1000000000;
        one->data = (struct doctor_data){.files = 5, .bytes = 500, .samples = 2, .names = 7};
    }
    doctor = (struct doctor){.options = &options,
                             .ranks = 4,
                             .nodes = 2,
                             .facts = facts,
                             .checkpoint = 100000000,
                             .sample = {"/d/a.bin", "/d/b.bin"}};
}

/* Run the check of this name; its row must have the verdict and a finding with `part`. */
static void assert_row(const char *name, enum doctor_verdict verdict, const char *part)
{
    struct doctor_row row = {0};
    int check = 0;
    while (strcmp(doctor_checks[check].name, name) != 0)
        check++;
    doctor_checks[check].run(&doctor, &row);
    if (row.verdict != verdict || strstr(row.found, part) == NULL)
        fail_msg("%s: verdict %d, %s; wanted %d, %s", name, row.verdict, row.found, verdict, part);
}

/* The check finds this after the change. */
#define FOUND(check, verdict, part, ...)                                                           \
    do {                                                                                           \
        doctor_make();                                                                             \
        __VA_ARGS__;                                                                               \
        assert_row(check, DOCTOR_##verdict, part);                                                 \
    } while (0)

TEST(faults_are_found)
{
    FOUND("ranks", WARN, "two nodes are called n0", strcpy(facts[2].host, "n0"));
    FOUND("ranks", WARN, "1 to 3 ranks per node", facts[0].node_ranks = 3; facts[3].node_ranks = 1);
    FOUND("ranks", WARN, "4 ranks in 2 slots", facts[0].slots = 2);
    FOUND("cores", WARN, "n1: 2 ranks with 8 threads each on 8 CPUs", facts[2].threads = 8);
    FOUND("cores", WARN, "n1: 8 threads, but the control group has a quota of 1.5",
          facts[2].quota = 1.5);
    FOUND("cores", WARN, "4 to 8 CPUs", facts[2].online = 4);
    FOUND("binding", WARN, "n1: 2 ranks with 8 threads in total are bound to 4 of 8",
          facts[3].cores[0] = 0x0f);
    FOUND("binding", WARN, "n1: 1 rank with 3 threads in total is bound to 2 of 8",
          facts[2].cores[0] = 0x03;
          facts[2].threads = 3);
    FOUND("gpus", FAIL, "rank 3 on n1 has no GPU: no driver", strcpy(facts[3].no_gpu, "no driver"));
    FOUND("gpus", FAIL, "no rank has a GPU: no module", memset(facts, 0, sizeof facts);
          strcpy(facts[0].no_gpu, "no module"));
    FOUND("gpus", PASS, "no rank has a GPU", memset(facts, 0, sizeof facts);
          options.run.backend = BACKEND_AUTO);
    FOUND("gpus", FAIL, "rank 3 on n1", strcpy(facts[3].survey.software, "CUDA 11"));
    FOUND("gpus", FAIL, "sm_80", strcpy(facts[3].gpu.instructions, "sm_80"));
    FOUND("gpus", FAIL, "2 ranks on n1 have the same GPU (GPU-2)",
          strcpy(facts[3].gpu.identity, "GPU-2"));
    FOUND("gpus", PASS, "H100", strcpy(facts[3].gpu.identity, "GPU-2"); options.cuda.share = true);
    FOUND("gpus", WARN, "n1 has 4 GPUs for 2 ranks", facts[2].survey.visible = 4);
    FOUND("gpus", WARN, "n1: GPUs have no direct access", facts[2].survey.unreached = 1);
    FOUND("limits", WARN, "rank 3 on n1: the limit of open files is 200", facts[3].files = 200);
    FOUND("limits", WARN, "rank 3 on n1: the limit of locked memory", facts[3].locked = 65536;
          facts[3].infiniband = 1);
    FOUND("limits", PASS, "", facts[3].locked = 65536);
    FOUND("shared memory", FAIL, "n1: 0.0 of /dev/shm's 16384 MiB", facts[2].shared_free = 1000);
    FOUND("shared memory", WARN, "n1: ", facts[2].shared_free = comm_shared_bytes(2) + 1000);
    FOUND("shared memory", PASS, "/dev/shm/vittrain-0-1",
          strcpy(facts[2].left, "/dev/shm/vittrain-0-1"));
    FOUND("run folder", FAIL, "n1: cannot write runs",
          strcpy(facts[2].folder_why, "cannot write runs"));
    FOUND("run folder", WARN, "n1: ", facts[2].shares_folder = 0);
    FOUND("run folder", WARN, "n1: locks", facts[2].locks_folder = 0);
    FOUND("space", PASS, "5 checkpoints of 100.00 MB take 0.5 GB", (void)0);
    FOUND("space", WARN, "0.4 GB free", facts[0].free = 400000000);
    FOUND("space", FAIL, "0.09 GB free", facts[0].free = 90000000);
    FOUND("data", FAIL, "n1: /d: no such folder", strcpy(facts[2].data.why, "/d: no such folder"));
    FOUND("data", WARN, "n1: too many files", facts[2].data.cut = 1);
    FOUND("data", FAIL, "n1: names or sizes differ: 6 files", facts[2].data.files = 6);
    FOUND("data", FAIL, "n1: names or sizes differ", facts[2].data.names = 8);
    FOUND("data", FAIL, "n1: /d/b.bin differs", facts[2].data.sum[1] = 1);
    FOUND("data", PASS, "synthetic", strcpy(options.data.format, "synthetic"));
    doctor_make();
    for (int check = 0; check < DOCTOR_CHECKS; check++) {
        struct doctor_row row = {0};
        doctor_checks[check].run(&doctor, &row);
        assert_int_equal(row.verdict, DOCTOR_PASS);
    }
    assert_string_equal(doctor_checks[DOCTOR_CORES_ROW].name, "cores");
    assert_string_equal(doctor_checks[DOCTOR_BINDING_ROW].name, "binding");
    assert_string_equal(doctor_checks[DOCTOR_SPACE_ROW].name, "space");
}

/* ---- rows */

TEST(the_worst_findings_are_kept)
{
    struct doctor_row row = {0};
    doctor_set(&row, DOCTOR_PASS, "all is well");
    assert_int_equal(row.verdict, DOCTOR_PASS);
    doctor_set(&row, DOCTOR_WARN, "%s is odd", "a");
    doctor_set(&row, DOCTOR_WARN, "%s is odd", "b");
    assert_string_equal(row.found, "a is odd; b is odd");
    doctor_set(&row, DOCTOR_FAIL, "broken");
    doctor_set(&row, DOCTOR_WARN, "odd");
    assert_int_equal(row.verdict, DOCTOR_FAIL);
    assert_string_equal(row.found, "broken");
    for (int i = 0; i < 1000; i++)
        doctor_set(&row, DOCTOR_FAIL, "thing %d", i);
    assert_string_equal(row.found, "broken; thing 0; thing 1");
    assert_int_equal(row.findings, 1001);
}

/* ---- facts */

static struct doctor_data data_read(const char *root, double seconds)
{
    struct doctor_data data;
    snprintf(options.data.root, sizeof options.data.root, "%.1000s", root);
    doctor_read_data(&doctor, &data, seconds);
    return data;
}

TEST(data_are_summarized)
{
    static const char *const names[] = {"a.bin", "sub/b.bin", "sub/c.bin"};
    static char large[3 << 20];
    struct doctor_data one, other;
    char roots[2][512], name[64], both[1100];
    doctor_make();
    for (int i = 0; i < 2; i++) {
        for (int file = 0; file < 3; file++) { /* created in another order in each */
            snprintf(name, sizeof name, "%d/%s", i, names[i == 0 ? file : 2 - file]);
            temporary_write(name, "");
            temporary_file(name, large, file == 1 ? sizeof large : 100);
        }
        snprintf(name, sizeof name, "%d", i);
        snprintf(roots[i], sizeof roots[i], "%s", temporary_path(name));
    }
    one = data_read(roots[0], 5);
    other = data_read(roots[1], 5);
    assert_int_equal(one.files, 3);
    assert_int_equal(one.bytes, sizeof large + 200);
    assert_int_equal(one.samples, 3);
    assert_memory_equal(&one, &other, sizeof one);
    large[sizeof large - 1] = 1; /* pieces reach the end of large files */
    temporary_file("1/sub/b.bin", large, sizeof large);
    other = data_read(roots[1], 5);
    assert_true(other.names == one.names);
    int differing = 0;
    for (int i = 0; i < 3; i++)
        differing += other.sum[i] != one.sum[i] && strstr(doctor.sample[i], "/1/sub/b.bin") != NULL;
    assert_int_equal(differing, 1);
    temporary_file("1/sub/c.bin", large, 101);
    assert_true(data_read(roots[1], 5).names != one.names);
    other = data_read(temporary_path("none"), 5);
    assert_has(other.why, "none");
    other = data_read(temporary_directory("empty/.hidden"), 5);
    assert_has(other.why, "hidden");
    assert_int_equal(data_read(roots[0], -1).cut, 1);
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "many/%d", i);
        temporary_write(name, name);
    }
    assert_int_equal(data_read(temporary_path("many"), 5).samples, DOCTOR_SAMPLES);
    strcpy(options.data.format, "arrays");
    temporary_file("two.h5", large, 200);
    temporary_write("store.zarr/.zgroup", "{}");
    temporary_write("store.zarr/0", "00");
    int used = snprintf(both, sizeof both, "%s::", temporary_path("two.h5"));
    snprintf(both + used, sizeof both - (size_t)used, "%s", temporary_path("store.zarr"));
    other = data_read(both, 5);
    assert_string_equal(other.why, "");
    assert_int_equal(other.files, 2);
    assert_int_equal(other.bytes, 202);
}

TEST(the_run_folder_is_tried)
{
    struct comm *world = comm_fake_open(0, 1);
    doctor_make();
    temporary_directory("sub");
    temporary_write("file", "");
    const struct {
        const char *folder, *tried, *why;
    } cases[] = {{"sub", "sub", ""}, {"sub/b/c", "sub", ""}, {"file/a", "file", "file"}};
    for (int i = 0; i < 3; i++) {
        struct doctor_facts own = {0};
        snprintf(options.run.dir, sizeof options.run.dir, "%s", temporary_path(cases[i].folder));
        doctor_read_space(&own, &options);
        assert_string_equal(own.folder, temporary_path(cases[i].tried));
        doctor_try_folder(&own, world, true);
        assert_has(own.folder_why, cases[i].why);
        const bool good = cases[i].why[0] == '\0';
        assert_int_equal(own.folder_why[0] == '\0' && own.free > 0, good);
        assert_int_equal(own.shares_folder && own.locks_folder, good);
    }
    assert_int_equal(rmdir(temporary_path("sub")), 0); /* no file is left */
    strcpy(options.run.dir, "/proc/none");
    struct doctor_facts own = {0};
    doctor_read_space(&own, &options);
    doctor_try_folder(&own, world, true);
    assert_has(own.folder_why, "/proc/");
    world->backend->close(world);
}

static void alarm_raise(void *context)
{
    (void)context;
    command_doctor.prepare();
    raise(SIGALRM);
}

TEST(mpi_that_does_not_start_is_reported)
{
    char text[512];
    assert_int_equal(child_run(alarm_raise, NULL, text, sizeof text), ERROR_PEER);
    assert_has(text, "vittrain: failure: doctor: MPI ");
}

TEST_MAIN(.before = temporary_setup, .after = temporary_close)
