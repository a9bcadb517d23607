// SPDX-License-Identifier: BSD-3-Clause
/* Start of threads. */
#define _GNU_SOURCE /* pthread_setname_np */
#include "base/thread.h"

#include <signal.h>

#include "base/allocate.h"

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

void threads_run(const char *name, int64_t threads, void *(*run)(void *argument), void *argument)
{
    OWNED pthread_t *others = allocate((size_t)threads, sizeof *others);
    int64_t started = 0;
    while (started + 1 < threads && thread_start(&others[started], name, run, argument) == 0)
        started++;
    run(argument);
    for (int64_t t = 0; t < started; t++)
        pthread_join(others[t], NULL);
}
