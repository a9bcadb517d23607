// SPDX-License-Identifier: BSD-3-Clause
/* The device of a rank and its memory: a GPU's own, or the host's. */
#ifndef VITTRAIN_TRAIN_HARDWARE_H
#define VITTRAIN_TRAIN_HARDWARE_H

#include "comm/comm.h"
#include "device/device.h"

struct options;

/* Opens the device of run.backend: GPU number `node->rank`, or the CPU with this rank's share of
 * the node's cores. auto prefers a GPU and logs why it cannot use one. Local. Returns NULL and an
 * error. */
struct device *hardware_open(const struct options *options, const struct comm *node,
                             struct error *error);

/* Returns the threads of a rank: run.threads, else its share of the node's cores or the cores to
 * which the launcher has bound it, whichever is less. */
int hardware_threads(const struct options *options, const struct comm *node);

/* True for GPUs, whose memory is not the host's. */
bool hardware_has_memory(const struct device *device);

/* Pages of program, library and data files do not count as memory of a host: the processes of a
 * node share them, the kernel can drop them, and their resident part differs between systems and
 * starts. Shared memory does not count either; session_memory_used adds this rank's part of weights
 * and gradients. */

/* Return the bytes in use before a run allocates its memory. On a GPU: all that is not free. On a
 * host: the private memory of this process in whole MiB, which does not vary between starts, and
 * the library_bytes of struct device_limits. */
size_t hardware_memory_base(struct device *device);
/* Return the bytes in use now, or the peak so far. On a GPU, both are all that is not free now. On
 * a host, they are the resident set size of this process without the pages of files and of shared
 * memory that are resident now. */
size_t hardware_memory(struct device *device, bool peak);

/* Percent of the free memory that stays unused: libraries load kernels at their first use, and the
 * other processes of a node need memory, too. */
enum { RESERVE_PERCENT = 5 };

/* Collective over the ranks of a node, before they allocate. Returns the bytes that each rank can
 * allocate besides its `base`: the rest of plan.memory if that is set; else the GPU's free memory,
 * or an equal part of the node's available memory, less the reserve. 0: unknown. */
size_t hardware_memory_room(struct device *device, struct comm *node, const struct options *options,
                            size_t base);

/* Collective. Fails unless all ranks compute with the same instructions, because different rounding
 * would make their copies of the weights drift apart; and if two ranks of a node use the same GPU,
 * unless cuda.share=yes. */
MUST_CHECK bool hardware_check(const struct options *options, const struct device_limits *limits,
                               struct comm *node, struct comm *world, struct error *error);

/* Return the peak rate of matrix products in this type in FLOP/s, for the MFU: of the data sheet
 * for GPUs; for CPUs the number of threads times the rate of one thread, which is measured (0.05 s
 * of CPU time, at most 0.5 s). NAN: unknown. */
double peak_find(struct device *device, enum data_type type);

#endif
