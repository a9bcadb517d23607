// SPDX-License-Identifier: BSD-3-Clause
/* Attributes of an array in any format: a JSON object as in struct hdf5_object. */
#ifndef VITTRAIN_DATA_ARRAY_ATTRIBUTES_H
#define VITTRAIN_DATA_ARRAY_ATTRIBUTES_H

#include "data/array_path.h"
#include "data/listing.h"

struct json_t;

/* Return the attributes of an array, or of the file if the name is empty. The caller releases them
 * with json_decref. NULL: none. */
struct json_t *array_attributes(const struct array_path *source, const char *array);

/* True if an attribute of this name describes the values. False if it describes how the file stores
 * them, or refers to other arrays. */
bool array_attribute_describes(const char *name);

/* Return an attribute that is a text, or the first of a list, or "". */
const char *array_attribute_text(const struct json_t *attributes, const char *name);

/* Copy at most `most` numbers of an attribute, and return their number. */
int array_attribute_numbers(const struct json_t *value, double *numbers, int most);

/* Add the names of classes in the attribute class_names to the empty list `names`; none if the
 * array has no such attribute. Names that are not distinct are an error. Call listing_free in any
 * case. */
MUST_CHECK bool array_class_names(const struct array_path *source, const char *array,
                                  struct listing *names, struct error *error);

#endif
