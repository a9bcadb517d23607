// SPDX-License-Identifier: BSD-3-Clause
/* Advice for a run that does not fit into memory. */
#ifndef VITTRAIN_PLAN_FIT_H
#define VITTRAIN_PLAN_FIT_H

#include "train/session.h"

/* Names the batch, strategy or activation checkpointing with which the session would fit into
 * `room` bytes per rank. A session_advisor (train/session.h); local. */
void fit_advise(const struct session *session, const struct image_source *source, bool training,
                size_t room, char *advice, size_t size);

#endif
