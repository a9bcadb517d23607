// SPDX-License-Identifier: BSD-3-Clause
/* Resident set size of this process. */
#ifndef VITTRAIN_CORE_RESIDENT_H
#define VITTRAIN_CORE_RESIDENT_H

#include <stdbool.h>
#include <stddef.h>

/* Return bytes of the resident set: all pages; private ones; those of files and of shared memory;
 * the peak of all. 0 if the kernel does not report it. */
size_t resident_now(void);
size_t resident_private(void);
size_t resident_shared(void);
size_t resident_peak(void);

/* Reset the peak. Return false if the kernel does not allow it. */
bool resident_peak_reset(void);

#endif
