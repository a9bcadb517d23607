// SPDX-License-Identifier: BSD-3-Clause
/* Memory and CPU time available to this machine or container, and resident memory of this process.
 */
#ifndef VITTRAIN_CORE_MEMORY_H
#define VITTRAIN_CORE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Return the available memory in bytes: that of the kernel, limited by the control groups (cgroup
 * v1 or v2) of this process. Page cache counts as available. 0: unknown. `root` is the prefix of
 * /proc and /sys; "" except in tests. */
size_t memory_available(const char *root);

/* Return the free bytes of /dev/shm; -1, with errno, if it cannot be used. */
double shared_memory_free(void);

/* True if this process can map `bytes` more: its address space may be limited (ulimit -v). */
bool memory_mappable(size_t bytes);

/* Return the CPU quota of the control groups in CPUs; 1.5 is one and a half. 0: no limit. */
double cores_quota(const char *root);

/* Return bytes of the resident set: all pages; private ones; those of files and of shared memory;
 * the peak of all. 0 if the kernel does not report it. */
size_t resident_now(void);
size_t resident_private(void);
size_t resident_shared(void);
size_t resident_peak(void);

/* Reset the peak. Return false if the kernel does not allow it. */
bool resident_peak_reset(void);

#endif
