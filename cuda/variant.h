// SPDX-License-Identifier: BSD-3-Clause
/* Measurement of work that can be queued in several ways, and the choice of the fastest variant of
 * an operation. */
#ifndef VITTRAIN_CUDA_VARIANT_H
#define VITTRAIN_CUDA_VARIANT_H

#include "cuda.h"

enum { VARIANTS_MOST = 4 };

/* Queue a variant. Return false if it cannot run; nothing is queued then. */
typedef bool variant_queue(void *context, int variant);

/* Return the seconds that a variant takes, INFINITY if it cannot run: the median of 10 runs, or of
 * as many as fit into 10 ms, but at least 3. Two runs before them load the kernels and estimate the
 * time. Variant 0 is measured first; it also runs for about 10 ms (at most 100 runs) before,
 * because the clock of an idle GPU differs. So a choice takes at most 10 ms and 12 ms per variant
 * if a run takes less than 1 ms, and 5 runs per variant if a run takes more than 10 ms. */
double variant_time(struct stream *stream, variant_queue *queue, void *context, int variant);

/* Call this before choices_make, which locks the file of choices: wait for the stream and for this
 * process's collectives. The first launch of a kernel loads it, which may wait for all kernels that
 * run: for a collective, and so for ranks that wait for the lock. */
void variant_settle(struct stream *stream);

/* True if the stream's work is being recorded in a graph, so that nothing can be measured. */
bool stream_is_recorded(struct stream *stream);

/* Queue the fastest of `count` variants. The first call with a key (device/algorithm_choices.h)
 * measures them, so a variant may run several times. Without measurement (in a recording, or if
 * results must be reproducible) variant 0 is used, which must always run. A choice adopted from
 * other ranks or a checkpoint is used if that variant runs, else variant 0. */
void variant_run(struct stream *stream, const char *key, int count, variant_queue *queue,
                 void *context);

#endif
