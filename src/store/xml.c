/* A scan for elements by name. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "store/xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *find(const char *begin, const char *end, const char *text)
{
    size_t length = strlen(text);
    if (begin >= end)
        return NULL;
    return memmem(begin, (size_t)(end - begin), text, length);
}

bool xml_next(struct xml_span *rest, const char *name, struct xml_span *content)
{
    char open[72], close[72];
    snprintf(open, sizeof open, "<%.64s", name);
    snprintf(close, sizeof close, "</%.64s>", name);
    const char *from = rest->begin;
    while ((from = find(from, rest->end, open)) != NULL) {
        from += strlen(open);
        if (from < rest->end && strchr("> \t\r\n/", *from) != NULL)
            break;
    }
    const char *begin = from != NULL ? find(from, rest->end, ">") : NULL;
    if (begin == NULL)
        return false;
    *content = (struct xml_span){begin + 1, begin + 1};
    rest->begin = begin + 1;
    if (begin[-1] == '/') /* <name/> */
        return true;
    const char *end = find(begin + 1, rest->end, close);
    if (end == NULL)
        return false;
    content->end = end;
    rest->begin = end + strlen(close);
    return true;
}

/* "&amp;" and the like at `from`: its byte and length; other bytes stand for themselves. */
static char resolve(const char *from, const char *end, size_t *length)
{
    static const struct {
        const char *text;
        char letter;
    } names[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    *length = 1;
    if (*from != '&')
        return *from;
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        size_t bytes = strlen(names[n].text);
        if ((size_t)(end - from) >= bytes && memcmp(from, names[n].text, bytes) == 0) {
            *length = bytes;
            return names[n].letter;
        }
    }
    if (end - from >= 4 && from[1] == '#') {
        bool hexadecimal = from[2] == 'x' || from[2] == 'X';
        char *behind;
        long number = strtol(from + (hexadecimal ? 3 : 2), &behind, hexadecimal ? 16 : 10);
        if (behind < end && *behind == ';' && number > 0 && number < 128) {
            *length = (size_t)(behind + 1 - from);
            return (char)number;
        }
    }
    return *from;
}

bool xml_text(struct xml_span within, const char *name, char *text, size_t size)
{
    struct xml_span content;
    size_t used = 0, length;
    text[0] = '\0';
    if (!xml_next(&within, name, &content))
        return false;
    for (const char *from = content.begin; from < content.end; from += length) {
        if (used + 1 >= size) {
            text[0] = '\0';
            return false;
        }
        text[used++] = resolve(from, content.end, &length);
    }
    text[used] = '\0';
    return true;
}
