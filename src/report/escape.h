/* Text that came from elsewhere (names of runs, classes, hosts) in what programs read as HTML, SVG
 * or CSV. Bytes that are no UTF-8 or no printable character become U+FFFD. */
#ifndef VITTRAIN_REPORT_ESCAPE_H
#define VITTRAIN_REPORT_ESCAPE_H

#include <stdio.h>

/* Inside an element or a quoted attribute of HTML and XML. */
void escape_html(FILE *stream, const char *text);

/* Lines in a block that is shown as it is: they stay lines. */
void escape_block(FILE *stream, const char *text);

/* A cell of a CSV; quoted where it has to be. */
void escape_csv(FILE *stream, const char *text);

/* The length of the character of UTF-8 that `text` begins with; 0: it begins with none. */
int escape_character(const char *text);

#endif
