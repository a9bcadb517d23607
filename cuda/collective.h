/* Collectives of GPUs: the thin line between our groups (comm_nccl.cu) and the library.
 * collective_nccl.cu calls NCCL; emulation/collective.cpp does the same arithmetic between the
 * processes of one machine, so that everything above this line runs in tests. What can fail returns
 * NULL, or a text that says why, which lives until the next call. */
#ifndef VITTRAIN_CUDA_COLLECTIVE_H
#define VITTRAIN_CUDA_COLLECTIVE_H

#include "cuda.h"

extern "C" {
#include "comm/combine.h"
}

enum { COLLECTIVE_ID_BYTES = 128 };

/* A communicator: this rank's part of a group. */
struct collective;

enum call_kind { CALL_ALL_REDUCE, CALL_REDUCE_SCATTER, CALL_ALL_GATHER, CALL_BROADCAST };

/* Buffers and counts as in comm.h: in place, `count` elements a rank. */
struct collective_call {
    enum call_kind kind;
    void *buffer;
    int64_t count;
    enum comm_type type;
    enum comm_operation operation;
    int root;
};

/* "NCCL 2.28.9" */
void collective_library(char *text, size_t size);
int collective_version(void); /* 22809 */

/* By one rank: what all ranks of a new group need. */
const char *collective_id(void *id);

/* Collective: returns when all `size` ranks have come, on the device that is set. */
const char *collective_open(const void *id, int rank, int size, struct collective **opened);
/* Collective, after all calls. */
void collective_close(struct collective *collective);

/* Stops the kernels of all calls on these communicators and frees the communicators, which no
 * thread may use any more. May block for ever. */
void collective_abort(struct collective *const *collectives, int count);

/* What calls under way have met, which nobody waits for. */
const char *collective_error(struct collective *collective);

/* Calls will be on this memory, which lives until collective_close. */
void collective_use_memory(struct collective *collective, void *memory, size_t bytes);

/* Queues the call on the stream. */
const char *collective_run(struct collective *collective, const struct collective_call *call,
                           cudaStream_t stream);

#endif
