#include "report/escape.h"

#include <stdbool.h>
#include <string.h>

/* U+FFFD, the replacement character. */
#define REPLACEMENT "\xEF\xBF\xBD"

/* False for overlong forms, surrogates, code points above U+10FFFF and XML's two noncharacters. */
static bool sequence_is_good(const unsigned char *byte, int length)
{
    for (int i = 1; i < length; i++)
        if ((byte[i] & 0xC0) != 0x80)
            return false;
    switch (byte[0]) {
    case 0xC2:
        return byte[1] >= 0xA0; /* below: control characters */
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

/* Return the replacement of a character; NULL: the character is kept. */
typedef const char *(*substitution)(char character);

static void escape_with(FILE *stream, const char *text, substitution substitute)
{
    while (*text != '\0') {
        const int length = escape_character(text);
        const char *instead = length == 1 ? substitute(*text) : length == 0 ? REPLACEMENT : NULL;
        if (instead != NULL)
            fputs(instead, stream);
        else
            fwrite(text, 1, (size_t)length, stream);
        text += length > 0 ? length : 1;
    }
}

static const char *substitute_html(char character)
{
    switch (character) {
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '&':
        return "&amp;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

void escape_html(FILE *stream, const char *text)
{
    escape_with(stream, text, substitute_html);
}

void escape_block(FILE *stream, const char *text)
{
    for (int length; *text != '\0'; text += length > 0 ? length : 1) {
        length = escape_character(text);
        if (length > 0 || *text == '\n' || *text == '\t')
            fwrite(text, 1, length > 0 ? (size_t)length : 1, stream);
        else
            fputs(REPLACEMENT, stream);
    }
}

static const char *substitute_csv(char character)
{
    return character == '"' ? "\"\"" : NULL;
}

void escape_csv(FILE *stream, const char *text)
{
    const bool quoted = strpbrk(text, ",\"") != NULL || *text == ' ';
    if (quoted)
        fputc('"', stream);
    escape_with(stream, text, substitute_csv);
    if (quoted)
        fputc('"', stream);
}
