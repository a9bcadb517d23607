// SPDX-License-Identifier: BSD-3-Clause
/* JSON values. */
#include "core/json_value.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/allocate.h"
#include "core/error.h"

/* Digits that distinguish any two floats. */
enum { DIGITS = 9 };

/* jansson calls that create or store a value fail only if memory is short. */
void value_put(json_t *object, const char *key, json_t *value)
{
    ENSURE_MEMORY(value != NULL && json_object_set_new(object, key, value) == 0,
                  "no memory for JSON");
}

void value_append(json_t *array, json_t *value)
{
    ENSURE_MEMORY(value != NULL && json_array_append_new(array, value) == 0, "no memory for JSON");
}

json_t *value_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *value_count(int64_t value)
{
    return value >= 0 ? json_integer(value) : json_null();
}

json_t *value_text(const char *text)
{
    return text == NULL ? json_null() : value_name(text);
}

json_t *value_name(const char *text)
{
    json_t *value = json_string(text);
    if (value != NULL)
        return value;
    char *plain = allocate_copy(text);
    for (char *letter = plain; *letter != '\0'; letter++)
        if ((unsigned char)*letter >= 0x80)
            *letter = '?';
    value = json_string(plain);
    ENSURE_MEMORY(value != NULL, "no memory for JSON");
    free(plain);
    return value;
}

/* Write each array of numbers, such as a row of a matrix, on one line. */
static void rows_join(char *text)
{
    char *to = text;
    bool quoted = false;
    for (const char *from = text; *from != '\0'; from++) {
        if (quoted && *from == '\\')
            *to++ = *from++;
        else
            quoted ^= *from == '"';
        *to++ = *from;
        const size_t length = quoted || *from != '[' ? 0 : strspn(from + 1, "0123456789+-.eE, \n");
        if (length == 0 || from[1 + length] != ']')
            continue;
        for (const char *end = from + length; from < end;) {
            if (*++from > ' ')
                *to++ = *from;
            if (*from == ',')
                *to++ = ' ';
        }
    }
    *to = '\0';
}

char *value_to_text(json_t *object)
{
    char *text = json_dumps(object, JSON_INDENT(1) | JSON_REAL_PRECISION(DIGITS));
    ENSURE_MEMORY(text != NULL, "no memory for JSON");
    json_decref(object);
    rows_join(text);
    return text;
}
