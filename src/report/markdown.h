/* Markdown: table rows, links. */
#ifndef VITTRAIN_REPORT_MARKDOWN_H
#define VITTRAIN_REPORT_MARKDOWN_H

#include <stdio.h>

/* Write text from outside (names, hosts, log lines): markup is escaped, line ends become spaces. */
void markdown_text(FILE *stream, const char *text);

/* Write "| a | b | c |" with escaped cells. */
void markdown_row(FILE *stream, int count, const char *const *cells);

/* "[name](file)" */
void markdown_link(FILE *stream, const char *name, const char *file);

#endif
