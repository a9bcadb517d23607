// SPDX-License-Identifier: BSD-3-Clause
/* While the host waits for the GPU, it must check that the collectives are alive: a kernel of NCCL
 * waits without a timeout for a rank that has died. */
#ifndef VITTRAIN_CUDA_WATCH_H
#define VITTRAIN_CUDA_WATCH_H

/* watch_begin: the host starts waiting. watch_turn: called repeatedly while it waits; end the
 * program if a collective has failed or exceeds mesh.timeout (comm_nccl.cu). */
void watch_begin(void);
void watch_turn(void);

/* Wait until no collective of this process is in flight, except those in graphs. */
void watch_drain(void);

#endif
