/* Tables: the summary, what decks say, what went wrong. */
#include <jansson.h>
#include <string.h>

#include "report/escape.h"
#include "report/facts.h"
#include "report/html.h"

/* ---- the summary: a table for each group of facts */

static void fact_row(const struct page *page, const struct fact *fact)
{
    char text[FORMAT_TEXT];
    fprintf(page->stream, "<tr data-key=\"%s\"><th scope=\"row\">%s</th>", fact->key, fact->name);
    for (int i = 0; i < page->count; i++) {
        const bool best = fact_is_best(fact, page->records, page->count, i);
        fprintf(page->stream, "<td class=\"%s%s\">", fact->figure == FIGURE_TEXT ? "t" : "n",
                best ? " best" : "");
        escape_html(page->stream, fact_text(fact, &page->records[i], &page->records[0], text));
        fputs("</td>", page->stream);
    }
    fputs("</tr>\n", page->stream);
}

/* Gives the first fact behind the group. */
static int group_write(const struct page *page, int first)
{
    const char *group = fact_table[first].group;
    bool begun = false;
    int i = first;
    for (; i < fact_count && strcmp(fact_table[i].group, group) == 0; i++) {
        if (!fact_is_known(&fact_table[i], page->records, page->count))
            continue;
        if (!begun) {
            fputs("<div>", page->stream);
            html_table_begin(page, "facts", group);
            fprintf(page->stream, "<caption>%s</caption>\n<thead%s><tr><td></td>", group,
                    page->count == 1 ? " hidden" : "");
            for (int k = 0; k < page->count; k++)
                html_run_head(page, k);
            fputs("</tr></thead>\n<tbody>\n", page->stream);
        }
        begun = true;
        fact_row(page, &fact_table[i]);
    }
    if (begun) {
        fputs("</tbody>", page->stream);
        html_table_end(page);
        fputs("</div>\n", page->stream);
    }
    return i;
}

void html_summary(const struct page *page)
{
    html_section(page, "summary", "Summary");
    if (page->count > 1)
        fprintf(page->stream,
                "<p class=\"note\">The best of a row has a dot. Speed-up and efficiency: against "
                "run A.</p>\n");
    fprintf(page->stream, "<div class=\"groups%s\">\n", page->count > 2 ? " wide" : "");
    for (int i = 0; i < fact_count;)
        i = group_write(page, i);
    fputs("</div>\n", page->stream);
    html_section_end(page);
}

/* ---- decks */

/* Names and folders differ always, and say nothing. */
static bool is_name(const char *key)
{
    return strcmp(key, "run.name") == 0 || strcmp(key, "run.dir") == 0;
}

static void code_cell(const struct page *page, const char *text)
{
    fputs("<td><code>", page->stream);
    escape_html(page->stream, text == NULL ? "(no such key)" : text[0] == '\0' ? "(empty)" : text);
    fputs("</code></td>", page->stream);
}

static void deck_of_one(const struct page *page)
{
    const struct record *record = &page->records[0];
    html_table_begin(page, "decks", "what the deck sets");
    fputs("<thead><tr><th scope=\"col\">option</th><th scope=\"col\">value</th>"
          "<th scope=\"col\">default</th></tr></thead>\n<tbody>\n",
          page->stream);
    for (int i = 0; i < record->setting_count; i++) {
        const struct record_setting *setting = record->settings[i];
        fputs("<tr><th scope=\"row\"><code>", page->stream);
        escape_html(page->stream, setting->key);
        fputs("</code></th>", page->stream);
        code_cell(page, setting->value);
        code_cell(page, setting->preset);
        fputs("</tr>\n", page->stream);
    }
    fputs("</tbody>", page->stream);
    html_table_end(page);
}

static bool key_differs(const struct page *page, const char *key)
{
    const char *first = record_option(&page->records[0], key);
    for (int i = 1; i < page->count; i++) {
        const char *other = record_option(&page->records[i], key);
        if ((first == NULL) != (other == NULL) || (first != NULL && strcmp(first, other) != 0))
            return true;
    }
    return false;
}

/* Has an earlier run's deck this key, so that it was shown? */
static bool key_is_shown(const struct page *page, int run, const char *key)
{
    for (int i = 0; i < run; i++)
        if (record_option(&page->records[i], key) != NULL)
            return true;
    return false;
}

static int deck_differences(const struct page *page, int run)
{
    const struct record *record = &page->records[run];
    int rows = 0;
    for (int i = 0; i < record->deck_count; i++) {
        const char *key = record->deck[i].key;
        if (is_name(key) || key_is_shown(page, run, key) || !key_differs(page, key))
            continue;
        fputs("<tr><th scope=\"row\"><code>", page->stream);
        escape_html(page->stream, key);
        fputs("</code></th>", page->stream);
        for (int k = 0; k < page->count; k++)
            code_cell(page, record_option(&page->records[k], key));
        fputs("</tr>\n", page->stream);
        rows++;
    }
    return rows;
}

static void decks_of_several(const struct page *page)
{
    int rows = 0;
    html_table_begin(page, "decks", "where the decks differ");
    fputs("<thead><tr><th scope=\"col\">option</th>", page->stream);
    for (int i = 0; i < page->count; i++) {
        fprintf(page->stream, "<th scope=\"col\" title=\"");
        escape_html(page->stream, page->records[i].name);
        fprintf(page->stream, "\">%c</th>", html_letter(i));
    }
    fputs("</tr></thead>\n<tbody>\n", page->stream);
    for (int i = 0; i < page->count; i++)
        rows += deck_differences(page, i);
    if (rows == 0)
        fprintf(page->stream, "<tr><td colspan=\"%d\">nothing but names</td></tr>\n",
                page->count + 1);
    fputs("</tbody>", page->stream);
    html_table_end(page);
}

/* How the run was started, each time. */
static void commands_write(const struct page *page)
{
    for (int run = 0; run < page->count; run++) {
        const struct json_t *parts = record_value(&page->records[run], "parts");
        if (json_array_size(parts) == 0)
            continue;
        html_run_title(page, run);
        fprintf(page->stream, "<p class=\"note\">Started as</p>\n<ul>\n");
        for (size_t i = 0; i < json_array_size(parts); i++) {
            const char *command =
                json_string_value(json_object_get(json_array_get(parts, i), "command"));
            fputs("<li><code>", page->stream);
            escape_html(page->stream, command == NULL ? "(not known)" : command);
            fputs("</code></li>\n", page->stream);
        }
        fputs("</ul>\n", page->stream);
    }
}

void html_decks(const struct page *page)
{
    html_section(page, "decks", page->count == 1 ? "What the deck sets" : "Where the decks differ");
    if (page->count == 1)
        deck_of_one(page);
    else
        decks_of_several(page);
    commands_write(page);
    html_section_end(page);
}

/* ---- what went wrong, what is missing */

enum { LINES_MOST = 200 };

static void list_write(const struct page *page, const char *title, const struct lines *lines)
{
    if (lines->count == 0)
        return;
    fprintf(page->stream, "<p>%s</p>\n<ul>\n", title);
    for (int i = 0; i < lines->count && i < LINES_MOST; i++) {
        fputs("<li><code>", page->stream);
        escape_html(page->stream, lines->line[i]);
        fputs("</code></li>\n", page->stream);
    }
    if (lines->count > LINES_MOST)
        fprintf(page->stream, "<li>and %d more</li>\n", lines->count - LINES_MOST);
    fputs("</ul>\n", page->stream);
}

void html_trouble(const struct page *page)
{
    html_section(page, "trouble", "What went wrong, what is missing");
    for (int i = 0; i < page->count; i++) {
        const struct record *record = &page->records[i];
        html_run_title(page, i);
        if (record->trouble.count + record->missing.count == 0)
            fputs("<p>Nothing: no warnings, and all of the folder is there.</p>\n", page->stream);
        list_write(page, "The log says:", &record->trouble);
        list_write(page, "Not in the folder, or not whole:", &record->missing);
    }
    html_section_end(page);
}
