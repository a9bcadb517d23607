#include "report/html.h"

#include <string.h>
#include <time.h>

#include "core/atomic_file.h"
#include "core/version.h"
#include "report/chart.h"
#include "report/escape.h"
#include "report/facts.h"

enum { NAMES_IN_TITLE = 3 };

/* ---- the style sheet. Charts have the colours of light pages and a transparent background; on
 * dark pages a filter inverts their lightness and keeps their hues. Tables wider than the page
 * scroll in a box. */

static const char style[] =
    "*{box-sizing:border-box}\n"
    ":root{color-scheme:light dark;--paper:#fff;--text:#1b1f24;--quiet:#57606a;--grid:#e1e5ea;"
    "--link:#0067ac;--card:#f6f8fa;--fill:70%;--bad:#b3261e;--good:#1a7f37}\n"
    "@media screen and (prefers-color-scheme:dark){\n"
    ":root{--paper:#161a1f;--text:#e6eaef;--quiet:#9ba4af;--grid:#343b44;"
    "--link:#5cb2f5;--card:#1e242b;--fill:50%;--bad:#ff8a80;--good:#56d364}\n"
    ".chart,.key,.bar,i{filter:invert(1) hue-rotate(180deg)}}\n"
    "html{-webkit-text-size-adjust:100%}\n"
    "body{margin:0;background:var(--paper);color:var(--text);"
    "font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}\n"
    "main,header,footer{max-width:1240px;margin:0 auto;padding:0 20px}\n"
    "header{padding-top:28px}\n"
    "h1{font-size:26px;line-height:1.25;margin:0;overflow-wrap:anywhere;letter-spacing:-.01em}\n"
    "h2{font-size:19px;margin:44px 0 4px;padding-top:14px;border-top:1px solid var(--grid)}\n"
    "h3{font-size:15px;margin:22px 0 6px;overflow-wrap:anywhere}\n"
    "p{margin:4px 0 10px;max-width:75ch}\n"
    ".note,caption{color:var(--quiet);font-size:13px}\n"
    "nav{margin:14px 0 0;font-size:14px;display:flex;flex-wrap:wrap;gap:2px 16px}\n"
    "a{color:var(--link)}\n"
    "nav a{text-decoration:none}\n"
    "nav a:hover,nav a:focus{text-decoration:underline}\n"
    /* the runs */
    ".runs{display:grid;gap:16px;margin:22px 0 0;"
    "grid-template-columns:repeat(auto-fit,minmax(min(100%,380px),1fr))}\n"
    ".run{background:var(--card);border-radius:10px;padding:16px 18px;min-width:0}\n"
    ".run h2{border:0;margin:0;padding:0;font-size:17px;overflow-wrap:anywhere}\n"
    ".run p{margin:2px 0 12px;color:var(--quiet);font-size:14px;overflow-wrap:anywhere}\n"
    ".key{display:inline-block;min-width:1.7em;padding:0 .45em;margin-right:.5em;"
    "border-radius:5px;text-align:center;font-weight:600;background:currentColor}\n"
    ".key b{color:#fff}\n"
    ".state{white-space:nowrap;font-weight:600}\n"
    ".state.ok{color:var(--good)}.state.no{color:var(--bad)}\n"
    ".tiles{display:flex;flex-wrap:wrap;gap:10px 36px;margin:0}\n"
    ".tiles dt{font-size:12px;color:var(--quiet)}\n"
    ".tiles dd{margin:0;font-size:19px;font-weight:600;white-space:nowrap;"
    "font-variant-numeric:tabular-nums}\n"
    /* tables */
    ".groups{columns:340px 3;column-gap:36px;margin-top:14px}\n"
    ".groups.wide{columns:auto 1}.groups.wide table{table-layout:fixed}\n"
    ".groups.wide tr>:first-child{width:180px}.groups.wide th.n{width:110px}\n"
    ".groups>div{break-inside:avoid;padding-bottom:10px}\n"
    ".groups .scroll{margin:0}\n"
    ".facts tbody th{white-space:nowrap}.facts td.t{font-size:13px;line-height:1.6}\n"
    ".ranks,.classes{font-size:13px}.ranks td{white-space:nowrap}.ranks td.n,.ranks "
    "th.n{padding:3px 10px "
    "3px 6px}\n"
    ".pair>div{min-width:0}\n"
    ".scroll{overflow-x:auto;max-width:100%;margin:6px 0 12px}\n"
    "table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums}\n"
    ".groups table{width:100%}\n"
    "caption{text-align:left;padding:2px 0 4px;font-weight:600;color:var(--text);font-size:15px}\n"
    "th,td{padding:3px 10px 3px 0;border-bottom:1px solid var(--grid);text-align:left;"
    "vertical-align:top}\n"
    "th{font-weight:600}\n"
    "tbody th{font-weight:400}\n"
    "td.n,th.n{text-align:right;padding:3px 13px 3px 12px;white-space:nowrap}\n"
    "td.t{text-align:right;padding:3px 13px 3px 12px;overflow-wrap:break-word}\n"
    ".key{margin-right:.5em}th.n .key{margin:0 -.45em 0 0}\n"
    ".best{font-weight:700;position:relative}\n"
    ".best::after{content:\"\";position:absolute;right:2px;top:.78em;width:6px;height:6px;"
    "border-radius:50%;background:var(--good)}\n"
    "code{font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;"
    "overflow-wrap:anywhere}\n"
    ".decks td{max-width:340px;min-width:70px}\n"
    /* charts */
    ".charts{display:grid;gap:20px 24px;margin:10px 0 0;"
    "grid-template-columns:repeat(auto-fill,minmax(min(100%,350px),1fr));align-items:start}\n"
    "figure{margin:0;min-width:0;max-width:640px}\n"
    "figcaption{font-weight:600;font-size:14px;color:var(--text)}\n"
    "figcaption small{font-weight:400;color:var(--quiet);margin-left:.5em}\n"
    ".chart{display:block;width:100%;height:auto}\n"
    "figure p{display:flex;flex-wrap:wrap;gap:0 14px;font-size:12px;margin:4px 0 6px}\n"
    "i{display:inline-block;background:currentColor}\n"
    "figure p i{width:10px;height:10px;margin-right:5px}\n"
    ".bars{width:100%;font-size:12px}.bars th,.bars td{border:0;padding:2px 0;line-height:1.4;"
    "vertical-align:middle}\n"
    ".bars th span{display:flex;justify-content:flex-end;max-width:130px;overflow:hidden;"
    "white-space:nowrap;padding-right:8px}.bars th span:empty{padding:0}\n"
    ".bars .track{width:100%;white-space:nowrap;font-size:0}\n"
    ".bars i{height:14px;border-right:1px solid var(--paper)}\n"
    ".bars td.n{padding-left:8px;color:var(--quiet)}\n"
    /* confusion */
    ".pair{display:grid;gap:6px 32px;"
    "grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr))}\n"
    ".confusion{font-size:12px;border-spacing:1px;border-collapse:separate}\n"
    ".confusion th,.confusion td{border:0;padding:2px 3px;text-align:center;vertical-align:middle;"
    "white-space:nowrap}\n"
    ".confusion tbody th{text-align:right;padding-right:6px}\n"
    ".confusion thead th{vertical-align:bottom}\n"
    ".confusion thead span{writing-mode:vertical-rl;transform:rotate(180deg);max-height:130px;"
    "overflow:hidden;text-overflow:ellipsis}\n"
    ".confusion td{min-width:34px;height:30px;border-radius:3px;"
    "background:color-mix(in srgb,var(--link) calc(var(--v)*var(--fill)),var(--card))}\n"
    ".bar{display:inline-block;height:8px;width:calc(var(--v)*64px);background:currentColor;"
    "border-radius:2px}td.m{padding:3px 0;min-width:68px}\n"
    "ul{padding-left:20px;margin:4px 0 10px}\n"
    "li{overflow-wrap:anywhere}\n"
    "footer{margin-top:48px;padding-top:14px;padding-bottom:32px;color:var(--quiet);"
    "font-size:13px}\n"
    "@media (max-width:560px){\n"
    "body{font-size:15px}main,header,footer{padding-left:14px;padding-right:14px}\n"
    "h1{font-size:22px}.tiles{display:grid;grid-template-columns:repeat(2,auto);"
    "justify-content:start;gap:8px 32px}"
    ".run{padding:14px}h2{margin-top:34px}\n"
    "td.m{display:none}"
    ".confusion td{min-width:24px;height:24px}.confusion{font-size:11px}}\n"
    "@media print{\n"
    "@page{margin:14mm}\n"
    /* Paper is 690 pixels wide. At this size the layout is the one of a screen. */
    "body{zoom:.7}nav{display:none}main,header,footer{max-width:none;padding:0}\n"
    "h2{margin-top:26px}h2,h3,caption{break-after:avoid}\n"
    "figure,tr,.run,.groups>div,.confusion{break-inside:avoid}\n"
    ".run,.confusion td,.bar,.key,i{print-color-adjust:exact;-webkit-print-color-adjust:exact}\n"
    ".charts{grid-template-columns:1fr 1fr 1fr}.note{break-after:avoid}.scroll{overflow:visible}\n"
    "td.m{display:none}.classes td.n,.classes th.n{padding:3px 5px}\n"
    ".ranks td,.ranks th{white-space:normal}.ranks td.n,.ranks th.n{padding:3px 5px}}\n";

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

bool html_write(const struct record *records, int count, const char *path, struct error *error)
{
    struct atomic_file file;
    if (!atomic_file_open(&file, path, error))
        return false;
    FILE *stream = file.stream;
    const struct page page = {.stream = stream, .records = records, .count = count};
    char date[32];
    const time_t now = time(NULL);
    struct tm utc;

    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
          stream);
    title_write(&page);
    fputs("</title>\n", stream);
    fprintf(stream, "<style>\n%s", style);
    for (int i = 0; i < CHART_COLOURS; i++)
        fprintf(stream, ".s%d{color:#%06x}\n", i, chart_colours[i]);
    fputs("</style>\n</head>\n<body>\n<header>\n<h1>", stream);
    title_write(&page);
    fputs("</h1>\n<nav aria-label=\"sections\">", stream);
    for (int i = 0; i < SECTIONS; i++)
        fprintf(stream, "<a href=\"#%s\">%s</a>", sections[i].id, sections[i].link);
    fputs("</nav>\n<div class=\"runs\">\n", stream);
    for (int i = 0; i < count; i++)
        run_write(&page, i);
    fputs("</div>\n</header>\n<main>\n", stream);
    for (int i = 0; i < SECTIONS; i++) {
        const char *id = sections[i].id;
        fprintf(stream, "<section id=\"%s\" aria-labelledby=\"%s-title\">\n", id, id);
        fprintf(stream, "<h2 id=\"%s-title\">%s</h2>\n", id,
                count == 1 ? sections[i].title : sections[i].title_of_several);
        sections[i].write(&page);
        fputs("</section>\n", stream);
    }
    strftime(date, sizeof date, "%Y-%m-%d %H:%M", gmtime_r(&now, &utc));
    fprintf(stream,
            "</main>\n<footer>Written %s UTC by vittrain %s%s%s from the run folder%s. "
            "docs/outputs.md explains the numbers.</footer>\n</body>\n</html>\n",
            date, version_number, version_commit[0] == '\0' ? "" : ", commit ", version_commit,
            count > 1 ? "s" : "");
    return atomic_file_commit(&file, error);
}
