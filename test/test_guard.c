/* The guard of a rank: it tells each way of dying that the rank cannot tell, keeps silent about the
 * others, outlives signals to the rank's group, and ends with it. */
#include "comm/internal.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/status.h"

enum { RANK = 5 };

static int argument_count;
static char **arguments;

/* What is under test as a rank of its own, up to its end. */
typedef void way_of_dying(void);

/* Told to end, and killed before it was this process's turn. */
static void terminate_late(void)
{
    kill(getpid(), SIGTERM);
    raise(SIGKILL);
}

static _Noreturn void rank_run(way_of_dying *die, int said)
{
    static const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}; /* cmocka's */
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        signal(faults[i], SIG_DFL);
    dup2(said, STDERR_FILENO);
    close(said);
    setpgid(0, 0);
    signals_prepare();
    guard_open(argument_count, arguments);
    if (die != terminate_late)
        signals_wait();
    signals_open(RANK, comm_host());
    status_set_step(120);
    status_name_unit(3, "blocks.3");
    status_set_phase(STATUS_BACKWARD);
    status_set_unit(3);
    die();
    _exit(0);
}

/* Reads to the end, so until rank and guard have ended; false: that took more than two seconds. */
static bool read_all(int descriptor, char *text, size_t size)
{
    size_t used = 0;
    for (double start = clock_now(); clock_now() < start + 2;) {
        struct pollfd ready = {.fd = descriptor, .events = POLLIN};
        if (poll(&ready, 1, 100) <= 0)
            continue;
        ssize_t got = read(descriptor, text + used, size - 1 - used);
        text[used += got > 0 ? (size_t)got : 0] = '\0';
        if (got <= 0)
            return got == 0;
    }
    return false;
}

/* What is said on stderr of a rank that dies so. */
static const char *said_of(way_of_dying *die)
{
    static char text[4096];
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[0]);
        rank_run(die, ends[1]);
    }
    close(ends[1]);
    text[0] = '\0';
    assert_true(read_all(ends[0], text, sizeof text));
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return text;
}

static void assert_said(way_of_dying *die, const char *death)
{
    char expected[512];
    const char *said = said_of(die);
    snprintf(expected, sizeof expected,
             "vittrain: failure: rank %d on %s %s; it was in backward of blocks.3, step 120, for ",
             RANK, comm_host(), death);
    if (strncmp(said, expected, strlen(expected)) != 0)
        fail_msg("said \"%s\", not \"%s\"", said, expected);
    const char *end = strchr(said, '\n');
    assert_non_null(end);
    assert_string_equal(end, "\n"); /* one line */
}

static void kill_self(void)
{
    raise(SIGKILL);
}

static void fault(void)
{
    raise(SIGSEGV);
}

static void leave(void)
{
    _exit(3);
}

static void trap(void)
{
    signal(SIGXCPU, SIG_DFL);
    raise(SIGXCPU);
}

static void deaths_are_told(void **state)
{
    (void)state;
    assert_said(kill_self, "was killed (signal 9, from outside)");
    assert_said(leave, "ended without a word, exit status 3");
    assert_said(trap, "died of signal 24, CPU time limit exceeded");
    assert_said(abort, "died of signal 6, aborted");
    assert_said(fault, "died of signal 11, segmentation fault (memory that is not ours)");
}

static void say_and_leave(void)
{
    status_set_ending(STATUS_SAID);
    _exit(9);
}

static void terminate(void)
{
    kill(getpid(), SIGTERM);
    sleep(5);
}

/* The launcher ends the job because of another rank, and kills this one before it is its turn. */
static void be_told_and_killed(void)
{
    static int guards[1];
    char path[64], name[32] = "";
    guards[0] = guard_process();
    snprintf(path, sizeof path, "/proc/%d/comm", guards[0]);
    for (double start = clock_now(); clock_now() < start + 2; usleep(1000)) {
        FILE *file = fopen(path, "r");
        if (file != NULL && fscanf(file, "%31s", name) != 1)
            name[0] = '\0';
        if (file != NULL)
            fclose(file);
        if (strcmp(name, "vittrain-guard") == 0)
            break;
    }
    guard_meet(guards, 1);
    guard_tell_end();
    raise(SIGKILL);
}

static void known_ends_are_not_told(void **state)
{
    (void)state;
    assert_string_equal(said_of(be_told_and_killed), "");
    assert_string_equal(said_of(terminate_late), "");
    assert_string_equal(said_of(say_and_leave), "");
    assert_string_equal(said_of(terminate), "");
}

/* Whose process has ended, its number may be somebody else's. */
static void strangers_are_not_signalled(void **state)
{
    (void)state;
    int status, stranger = fork();
    assert_true(stranger >= 0);
    if (stranger == 0) {
        pause();
        _exit(0);
    }
    guard_meet(&stranger, 1);
    guard_tell_end();
    guard_meet(NULL, 0);
    assert_int_equal(waitpid(stranger, &status, WNOHANG), 0);
    kill(stranger, SIGKILL);
    assert_int_equal(waitpid(stranger, &status, 0), stranger);
    assert_int_equal(WTERMSIG(status), SIGKILL);
}

/* A handler would run on the stack of a thread that computes (signals.c). */
static void be_asked_to_stop(void)
{
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    kill(getpid(), SIGUSR1);
    for (double start = clock_now(); !comm_stop_wanted() && clock_now() < start + 2;)
        usleep(1000);
    status_set_ending(STATUS_SAID);
    dprintf(STDERR_FILENO, "%d %d %d", sigismember(&blocked, SIGUSR1),
            sigismember(&blocked, SIGTERM), comm_stop_wanted());
    _exit(0);
}

static void signals_interrupt_nobody(void **state)
{
    (void)state;
    assert_string_equal(said_of(be_asked_to_stop), "1 1 1");
}

/* To the whole group, the guard included, if it were in it. */
static void kill_group(void)
{
    static const int signals[] = {SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE, SIGTERM};
    sigset_t none;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        signal(signals[i], SIG_IGN);
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL); /* what is blocked is not ignored */
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        kill(0, signals[i]);
    kill(0, SIGKILL);
}

static void guard_outlives_signals_to_the_group(void **state)
{
    (void)state;
    assert_said(kill_group, "was killed (signal 9, from outside)");
}

/* Descriptors that the rank had when the guard began. */
static void guard_keeps_no_descriptors(void **state)
{
    (void)state;
    int ends[2], outside[2], status;
    char byte;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(pipe(outside), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(outside[1], STDOUT_FILENO);
        guard_open(0, NULL);
        close(outside[1]);
        close(STDOUT_FILENO);
        close(ends[1]);
        if (read(ends[0], &byte, 1) < 0) /* until the test lets go */
            _exit(1);
        status_set_ending(STATUS_SAID);
        _exit(0);
    }
    close(outside[1]);
    struct pollfd ended = {.fd = outside[0], .events = POLLIN};
    assert_int_equal(poll(&ended, 1, 2000), 1);
    assert_int_equal(read(outside[0], &byte, 1), 0); /* nobody has it, though the rank lives */
    close(ends[1]);
    close(ends[0]);
    close(outside[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deaths_are_told),
        cmocka_unit_test(known_ends_are_not_told),
        cmocka_unit_test(strangers_are_not_signalled),
        cmocka_unit_test(signals_interrupt_nobody),
        cmocka_unit_test(guard_outlives_signals_to_the_group),
        cmocka_unit_test(guard_keeps_no_descriptors),
    };
    argument_count = argc;
    arguments = argv;
    /* As a launcher says it. */
    setenv("OMPI_COMM_WORLD_RANK", "5", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "8", 1);
    unsetenv("SLURM_PROCID");
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
