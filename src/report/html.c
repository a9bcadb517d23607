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

void html_section(const struct page *page, const char *id, const char *title)
{
    fprintf(page->stream, "<section id=\"%s\" aria-labelledby=\"%s-title\">\n", id, id);
    fprintf(page->stream, "<h2 id=\"%s-title\">%s</h2>\n", id, title);
}

void html_section_end(const struct page *page)
{
    fputs("</section>\n", page->stream);
}

static void key_write(const struct page *page, int run)
{
    fprintf(page->stream, "<span class=\"key s%d\"><b>%c</b></span>", run % CHART_COLOURS,
            html_letter(run));
}

void html_run_title(const struct page *page, int run)
{
    if (page->count == 1)
        return;
    fputs("<h3>", page->stream);
    key_write(page, run);
    escape_html(page->stream, page->records[run].name);
    fputs("</h3>\n", page->stream);
}

void html_run_head(const struct page *page, int run)
{
    fputs("<th scope=\"col\" class=\"n\" title=\"", page->stream);
    escape_html(page->stream, page->records[run].name);
    fputs("\">", page->stream);
    if (page->count > 1)
        key_write(page, run);
    else
        fputs("value", page->stream);
    fputs("</th>", page->stream);
}

void html_table_begin(const struct page *page, const char *class, const char *name)
{
    /* With the focus, the box can be scrolled by keyboard. */
    fputs("<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"", page->stream);
    escape_html(page->stream, name);
    fprintf(page->stream, "\"><table class=\"%s\">\n", class);
}

void html_table_end(const struct page *page)
{
    fputs("</table></div>\n", page->stream);
}

/* ---- the head: one box per run with four numbers */

static void tile_write(const struct page *page, int run, const char *name, const char *key)
{
    char text[FORMAT_TEXT];
    const char *value = fact_text(fact_find(key), &page->records[run], &page->records[0], text);
    fprintf(page->stream, "<div><dt>%s</dt><dd>", name);
    escape_html(page->stream, value);
    fputs("</dd></div>\n", page->stream);
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
        fputs(begun ? parts[i].before : "", page->stream);
        begun = true;
        escape_html(page->stream, value);
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
        key_write(page, run);
    escape_html(page->stream, record->name);
    fputs("</h2>\n<p>", page->stream);
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
        fputs("Run ", page->stream);
        escape_html(page->stream, page->records[0].name);
        return;
    }
    for (int i = 0; i < page->count && i < NAMES_IN_TITLE; i++) {
        fputs(i == 0 ? "" : i + 1 == page->count ? " and " : ", ", page->stream);
        escape_html(page->stream, page->records[i].name);
    }
    if (page->count > NAMES_IN_TITLE)
        fprintf(page->stream, " and %d more", page->count - NAMES_IN_TITLE);
}

static void header_write(const struct page *page)
{
    fputs("<header>\n<h1>", page->stream);
    title_write(page);
    fputs("</h1>\n<nav aria-label=\"sections\"><a href=\"#summary\">Summary</a>"
          "<a href=\"#curves\">Curves</a><a href=\"#steps\">Step time</a>"
          "<a href=\"#memory\">Memory</a><a href=\"#hardware\">Hardware</a>"
          "<a href=\"#classes\">Quality</a><a href=\"#decks\">Options</a>"
          "<a href=\"#trouble\">Problems</a></nav>\n<div class=\"runs\">\n",
          page->stream);
    for (int i = 0; i < page->count; i++)
        run_write(page, i);
    fputs("</div>\n</header>\n", page->stream);
}

static void footer_write(const struct page *page)
{
    char date[32];
    const time_t now = time(NULL);
    struct tm utc;
    strftime(date, sizeof date, "%Y-%m-%d %H:%M", gmtime_r(&now, &utc));
    fprintf(page->stream,
            "<footer>Written %s UTC by vittrain %s%s%s from the run folder%s. docs/outputs.md "
            "explains the numbers.</footer>\n",
            date, version_number, version_commit[0] == '\0' ? "" : ", commit ", version_commit,
            page->count > 1 ? "s" : "");
}

static void page_write(const struct page *page)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
          page->stream);
    title_write(page);
    fputs("</title>\n", page->stream);
    html_style(page->stream);
    fputs("</head>\n<body>\n", page->stream);
    header_write(page);
    fputs("<main>\n", page->stream);
    html_summary(page);
    html_curves(page);
    html_steps(page);
    html_memory(page);
    html_hardware(page);
    html_classes(page);
    html_decks(page);
    html_trouble(page);
    fputs("</main>\n", page->stream);
    footer_write(page);
    fputs("</body>\n</html>\n", page->stream);
}

bool html_write(const struct record *records, int count, const char *path, struct error *error)
{
    struct atomic_file file;
    if (!atomic_file_open(&file, path, error))
        return false;
    page_write(&(struct page){.stream = file.stream, .records = records, .count = count});
    return atomic_file_commit(&file, error);
}
