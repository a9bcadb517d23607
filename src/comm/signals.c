/* What signals do. SIGUSR1 asks for a graceful stop; SIGTERM does, too, where the launcher waits
 * for it, and else ends the process as it always did. Both are waited for by a thread of their own
 * and never handled: a handler's frame would lie on the stack of whoever computes, where oneDNN's
 * products in fp32 keep numbers below the stack pointer, further than any ABI protects. A rank that
 * dies of a fault leaves word of it for its guard, or without one says it itself; then the signal
 * does what it would have done, which ends the process, and mpirun ends the others. */
#include "comm/internal.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/status.h"

static const struct {
    int signal;
    const char *meaning;
} faults[] = {
    {SIGSEGV, "segmentation fault (memory that is not ours)"},
    {SIGBUS, "bus error (a mapped file was cut, or memory failed)"},
    {SIGFPE, "arithmetic fault"},
    {SIGILL, "illegal instruction"},
    {SIGABRT, "aborted"},
};

enum { FAULTS = sizeof faults / sizeof faults[0] };

/* All made beforehand: a handler may call next to nothing. */
static char message[FAULTS][256];
static struct sigaction before[FAULTS];

const char *signals_meaning(int signal)
{
    for (int i = 0; i < FAULTS; i++)
        if (faults[i].signal == signal)
            return faults[i].meaning;
    return NULL;
}

static bool launcher_waits;
static _Atomic bool stop_wanted;
static sigset_t waited_for;

bool comm_launcher_waits(void)
{
    return launcher_waits;
}

bool comm_stop_wanted(void)
{
    return atomic_load_explicit(&stop_wanted, memory_order_relaxed);
}

static void signal_take(int number)
{
    /* Also comes back from the launcher that was told to end the job. */
    if (number == SIGTERM && status_ending() != STATUS_SAID) {
        status_set_ending(STATUS_TERMINATED); /* SIGKILL may follow */
        guard_tell_silence();
    }
    if (number == SIGUSR1 || launcher_waits) {
        atomic_store_explicit(&stop_wanted, true, memory_order_relaxed);
        return;
    }
    guard_tell_end();
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, number);
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &own, NULL);
    raise(number);
}

static void *signals_main(void *argument)
{
    int number;
    (void)argument;
    while (sigwait(&waited_for, &number) == 0)
        signal_take(number);
    return NULL;
}

void signals_prepare(void)
{
    /* mpirun kills a second after SIGTERM. */
    launcher_waits = getenv("OMPI_COMM_WORLD_SIZE") == NULL &&
                     (getenv("SLURM_PROCID") != NULL || getenv("PMIX_RANK") != NULL);
    sigemptyset(&waited_for);
    sigaddset(&waited_for, SIGUSR1);
    sigaddset(&waited_for, SIGTERM);
    /* Threads inherit it, those of libraries, too. */
    ENSURE(pthread_sigmask(SIG_BLOCK, &waited_for, NULL) == 0, "cannot block signals");
}

void signals_wait(void)
{
    pthread_t thread;
    int failed = pthread_create(&thread, NULL, signals_main, NULL);
    ENSURE(failed == 0, "cannot start the thread that waits for signals (error %d)", failed);
    pthread_detach(thread);
}

static void end_handle(int number)
{
    (void)number;
    _exit(ERROR_PEER);
}

void signals_end_after(unsigned seconds)
{
    signal(SIGALRM, end_handle);
    alarm(seconds);
}

static void fault_handle(int number)
{
    for (int i = 0; i < FAULTS; i++)
        if (faults[i].signal == number) {
            ssize_t written =
                guard_is_open() ? 0 : write(STDERR_FILENO, message[i], strlen(message[i]));
            (void)written;
            status_set_fault(number);
            sigaction(number, &before[i], NULL);
        }
    raise(number);
}

void signals_open(int rank, const char *host)
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
