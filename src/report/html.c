#include "report/html.h"

#include <string.h>
#include <time.h>

#include "core/atomic_file.h"
#include "core/version.h"
#include "report/chart.h"
#include "report/escape.h"
#include "report/facts.h"

enum { NAMES_IN_TITLE = 3 };

/* ---- used by all sections */

char html_letter(int run)
{
    return (char)('A' + run);
}

void html_text(const struct page *page, const char *before, const char *text, const char *after)
{
    fputs(before, page->stream);
    escape_html(page->stream, text);
    fputs(after, page->stream);
}

void html_key(const struct page *page, int run)
{
    fprintf(page->stream, "<span class=\"key s%d\"><b>%c</b></span>", run % CHART_COLOURS,
            html_letter(run));
}

void html_run_title(const struct page *page, int run)
{
    if (page->count == 1)
        return;
    fputs("<h3>", page->stream);
    html_key(page, run);
    html_text(page, "", page->records[run].name, "</h3>\n");
}

/* ---- the head: one box per run with four numbers */

static void tile_write(const struct page *page, int run, const char *name, const char *key)
{
    char text[FORMAT_TEXT];
    const char *value = fact_text(fact_find(key), &page->records[run], &page->records[0], text);
    fprintf(page->stream, "<div><dt>%s</dt>", name);
    html_text(page, "<dd>", value, "</dd></div>\n");
}

/* Write "vit_cifar, fsdp, 2 ranks on 1 node, bf16" as far as known. Return true if anything is. */
static bool kind_write(const struct page *page, int run)
{
    static const struct {
        const char *key, *before, *after;
    } parts[] = {{"model", "", ""},
                 {"strategy", " &middot; ", ""},
                 {"ranks", " &middot; ", " ranks"},
                 {"nodes", " on ", " nodes"},
                 {"precision", " &middot; ", ""},
                 {"data", " &middot; ", ""}};
    char text[FORMAT_TEXT];
    bool begun = false;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const char *value =
            fact_text(fact_find(parts[i].key), &page->records[run], &page->records[0], text);
        if (strcmp(value, "-") == 0)
            continue;
        html_text(page, begun ? parts[i].before : "", value, "");
        begun = true;
        fprintf(page->stream, "%.*s", (int)strlen(parts[i].after) - (strcmp(value, "1") == 0),
                parts[i].after);
    }
    return begun;
}

static void run_write(const struct page *page, int run)
{
    const struct record *record = &page->records[run];
    const char *status = record_status(record);
    const bool tested = fact_is_known(fact_find("test_top1"), record, 1);

    fputs("<article class=\"run\"><h2>", page->stream);
    if (page->count > 1)
        html_key(page, run);
    html_text(page, "", record->name, "</h2>\n<p>");
    fputs(kind_write(page, run) ? " &middot; " : "", page->stream);
    fprintf(page->stream, "<span class=\"state %s\">%s</span></p>\n<dl class=\"tiles\">\n",
            strcmp(status, "finished") == 0 ? "ok" : "no", status);
    tile_write(page, run, tested ? "test top-1" : "best validation top-1",
               tested ? "test_top1" : "best_val_top1");
    tile_write(page, run, "total time", "total_seconds");
    tile_write(page, run, "images per second", "images_per_second");
    tile_write(page, run, "peak memory per rank", "peak_bytes");
    fputs("</dl></article>\n", page->stream);
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

/* clang-format off */
static const struct {
    const char *id, *link;
    const char *title, *title_of_several; /* heading for one run, and for several */
    void (*write)(const struct page *page);
} sections[] = {
    {"summary", "Summary", "Summary", "Summary", html_summary},
    {"curves", "Curves", "Curves", "Curves", html_curves},
    {"steps", "Step time", "Step time", "Step time", html_steps},
    {"memory", "Memory", "Memory and ranks", "Memory and ranks", html_memory},
    {"hardware", "Hardware", "Hardware over time", "Hardware over time", html_hardware},
    {"classes", "Quality", "Quality and classes", "Quality and classes", html_classes},
    {"decks", "Options", "Options", "Differing options", html_decks},
    {"trouble", "Problems", "Warnings, errors and missing files",
     "Warnings, errors and missing files", html_trouble},
};
/* clang-format on */
enum { SECTIONS = sizeof sections / sizeof sections[0] };

static void page_write(const struct page *page)
{
    FILE *stream = page->stream;
    char date[32];
    const time_t now = time(NULL);
    struct tm utc;

    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
          stream);
    title_write(page);
    fputs("</title>\n", stream);
    html_style(stream);
    fputs("</head>\n<body>\n<header>\n<h1>", stream);
    title_write(page);
    fputs("</h1>\n<nav aria-label=\"sections\">", stream);
    for (int i = 0; i < SECTIONS; i++)
        fprintf(stream, "<a href=\"#%s\">%s</a>", sections[i].id, sections[i].link);
    fputs("</nav>\n<div class=\"runs\">\n", stream);
    for (int i = 0; i < page->count; i++)
        run_write(page, i);
    fputs("</div>\n</header>\n<main>\n", stream);
    for (int i = 0; i < SECTIONS; i++) {
        const char *id = sections[i].id;
        fprintf(stream, "<section id=\"%s\" aria-labelledby=\"%s-title\">\n", id, id);
        fprintf(stream, "<h2 id=\"%s-title\">%s</h2>\n", id,
                page->count == 1 ? sections[i].title : sections[i].title_of_several);
        sections[i].write(page);
        fputs("</section>\n", stream);
    }
    strftime(date, sizeof date, "%Y-%m-%d %H:%M", gmtime_r(&now, &utc));
    fprintf(stream,
            "</main>\n<footer>Written %s UTC by vittrain %s%s%s from the run folder%s. "
            "docs/outputs.md explains the numbers.</footer>\n</body>\n</html>\n",
            date, version_number, version_commit[0] == '\0' ? "" : ", commit ", version_commit,
            page->count > 1 ? "s" : "");
}

bool html_write(const struct record *records, int count, const char *path, struct error *error)
{
    struct atomic_file file;
    if (!atomic_file_open(&file, path, error))
        return false;
    page_write(&(struct page){.stream = file.stream, .records = records, .count = count});
    return atomic_file_commit(&file, error);
}
