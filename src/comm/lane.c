/* Messages to or from one rank, in order, a few of them under way at a time. */
#include "comm/internal.h"

void lane_open(struct lane *lane, MPI_Comm communicator, int peer, int tag)
{
    *lane = (struct lane){.communicator = communicator, .peer = peer, .tag = tag};
}

bool lane_full(const struct lane *lane)
{
    return lane->posted - lane->done == LANE_WINDOW;
}

void lane_send(struct lane *lane, const void *data, int64_t bytes)
{
    MPI_CHECK(MPI_Isend(data, (int)bytes, MPI_BYTE, lane->peer, lane->tag, lane->communicator,
                        &lane->request[lane->posted % LANE_WINDOW]));
    lane->posted++;
}

void lane_receive(struct lane *lane, void *data, int64_t bytes)
{
    MPI_CHECK(MPI_Irecv(data, (int)bytes, MPI_BYTE, lane->peer, lane->tag, lane->communicator,
                        &lane->request[lane->posted % LANE_WINDOW]));
    lane->posted++;
}

bool lane_test(struct lane *lane)
{
    int over = 0;
    if (lane->done < lane->posted)
        MPI_CHECK(MPI_Test(&lane->request[lane->done % LANE_WINDOW], &over, MPI_STATUS_IGNORE));
    lane->done += over;
    return over != 0;
}

void lane_drain(struct lane *lane, struct idle *idle)
{
    while (lane->done < lane->posted)
        progress_idle(idle, lane_test(lane));
}
