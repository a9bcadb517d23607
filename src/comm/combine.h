// SPDX-License-Identifier: BSD-3-Clause
/* Arithmetic of reductions on the host. */
#ifndef VITTRAIN_COMM_COMBINE_H
#define VITTRAIN_COMM_COMBINE_H

#include "comm/comm.h"

/* into[i] = into[i] (operation) from[i]. 16-bit types are added in fp32 and rounded to nearest
 * even.
 */
void combine(enum comm_type type, enum comm_operation operation, void *into, const void *from,
             int64_t count);
int64_t comm_type_size(enum comm_type type);
const char *comm_type_name(enum comm_type type);

#endif
