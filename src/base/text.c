// SPDX-License-Identifier: BSD-3-Clause
/* Small functions on text. */
#include "base/text.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

bool text_ends_with(const char *text, const char *ending)
{
    const size_t length = strlen(text), tail = strlen(ending);
    return length > tail && strcmp(text + length - tail, ending) == 0;
}

const char *text_base_name(const char *path)
{
    const char *slash = strrchr(path, '/'), *colon = strrchr(path, ':');
    return slash != NULL ? slash + 1 : colon != NULL ? colon + 1 : path;
}

bool text_is_remote(const char *path)
{
    return path[strcspn(path, ":/")] == ':';
}

void text_shortest_decimal(double value, bool is_float, char *text, size_t size)
{
    if (value == rint(value) && fabs(value) < 1e16) {
        snprintf(text, size, "%.0f", value);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, value);
        const double read = strtod(text, NULL);
        if (is_float ? (float)read == (float)value : read == value)
            return;
    }
}

/* Return the number of insertions, deletions and swaps of two neighbours that turn one word into
 * the other. Words longer than LONGEST are far from all others. */
static int edit_distance(const char *one, const char *other)
{
    enum { LONGEST = 128 };
    int rows[3][LONGEST + 1];
    const int width = (int)strlen(other);
    if (strlen(one) > LONGEST || width > LONGEST)
        return LONGEST;
    for (int j = 0; j <= width; j++)
        rows[0][j] = j;
    for (int i = 1; one[i - 1] != '\0'; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *above_two = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= width; j++) {
            int best = above[j - 1] + (one[i - 1] != other[j - 1] ? 2 : 0);
            best = above[j] + 1 < best ? above[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            if (i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] &&
                above_two[j - 2] + 1 < best)
                best = above_two[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[strlen(one) % 3][width];
}

const char *text_nearest(const char *word, const char *const *candidates)
{
    const char *nearest = NULL;
    int least = INT_MAX;
    for (; *candidates != NULL; candidates++) {
        const int distance = edit_distance(word, *candidates);
        /* A word with one replaced part, such as class_weights for check_weights, is not near. */
        const int letters = (int)(strlen(word) + strlen(*candidates));
        if (distance < least && 10 * distance <= 3 * letters) {
            least = distance;
            nearest = *candidates;
        }
    }
    return nearest;
}

/* Replace `length` bytes by at most three stars. */
static void bytes_mask(char *begin, size_t length)
{
    const size_t stars = length < 3 ? length : 3;
    memset(begin, '*', stars);
    memmove(begin + stars, begin + length, strlen(begin + length) + 1);
}

void text_mask_password(char *text)
{
    for (char *url = text; (url = strstr(url, "://")) != NULL;) {
        url += 3;
        char *at = url + strcspn(url, "/?# \"'"), *colon = memchr(url, ':', (size_t)(at - url));
        while (at > url && *at != '@') /* the last one before the host */
            at--;
        if (*at == '@' && colon != NULL && colon < at)
            bytes_mask(colon + 1, (size_t)(at - colon) - 1);
    }
    static const char *const keys[] = {",pass=", ",password=", ",secret_access_key="};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        for (char *value = text; (value = strstr(value, keys[i])) != NULL;) {
            value += strlen(keys[i]);
            bytes_mask(value, strcspn(value, ",: \"'\n"));
        }
}

void text_remove_control(char *text)
{
    for (unsigned char *letter = (unsigned char *)text; *letter != '\0'; letter++)
        if (letter[0] == 0xc2 && letter[1] >= 0x80 && letter[1] < 0xa0)
            letter[0] = letter[1] = ' ';
        else if (*letter < 0x20 || *letter == 0x7f)
            *letter = ' ';
}

const char *text_next_item(const char *list, size_t *length)
{
    list += strspn(list, ", ");
    *length = strcspn(list, ",");
    while (*length > 0 && list[*length - 1] == ' ')
        --*length;
    return *list != '\0' ? list : NULL;
}

bool text_has_item(const char *list, const char *item)
{
    size_t length;
    for (const char *next = text_next_item(list, &length); next != NULL;
         next = text_next_item(next + length, &length))
        if (strlen(item) == length && strncmp(next, item, length) == 0)
            return true;
    return false;
}

FILE *text_stream_open(struct text_stream *text)
{
    text->stream = open_memstream(&text->text, &text->length);
    ENSURE_MEMORY(text->stream != NULL, "no memory for a text");
    return text->stream;
}

char *text_stream_close(struct text_stream *text)
{
    ENSURE_MEMORY(fclose(text->stream) == 0, "no memory for a text");
    return text->text;
}

void text_shorten(const char *text, char *to, size_t size)
{
    const size_t length = strlen(text), end = (size - 3) * 2 / 3;
    if (length < size)
        memcpy(to, text, length + 1);
    else
        snprintf(to, size, "%.*s..%s", (int)(size - 3 - end), text, text + length - end);
}
