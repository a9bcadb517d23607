/* Which ranks hold the others up? All wait for the slowest in every step, so what a rank does by
 * itself is compared: waiting for data and computing, without waiting for other ranks. Who needs
 * more than the median rank by a tenth of the step, for some time, is named in the log with what it
 * spends its time on; so is a node all of whose ranks do. Where a device does not tell how long it
 * waited for other ranks (GPUs), only waits for data are compared. */
#ifndef VITTRAIN_TRAIN_STRAGGLER_H
#define VITTRAIN_TRAIN_STRAGGLER_H

#include "comm/comm.h"

/* Seconds of a rank. */
struct rank_times {
    double data, compute, waiting; /* waiting: for other ranks */
};

struct straggler {
    int ranks, rank;
    struct rank_times *window; /* [ranks] sums since the window began */
    int *windows_slow;         /* [ranks] in a row, up to the newest */
    double seconds;            /* of the window, which ends when it is long enough */
    int64_t steps;
    double said_at; /* clock; 0: never */
    const char *(*host_of)(int rank);
};

/* host_of: comm_host_of, but for tests. */
void straggler_open(struct straggler *straggler, const struct comm *world,
                    const char *(*host_of)(int rank));
void straggler_close(struct straggler *straggler);

/* On rank 0, with all ranks' times of an interval of so many steps, of which this is the wall time.
 * Says what is to be said. */
void straggler_follow(struct straggler *straggler, const struct rank_times *times, double seconds,
                      int64_t steps);

/* Marks the ranks that are slow by these times; how many there are. */
int straggler_find(const struct rank_times *times, int ranks, double seconds, bool *slow);

/* Adds a window of times to what is known. Whether there is something to say: of ranks whose
 * windows_slow is STRAGGLER_WINDOWS or more. */
enum { STRAGGLER_WINDOWS = 3 };
bool straggler_judge(struct straggler *straggler);

#endif
