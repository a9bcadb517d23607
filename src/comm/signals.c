/* What signals do. SIGUSR1 asks for a graceful stop; SIGTERM does, too, where the launcher waits
 * for it, and else ends the process as it always did. A rank that dies of a fault leaves word of it
 * for its guard, or without one says it itself; then the signal does what it would have done, which
 * ends the process, and mpirun ends the others. */
#include "comm/internal.h"

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
static _Atomic bool stop_wanted; /* lock-free, as a handler needs it */

bool comm_launcher_waits(void)
{
    return launcher_waits;
}

bool comm_stop_wanted(void)
{
    return atomic_load_explicit(&stop_wanted, memory_order_relaxed);
}

static void stop_handle(int number)
{
    if (number == SIGTERM) {
        status_set_ending(STATUS_TERMINATED); /* SIGKILL may follow */
        guard_tell_silence();
    }
    if (number == SIGUSR1 || launcher_waits) {
        atomic_store_explicit(&stop_wanted, true, memory_order_relaxed);
        return;
    }
    signal(number, SIG_DFL);
    raise(number);
}

void signals_prepare(void)
{
    /* mpirun kills a second after SIGTERM. */
    launcher_waits = getenv("OMPI_COMM_WORLD_SIZE") == NULL &&
                     (getenv("SLURM_PROCID") != NULL || getenv("PMIX_RANK") != NULL);
    struct sigaction action = {.sa_handler = stop_handle, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    ENSURE(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGTERM, &action, NULL) == 0,
           "cannot catch SIGUSR1 and SIGTERM");
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
