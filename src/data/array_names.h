// SPDX-License-Identifier: BSD-3-Clause
/* Names of classes: the attribute class_names of an array. */
#ifndef VITTRAIN_DATA_ARRAY_NAMES_H
#define VITTRAIN_DATA_ARRAY_NAMES_H

#include "data/array_path.h"
#include "data/listing.h"

/* Add the names to the empty list `names`, in order; none if the array has no such attribute. Names
 * that are not distinct are an error. Call listing_free in any case. */
MUST_CHECK bool array_class_names(const struct array_path *source, const char *array,
                                  struct listing *names, struct error *error);

#endif
