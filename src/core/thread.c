// SPDX-License-Identifier: BSD-3-Clause
/* Start of threads. */
#define _GNU_SOURCE /* pthread_setname_np */
#include "core/thread.h"

#include <signal.h>

int thread_start(pthread_t *thread, const char *name, void *(*run)(void *argument), void *argument)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    sigset_t outside, before;
    sigfillset(&outside);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigdelset(&outside, faults[i]);
    pthread_sigmask(SIG_SETMASK, &outside, &before);
    int failed = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed == 0)
        pthread_setname_np(*thread, name);
    return failed;
}
