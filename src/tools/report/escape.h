// SPDX-License-Identifier: BSD-3-Clause
/* Escape text from outside (names of runs, classes, hosts) for HTML, CSV and Markdown. Bytes that
 * are not printable UTF-8 become U+FFFD. */
#ifndef VITTRAIN_TOOLS_REPORT_ESCAPE_H
#define VITTRAIN_TOOLS_REPORT_ESCAPE_H

#include <stdio.h>

/* For an element or a quoted attribute. */
void escape_html(FILE *stream, const char *text);

/* The same for a label, which browsers do not break at the hyphen of "top-1". */
void escape_label(FILE *stream, const char *text);

/* For preformatted text: line ends and tabs are kept. */
void escape_block(FILE *stream, const char *text);

/* For a cell of a CSV file; quoted if necessary. */
void escape_csv(FILE *stream, const char *text);

/* Return the length of the first UTF-8 character in bytes; 0: not printable UTF-8. */
int escape_character(const char *text);

/* Write text from outside (names, hosts, log lines): markup is escaped, line ends become spaces. */
void markdown_text(FILE *stream, const char *text);

/* Write " text |", escaped. */
void markdown_cell(FILE *stream, const char *text);

/* Write "| a | b | c |" with escaped cells. */
void markdown_row(FILE *stream, int count, const char *const *cells);

/* "[name](file)" */
void markdown_link(FILE *stream, const char *name, const char *file);

#endif
