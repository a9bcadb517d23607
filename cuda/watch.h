/* While the host waits for the GPU, somebody must look whether the collectives are still alive: a
 * kernel of NCCL waits for ever for a rank that is gone. */
#ifndef VITTRAIN_CUDA_WATCH_H
#define VITTRAIN_CUDA_WATCH_H

/* Called again and again while the host waits; ends the program when a collective has failed or
 * takes longer than mesh.timeout (comm_nccl.cu). */
void watch_turn(void);

#endif
