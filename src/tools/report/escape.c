// SPDX-License-Identifier: BSD-3-Clause
#include "tools/report/escape.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

/* False for overlong forms, surrogates, code points above U+10FFFF and XML's two noncharacters. */
static bool sequence_is_good(const unsigned char *byte, int length)
{
    for (int i = 1; i < length; i++)
        if ((byte[i] & 0xC0) != 0x80)
            return false;
    switch (byte[0]) {
    case 0xC2: /* below 0xA0: control characters */
    case 0xE0:
        return byte[1] >= 0xA0;
    case 0xED:
        return byte[1] < 0xA0;
    case 0xEF:
        return !(byte[1] == 0xBF && byte[2] >= 0xBE);
    case 0xF0:
        return byte[1] >= 0x90;
    case 0xF4:
        return byte[1] < 0x90;
    default:
        return true;
    }
}

int escape_character(const char *text)
{
    const unsigned char *byte = (const unsigned char *)text;
    if (byte[0] < 0x80)
        return byte[0] >= ' ' && byte[0] != 0x7F;
    const int length = byte[0] >= 0xF5   ? 0
                       : byte[0] >= 0xF0 ? 4
                       : byte[0] >= 0xE0 ? 3
                       : byte[0] >= 0xC2 ? 2
                                         : 0;
    return length > 0 && sequence_is_good(byte, length) ? length : 0;
}

/* Write the text; the character special[i] becomes instead[i]. */
static void escape_with(FILE *stream, const char *text, const char *special,
                        const char *const *instead)
{
    for (int length; *text != '\0'; text += length > 0 ? length : 1) {
        const char *found = strchr(special, *text);
        length = escape_character(text);
        if (found != NULL)
            fputs(instead[found - special], stream);
        else if (length == 0)
            fputs("\xEF\xBF\xBD", stream); /* U+FFFD, the replacement character */
        else
            fwrite(text, 1, (size_t)length, stream);
    }
}

void escape_html(FILE *stream, const char *text)
{
    static const char *const entities[] = {"&lt;", "&gt;", "&amp;", "&quot;", "&#39;"};
    escape_with(stream, text, "<>&\"'", entities);
}

void escape_label(FILE *stream, const char *text)
{
    for (const char *hyphen; (hyphen = strstr(text, "-1")) != NULL; text = hyphen + 1) {
        char part[256];
        snprintf(part, sizeof part, "%.*s", (int)(hyphen - text), text);
        escape_html(stream, part);
        fputs("\xE2\x80\x91", stream); /* U+2011 */
    }
    escape_html(stream, text);
}

void escape_block(FILE *stream, const char *text)
{
    static const char *const kept[] = {"\n", "\t"};
    escape_with(stream, text, "\n\t", kept);
}

void escape_csv(FILE *stream, const char *text)
{
    static const char *const doubled[] = {"\"\""};
    const char *quote = strpbrk(text, ",\"") != NULL || *text == ' ' ? "\"" : "";
    fputs(quote, stream);
    escape_with(stream, text, "\"", doubled);
    fputs(quote, stream);
}

/* ---- Markdown: CommonMark with GitHub's tables */

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

void markdown_cell(FILE *stream, const char *text)
{
    fputc(' ', stream);
    markdown_text(stream, text);
    fputs(" |", stream);
}

void markdown_row(FILE *stream, int count, const char *const *cells)
{
    fputc('|', stream);
    for (int i = 0; i < count; i++)
        markdown_cell(stream, cells[i]);
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
