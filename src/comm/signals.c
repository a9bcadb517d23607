/* A rank that dies of a fault says so in one line, with rank and host; then the signal does what it
 * would have done, which ends the process, and mpirun ends the others. */
#include "comm/internal.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

void signals_open(int rank, const char *host)
{
    struct sigaction action = {.sa_handler = fault_handle};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < FAULTS; i++) {
        snprintf(message[i], sizeof message[i], "vittrain: rank %d on %s: %s\n", rank, host,
                 faults[i].meaning);
        ENSURE(sigaction(faults[i].signal, &action, &before[i]) == 0, "cannot catch signal %d",
               faults[i].signal);
    }
}
