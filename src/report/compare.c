/* The same facts as in the HTML report. */
#include "report/compare.h"

#include <math.h>
#include <string.h>

#include "report/escape.h"
#include "report/facts.h"
#include "report/markdown.h"

void compare_markdown(const struct record *records, int count, FILE *stream)
{
    char text[FORMAT_TEXT];
    fputs("| |", stream);
    for (int i = 0; i < count; i++) {
        fputc(' ', stream);
        markdown_text(stream, records[i].name);
        fputs(" |", stream);
    }
    fputs("\n|---|", stream);
    for (int i = 0; i < count; i++)
        fputs("---:|", stream);
    fputc('\n', stream);
    for (int k = 0; k < fact_count; k++) {
        if (!fact_is_known(&fact_table[k], records, count))
            continue;
        fprintf(stream, "| %s |", fact_table[k].name);
        for (int i = 0; i < count; i++) {
            fputc(' ', stream);
            markdown_text(stream, fact_text(&fact_table[k], &records[i], &records[0], text));
            fputs(" |", stream);
        }
        fputc('\n', stream);
    }
}

static void csv_row(const struct record *record, const struct record *first, FILE *stream)
{
    char text[FORMAT_TEXT];
    escape_csv(stream, record->name);
    for (int k = 0; k < fact_count; k++) {
        const struct fact *fact = &fact_table[k];
        const double number = fact_number(fact, record, first);
        fputc(',', stream);
        if (!isnan(number))
            fprintf(stream, "%.9g", number);
        const char *said = fact->figure == FIGURE_TEXT ? fact_text(fact, record, first, text) : "-";
        if (strcmp(said, "-") != 0)
            escape_csv(stream, said);
    }
    fputc('\n', stream);
}

void compare_csv(const struct record *records, int count, FILE *stream)
{
    fputs("run", stream);
    for (int k = 0; k < fact_count; k++)
        fprintf(stream, ",%s", fact_table[k].key);
    fputc('\n', stream);
    for (int i = 0; i < count; i++)
        csv_row(&records[i], &records[0], stream);
}
