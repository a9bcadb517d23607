// SPDX-License-Identifier: BSD-3-Clause
/* What `vittrain launch` does after an attempt: tables of exit codes, progress, run folders and
 * hosts. */
#include "commands/launch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/checkpoint_name.h"
#include "temporary.h"
#include "test.h"

TEST(exit_codes_and_progress_decide)
{
    static const struct {
        struct attempt attempt;
        long restarts; /* before; of at most 3 */
        int fruitless; /* before */
        enum launch_action action;
        double pause;
    } cases[] = {
        {{.code = 0}, 0, 0, LAUNCH_END, 0},
        {{.code = 0, .interrupted = true}, 0, 0, LAUNCH_RESTART, 1},
        {{.code = 0, .hung = true}, 0, 0, LAUNCH_RESTART, 1},
        {{.code = 1}, 0, 0, LAUNCH_RESTART, 1},
        {{.code = ERROR_USAGE}, 0, 0, LAUNCH_END, 0},
        {{.code = ERROR_NUMERIC, .progress = true}, 0, 0, LAUNCH_END, 0},
        {{.code = ERROR_PEER}, 0, 0, LAUNCH_RESTART, 1},
        {{.code = ERROR_DIFFERENT}, 0, 0, LAUNCH_END, 0},
        {{.code = 127}, 0, 0, LAUNCH_END, 0},
        {{.code = 128 + SIGKILL}, 0, 0, LAUNCH_RESTART, 1},
        {{.code = 205, .progress = true}, 2, 1, LAUNCH_RESTART, 0},
        {{.code = 205, .asked = true}, 0, 0, LAUNCH_END, 0},
        {{.code = ERROR_PEER}, 1, 1, LAUNCH_GIVE_UP, 1},
        {{.code = ERROR_PEER, .progress = true}, 3, 0, LAUNCH_GIVE_UP, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct launch_count count = {
            .restarts = cases[i].restarts, .restarts_max = 3, .fruitless = cases[i].fruitless};
        assert_int_equal(launch_policy(&count, &cases[i].attempt), cases[i].action);
        assert_true(count.pause == cases[i].pause);
        assert_int_equal(count.restarts - cases[i].restarts, cases[i].action == LAUNCH_RESTART);
    }
    struct launch_count count = {.restarts_max = 3, .pause = 50};
    launch_policy(&count, &(struct attempt){.code = ERROR_PEER});
    assert_true(count.pause == 60);
}

/* Open the hosts of `mpirun -np RANKS -hostfile FILE`, or without -np for 0 ranks. */
static void hosts_open(struct launched_hosts *hosts, char *words[6], const char *ranks)
{
    static char file[512];
    error_clear(&error);
    snprintf(file, sizeof file, "%s", temporary_path("hosts"));
    words[0] = "mpirun", words[1] = "-hostfile", words[2] = file;
    words[3] = ranks != NULL ? "-np" : "vittrain", words[4] = (char *)ranks;
    unsetenv("SLURM_JOB_ID");
    assert_true(launched_hosts_open(hosts, ranks != NULL ? 5 : 4, words, &error));
}

TEST(hosts_that_answer_decide)
{
    static const struct {
        const char *answers; /* of each of four hosts with two slots */
        const char *ranks;
        bool elastic, late;
        enum hosts_action action;
        int64_t ranks_then;
    } cases[] = {
        {"yyyy", "8", false, false, HOSTS_USE, 8},
        {"yyyy", NULL, false, false, HOSTS_USE, 8},
        {"yyyy", "16", false, false, HOSTS_USE, 16},
        {"ynyy", "6", false, false, HOSTS_USE, 6}, /* a spare host */
        {"ynyy", "8", false, false, HOSTS_WAIT, 6},
        {"ynyy", "8", false, true, HOSTS_GIVE_UP, 6},
        {"ynyy", "8", true, false, HOSTS_USE, 6},
        {"ynyy", NULL, true, false, HOSTS_USE, 6},
        {"ynyn", "16", true, false, HOSTS_USE, 8}, /* two ranks per slot */
        {"nnnn", "8", true, false, HOSTS_WAIT, 0},
        {"nnnn", "8", true, true, HOSTS_GIVE_UP, 0},
    };
    temporary_write("hosts", "a slots=2\nb max_slots=9 slots=2\n\n# none\nfe80::1 slots=2\nd:2\n");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct launched_hosts hosts;
        error_clear(&error);
        char *words[6] = {0}, *original[6];
        const char *missing = hosts.missing;
        hosts_open(&hosts, original, cases[i].ranks);
        assert_int_equal(hosts.count, 4);
        for (int host = 0; host < 4; host++)
            hosts.host[host].answers = cases[i].answers[host] == 'y';
        assert_int_equal(launched_hosts_decide(&hosts, cases[i].elastic, cases[i].late),
                         cases[i].action);
        assert_int_equal(hosts.usable, cases[i].ranks_then);
        assert_true(launched_hosts_use(&hosts, words, original, &error));
        assert_string_equal(missing, strchr(cases[i].answers, 'n') == NULL ? ""
                                     : cases[i].answers[0] == 'n'          ? "a, b, fe80::1, d"
                                     : cases[i].answers[3] == 'n'          ? "b, d"
                                                                           : "b");
        assert_int_equal(strcmp(words[2], original[2]) == 0, missing[0] == '\0');
        if (cases[i].ranks != NULL)
            assert_int_equal(atoll(words[4]), cases[i].ranks_then);
        if (strcmp(missing, "b") == 0) {
            OWNED char *text = text_file_read(words[2], NULL);
            assert_string_equal(text, "a slots=2\nfe80::1 slots=2\nd:2\n");
        }
        launched_hosts_close(&hosts);
    }
    struct launched_hosts hosts;
    char *words[6] = {0}, *original[6];
    setenv("TMPDIR", temporary_path("none"), 1);
    hosts_open(&hosts, original, "8");
    launched_hosts_decide(&hosts, true, false);
    assert_false(launched_hosts_use(&hosts, words, original, &error));
    assert_int_equal(error.kind, ERROR_FILE);
    assert_has(error.text, "/none/");
    launched_hosts_close(&hosts);
    unsetenv("TMPDIR");
}

TEST(the_run_folder_decides_on_exit_code_0)
{
    static const struct {
        const char *before, *after; /* content of .lock; NULL: no file */
        const char *launcher, *flag;
        bool interrupted;
    } cases[] = {
        {NULL, "attempt 1 ended", "mpirun", "-q", false},
        {NULL, "attempt 1 running", "mpirun", "-q", true},
        {NULL, NULL, "mpirun", "-q", true},
        {NULL, NULL, "mpirun", "-wdir", false}, /* the folder is elsewhere */
        {NULL, NULL, "sh", "-q", false},
        {"attempt 1 ended", "attempt 1 ended", "mpirun", "-q", true}, /* killed before its start */
        {"attempt 1 ended", "attempt 1 ended", "sh", "-q", false},    /* not started */
        {"attempt 1 ended", "attempt 2 running", "sh", "-q", true},
        {"", "", "sh", "-q", false}, /* of an older version */
    };
    static struct launched_run run;
    unsetenv("SLURM_JOB_ID");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char folder[512], path[32];
        snprintf(path, sizeof path, "%zu/.lock", i);
        snprintf(folder, sizeof folder, "run.dir=%s", temporary_path(path));
        *strrchr(folder, '/') = '\0';
        char *words[] = {(char *)cases[i].launcher, (char *)cases[i].flag, "test_launch_policy",
                         folder};
        launched_run_read(&run, 4, words);
        assert_true(run.known);
        assert_string_equal(run.folder, folder + strlen("run.dir="));
        if (cases[i].before != NULL)
            temporary_write(path, cases[i].before);
        launched_run_begin(&run);
        if (cases[i].after != NULL)
            temporary_write(path, cases[i].after);
        assert_int_equal(launched_run_is_interrupted(&run), cases[i].interrupted);
    }
}

TEST(a_run_fails_when_its_lock_is_released)
{
    static struct launched_run run;
    char folder[512];
    temporary_write("run/.lock", "");
    snprintf(folder, sizeof folder, "run.dir=%s", temporary_path("run"));
    char *words[] = {"mpirun", "test_launch_policy", folder};
    launched_run_read(&run, 3, words);
    launched_run_begin(&run);
    assert_false(launched_run_has_failed(&run));
    int lock = open(temporary_path("run/.lock"), O_RDWR);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    assert_false(launched_run_has_failed(&run));
    assert_int_equal(pwrite(lock, "attempt 1 running", 17, 0), 17);
    assert_false(launched_run_has_failed(&run));
    flock(lock, LOCK_UN);
    assert_true(launched_run_has_failed(&run));
    assert_int_equal(pwrite(lock, "attempt 1 ended  ", 17, 0), 17);
    assert_false(launched_run_has_failed(&run));
    launched_run_begin(&run); /* a lock that was never held, as without locks between hosts */
    assert_int_equal(pwrite(lock, "attempt 1 running", 17, 0), 17);
    assert_false(launched_run_has_failed(&run));
    close(lock);

    assert_int_equal(launched_run_step(&run), -1);
    temporary_write("run/checkpoints/step-00000012.h5", "");
    temporary_write("run/checkpoints/step-00000009.h5", "");
    temporary_write("run/metrics.csv", "epoch,step,split\n1,7,train\n1,23,train\n1,2");
    assert_int_equal(launched_run_step(&run), 12);
    assert_true(memory_id_write(run.folder, "0123456789abcdef", &error));
    assert_int_equal(launched_run_step(&run), 23);
}

TEST(other_commands_are_not_runs)
{
    static struct launched_run run;
    char *words[][3] = {{"mpirun", "true", "run.dir=a"},
                        {"mpirun", "test_launch_policy", "--version"},
                        {"mpirun", "test_launch_policy", "optim.nothing=1"}};
    for (int i = 0; i < 3; i++) {
        launched_run_read(&run, 3, words[i]);
        assert_false(run.known);
        assert_string_equal(run.folder, "");
        assert_int_equal(launched_run_step(&run), -1);
        assert_false(launched_run_has_failed(&run) || launched_run_is_interrupted(&run));
    }
}

TEST_MAIN(.before = temporary_setup, .after = temporary_close)
