/* How well each class is told: a table of the classes, and who is taken for whom. Of many classes
 * the worst. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/escape.h"
#include "report/format.h"
#include "report/html.h"

enum { MATRIX_MOST = 32, CLASSES_MOST = 60, PAIRS_MOST = 30 };

/* What result.json says of the classes, of the test split where it has that; nothing of it is
 * believed to be whole. */
struct classes {
    int count;
    const json_t *list, *matrix;
    const char *split; /* that it was measured on; NULL: not said */
};

static bool classes_find(const struct record *record, struct classes *classes)
{
    const bool tested = record_value(record, "test.classes") != NULL;
    classes->list = record_value(record, tested ? "test.classes" : "classes");
    classes->matrix = record_value(record, tested ? "test.confusion_matrix" : "confusion_matrix");
    classes->split = record_text(record, tested ? "test.split" : "split");
    classes->count = (int)json_array_size(classes->list);
    if ((int)json_array_size(classes->matrix) != classes->count)
        classes->matrix = NULL;
    return classes->count > 0;
}

static const char *class_name(const struct classes *classes, int i)
{
    const char *name =
        json_string_value(json_object_get(json_array_get(classes->list, (size_t)i), "name"));
    return name == NULL ? "?" : name;
}

static double class_number(const struct classes *classes, int i, const char *key)
{
    const json_t *value = json_object_get(json_array_get(classes->list, (size_t)i), key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static double matrix_at(const struct classes *classes, int row, int column)
{
    const json_t *cell =
        json_array_get(json_array_get(classes->matrix, (size_t)row), (size_t)column);
    return json_is_number(cell) ? json_number_value(cell) : 0;
}

static double matrix_row(const struct classes *classes, int row)
{
    double sum = 0;
    for (int i = 0; i < classes->count; i++)
        sum += matrix_at(classes, row, i);
    return sum;
}

/* ---- the table of classes */

struct ranked {
    double f1;
    int class;
};

static int ranked_compare(const void *one, const void *other)
{
    const struct ranked *left = one, *right = other;
    if (left->f1 != right->f1)
        return (left->f1 > right->f1) - (left->f1 < right->f1);
    return left->class - right->class;
}

static void share_cell(const struct page *page, double value, bool barred)
{
    char text[FORMAT_TEXT];
    format_figure(text, FIGURE_SHARE, value);
    fprintf(page->stream, "<td class=\"n\">%s</td>", text);
    if (barred)
        fprintf(page->stream,
                "<td class=\"m\"><span class=\"bar s0\" style=\"--v:%.2f\"></span></td>",
                isnan(value) ? 0 : value);
}

static void class_row(const struct page *page, const struct classes *classes, int class)
{
    fputs("<tr><th scope=\"row\">", page->stream);
    escape_html(page->stream, class_name(classes, class));
    fputs("</th>", page->stream);
    share_cell(page, class_number(classes, class, "f1"), true);
    share_cell(page, class_number(classes, class, "recall"), false);
    share_cell(page, class_number(classes, class, "precision"), false);
    share_cell(page, class_number(classes, class, "specificity"), false);
    if (classes->matrix != NULL)
        fprintf(page->stream, "<td class=\"n\">%.0f</td>", matrix_row(classes, class));
    fputs("</tr>\n", page->stream);
}

static void classes_table(const struct page *page, int run, const struct classes *classes)
{
    const bool all = classes->count <= CLASSES_MOST;
    struct ranked *order = calloc((size_t)classes->count, sizeof *order);
    ENSURE(order != NULL, "no memory for a table");
    for (int i = 0; i < classes->count; i++)
        order[i] = (struct ranked){class_number(classes, i, "f1"), i};
    if (!all)
        qsort(order, (size_t)classes->count, sizeof *order, ranked_compare);
    fprintf(page->stream, "<div id=\"classes-%c\">", html_letter(run));
    if (!all)
        fprintf(page->stream, "<p class=\"note\">The %d of %d classes with the lowest F1.</p>\n",
                CLASSES_MOST, classes->count);
    html_table_begin(page, "classes", "figures of each class");
    fprintf(page->stream,
            "<thead><tr><th scope=\"col\">class</th><th scope=\"col\" class=\"n\">F1</th><td "
            "class=\"m\"></td>"
            "<th scope=\"col\" class=\"n\">recall</th><th scope=\"col\" class=\"n\">precision</th>"
            "<th scope=\"col\" class=\"n\">specificity</th>%s</tr></thead>\n<tbody>\n",
            classes->matrix == NULL ? "" : "<th scope=\"col\" class=\"n\">images</th>");
    for (int i = 0; i < classes->count && i < CLASSES_MOST; i++)
        class_row(page, classes, order[i].class);
    fputs("</tbody>", page->stream);
    html_table_end(page);
    fputs("</div>\n", page->stream);
    free(order);
}

/* ---- who is taken for whom */

static void matrix_table(const struct page *page, int run, const struct classes *classes)
{
    html_table_begin(page, "confusion", "confusion matrix");
    fputs("<thead><tr><td></td>", page->stream);
    for (int i = 0; i < classes->count; i++) {
        fputs("<th scope=\"col\"><span>", page->stream);
        escape_html(page->stream, class_name(classes, i));
        fputs("</span></th>", page->stream);
    }
    fprintf(page->stream, "</tr></thead>\n<tbody id=\"confusion-%c\">\n", html_letter(run));
    for (int row = 0; row < classes->count; row++) {
        const double sum = matrix_row(classes, row);
        fputs("<tr><th scope=\"row\">", page->stream);
        escape_html(page->stream, class_name(classes, row));
        fputs("</th>", page->stream);
        for (int i = 0; i < classes->count; i++) {
            const double count = matrix_at(classes, row, i);
            fprintf(page->stream, "<td style=\"--v:%.2f\">%.0f</td>", sum > 0 ? count / sum : 0,
                    count);
        }
        fputs("</tr>\n", page->stream);
    }
    fputs("</tbody>", page->stream);
    html_table_end(page);
}

struct pair {
    double count;
    int truth, taken;
};

static int pair_compare(const void *one, const void *other)
{
    const struct pair *left = one, *right = other;
    return (left->count < right->count) - (left->count > right->count);
}

/* The largest counts off the diagonal, in `worst`; gives how many there are. */
static int pairs_find(const struct classes *classes, struct pair *worst)
{
    int count = 0;
    for (int row = 0; row < classes->count; row++)
        for (int i = 0; i < classes->count; i++) {
            const struct pair pair = {matrix_at(classes, row, i), row, i};
            if (row == i || pair.count <= 0 ||
                (count == PAIRS_MOST && pair.count <= worst[count - 1].count))
                continue;
            worst[count < PAIRS_MOST ? count++ : count - 1] = pair;
            qsort(worst, (size_t)count, sizeof *worst, pair_compare);
        }
    return count;
}

static void pairs_table(const struct page *page, const struct classes *classes)
{
    struct pair worst[PAIRS_MOST];
    const int count = pairs_find(classes, worst);
    fprintf(page->stream,
            "<p class=\"note\">The %d confusions of %d classes that are the most "
            "frequent.</p>\n",
            count, classes->count);
    html_table_begin(page, "pairs", "most frequent confusions");
    fputs("<thead><tr><th scope=\"col\">class</th><th scope=\"col\">taken for</th>"
          "<th scope=\"col\" class=\"n\">images</th><th scope=\"col\" class=\"n\">of the "
          "class</th><td></td>"
          "</tr></thead>\n<tbody>\n",
          page->stream);
    for (int i = 0; i < count; i++) {
        fputs("<tr><th scope=\"row\">", page->stream);
        escape_html(page->stream, class_name(classes, worst[i].truth));
        fputs("</th>", page->stream);
        html_cell(page, class_name(classes, worst[i].taken));
        fprintf(page->stream, "<td class=\"n\">%.0f</td>", worst[i].count);
        share_cell(page, worst[i].count / matrix_row(classes, worst[i].truth), true);
        fputs("</tr>\n", page->stream);
    }
    fputs("</tbody>", page->stream);
    html_table_end(page);
}

static void confusion_write(const struct page *page, int run, const struct classes *classes)
{
    if (classes->matrix == NULL)
        return;
    fputs("<div>", page->stream);
    if (classes->count <= MATRIX_MOST)
        matrix_table(page, run, classes);
    else
        pairs_table(page, classes);
    fputs("</div>\n", page->stream);
}

static void run_classes(const struct page *page, int run)
{
    struct classes classes;
    html_run_title(page, run);
    if (!classes_find(&page->records[run], &classes)) {
        fputs("<p>Not known: no result.json tells of classes.</p>\n", page->stream);
        return;
    }
    fputs("<p class=\"note\">", page->stream);
    if (classes.split != NULL) {
        fputs("Of the split ", page->stream);
        escape_html(page->stream, classes.split);
        fputs(". ", page->stream);
    }
    fputs("A row of the matrix is a class, its columns are what it was taken for.</p>\n",
          page->stream);
    fputs("<div class=\"pair\">\n", page->stream);
    confusion_write(page, run, &classes);
    classes_table(page, run, &classes);
    fputs("</div>\n", page->stream);
}

void html_classes(const struct page *page)
{
    html_section(page, "classes", "Classes");
    fprintf(page->stream, "<div class=\"%s\">\n", page->count > 1 ? "pair" : "single");
    for (int run = 0; run < page->count; run++) {
        fputs("<div>", page->stream);
        run_classes(page, run);
        fputs("</div>\n", page->stream);
    }
    fputs("</div>\n", page->stream);
    html_section_end(page);
}
