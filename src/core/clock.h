/* Time: seconds that never go back, and timers that add up the phases of a step. */
#ifndef VITTRAIN_CORE_CLOCK_H
#define VITTRAIN_CORE_CLOCK_H

#include <stddef.h>

/* Seconds since an arbitrary moment (CLOCK_MONOTONIC). */
double clock_now(void);

/* Processor time of the calling thread, in seconds. */
double clock_thread(void);

/* Seconds since 1970, for TensorBoard and file names. */
double clock_wall(void);

/* "2026-11-21T04:05:06" in local time. */
void clock_stamp(char *text, size_t size);

/* "2026-11-21T04:05:06.789Z" in universal time, which machines in several places share. */
void clock_stamp_utc(char *text, size_t size);

/* Seconds as people write them: "850 ms", "12.3 s", "4m05s", "2h10m". */
void clock_format(double seconds, char *text, size_t size);

#endif
