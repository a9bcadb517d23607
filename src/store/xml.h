/* What object stores answer is XML of a few plain elements; this finds them, whatever stands
 * around. No attributes, comments or nested elements of one name: the replies have none. */
#ifndef VITTRAIN_STORE_XML_H
#define VITTRAIN_STORE_XML_H

#include <stdbool.h>
#include <stddef.h>

struct xml_span {
    const char *begin, *end;
};

/* The content of the next element of that name; `rest` then begins behind it. */
bool xml_next(struct xml_span *rest, const char *name, struct xml_span *content);

/* The text of the first element of that name, &amp; and the like resolved; false (and empty): there
 * is none, or it does not fit. */
bool xml_text(struct xml_span within, const char *name, char *text, size_t size);

#endif
