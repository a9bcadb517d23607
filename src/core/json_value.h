// SPDX-License-Identifier: BSD-3-Clause
/* JSON values: jansson calls that abort when memory is short, and conversions to JSON. */
#ifndef VITTRAIN_CORE_JSON_VALUE_H
#define VITTRAIN_CORE_JSON_VALUE_H

#include <stdint.h>

struct json_t;

/* Add a value; takes ownership of it. */
void value_put(struct json_t *object, const char *key, struct json_t *value);
void value_append(struct json_t *array, struct json_t *value);

/* Convert to JSON. NaN, infinity, a negative count and a NULL text become null. */
struct json_t *value_number(double value);
struct json_t *value_count(int64_t value);
struct json_t *value_text(const char *text);

/* Convert a name to a JSON string. In a name that is not valid UTF-8, as a folder's may be, each
 * non-ASCII byte becomes a question mark. */
struct json_t *value_name(const char *text);

/* Return the object as text, to be freed by the caller; frees the object. */
char *value_to_text(struct json_t *object);

#endif
