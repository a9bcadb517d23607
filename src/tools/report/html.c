// SPDX-License-Identifier: BSD-3-Clause
#include "tools/report/html.h"

#include <string.h>
#include <time.h>

#include "core/atomic_file.h"
#include "core/version.h"
#include "tools/report/chart.h"
#include "tools/report/escape.h"
#include "tools/report/facts.h"

enum { NAMES_IN_TITLE = 3 };

/* ---- used by all sections */

struct letters html_letters(int run)
{
    struct letters reversed = {0}, letters = {0};
    size_t count = 0;
    for (int left = run + 1; left > 0; left = (left - 1) / 26)
        reversed.text[count++] = (char)('A' + (left - 1) % 26);
    for (size_t i = 0; i < count; i++)
        letters.text[i] = reversed.text[count - 1 - i];
    return letters;
}

void html_text(const struct page *page, const char *before, const char *text, const char *after)
{
    fputs(before, page->stream);
    escape_html(page->stream, text);
    fputs(after, page->stream);
}

void html_key(const struct page *page, int run)
{
    fprintf(page->stream, "<span class=\"key s%d\"><b>%s</b></span>", run % CHART_COLOURS,
            html_letters(run).text);
}

void html_run_title(const struct page *page, int run)
{
    if (page->count == 1)
        return;
    fputs("<h3>", page->stream);
    html_key(page, run);
    html_text(page, "", page->records[run].name, "</h3>\n");
}

/* ---- the head */

void html_kind(const struct page *page, int run)
{
    static const struct {
        const char *key, *before, *after;
    } parts[] = {{"model", "", ""},
                 {"init", " &middot; initial weights ", ""},
                 {"data", " &middot; ", ""},
                 {"data_used", " (", ")"},
                 {"epochs", " &middot; ", " epochs"},
                 {"optimizer", " &middot; ", ""},
                 {"learning_rate", ", learning rate ", ""},
                 {"strategy", " &middot; ", ""},
                 {"ranks", " &middot; ", " ranks"},
                 {"nodes", " on ", " nodes"},
                 {"precision", " &middot; ", ""}};
    const struct record *record = &page->records[run];
    const char *status = record_status(record);
    char text[FORMAT_TEXT];
    bool begun = false;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const char *value = fact_cell(fact_find(parts[i].key), record, &page->records[0], text);
        const size_t length = strlen(parts[i].after);
        if (value[0] == '\0' || strcmp(value, "all") == 0)
            continue;
        const char *slash = strrchr(value, '/'); /* the folder of the data */
        html_text(page, begun ? parts[i].before : "",
                  slash != NULL && slash[1] != '\0' ? slash + 1 : value, "");
        /* "1 rank", "2 ranks" */
        const bool one = strcmp(value, "1") == 0 && parts[i].after[length - 1] == 's';
        fprintf(page->stream, "%.*s", (int)length - one, parts[i].after);
        begun = true;
    }
    fprintf(page->stream, "%s<span class=\"state %s\">%s</span>", begun ? " &middot; " : "",
            strcmp(status, "finished") == 0 ? "ok"
            : strcmp(status, "failed") == 0 ? "no"
                                            : "open",
            status);
}

static void title_write(const struct page *page)
{
    if (page->count == 1) {
        html_text(page, "Run ", page->records[0].name, "");
        return;
    }
    for (int i = 0; i < page->count && i < NAMES_IN_TITLE; i++)
        html_text(page,
                  i == 0                 ? ""
                  : i + 1 == page->count ? " and "
                                         : ", ",
                  page->records[i].name, "");
    if (page->count > NAMES_IN_TITLE)
        fprintf(page->stream, " and %d more", page->count - NAMES_IN_TITLE);
}

/* Warn of the accuracy of checkpoints that were chosen on the test set. */
static void selection_note(const struct page *page)
{
    for (int run = 0; run < page->count; run++) {
        if (!facts_chosen_on_test(&page->records[run]))
            continue;
        fputs("<p class=\"note\">", page->stream);
        if (page->count > 1)
            html_key(page, run);
        fputs(
            "The best checkpoint was chosen on the test set (data.val=test), so the best accuracy "
            "is an overestimate. data.val=0.1 holds out training images.</p>\n",
            page->stream);
    }
}

/* Write the names of the runs and the key figures; for a single run, also its configuration and the
 * reason if it ended early. */
static void head_write(const struct page *page)
{
    char text[FORMAT_TEXT];
    fputs("<header>\n<h1>", page->stream);
    title_write(page);
    fputs("</h1>\n", page->stream);
    if (page->count == 1) {
        const char *status = record_status(page->records);
        fputs("<p class=\"kind\">", page->stream);
        html_kind(page, 0);
        fputs("</p>\n", page->stream);
        const char *reason = fact_cell(fact_find("reason"), page->records, page->records, text);
        if (strcmp(status, "finished") != 0 && reason[0] != '\0')
            html_text(page, "<p class=\"reason\">", reason, "</p>\n");
    }
    html_figures(page);
    selection_note(page);
    fputs("</header>\n", page->stream);
}

/* ---- sections, initially closed */

/* clang-format off */
static const struct {
    const char *id, *title, *title_of_several; /* heading for one run, and for several */
    void (*write)(const struct page *page);
} sections[] = {
    {"summary", "All figures", "All figures side by side", html_summary},
    {"details", "Learning rate, speed and waiting times", "Learning rate, speed and waiting times", html_details},
    {"classes", "Quality by split and class", "Quality by split and class", html_classes},
    {"units", "Step time and memory by unit", "Step time and memory by unit", html_units},
    {"ranks", "Ranks", "Ranks", html_ranks},
    {"hardware", "Hardware over time", "Hardware over time", html_hardware},
    {"decks", "Options and attempts", "Differing options and attempts", html_decks},
    {"trouble", "Warnings, errors and missing files",
     "Warnings, errors and missing files", html_trouble},
};
/* clang-format on */
enum { SECTIONS = sizeof sections / sizeof sections[0] };

static void section_write(const struct page *page, int i)
{
    int troubles = 0;
    fprintf(page->stream, "<details id=\"%s\"><summary><h2>%s</h2>", sections[i].id,
            page->count == 1 ? sections[i].title : sections[i].title_of_several);
    for (int run = 0; sections[i].write == html_trouble && run < page->count; run++)
        troubles += page->records[run].trouble.count + page->records[run].missing.count;
    if (sections[i].write == html_trouble)
        fprintf(page->stream, "<small>%d</small>", troubles);
    fputs("</summary>\n<div>\n", page->stream);
    sections[i].write(page);
    fputs("</div></details>\n", page->stream);
}

bool html_write(const struct record *records, int count, const char *path, struct error *error)
{
    struct atomic_file file;
    if (!atomic_file_open(&file, path, error))
        return false;
    FILE *stream = file.stream;
    const struct page page = {.stream = stream, .records = records, .count = count};
    char date[FORMAT_TEXT];

    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
          stream);
    title_write(&page);
    fprintf(stream, "</title>\n<style>\n%s", html_style);
    for (int i = 0; i < CHART_COLOURS; i++)
        fprintf(stream, ".s%d{color:#%06x}\n", i, chart_colours[i]);
    fputs("</style>\n</head>\n<body>\n", stream);
    head_write(&page);
    fputs("<main>\n", stream);
    html_curves(&page);
    html_errors(&page);
    for (int i = 0; i < SECTIONS; i++)
        section_write(&page, i);
    format_time(date, time(NULL));
    fprintf(stream,
            "</main>\n<footer>Written %s by vittrain %s%s%s from the run folder%s. "
            "docs/outputs.md explains the numbers.</footer>\n</body>\n</html>\n",
            date, version_number, version_commit[0] == '\0' ? "" : ", commit ", version_commit,
            count > 1 ? "s" : "");
    return atomic_file_commit(&file, error);
}
