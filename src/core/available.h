/* How much more memory and how much of the processors the processes of this machine, or of this
 * container, can use. */
#ifndef VITTRAIN_CORE_AVAILABLE_H
#define VITTRAIN_CORE_AVAILABLE_H

#include <stddef.h>

/* Bytes: what the kernel has available, or less where a control group (of either version) or one
 * above it leaves less. Memory that is only a cache of files counts as available. 0: not known.
 * root: where /proc and /sys lie; "" but in tests. */
size_t memory_available(const char *root);

/* CPUs whose whole time the control group (of either version), or one above it, may use: 1.5 is one
 * and a half. 0: no limit. */
double cores_quota(const char *root);

#endif
