/* How much of this process lies in memory, as the kernel counts it. */
#ifndef VITTRAIN_CORE_RESIDENT_H
#define VITTRAIN_CORE_RESIDENT_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the resident set: all now, those now that no file or other process shares, and the most
 * so far; 0 if the kernel does not report them. */
size_t resident_now(void);
size_t resident_private(void);
size_t resident_peak(void);

/* From here on resident_peak counts anew; false: the kernel does not let us. */
bool resident_peak_reset(void);

#endif
