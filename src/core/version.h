// SPDX-License-Identifier: BSD-3-Clause
/* Version of the program. */
#ifndef VITTRAIN_CORE_VERSION_H
#define VITTRAIN_CORE_VERSION_H

extern const char version_number[]; /* "0.3.0" */
extern const char version_commit[]; /* "1a2b3c4", "1a2b3c4-dirty", or empty if unknown */

#endif
