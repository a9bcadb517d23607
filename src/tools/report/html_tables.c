// SPDX-License-Identifier: BSD-3-Clause
/* Key figures, and the sections with tables: all figures, options, problems. */
#include <string.h>

#include "tools/report/escape.h"
#include "tools/report/facts.h"
#include "tools/report/html.h"
#include "tools/report/run_tables.h"

/* ---- tables whose cells have attributes; all others are sheets */

void html_table_begin(const struct page *page, const char *class, const char *name)
{
    /* With the focus, the box can be scrolled by keyboard. */
    html_text(page, "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"", name,
              "\">");
    fprintf(page->stream, "<table class=\"%s\">\n", class);
}

void html_table_end(const struct page *page)
{
    fputs("</table></div>\n", page->stream);
}

bool html_table(const struct page *page, void (*fill)(struct sheet *, const struct record *),
                int run)
{
    struct sheet sheet = {0};
    fill(&sheet, &page->records[run]);
    const bool has_rows = sheet_rows(&sheet) > 0;
    sheet_html(&sheet, page->stream);
    sheet_free(&sheet);
    return has_rows;
}

/* ---- key figures */

/* A figure with `otherwise` is shown only if that other figure is unknown for all runs. */
static const struct {
    const char *key, *otherwise;
} key_figures[] = {{"test_top1", NULL},
                   {"best_val_top1", NULL},
                   {"val_loss", NULL},
                   {"train_loss", "val_loss"},
                   {"without_setup_seconds", NULL},
                   {"total_seconds", "without_setup_seconds"},
                   {"images_per_second", NULL},
                   {"peak_share", NULL},
                   {"peak_bytes", NULL}};
enum { KEY_FIGURES = sizeof key_figures / sizeof key_figures[0] };

/* Return the fact if it is shown, else NULL. */
static const struct fact *key_figure(const struct page *page, int i)
{
    const struct fact *fact = fact_find(key_figures[i].key);
    const char *otherwise = key_figures[i].otherwise;
    return fact_is_known(fact, page->records, page->count) &&
                   (otherwise == NULL ||
                    !fact_is_known(fact_find(otherwise), page->records, page->count))
               ? fact
               : NULL;
}

static void figures_of_one(const struct page *page)
{
    char text[FORMAT_TEXT];
    fputs("<dl class=\"tiles\">\n", page->stream);
    for (int i = 0; i < KEY_FIGURES; i++) {
        const struct fact *fact = key_figure(page, i);
        if (fact == NULL)
            continue;
        fputs("<div><dt>", page->stream);
        escape_label(page->stream, fact->name);
        fputs("</dt>", page->stream);
        html_text(page, "<dd>", fact_text(fact, page->records, page->records, text),
                  "</dd></div>\n");
    }
    fputs("</dl>\n", page->stream);
}

static void cell_write(const struct page *page, const struct fact *fact, int run)
{
    char text[FORMAT_TEXT];
    const bool best = fact_is_best(fact, page->records, page->count, run);
    fprintf(page->stream, "<td class=\"%s%s\">", fact->figure == FIGURE_TEXT ? "t" : "n",
            best ? " best" : "");
    html_text(page, "", fact_cell(fact, &page->records[run], &page->records[0], text), "</td>");
}

/* Write a table with one row per run. */
static void figures_of_several(const struct page *page)
{
    html_table_begin(page, "figures", "Key figures");
    fputs("<thead><tr><th scope=\"col\">run</th>", page->stream);
    for (int i = 0; i < KEY_FIGURES; i++)
        if (key_figure(page, i) != NULL) {
            fputs("<th scope=\"col\" class=\"n\">", page->stream);
            escape_label(page->stream, key_figure(page, i)->name);
            fputs("</th>", page->stream);
        }
    fputs("</tr></thead>\n<tbody>\n", page->stream);
    for (int run = 0; run < page->count; run++) {
        fputs("<tr><th scope=\"row\">", page->stream);
        html_key(page, run);
        html_text(page, "<b>", page->records[run].name, "</b> <small>");
        html_kind(page, run);
        fputs("</small></th>", page->stream);
        for (int i = 0; i < KEY_FIGURES; i++)
            if (key_figure(page, i) != NULL)
                cell_write(page, key_figure(page, i), run);
        fputs("</tr>\n", page->stream);
    }
    fputs("</tbody>", page->stream);
    html_table_end(page);
}

void html_figures(const struct page *page)
{
    if (page->count == 1)
        figures_of_one(page);
    else
        figures_of_several(page);
}

/* ---- the summary: one table per group of facts */

static void fact_row(const struct page *page, const struct fact *fact)
{
    fprintf(page->stream, "<tr data-key=\"%s\"><th scope=\"row\">%s</th>", fact->key, fact->name);
    for (int i = 0; i < page->count; i++)
        cell_write(page, fact, i);
    fputs("</tr>\n", page->stream);
}

/* Write the group that begins at `first`. Return the first fact of the next group. */
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
            for (int k = 0; k < page->count; k++) {
                html_text(page, "<th scope=\"col\" class=\"n\" title=\"", page->records[k].name,
                          "\">");
                if (page->count > 1)
                    html_key(page, k);
                fputs(page->count > 1 ? "</th>" : "value</th>", page->stream);
            }
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
    if (page->count > 1)
        fputs("<p class=\"note\">A dot marks the best value of a row. Speed-up and scaling "
              "efficiency are relative to run A.</p>\n",
              page->stream);
    fprintf(page->stream, "<div class=\"groups%s\">\n",
            page->count > 2    ? " wide"
            : page->count == 2 ? " two"
                               : "");
    for (int i = 0; i < fact_count;)
        i = group_write(page, i);
    fputs("</div>\n", page->stream);
    for (int run = 1; run < page->count; run++) {
        char difference[FACTS_DIFFERENCE];
        if (!facts_difference(&page->records[run], &page->records[0], difference))
            continue;
        fputs("<p class=\"note\">", page->stream);
        html_key(page, run);
        html_text(page, "", difference, ".</p>\n");
    }
}

/* ---- options and attempts */

/* True if an earlier run has the option too, or all runs have the same value. */
static bool option_is_skipped(const struct page *page, int run, const char *key)
{
    const char *value = record_option(&page->records[run], key);
    bool differs = false;
    for (int i = 0; i < page->count; i++) {
        const char *other = record_option(&page->records[i], key);
        if (i < run && other != NULL)
            return true;
        differs = differs || other == NULL || strcmp(other, value) != 0;
    }
    return !differs;
}

/* Write the options in which the runs differ, except the names of the runs. */
static void decks_compare(const struct page *page)
{
    struct sheet sheet = {.title = "Differing options", .class = "decks"};
    sheet_column(&sheet, "option", SHEET_CODE);
    for (int run = 0; run < page->count; run++)
        sheet_column(&sheet, html_letters(run).text, SHEET_CODE);
    for (int run = 0; run < page->count; run++) {
        const struct record *record = &page->records[run];
        for (int i = 0; i < record->deck_count; i++) {
            const char *key = record->deck[i].key;
            if (strcmp(key, "run.name") == 0 || strcmp(key, "run.dir") == 0 ||
                option_is_skipped(page, run, key))
                continue;
            sheet_text(&sheet, key);
            for (int k = 0; k < page->count; k++) {
                const char *value = record_option(&page->records[k], key);
                sheet_text(&sheet, value == NULL ? "(not set)" : value);
            }
        }
    }
    if (sheet_rows(&sheet) == 0)
        fputs("<p>None besides the names.</p>\n", page->stream);
    sheet_html(&sheet, page->stream);
    sheet_free(&sheet);
}

void html_decks(const struct page *page)
{
    if (page->count == 1)
        html_table(page, run_table_deck, 0);
    else
        decks_compare(page);
    for (int run = 0; run < page->count; run++) {
        if (record_attempts(&page->records[run]) > 0)
            html_run_title(page, run);
        html_table(page, run_table_attempts, run);
    }
}

/* ---- problems */

enum { LINES_MOST = 200 };

static void list_write(const struct page *page, const char *title, const struct lines *lines)
{
    if (lines->count == 0)
        return;
    fprintf(page->stream, "<p>%s</p>\n<ul>\n", title);
    for (int i = 0; i < lines->count && i < LINES_MOST; i++)
        html_text(page, "<li><code>", lines->line[i], "</code></li>\n");
    if (lines->count > LINES_MOST)
        fprintf(page->stream, "<li>and %d more</li>\n", lines->count - LINES_MOST);
    fputs("</ul>\n", page->stream);
}

void html_trouble(const struct page *page)
{
    bool any = false;
    for (int i = 0; i < page->count; i++) {
        const struct record *record = &page->records[i];
        if (record->trouble.count + record->missing.count == 0)
            continue;
        any = true;
        html_run_title(page, i);
        list_write(page, "From the log:", &record->trouble);
        list_write(page, "Missing or damaged files:", &record->missing);
    }
    if (!any)
        fputs("<p>None.</p>\n", page->stream);
}
