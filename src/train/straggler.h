// SPDX-License-Identifier: BSD-3-Clause
/* Detects stragglers. In each step all ranks wait for the slowest one, so ranks are compared by the
 * time of their own work: waiting for data and computing, without waiting for other ranks. A rank
 * whose work takes longer than the median rank's by a tenth of the step in several consecutive
 * windows is logged with its times. If the time of waiting for other ranks is unknown, as on GPUs,
 * only the waits for data are compared. */
#ifndef VITTRAIN_TRAIN_STRAGGLER_H
#define VITTRAIN_TRAIN_STRAGGLER_H

#include "comm/comm.h"

enum { STRAGGLER_WINDOWS = 3 };

/* Seconds of one rank. */
struct rank_times {
    double data, compute, waiting; /* waiting: for other ranks */
};

struct straggler {
    int ranks, rank;
    struct rank_times *window; /* [ranks] sums in the current window */
    int *windows_slow;         /* [ranks] consecutive windows in which the rank was slow */
    double seconds;            /* of the window */
    int64_t steps;
    double logged_at; /* clock; 0: never */
    const char *(*host_of)(int rank);
};

/* host_of: comm_host_of, except in tests. */
void straggler_open(struct straggler *straggler, const struct comm *world,
                    const char *(*host_of)(int rank));
void straggler_close(struct straggler *straggler);

/* Rank 0: adds the times of all ranks in an interval of `steps` steps and `seconds` seconds. At the
 * end of a window, updates windows_slow and logs the ranks that were slow in STRAGGLER_WINDOWS
 * windows. */
void straggler_follow(struct straggler *straggler, const struct rank_times *times, double seconds,
                      int64_t steps);

#endif
