// SPDX-License-Identifier: BSD-3-Clause
/* Attributes of an array that describe its values, such as units, for a copy of the array. */
#ifndef VITTRAIN_DATA_ARRAY_ATTRIBUTES_H
#define VITTRAIN_DATA_ARRAY_ATTRIBUTES_H

#include "data/array_path.h"

/* Initialize with zeros. */
struct array_attributes {
    struct hdf5_attribute *attribute; /* [count] */
    int64_t count;
    char *values; /* attribute->offset counts from here */
};

/* Copy the attributes of an array, except those that state how values are stored. Call
 * array_attributes_free in any case. */
void array_attributes_read(const struct array_path *source, const char *array,
                           struct array_attributes *attributes);

/* Return a text attribute, or "". */
const char *array_attributes_text(const struct array_attributes *attributes, const char *name);

void array_attributes_free(struct array_attributes *attributes);

#endif
