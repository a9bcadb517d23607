/* The sections with tables: summary, quality, options, problems. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/escape.h"
#include "report/facts.h"
#include "report/html.h"
#include "report/run_tables.h"

/* ---- tables whose cells have attributes; all others are sheets */

/* Begin a table in a box with a scroll bar. `name`: read aloud by screen readers. */
static void table_begin(const struct page *page, const char *class, const char *name)
{
    /* With the focus, the box can be scrolled by keyboard. */
    html_text(page, "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"", name,
              "\">");
    fprintf(page->stream, "<table class=\"%s\">\n", class);
}

static void table_end(const struct page *page)
{
    fputs("</table></div>\n", page->stream);
}

/* ---- key figures */

/* A figure with `otherwise` is shown if the other figure is unknown for all runs. */
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
        fprintf(page->stream, "<div><dt>%s</dt>", fact->name);
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

/* One row per run. */
static void figures_of_several(const struct page *page)
{
    table_begin(page, "figures", "Key figures");
    fputs("<thead><tr><th scope=\"col\">run</th>", page->stream);
    for (int i = 0; i < KEY_FIGURES; i++)
        if (key_figure(page, i) != NULL)
            fprintf(page->stream, "<th scope=\"col\" class=\"n\">%s</th>",
                    key_figure(page, i)->name);
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
    table_end(page);
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
            table_begin(page, "facts", group);
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
        table_end(page);
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

/* ---- classes */

/* Larger matrices are pictures with the most frequent confusions, then these only. */
enum { MATRIX_MOST = 32, PICTURE_MOST = 200, PAIRS_MOST = 20, SHADES = 8 };

/* The confusion matrix in result.json, which may be damaged. */
struct confusion {
    int count;
    const json_t *classes, *matrix;
};

static const char *class_name(const struct confusion *confusion, int i)
{
    const char *name =
        json_string_value(json_object_get(json_array_get(confusion->classes, (size_t)i), "name"));
    return name == NULL ? "?" : name;
}

static double matrix_at(const struct confusion *confusion, int row, int column)
{
    const json_t *cell =
        json_array_get(json_array_get(confusion->matrix, (size_t)row), (size_t)column);
    return json_is_number(cell) ? json_number_value(cell) : 0;
}

static double matrix_row(const struct confusion *confusion, int row)
{
    double sum = 0;
    for (int i = 0; i < confusion->count; i++)
        sum += matrix_at(confusion, row, i);
    return sum;
}

static void matrix_table(const struct page *page, int run, const struct confusion *confusion)
{
    table_begin(page, "confusion", "Confusion matrix");
    fputs("<thead><tr><td></td>", page->stream);
    for (int i = 0; i < confusion->count; i++)
        html_text(page, "<th scope=\"col\"><span>", class_name(confusion, i), "</span></th>");
    fprintf(page->stream, "</tr></thead>\n<tbody id=\"confusion-%c\">\n", html_letter(run));
    for (int row = 0; row < confusion->count; row++) {
        const double sum = matrix_row(confusion, row);
        html_text(page, "<tr><th scope=\"row\">", class_name(confusion, row), "</th>");
        for (int i = 0; i < confusion->count; i++) {
            const double count = matrix_at(confusion, row, i);
            fprintf(page->stream, "<td style=\"--v:%.2f\">%.0f</td>", sum > 0 ? count / sum : 0,
                    count);
        }
        fputs("</tr>\n", page->stream);
    }
    fputs("</tbody>", page->stream);
    table_end(page);
}

/* Write the titles of the rows, which browsers show under the pointer. */
static void picture_titles(const struct page *page, const struct confusion *confusion)
{
    char text[FORMAT_TEXT];
    for (int row = 0; row < confusion->count; row++) {
        int worst = row == 0; /* the most frequent wrong prediction */
        for (int i = 0; i < confusion->count; i++)
            if (i != row && matrix_at(confusion, row, i) > matrix_at(confusion, row, worst))
                worst = i;
        format_figure(text, FIGURE_SHARE,
                      matrix_at(confusion, row, row) / matrix_row(confusion, row));
        fprintf(page->stream, "<rect class=\"at\" y=\"%d\" width=\"%d\" height=\"1\"><title>", row,
                confusion->count);
        html_text(page, "", class_name(confusion, row), ": recall ");
        fputs(text, page->stream);
        if (matrix_at(confusion, row, worst) > 0) {
            html_text(page, "\nmost often wrong as ", class_name(confusion, worst), "");
            fprintf(page->stream, ": %.0f", matrix_at(confusion, row, worst));
        }
        fputs("</title></rect>\n", page->stream);
    }
}

/* Draw one path per shade of the share of the class. */
static void matrix_picture(const struct page *page, int run, const struct confusion *confusion)
{
    fprintf(
        page->stream,
        "<svg class=\"matrix\" id=\"confusion-%c\" role=\"img\" aria-label=\"Confusion matrix of "
        "%d classes\" viewBox=\"0 0 %d %d\" fill=\"none\" stroke=\"currentColor\" "
        "shape-rendering=\"crispEdges\">\n",
        html_letter(run), confusion->count, confusion->count, confusion->count);
    for (int shade = 1; shade <= SHADES; shade++) {
        fprintf(page->stream, "<path stroke-opacity=\"%g\" d=\"M0 0", (double)shade / SHADES);
        for (int row = 0; row < confusion->count; row++) {
            const double sum = matrix_row(confusion, row);
            for (int i = 0; i < confusion->count; i++)
                if (ceil(SHADES * matrix_at(confusion, row, i) / sum) == shade)
                    fprintf(page->stream, "M%d %d.5h1", i, row);
        }
        fputs("\"/>\n", page->stream);
    }
    picture_titles(page, confusion);
    fputs("</svg>\n", page->stream);
}

struct pair {
    double count;
    int truth, prediction;
};

static int pair_compare(const void *one, const void *other)
{
    const struct pair *left = one, *right = other;
    return (left->count < right->count) - (left->count > right->count);
}

/* Find the largest counts off the diagonal. Return their number, at most PAIRS_MOST. */
static int pairs_find(const struct confusion *confusion, struct pair *worst)
{
    int count = 0;
    for (int row = 0; row < confusion->count; row++)
        for (int i = 0; i < confusion->count; i++) {
            const struct pair pair = {matrix_at(confusion, row, i), row, i};
            if (row == i || pair.count <= 0 ||
                (count == PAIRS_MOST && pair.count <= worst[count - 1].count))
                continue;
            worst[count < PAIRS_MOST ? count++ : count - 1] = pair;
            qsort(worst, (size_t)count, sizeof *worst, pair_compare);
        }
    return count;
}

static void pairs_table(const struct page *page, const struct confusion *confusion)
{
    struct pair worst[PAIRS_MOST];
    const int count = pairs_find(confusion, worst);
    struct sheet sheet = {.title = "Most frequent confusions", .class = "pairs"};

    snprintf(sheet.note, sizeof sheet.note, "The %d most frequent confusions of %d classes.", count,
             confusion->count);
    sheet_column(&sheet, "class", SHEET_TEXT);
    sheet_column(&sheet, "predicted as", SHEET_TEXT);
    sheet_column(&sheet, "images", SHEET_NUMBER);
    sheet_column(&sheet, "of the class", SHEET_SHARE);
    for (int i = 0; i < count; i++) {
        sheet_text(&sheet, class_name(confusion, worst[i].truth));
        sheet_text(&sheet, class_name(confusion, worst[i].prediction));
        sheet_figure(&sheet, FIGURE_COUNT, worst[i].count);
        sheet_figure(&sheet, FIGURE_SHARE, worst[i].count / matrix_row(confusion, worst[i].truth));
    }
    sheet_html(&sheet, page->stream);
    sheet_free(&sheet);
}

void html_classes(const struct page *page)
{
    for (int run = 0; run < page->count; run++) {
        const struct record *record = &page->records[run];
        const bool tested = record_value(record, "test.classes") != NULL;
        struct confusion confusion = {
            .classes = record_value(record, tested ? "test.classes" : "classes"),
            .matrix = record_value(record, tested ? "test.confusion_matrix" : "confusion_matrix")};
        struct sheet sheet = {0};

        confusion.count = (int)json_array_size(confusion.classes);
        html_run_title(page, run);
        run_table_splits(&sheet, record);
        sheet_html(&sheet, page->stream);
        sheet_free(&sheet);
        if (confusion.count == 0)
            fputs("<p>Classes: unknown, they are not in result.json.</p>\n", page->stream);
        else
            fprintf(page->stream,
                    "<p class=\"note\">Confusion matrix of the %s split: true classes in rows, "
                    "predictions in columns.</p>\n",
                    tested ? "test" : "validation");
        fputs("<div class=\"pair\">\n", page->stream);
        if (confusion.count > 0 && (int)json_array_size(confusion.matrix) == confusion.count) {
            fputs("<div>", page->stream);
            if (confusion.count <= MATRIX_MOST)
                matrix_table(page, run, &confusion);
            else if (confusion.count <= PICTURE_MOST)
                matrix_picture(page, run, &confusion);
            if (confusion.count > MATRIX_MOST)
                pairs_table(page, &confusion);
            fputs("</div>\n", page->stream);
        }
        run_table_classes(&sheet, record);
        fprintf(page->stream, "<div id=\"classes-%c\">", html_letter(run));
        sheet_html(&sheet, page->stream);
        fputs("</div></div>\n", page->stream);
        sheet_free(&sheet);
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
        sheet_column(&sheet, (char[]){html_letter(run), '\0'}, SHEET_CODE);
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
    struct sheet sheet = {0};
    if (page->count == 1) {
        run_table_deck(&sheet, page->records);
        sheet_html(&sheet, page->stream);
        sheet_free(&sheet);
    } else {
        decks_compare(page);
    }
    for (int run = 0; run < page->count; run++) {
        run_table_attempts(&sheet, &page->records[run]);
        if (sheet_rows(&sheet) > 0) {
            html_run_title(page, run);
            sheet_html(&sheet, page->stream);
        }
        sheet_free(&sheet);
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
