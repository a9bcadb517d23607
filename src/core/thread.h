/* Threads beside the main one. */
#ifndef VITTRAIN_CORE_THREAD_H
#define VITTRAIN_CORE_THREAD_H

#include <pthread.h>

/* As pthread_create with its usual attributes: 0, or what was wrong (errno). The thread is not
 * bothered by signals of the outside; those of a fault stay with the one that made it. */
int thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument);

#endif
