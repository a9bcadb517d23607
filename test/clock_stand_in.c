/* Preloaded into the program on one node: its wall clock is CLOCK_OFFSET seconds ahead. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time)
{
    const char *offset = getenv("CLOCK_OFFSET");
    long result = syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && clock == CLOCK_REALTIME && offset != NULL)
        time->tv_sec += atol(offset);
    return (int)result;
}
