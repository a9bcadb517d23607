// SPDX-License-Identifier: BSD-3-Clause
/* The log: who speaks at which level, the file's copy, errors, no live line without a terminal, a
 * live line that is redrawn on one. */
#include "base/log.h"

#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "temporary.h"
#include "test.h"

/* Read all that comes out of a descriptor; a terminal whose other end closed gives EIO. */
static void read_all(int descriptor, char *text, size_t size)
{
    size_t length = 0;
    ssize_t got;
    while ((got = read(descriptor, text + length, size - 1 - length)) > 0)
        length += (size_t)got;
    text[length] = '\0';
    close(descriptor);
}

static void speak_all(void)
{
    log_detail("detail");
    log_info("info");
    log_progress("progress");
    log_warn("warn");
    log_error(&(struct error){.kind = ERROR_DATA, .text = "a.bin: cut"});
}

static const char *log_path;

static void speak_to_file(void)
{
    log_info("early");
    if (!log_to_file("/nowhere/run.log", &error))
        log_error(&error);
    error_clear(&error);
    if (!log_to_file(log_path, &error))
        _exit(1);
    log_detail("in the file only");
    log_info("kept");
}

static void speak_to_full_disk(void)
{
    if (!log_to_file(log_path, &error) || signal(SIGXFSZ, SIG_IGN) == SIG_ERR ||
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){0}) != 0)
        _exit(1);
    log_info("one");
    log_info("two");
}

struct speaker {
    int rank;
    enum log_level level;
    void (*speak)(void);
    const char *text; /* of standard output and error */
};

static void speaker_run(void *context)
{
    const struct speaker *speaker = context;
    log_open(speaker->rank, speaker->level);
    speaker->speak();
    log_close();
}

/* Each line of the file, of the last speaker, begins with its time. */
TEST(levels_ranks_and_files)
{
    static const struct speaker speakers[] = {
        {0, LOG_INFO, speak_all, "info\nwarning: warn\nvittrain: error: a.bin: cut\n"},
        {1, LOG_INFO, speak_all, "vittrain: error: a.bin: cut\n"},
        {0, LOG_QUIET, speak_all, "vittrain: error: a.bin: cut\n"},
        {0, LOG_DETAIL, speak_all, "detail\ninfo\nwarning: warn\nvittrain: error: a.bin: cut\n"},
        {0, LOG_INFO, speak_to_full_disk,
         "one\nwarning: cannot write the log file: File too large; the log ends here\ntwo\n"},
        {0, LOG_INFO, speak_to_file,
         "early\nvittrain: error: cannot write the log /nowhere/run.log: No such file or "
         "directory; create the folder or write to another one\nkept\n"}};
    static const char *const parts[] = {" early\n", " vittrain: error: cannot write",
                                        " in the file only\n", " kept\n"};
    char text[1024];
    const char *line = text;
    for (size_t i = 0; i < sizeof speakers / sizeof speakers[0]; i++) {
        struct speaker speaker = speakers[i];
        log_path = temporary_write("run.log", "");
        assert_int_equal(child_run(speaker_run, &speaker, text, sizeof text), 0);
        assert_string_equal(text, speaker.text);
    }
    read_all(open(log_path, O_RDONLY), text, sizeof text);
    for (int i = 0; i < 4; i++, line = strchr(line, '\n') + 1) {
        assert_true(line[4] == '-' && line[10] == 'T');
        assert_int_equal(strncmp(line + 19, parts[i], strlen(parts[i])), 0);
    }
    assert_string_equal(line, "");
}

/* Return the output of a rank on a terminal. */
static void terminal_output(char *text, size_t size)
{
    int terminal;
    struct winsize window = {.ws_row = 24, .ws_col = 20};
    const pid_t child = forkpty(&terminal, NULL, NULL, &window);
    assert_true(child >= 0);
    if (child == 0) {
        log_open(0, LOG_INFO);
        log_progress("step %d of many, too long for the window", 1);
        log_progress("too soon after the last one");
        log_info("a line");
        log_close();
        log_info("the end");
        _exit(0);
    }
    read_all(terminal, text, size);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

TEST(live_line_is_redrawn)
{
    char text[1024];
    unsetenv("OMPI_COMM_WORLD_RANK");
    terminal_output(text, sizeof text);
    assert_string_equal(
        text, "step 1 of many, too\r\033[Ka line\r\nstep 1 of many, too\r\033[Kthe end\r\n");
}

TEST(no_live_line_when_mpirun_has_no_terminal)
{
    char text[1024];
    const int own = dup(STDOUT_FILENO), nowhere = open("/dev/null", O_WRONLY);
    assert_true(own >= 0 && nowhere >= 0);
    fflush(stdout);
    assert_int_equal(dup2(nowhere, STDOUT_FILENO), STDOUT_FILENO);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    terminal_output(text, sizeof text);
    unsetenv("OMPI_COMM_WORLD_RANK");
    assert_int_equal(dup2(own, STDOUT_FILENO), STDOUT_FILENO);
    close(own);
    close(nowhere);
    assert_string_equal(text, "a line\r\nthe end\r\n");
}

/* Each datagram is one write. */
TEST(a_line_is_one_write)
{
    int ends[2];
    char text[1000];
    error.kind = ERROR_DATA;
    memset(error.text, 'x', 300);
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        log_open(0, LOG_INFO);
        log_error(&error);
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(recv(ends[0], text, sizeof text, MSG_DONTWAIT),
                     300 + strlen("vittrain: error: \n"));
    close(ends[0]);
    close(ends[1]);
}

TEST_MAIN(.setup = temporary_setup, .teardown = temporary_close)
