// SPDX-License-Identifier: BSD-3-Clause
/* Advice for a run that does not fit into memory. */
#ifndef VITTRAIN_PLAN_FIT_H
#define VITTRAIN_PLAN_FIT_H

#include "core/error.h"

/* Local. If a session did not fit into memory (session_shortage), add to the error the batch,
 * strategy or activation checkpointing with which it would fit. */
void fit_advise(struct error *error);

#endif
