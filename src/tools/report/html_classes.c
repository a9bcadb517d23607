// SPDX-License-Identifier: BSD-3-Clause
/* Quality by split and class, the confusion matrix, and misclassified images. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/report/html.h"
#include "tools/report/run_tables.h"

/* Matrices of up to MATRIX_MOST classes are tables, of up to PICTURE_MOST classes pictures. Those
 * above MATRIX_MOST also have a table of the most frequent confusions. */
enum { MATRIX_MOST = 32, PICTURE_MOST = 200, PAIRS_MOST = 20, SHADES = 8 };

/* The matrices of up to RUNS_AT_ONCE runs with up to CLASSES_AT_ONCE classes are visible without
 * opening a section. */
enum { CLASSES_AT_ONCE = 20, RUNS_AT_ONCE = 2 };

/* The confusion matrix in result.json, which may be damaged. */
struct confusion {
    int count;
    const json_t *classes, *matrix;
    const char *split;
};

static const char *class_name(const struct confusion *confusion, int i)
{
    const char *name = json_text_of(json_array_get(confusion->classes, (size_t)i), "name");
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
    html_table_begin(page, "confusion", "Confusion matrix");
    fputs("<thead><tr><td></td>", page->stream);
    for (int i = 0; i < confusion->count; i++)
        html_text(page, "<th scope=\"col\"><span>", class_name(confusion, i), "</span></th>");
    fprintf(page->stream, "</tr></thead>\n<tbody id=\"confusion-%s\">\n", html_letters(run).text);
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
    html_table_end(page);
}

/* Write the titles of the rows; browsers show the title of the row under the pointer. */
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

/* Draw the matrix with one path per shade; the shade is the share of the row's class. */
static void matrix_picture(const struct page *page, int run, const struct confusion *confusion)
{
    fprintf(
        page->stream,
        "<svg class=\"matrix\" id=\"confusion-%s\" role=\"img\" aria-label=\"Confusion matrix of "
        "%d classes\" viewBox=\"0 0 %d %d\" fill=\"none\" stroke=\"currentColor\" "
        "shape-rendering=\"crispEdges\">\n",
        html_letters(run).text, confusion->count, confusion->count, confusion->count);
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

/* Return the confusion matrix of the test split, else of the validation split; without a matrix of
 * the right size the count is 0. */
static struct confusion confusion_of(const struct record *record)
{
    const bool tested = record_value(record, "test.classes") != NULL;
    struct confusion confusion = {
        .classes = record_value(record, tested ? "test.classes" : "classes"),
        .matrix = record_value(record, tested ? "test.confusion_matrix" : "confusion_matrix"),
        .split = tested ? "test" : "validation"};
    const size_t count = json_array_size(confusion.classes);
    if (json_array_size(confusion.matrix) == count)
        confusion.count = (int)count;
    return confusion;
}

static bool is_shown_at_once(const struct page *page, const struct confusion *confusion)
{
    return page->count <= RUNS_AT_ONCE && confusion->count > 0 &&
           confusion->count <= CLASSES_AT_ONCE;
}

static void matrix_note(const struct page *page, const struct confusion *confusion)
{
    fprintf(page->stream,
            "<p class=\"note\">Of the %s split: true classes in rows, "
            "predictions in columns.</p>\n",
            confusion->split);
}

/* True if the text is base64, so that it can be part of an attribute. */
static bool is_base64(const char *text)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
    return text != NULL && text[0] != '\0' && text[strspn(text, digits)] == '\0';
}

static void image_write(const struct page *page, const json_t *sample,
                        const struct confusion *confusion)
{
    const char *png = json_text_of(sample, "png");
    const char *name = json_text_of(sample, "name");
    const json_t *truth = json_object_get(sample, "class");
    const json_t *predicted = json_object_get(sample, "predicted");
    char share[FORMAT_TEXT];
    if (!is_base64(png))
        return;
    format_figure(share, FIGURE_SHARE, json_number_of(sample, "probability"));
    html_text(page, "<div><img alt=\"\" title=\"", name != NULL ? name : "", "\" src=\"");
    fprintf(page->stream, "data:image/png;base64,%s\">", png);
    html_text(page, "<p><b>", class_name(confusion, (int)json_integer_value(truth)), "</b>");
    html_text(page, "<span>as ", class_name(confusion, (int)json_integer_value(predicted)),
              "</span>");
    fprintf(page->stream, "<span>%s</span></p></div>\n", share);
}

/* Write the misclassified images, if there are any. */
static void images_write(const struct page *page, int run, const struct confusion *confusion)
{
    const json_t *list = page->records[run].misclassified;
    const json_t *samples = json_object_get(list, "samples");
    const char *split = json_text_of(list, "split");
    if (json_array_size(samples) == 0)
        return;
    fprintf(page->stream,
            "<div><h2>Most confident errors</h2>\n<p class=\"note\">Of the %s split: class, "
            "prediction and its probability.</p>\n<div class=\"images\">\n",
            split != NULL && strcmp(split, "test") == 0 ? "test" : "validation");
    for (size_t i = 0; i < json_array_size(samples); i++)
        image_write(page, json_array_get(samples, i), confusion);
    fputs("</div></div>\n", page->stream);
}

/* Write a colour bar with the values of its ends. */
static void bar_write(const struct page *page, const char *class, double low, double high)
{
    fprintf(page->stream, "<span>%.4g <i class=\"%s\"></i> %.4g</span>", low, class, high);
}

static void planes_sample(const struct page *page, const json_t *sample)
{
    const char *png = json_text_of(sample, "png");
    const char *output = json_text_of(sample, "output");
    const double error = json_number_of(sample, "error");
    const bool has_input = json_is_true(json_object_get(sample, "has_input"));
    if (!is_base64(png))
        return;
    fprintf(page->stream,
            "<div><img alt=\"%starget, prediction and error\" src=\"data:image/png;base64,%s\">"
            "<p><b>sample %lld, ",
            has_input ? "input, " : "", png,
            (long long)json_integer_value(json_object_get(sample, "record")));
    html_text(page, "", output != NULL ? output : "?", "</b>");
    bar_write(page, "values", json_number_of(sample, "low"), json_number_of(sample, "high"));
    bar_write(page, "errors", -error, error);
    fputs("</p></div>\n", page->stream);
}

/* Write the pictures of samples whose targets are planes, if there are any. */
static void planes_write(const struct page *page, int run)
{
    const json_t *list = page->records[run].planes;
    const json_t *samples = json_object_get(list, "samples");
    const char *split = json_text_of(list, "split");
    if (json_array_size(samples) == 0)
        return;
    fprintf(
        page->stream,
        "<div><h2>Samples</h2>\n<p class=\"note\">Of the %s split, from left to right: input (if "
        "it has the output's variable), target, prediction, error. Grey: missing.</p>\n"
        "<div class=\"planes\">\n",
        split != NULL && strcmp(split, "test") == 0 ? "test" : "validation");
    for (size_t i = 0; i < json_array_size(samples); i++)
        planes_sample(page, json_array_get(samples, i));
    fputs("</div></div>\n", page->stream);
}

void html_errors(const struct page *page)
{
    fputs("<div class=\"pair\">\n", page->stream);
    for (int run = 0; run < page->count; run++) {
        const struct confusion confusion = confusion_of(&page->records[run]);
        if (is_shown_at_once(page, &confusion)) {
            fputs("<div><h2>Confusion matrix</h2>\n", page->stream);
            html_run_title(page, run);
            matrix_note(page, &confusion);
            matrix_table(page, run, &confusion);
            fputs("</div>\n", page->stream);
        }
        if (page->count == 1) {
            images_write(page, run, &confusion);
            planes_write(page, run);
        }
    }
    fputs("</div>\n", page->stream);
}

void html_classes(const struct page *page)
{
    for (int run = 0; run < page->count; run++) {
        const struct confusion confusion = confusion_of(&page->records[run]);

        html_run_title(page, run);
        html_table(page, run_table_splits, run);
        if (html_table(page, run_table_outputs, run))
            continue;
        if (json_array_size(confusion.classes) == 0)
            fputs("<p>Classes are unknown: result.json does not contain them.</p>\n", page->stream);
        fputs("<div class=\"pair\">\n", page->stream);
        if (confusion.count > 0 && !is_shown_at_once(page, &confusion)) {
            fputs("<div>", page->stream);
            matrix_note(page, &confusion);
            if (confusion.count <= MATRIX_MOST)
                matrix_table(page, run, &confusion);
            else if (confusion.count <= PICTURE_MOST)
                matrix_picture(page, run, &confusion);
            if (confusion.count > MATRIX_MOST)
                pairs_table(page, &confusion);
            fputs("</div>\n", page->stream);
        }
        fprintf(page->stream, "<div id=\"classes-%s\">", html_letters(run).text);
        html_table(page, run_table_classes, run);
        fputs("</div></div>\n", page->stream);
    }
}
