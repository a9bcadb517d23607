/* While the host waits for the GPU, somebody must look whether the collectives are still alive: a
 * kernel of NCCL waits for ever for a rank that is gone. */
#ifndef VITTRAIN_CUDA_WATCH_H
#define VITTRAIN_CUDA_WATCH_H

/* The host begins to wait; then, again and again while it waits: ends the program when a collective
 * has failed or takes longer than mesh.timeout (comm_nccl.cu). */
void watch_begin(void);
void watch_turn(void);

#endif
