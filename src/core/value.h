/* JSON as this program writes it: calls of jansson that end the job where there is no memory, and
 * values that know what JSON has no words for. */
#ifndef VITTRAIN_CORE_VALUE_H
#define VITTRAIN_CORE_VALUE_H

#include <stdint.h>

struct json_t;

/* Take the value over. */
void value_put(struct json_t *object, const char *key, struct json_t *value);
void value_append(struct json_t *array, struct json_t *value);

/* Null for NAN and infinity, for a negative count, for no text. */
struct json_t *value_number(double value);
struct json_t *value_count(int64_t value);
struct json_t *value_text(const char *text);

/* A name as JSON's string. JSON is UTF-8, names of folders (and so of classes) are any bytes: where
 * they are no UTF-8 every byte that is not ASCII becomes a question mark. */
struct json_t *value_name(const char *text);

/* The object as text, which the caller frees; frees the object. */
char *value_to_text(struct json_t *object);

#endif
