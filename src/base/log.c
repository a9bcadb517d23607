// SPDX-License-Identifier: BSD-3-Clause
/* The log: console and file. Each line is one write, so that lines of several threads do not mix.
 */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/launcher.h"
#include "base/text.h"

enum { LINE_SIZE = 4096, PROGRESS_SIZE = 512, EARLY_SIZE = 65536 };

static struct {
    pthread_mutex_t mutex;
    int rank;
    enum log_level level;
    FILE *file;
    bool uses_stderr;
    char early[EARLY_SIZE]; /* lines logged before the file was opened */
    size_t early_used;
    char progress[PROGRESS_SIZE]; /* text of the progress line; empty: none */
    double progress_time;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER, .level = LOG_INFO};

void log_open(int rank, enum log_level level)
{
    /* Write each line with one system call. On an unbuffered stream, glibc 2.37 and later write
     * pieces of 128 bytes, and the launcher may insert output of other ranks between them. */
    static char buffer[BUFSIZ];
    setvbuf(stderr, buffer, _IOLBF, sizeof buffer);
    state.rank = rank;
    state.level = level;
}

bool log_to_file(const char *path, struct error *error)
{
    FILE *file = output_file_stream(path, "a");
    if (file == NULL)
        return durable_failed(error, "write the log", path, errno);
    pthread_mutex_lock(&state.mutex);
    if (state.file != NULL)
        fclose(state.file);
    state.file = file;
    setvbuf(file, NULL, _IOLBF, BUFSIZ);
    fwrite(state.early, 1, state.early_used, file);
    state.early_used = 0;
    pthread_mutex_unlock(&state.mutex);
    return true;
}

/* Open MPI gives each rank a pseudo-terminal, even if mpirun's stdout is a file. The rank's parent
 * is mpirun, or its daemon on another node. */
static bool parent_has_terminal(void)
{
    char link[32], target[32] = "";
    snprintf(link, sizeof link, "/proc/%ld/fd/1", (long)getppid());
    return readlink(link, target, sizeof target - 1) > 0 && strncmp(target, "/dev/pts/", 9) == 0;
}

bool log_is_terminal(void)
{
    if (isatty(STDOUT_FILENO) != 1)
        return false;
    return !launcher_has_ranks() || parent_has_terminal();
}

static void erase_progress(void)
{
    if (state.progress[0] != '\0')
        fputs("\r\033[K", stdout);
}

static void draw_progress(void)
{
    if (state.progress[0] != '\0')
        fputs(state.progress, stdout);
    fflush(stdout);
}

void log_progress_end(void)
{
    pthread_mutex_lock(&state.mutex);
    erase_progress();
    state.progress[0] = '\0';
    fflush(stdout);
    pthread_mutex_unlock(&state.mutex);
}

void log_close(void)
{
    log_progress_end();
    pthread_mutex_lock(&state.mutex);
    if (state.file != NULL)
        fclose(state.file);
    state.file = NULL;
    pthread_mutex_unlock(&state.mutex);
}

void log_use_stderr(void)
{
    state.uses_stderr = true;
}

/* Append a line to the file, or keep it for the file if it fits. A failed write is reported once
 * and does not end the run. */
static void append_to_file(const char *mark, const char *line)
{
    char stamp[40];
    clock_stamp(stamp, sizeof stamp);
    if (state.file == NULL) {
        const size_t left = sizeof state.early - state.early_used;
        const int length =
            snprintf(state.early + state.early_used, left, "%s %s%s\n", stamp, mark, line);
        state.early_used += length > 0 && (size_t)length < left ? (size_t)length : 0;
    } else if (fprintf(state.file, "%s %s%s\n", stamp, mark, line) < 0) {
        fprintf(stderr, "warning: cannot write the log file: %s; the log ends here\n",
                strerror(errno));
        fclose(state.file);
        state.file = NULL;
    }
}

static void write_line(FILE *console, const char *mark, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

static void print_line(FILE *console, const char *mark, const char *line)
{
    erase_progress();
    if (state.uses_stderr)
        console = stderr;
    if (console == stderr)
        fflush(stdout);
    fprintf(console, "%s%s\n", mark, line);
    draw_progress();
}

/* Write a line to the console, unless it is NULL, and to the file. */
static void write_line(FILE *console, const char *mark, const char *format, va_list arguments)
{
    char line[LINE_SIZE];
    vsnprintf(line, sizeof line, format, arguments);
    text_mask_password(line);
    pthread_mutex_lock(&state.mutex);
    if (console != NULL)
        print_line(console, mark, line);
    append_to_file(mark, line);
    pthread_mutex_unlock(&state.mutex);
}

static bool is_wanted(enum log_level level)
{
    return state.level >= level && state.rank == 0;
}

#define LOG_FUNCTION(name, wanted, console, mark)                                                  \
    void name(const char *format, ...)                                                             \
    {                                                                                              \
        if (!(wanted))                                                                             \
            return;                                                                                \
        va_list arguments;                                                                         \
        va_start(arguments, format);                                                               \
        write_line(console, mark, format, arguments);                                              \
        va_end(arguments);                                                                         \
    }

LOG_FUNCTION(log_detail, is_wanted(LOG_INFO), state.level >= LOG_DETAIL ? stdout : NULL, "")
LOG_FUNCTION(log_info, is_wanted(LOG_INFO), stdout, "")
LOG_FUNCTION(log_warn, is_wanted(LOG_WARN), stderr, "warning: ")
LOG_FUNCTION(log_alarm, state.level >= LOG_WARN, stderr, "warning: ")
static void error_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
LOG_FUNCTION(error_print, true, stderr, "vittrain: error: ")

void log_error(const struct error *error)
{
    error_print("%s", error->text);
}

void log_progress(const char *format, ...)
{
    static const double least_interval = 0.1;
    if (state.rank != 0 || state.level < LOG_INFO || !log_is_terminal())
        return;
    const double now = clock_now();
    if (state.progress[0] != '\0' && now - state.progress_time < least_interval)
        return;
    char line[PROGRESS_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    struct winsize window;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 1 &&
        window.ws_col <= sizeof line)
        line[window.ws_col - 1] = '\0';
    pthread_mutex_lock(&state.mutex);
    erase_progress();
    memcpy(state.progress, line, sizeof line);
    state.progress_time = now;
    draw_progress();
    pthread_mutex_unlock(&state.mutex);
}
