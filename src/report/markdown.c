/* CommonMark with GitHub's tables. */
#include "report/markdown.h"

#include <ctype.h>
#include <string.h>

#include "report/escape.h"

void markdown_text(FILE *stream, const char *text)
{
    while (*text != '\0') {
        const int length = escape_character(text);
        if (*text == '<')
            fputs("&lt;", stream);
        else if (length == 0)
            fputc(strchr("\n\r\t", *text) != NULL ? ' ' : '?', stream);
        else
            fprintf(stream, "%s%.*s", strchr("|\\`*[]", *text) != NULL ? "\\" : "", length, text);
        text += length > 0 ? length : 1;
    }
}

void markdown_row(FILE *stream, int count, const char *const *cells)
{
    fputc('|', stream);
    for (int i = 0; i < count; i++) {
        fputc(' ', stream);
        markdown_text(stream, cells[i]);
        fputs(" |", stream);
    }
    fputc('\n', stream);
}

void markdown_link(FILE *stream, const char *name, const char *file)
{
    fputc('[', stream);
    markdown_text(stream, name);
    fputs("](", stream);
    for (; *file != '\0'; file++)
        if (isalnum((unsigned char)*file) || strchr("._-/", *file) != NULL)
            fputc(*file, stream);
        else
            fprintf(stream, "%%%02X", (unsigned)(unsigned char)*file);
    fputc(')', stream);
}
