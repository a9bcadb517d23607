/* One option's value from text and back. Numbers are read whole: no trailing letters, no NaN, no
 * hexadecimal, nothing out of range. */
#include "core/options_table.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void *value_of(const struct option_entry *entry, struct options *options)
{
    return (char *)options + entry->offset;
}

static const void *constant_value_of(const struct option_entry *entry,
                                     const struct options *options)
{
    return (const char *)options + entry->offset;
}

static bool is_automatic(const struct option_entry *entry, const char *text)
{
    return entry->has_automatic && strcasecmp(text, "auto") == 0;
}

static bool in_range(const struct option_entry *entry, double value)
{
    if (entry->has_automatic && entry->kind != OPTION_IS_LIST && value == entry->automatic)
        return true;
    if (entry->above_least ? value <= entry->least : value < entry->least)
        return false;
    return entry->below_most ? value < entry->most : value <= entry->most;
}

/* A plain decimal number at the start of text; *end is behind it. */
static bool read_decimal(const char *text, double *value, char **end)
{
    /* strtod also takes "inf", "nan" and "0x1p3". */
    const size_t length = strspn(text, "+-.0123456789eE");
    errno = 0;
    *value = strtod(text, end);
    return *end != text && *end <= text + length && isfinite(*value);
}

static bool read_number(const struct option_entry *entry, const char *text, double *value)
{
    char *end;
    return read_decimal(text, value, &end) && *end == '\0' && in_range(entry, *value);
}

static bool read_integer(const struct option_entry *entry, const char *text, int64_t *value)
{
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || isspace((unsigned char)text[0]))
        return false;
    *value = number;
    return in_range(entry, (double)number);
}

static bool read_seconds(const struct option_entry *entry, const char *text, double *value)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}};
    char *end;
    if (!read_decimal(text, value, &end))
        return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(end, units[i].unit) == 0) {
            *value *= units[i].seconds;
            return in_range(entry, *value);
        }
    }
    return false;
}

static const struct {
    const char *unit;
    int64_t bytes;
} byte_units[] = {
    {"GiB", (int64_t)1 << 30}, {"MiB", (int64_t)1 << 20}, {"KiB", (int64_t)1 << 10}, {"", 1}};
enum { BYTE_UNITS = sizeof byte_units / sizeof byte_units[0] };

static bool read_bytes(const struct option_entry *entry, const char *text, int64_t *value)
{
    char *end;
    double number;
    if (!read_decimal(text, &number, &end))
        return false;
    for (int i = 0; i < BYTE_UNITS; i++) {
        if (strcmp(end, byte_units[i].unit) != 0)
            continue;
        number *= (double)byte_units[i].bytes;
        if (!in_range(entry, number) || number != rint(number))
            return false;
        *value = (int64_t)number;
        return true;
    }
    return false;
}

static bool read_switch(const char *text, bool *value)
{
    static const char *const words[] = {"off", "on", "no", "yes", "false", "true", "0", "1"};
    for (int i = 0; i < 8; i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *value = i % 2 == 1;
            return true;
        }
    }
    return false;
}

static bool read_choice(const struct option_entry *entry, const char *text, int *value)
{
    for (int i = 0; entry->choices[i] != NULL; i++) {
        if (strcasecmp(text, entry->choices[i]) == 0) {
            *value = entry->first_choice + i;
            return true;
        }
    }
    bool on;
    if (entry->first_choice != SWITCH_AUTO || !read_switch(text, &on))
        return false;
    *value = on ? SWITCH_ON : SWITCH_OFF;
    return true;
}

static bool read_list(const struct option_entry *entry, const char *text, struct option_list *list)
{
    memset(list, 0, sizeof *list);
    if (is_automatic(entry, text))
        return true;
    while (list->count < entry->most_count) {
        char *end;
        double value;
        if (!read_decimal(text, &value, &end) || !in_range(entry, value))
            return false;
        list->value[list->count++] = value;
        end += strspn(end, " \t");
        if (*end == '\0')
            return list->count >= entry->least_count;
        if (*end != ',')
            return false;
        text = end + 1 + strspn(end + 1, " \t");
    }
    return false;
}

/* A text must be such that a deck can hold it. */
static bool read_text(const char *text, char value[OPTION_TEXT])
{
    const size_t length = strlen(text);
    if (length >= OPTION_TEXT || !deck_can_hold(text))
        return false;
    /* Equal options are equal byte by byte. */
    memset(value, 0, OPTION_TEXT);
    memcpy(value, text, length);
    return true;
}

static bool read_value(const struct option_entry *entry, const char *text, struct options *options)
{
    void *value = value_of(entry, options);
    switch (entry->kind) {
    case OPTION_IS_TEXT:
        return read_text(text, value);
    case OPTION_IS_INTEGER:
        if (is_automatic(entry, text)) {
            *(int64_t *)value = (int64_t)entry->automatic;
            return true;
        }
        return read_integer(entry, text, value);
    case OPTION_IS_NUMBER:
        if (is_automatic(entry, text)) {
            *(double *)value = entry->automatic;
            return true;
        }
        return read_number(entry, text, value);
    case OPTION_IS_SECONDS:
        return read_seconds(entry, text, value);
    case OPTION_IS_BYTES:
        return read_bytes(entry, text, value);
    case OPTION_IS_SWITCH:
        return read_switch(text, value);
    case OPTION_IS_CHOICE:
        return read_choice(entry, text, value);
    case OPTION_IS_LIST:
        return read_list(entry, text, value);
    }
    return false;
}

bool option_read(const struct option_entry *entry, const char *where, const char *text,
                 struct options *options, struct error *error)
{
    const struct options before = *options;
    if (read_value(entry, text, options))
        return true;
    *options = before;
    char expected[512];
    option_describe(entry, expected, sizeof expected);
    return error_set(error, ERROR_USAGE, "%s%s=%s: must be %s", where, entry->name, text, expected);
}

/* The shortest decimal that reads back to the same bits. */
static void write_number(double value, char *text, size_t size)
{
    if (value == rint(value) && fabs(value) < 1e16) {
        snprintf(text, size, "%.0f", value);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            return;
    }
}

/* In the largest unit that gives a whole number. */
static void write_bytes(int64_t value, char *text, size_t size)
{
    int i = 0;
    while (value % byte_units[i].bytes != 0 || (value == 0 && i < BYTE_UNITS - 1))
        i++;
    snprintf(text, size, "%lld%s", (long long)(value / byte_units[i].bytes), byte_units[i].unit);
}

static void write_list(const struct option_list *list, char *text, size_t size)
{
    snprintf(text, size, "%s", list->count == 0 ? "auto" : "");
    for (int i = 0; i < list->count; i++) {
        char number[32];
        write_number(list->value[i], number, sizeof number);
        const size_t used = strlen(text);
        snprintf(text + used, size - used, "%s%s", i > 0 ? "," : "", number);
    }
}

void option_write(const struct option_entry *entry, const struct options *options, char *text,
                  size_t size)
{
    const void *value = constant_value_of(entry, options);
    switch (entry->kind) {
    case OPTION_IS_TEXT:
        snprintf(text, size, "%s", (const char *)value);
        return;
    case OPTION_IS_INTEGER:
        if (entry->has_automatic && *(const int64_t *)value == (int64_t)entry->automatic)
            snprintf(text, size, "auto");
        else
            snprintf(text, size, "%lld", (long long)*(const int64_t *)value);
        return;
    case OPTION_IS_NUMBER:
    case OPTION_IS_SECONDS:
        if (entry->has_automatic && *(const double *)value == entry->automatic)
            snprintf(text, size, "auto");
        else
            write_number(*(const double *)value, text, size);
        return;
    case OPTION_IS_BYTES:
        write_bytes(*(const int64_t *)value, text, size);
        return;
    case OPTION_IS_SWITCH:
        snprintf(text, size, "%s", *(const bool *)value ? "on" : "off");
        return;
    case OPTION_IS_CHOICE:
        snprintf(text, size, "%s", entry->choices[*(const int *)value - entry->first_choice]);
        return;
    case OPTION_IS_LIST:
        write_list(value, text, size);
        return;
    }
}

static void describe_range(const struct option_entry *entry, char *text, size_t size)
{
    char least[32], most[32];
    write_number(entry->least, least, sizeof least);
    write_number(entry->most, most, sizeof most);
    if (isinf(entry->least))
        text[0] = '\0';
    else if (isinf(entry->most))
        snprintf(text, size, entry->above_least ? " above %s" : " of at least %s", least);
    else
        snprintf(text, size, " %s %s to %s%s", entry->above_least ? "above" : "from", least,
                 entry->below_most ? "below " : "", most);
}

static void describe_choices(const struct option_entry *entry, char *text, size_t size)
{
    text[0] = '\0';
    for (int i = 0; entry->choices[i] != NULL; i++) {
        const char *joint = i == 0 ? "" : entry->choices[i + 1] == NULL ? " or " : ", ";
        const size_t used = strlen(text);
        snprintf(text + used, size - used, "%s%s", joint, entry->choices[i]);
    }
}

void option_describe(const struct option_entry *entry, char *text, size_t size)
{
    const char *automatic = entry->has_automatic ? "auto, or " : "";
    char range[128], least[32], most[32];
    describe_range(entry, range, sizeof range);
    switch (entry->kind) {
    case OPTION_IS_TEXT:
        snprintf(text, size, "a text of at most %d characters, without # or ; after a space",
                 OPTION_TEXT - 1);
        return;
    case OPTION_IS_INTEGER:
        snprintf(text, size, "%sa whole number%s", automatic, range);
        return;
    case OPTION_IS_NUMBER:
        snprintf(text, size, "%sa number%s", automatic, range);
        return;
    case OPTION_IS_SECONDS:
        snprintf(text, size, "a time in seconds, or with s, m or h behind it,%s", range);
        return;
    case OPTION_IS_BYTES:
        write_bytes((int64_t)entry->least, least, sizeof least);
        write_bytes((int64_t)entry->most, most, sizeof most);
        snprintf(text, size, "a size in bytes, or with KiB, MiB or GiB behind it, from %s to %s",
                 least, most);
        return;
    case OPTION_IS_SWITCH:
        snprintf(text, size, "on or off");
        return;
    case OPTION_IS_CHOICE:
        describe_choices(entry, text, size);
        return;
    case OPTION_IS_LIST:
        if (entry->least_count == entry->most_count)
            snprintf(text, size, "%s%d numbers%s with commas between", automatic,
                     entry->least_count, range);
        else
            snprintf(text, size, "%s%d to %d numbers%s with commas between", automatic,
                     entry->least_count, entry->most_count, range);
        return;
    }
}
