// SPDX-License-Identifier: BSD-3-Clause
/* Clocks, times as text, order of measured values. */
#ifndef VITTRAIN_BASE_CLOCK_H
#define VITTRAIN_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/* Return seconds since an arbitrary moment (CLOCK_MONOTONIC). */
double clock_now(void);

/* Return the CPU time of the calling thread in seconds. */
double clock_thread(void);

/* Return seconds since 1970. */
double clock_wall(void);

/* "2026-11-21T04:05:06" in local time. */
void clock_stamp(char *text, size_t size);

/* "2026-11-21T04:05:06.789Z" in UTC. */
void clock_stamp_utc(char *text, size_t size);

/* Format a duration: "850 ms", "12.3 s", "4m05s", "2h10m". */
void clock_format(double seconds, char *text, size_t size);

/* Sort in ascending order. */
void values_sort(double *values, int64_t count);

/* Sort, and return the upper median; 0 without values. */
double values_median(double *values, int64_t count);

#endif
