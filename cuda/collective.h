// SPDX-License-Identifier: BSD-3-Clause
/* Collectives of GPUs: the interface between our groups (comm_nccl.cu) and the library.
 * collective_nccl.cu calls NCCL; test/emulation/collective.cpp computes the same between processes
 * of one machine, so that everything above this interface runs in tests. Functions that can fail
 * return NULL, or an error text that is valid until the next call. */
#ifndef VITTRAIN_CUDA_COLLECTIVE_H
#define VITTRAIN_CUDA_COLLECTIVE_H

#include "cuda.h"

extern "C" {
#include "comm/comm.h"
}

enum { COLLECTIVE_ID_BYTES = 128 };

/* A communicator: this rank's member of a group. */
struct collective;

/* "NCCL 2.28.9" */
void collective_library(char *text, size_t size);
int collective_version(void); /* 22809 */

/* The ranks of a new group send their addresses to a root, the rank that created the id with which
 * they join. True if a group can have several roots. Not collective; may differ between ranks. */
bool collective_has_roots(void);

/* Called by each root: create its id and write it to `id`. */
const char *collective_id(void *id);

/* Collective: return when all `size` ranks have joined, on the current device. `ids` is the same on
 * all ranks: `roots` ids, each created by the first rank of a block of ranks, in the order of
 * the blocks. The first size % roots blocks have one rank more than the others. */
const char *collective_open(const void *ids, int roots, int rank, int size,
                            struct collective **opened);
/* Collective; called after all other calls. */
void collective_close(struct collective *collective);

/* Stop the kernels of all calls on these communicators and free the communicators, which no thread
 * may use any more. May block without limit. */
void collective_abort(struct collective *const *collectives, int count);

/* Return an asynchronous error of queued calls. */
const char *collective_error(struct collective *collective);

/* Register memory that calls will use until collective_close. */
void collective_use_memory(struct collective *collective, void *memory, size_t bytes);

/* Queue the collective on the stream; ignores `after`. `parts` is read only before the function
 * returns. An all-to-all connects ranks that have not exchanged messages before: it returns when
 * they have called it, too. */
const char *collective_run(struct collective *collective, const struct comm_call *call,
                           cudaStream_t stream);

#endif
