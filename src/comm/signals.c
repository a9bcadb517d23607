// SPDX-License-Identifier: BSD-3-Clause
/* Signals. SIGUSR1 asks for a graceful stop. SIGTERM does too if the launcher waits after it;
 * otherwise it ends the process as usual. A fault (SIGSEGV, SIGBUS, ...) prints rank, host and
 * signal before it ends the process; the launcher then ends the other ranks.
 *
 * SIGUSR1 and SIGTERM are blocked in all threads and received by one thread with sigwaitinfo(). A
 * handler would run on the stack of a computing thread, where fp32 GEMM kernels of oneDNN keep data
 * further below the stack pointer than the ABI's red zone protects. */
#include "comm/internal.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/launcher.h"

static const struct {
    int signal;
    const char *meaning;
} faults[] = {
    {SIGSEGV, "segmentation fault (invalid memory access)"},
    {SIGBUS, "bus error (a mapped file was truncated, /dev/shm is full or memory failed)"},
    {SIGFPE, "arithmetic fault"},
    {SIGILL, "illegal instruction"},
    {SIGABRT, "aborted"},
};

enum { FAULTS = sizeof faults / sizeof faults[0] };

/* Prepared in advance: snprintf() is not async-signal-safe. */
static char message[FAULTS][256];
static struct sigaction before[FAULTS];

static _Atomic bool stop_wanted;
static bool stops_at_sigterm;
static sigset_t waited_for;
static _Atomic pid_t parent; /* 0: not watched */

bool comm_stop_wanted(void)
{
    return atomic_load_explicit(&stop_wanted, memory_order_relaxed);
}

/* Wait for a signal. If the launcher is killed, MPI_Init may wait for it for two minutes, so the
 * process ends here. PR_SET_PDEATHSIG would also take effect when a thread of the launcher ends. */
static int signal_wait(void)
{
    const struct timespec period = {.tv_nsec = 200 * 1000 * 1000};
    int number = -1;
    while (number < 0) {
        const pid_t watched = parent;
        if (watched != 0 && getppid() != watched)
            _exit(ERROR_PEER);
        number = watched != 0 ? sigtimedwait(&waited_for, NULL, &period)
                              : sigwaitinfo(&waited_for, NULL);
    }
    return number;
}

static void *signals_main(void *argument)
{
    int number;
    (void)argument;
    while ((number = signal_wait()) > 0) {
        if (number == SIGUSR1 || stops_at_sigterm) {
            atomic_store_explicit(&stop_wanted, true, memory_order_relaxed);
            continue;
        }
        sigset_t own;
        sigemptyset(&own);
        sigaddset(&own, number);
        signal(number, SIG_DFL);
        pthread_sigmask(SIG_UNBLOCK, &own, NULL);
        raise(number);
    }
    return NULL;
}

void signals_open(bool watches_parent)
{
    pthread_t thread;
    parent = watches_parent ? getppid() : 0;
    /* Read here: the signal thread must not call getenv() while another thread calls setenv(). */
    stops_at_sigterm = launcher_waits();
    sigemptyset(&waited_for);
    sigaddset(&waited_for, SIGUSR1);
    sigaddset(&waited_for, SIGTERM);
    /* Inherited by all threads, including those created by libraries. */
    ENSURE(pthread_sigmask(SIG_BLOCK, &waited_for, NULL) == 0, "cannot block signals");
    int failed = pthread_create(&thread, NULL, signals_main, NULL);
    ENSURE_MEMORY(failed == 0, "no thread for signals: %s", strerror(failed));
    pthread_detach(thread);
}

void signals_parent_release(void)
{
    parent = 0;
}

static void fault_handle(int number)
{
    for (int i = 0; i < FAULTS; i++)
        if (faults[i].signal == number) {
            ssize_t written = write(STDERR_FILENO, message[i], strlen(message[i]));
            (void)written;
            sigaction(number, &before[i], NULL);
        }
    raise(number);
}

void signals_report_faults(int rank, const char *host)
{
    struct sigaction action = {.sa_handler = fault_handle};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < FAULTS; i++) {
        snprintf(message[i], sizeof message[i], "vittrain: failure: rank %d on %s: %s\n", rank,
                 host, faults[i].meaning);
        ENSURE(sigaction(faults[i].signal, &action, &before[i]) == 0, "cannot catch signal %d",
               faults[i].signal);
    }
}
