// SPDX-License-Identifier: BSD-3-Clause
/* Start of threads. */
#ifndef VITTRAIN_BASE_THREAD_H
#define VITTRAIN_BASE_THREAD_H

#include <pthread.h>
#include <stdint.h>

/* pthread_create with default attributes; returns 0 or an error number. name: at most 15 bytes,
 * shown in /proc, by top -H and by debuggers. External signals are blocked in the thread; signals
 * of its own faults are not. */
int thread_start(pthread_t *thread, const char *name, void *(*run)(void *argument), void *argument);

/* Run a function in at most `threads` threads, one of which is the calling thread, and wait for
 * all. If a thread cannot be created, fewer run: the function must divide the work dynamically. */
void threads_run(const char *name, int64_t threads, void *(*run)(void *argument), void *argument);

#endif
