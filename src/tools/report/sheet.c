// SPDX-License-Identifier: BSD-3-Clause
#include "tools/report/sheet.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

#include "tools/report/escape.h"

/* Longer tables scroll in a box. */
enum { ROWS_AT_ONCE = 24 };

void sheet_column(struct sheet *sheet, const char *name, enum sheet_kind kind)
{
    sheet->column =
        allocate_resized(sheet->column, (size_t)(sheet->columns + 1) * sizeof *sheet->column);
    snprintf(sheet->column[sheet->columns].name, sizeof sheet->column[0].name, "%s", name);
    sheet->column[sheet->columns++].kind = kind;
}

void sheet_columns(struct sheet *sheet, enum sheet_kind kind, ...)
{
    va_list names;
    va_start(names, kind);
    for (const char *name; (name = va_arg(names, const char *)) != NULL;)
        sheet_column(sheet, name, kind);
    va_end(names);
}

void sheet_text(struct sheet *sheet, const char *text)
{
    lines_add(&sheet->cells, "%s", text == NULL ? "" : text);
}

void sheet_figure(struct sheet *sheet, enum figure figure, double value)
{
    char text[FORMAT_TEXT] = "";
    if (!isnan(value))
        format_figure(text, figure, value);
    sheet_text(sheet, text);
}

int sheet_rows(const struct sheet *sheet)
{
    return sheet->columns == 0 ? 0 : sheet->cells.count / sheet->columns;
}

static void html_cell(const struct sheet *sheet, int column, const char *text, FILE *stream)
{
    const enum sheet_kind kind = sheet->column[column].kind;
    const char *tag = column == 0 ? "th" : "td";
    fprintf(stream, "<%s%s%s>%s", tag, column == 0 ? " scope=\"row\"" : "",
            kind == SHEET_NUMBER || kind == SHEET_SHARE ? " class=\"n\"" : "",
            kind == SHEET_CODE ? "<code>" : "");
    escape_html(stream, text);
    fprintf(stream, "%s</%s>", kind == SHEET_CODE ? "</code>" : "", tag);
    if (kind == SHEET_SHARE)
        fprintf(stream, "<td class=\"m\"><span class=\"bar s0\" style=\"--v:%.2f\"></span></td>",
                strtod(text, NULL) / 100);
}

void sheet_html(const struct sheet *sheet, FILE *stream)
{
    if (sheet_rows(sheet) == 0)
        return;
    if (sheet->note[0] != '\0')
        fprintf(stream, "<p class=\"note\">%s</p>\n", sheet->note);
    /* With the focus, the box can be scrolled by keyboard. */
    fprintf(stream,
            "<div class=\"scroll%s\" role=\"region\" tabindex=\"0\" aria-label=\"%s\">"
            "<table class=\"%s\">\n<thead><tr>",
            sheet_rows(sheet) > ROWS_AT_ONCE ? " tall" : "", sheet->title, sheet->class);
    for (int i = 0; i < sheet->columns; i++) {
        const enum sheet_kind kind = sheet->column[i].kind;
        fprintf(stream, "<th scope=\"col\"%s>",
                kind == SHEET_NUMBER || kind == SHEET_SHARE ? " class=\"n\"" : "");
        escape_label(stream, sheet->column[i].name);
        fprintf(stream, "</th>%s", kind == SHEET_SHARE ? "<td class=\"m\"></td>" : "");
    }
    fputs("</tr></thead>\n<tbody>\n", stream);
    for (int row = 0; row < sheet_rows(sheet); row++) {
        fputs("<tr>", stream);
        for (int i = 0; i < sheet->columns; i++)
            html_cell(sheet, i, sheet->cells.line[row * sheet->columns + i], stream);
        fputs("</tr>\n", stream);
    }
    fputs("</tbody></table></div>\n", stream);
}

void sheet_markdown(const struct sheet *sheet, FILE *stream)
{
    if (sheet_rows(sheet) == 0)
        return;
    const char **names = allocate((size_t)sheet->columns, sizeof *names);
    fprintf(stream, "\n## %s\n\n", sheet->title);
    if (sheet->note[0] != '\0')
        fprintf(stream, "%s\n\n", sheet->note);
    for (int i = 0; i < sheet->columns; i++)
        names[i] = sheet->column[i].name;
    markdown_row(stream, sheet->columns, names);
    free(names);
    for (int i = 0; i < sheet->columns; i++) {
        const enum sheet_kind kind = sheet->column[i].kind;
        fputs(kind == SHEET_NUMBER || kind == SHEET_SHARE ? "|---:" : "|---", stream);
    }
    fputs("|\n", stream);
    for (int row = 0; row < sheet_rows(sheet); row++)
        markdown_row(stream, sheet->columns,
                     (const char *const *)sheet->cells.line + row * sheet->columns);
}

void sheet_free(struct sheet *sheet)
{
    lines_free(&sheet->cells);
    free(sheet->column);
    *sheet = (struct sheet){0};
}
