// SPDX-License-Identifier: BSD-3-Clause
/* Attributes of an array in any format. */
#ifndef VITTRAIN_DATA_ARRAY_ATTRIBUTES_H
#define VITTRAIN_DATA_ARRAY_ATTRIBUTES_H

#include "data/array_path.h"
#include "data/listing.h"

/* Initialize with zeros. */
struct array_attributes {
    struct hdf5_attribute *attribute; /* [count] */
    int64_t count;
    char *values; /* attribute->offset counts from here */
};

/* Copy the attributes for whose names is_selected returns true. Call array_attributes_free in any
 * case. */
void array_attributes_select(const struct array_path *source, const char *array,
                             bool (*is_selected)(const char *name),
                             struct array_attributes *attributes);

/* Copy the attributes that describe values, such as units, and not how they are stored. */
void array_attributes_read(const struct array_path *source, const char *array,
                           struct array_attributes *attributes);

/* Return an attribute, or NULL. */
const struct hdf5_attribute *array_attributes_find(const struct array_attributes *attributes,
                                                   const char *name);

/* Return a text attribute, or "". */
const char *array_attributes_text(const struct array_attributes *attributes, const char *name);

void array_attributes_free(struct array_attributes *attributes);

/* Add the names of classes in the attribute class_names to the empty list `names`; none if the
 * array has no such attribute. Names that are not distinct are an error. Call listing_free in any
 * case. */
MUST_CHECK bool array_class_names(const struct array_path *source, const char *array,
                                  struct listing *names, struct error *error);

#endif
