// SPDX-License-Identifier: BSD-3-Clause
/* Reductions and gathers of large buffers: a ring of point-to-point messages in segments, so that
 * sending, receiving and adding overlap. The collectives of MPI are not used: the blocking ones
 * occupy a core while they wait, the non-blocking ones progress only inside MPI calls.
 *
 * The buffer is divided into one block per rank. In step t = 0, 1, ... rank r sends block r - t - 1
 * to rank r + 1 and receives block r - t - 2 from rank r - 1 (all modulo size). In the first
 * size - 1 steps it adds the received block to its own; then block r is complete on rank r, which
 * is reduce-scatter. In the next size - 1 steps it stores the received block, which is all-gather.
 * Both together are all-reduce. Each sum is computed on one rank, in an order that depends only on
 * the layout, so that all ranks get the same bits.
 *
 * Segments are numbered across steps: message i is segment i % segments of step
 * first + i / segments. Message i can be sent once message i - segments was received. */
#include "comm/internal.h"

#include "base/base.h"

struct ring {
    const struct stage *stage;
    struct lane in, out;
    int64_t segment;  /* elements */
    int64_t segments; /* per block */
    int64_t messages;
    int first;
};

static void ring_plan(struct ring *ring)
{
    const struct stage *stage = ring->stage;
    int64_t width = comm_type_size(stage->request->call.type);
    int size = stage->group->comm.size;
    /* Even small blocks are divided into a few segments, so that steps overlap. */
    int64_t bytes = stage->block * width / 4;
    if (bytes > SEGMENT_BYTES)
        bytes = SEGMENT_BYTES;
    if (bytes < SMALL_BYTES)
        bytes = SMALL_BYTES;
    ring->segment = bytes / width;
    ring->segments = round_up_division(stage->block, ring->segment);
    ring->first = stage->reduces ? 0 : size - 1;
    ring->messages = ring->segments * (size - 1) * (stage->reduces + stage->gathers);
}

/* Return address and number of elements of message i; 0 beyond the end of a short block. behind: 1
 * for sent messages, 2 for received ones. */
static int64_t ring_part(const struct ring *ring, int64_t i, int behind, unsigned char **part)
{
    const struct comm *comm = &ring->stage->group->comm;
    int64_t step = ring->first + i / ring->segments;
    int64_t block = (comm->rank - step - behind + 2 * (int64_t)comm->size) % comm->size;
    return stage_part(ring->stage, block, i % ring->segments * ring->segment, ring->segment, part);
}

static bool ring_adds(const struct ring *ring, int64_t i)
{
    return ring->first + i / ring->segments < ring->stage->group->comm.size - 1;
}

static unsigned char *ring_slot(const struct ring *ring, int64_t i)
{
    return ring->stage->request->scratch + i % LANE_WINDOW * SEGMENT_BYTES;
}

static void ring_post(struct ring *ring)
{
    int64_t width = comm_type_size(ring->stage->request->call.type);
    int64_t round = ring->segments * (ring->stage->group->comm.size - 1);
    unsigned char *part;
    while (ring->in.posted < ring->messages && !lane_full(&ring->in)) {
        int64_t i = ring->in.posted;
        /* Do not receive into a segment that is still being sent. */
        if (!ring_adds(ring, i) && ring->stage->reduces && ring->out.done <= i - round)
            break;
        int64_t count = ring_part(ring, i, 2, &part);
        lane_receive(&ring->in, ring_adds(ring, i) ? ring_slot(ring, i) : part, count * width);
    }
    while (ring->out.posted < ring->messages && !lane_full(&ring->out) &&
           ring->out.posted < ring->in.done + ring->segments) {
        int64_t count = ring_part(ring, ring->out.posted, 1, &part);
        lane_send(&ring->out, part, count * width);
    }
}

void ring_run(const struct stage *stage)
{
    const struct comm_request *request = stage->request;
    const struct comm *comm = &stage->group->comm;
    MPI_Comm communicator = stage->group->communicator;
    struct ring ring = {.stage = stage};
    struct idle idle = {.request = request};
    ring_plan(&ring);
    lane_open(&ring.in, communicator, (comm->rank + comm->size - 1) % comm->size, TAG_COLLECTIVE);
    lane_open(&ring.out, communicator, (comm->rank + 1) % comm->size, TAG_COLLECTIVE);
    while (ring.in.done < ring.messages || ring.out.done < ring.messages) {
        ring_post(&ring);
        bool came = lane_test(&ring.in);
        if (came && ring_adds(&ring, ring.in.done - 1)) {
            unsigned char *part;
            int64_t count = ring_part(&ring, ring.in.done - 1, 2, &part);
            combine(request->call.type, request->call.operation, part,
                    ring_slot(&ring, ring.in.done - 1), count);
        }
        bool left = lane_test(&ring.out);
        progress_idle(&idle, came || left);
    }
}
