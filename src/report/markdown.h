/* Markdown that is also read as plain text: rows of tables, fenced blocks, links. */
#ifndef VITTRAIN_REPORT_MARKDOWN_H
#define VITTRAIN_REPORT_MARKDOWN_H

#include <stdio.h>

/* Text of others (names, hosts, lines of a log): what would be a mark is escaped, ends of lines
 * become spaces. Fit for a cell. */
void markdown_text(FILE *stream, const char *text);

/* "| a | b | c |": cells are text of others. */
void markdown_row(FILE *stream, int count, const char *const *cells);

/* A block that is shown as it is; a fence longer than any in it. */
void markdown_block(FILE *stream, const char *kind, const char *text);

/* "[name](file)" */
void markdown_link(FILE *stream, const char *name, const char *file);

#endif
