/* How much of this process lies in memory, as the kernel counts it. */
#ifndef VITTRAIN_CORE_RESIDENT_H
#define VITTRAIN_CORE_RESIDENT_H

#include <stddef.h>

/* Bytes now, and the most so far; 0 where the kernel does not say. */
size_t resident_now(void);
size_t resident_peak(void);

#endif
