/* Endings of names: the kind of a file is known by them. */
#include "core/text.h"

#include <string.h>

bool text_ends_with(const char *text, const char *ending)
{
    const size_t length = strlen(text), tail = strlen(ending);
    return length > tail && strcmp(text + length - tail, ending) == 0;
}
