#include "report/page.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/text_file.h"
#include "report/facts.h"
#include "report/markdown.h"
#include "report/run_tables.h"

/* ---- lists */

static void line_write(FILE *stream, const char *before, const char *text)
{
    fprintf(stream, "* %s", before);
    markdown_text(stream, text);
    fputc('\n', stream);
}

/* The checkpoints in the run's folder, and the uploads that .upload.json records. */
static void checkpoints_write(FILE *stream, const struct record *record)
{
    static const char *const link_names[] = {"last.h5", "best.h5"};
    char path[sizeof record->path + 300], links[2][300] = {"", ""};
    const char *url = record_option(record, "output.upload"), *object;
    json_t *value;

    fputs("\n## Checkpoints\n\n", stream);
    if (record->checkpoints.count == 0)
        fputs("None.\n", stream);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/checkpoints/%s", record->path, link_names[i]);
        const ssize_t length = readlink(path, links[i], sizeof links[i] - 1);
        links[i][length > 0 ? length : 0] = '\0';
    }
    for (int i = 0; i < record->checkpoints.count; i++) {
        const char *name = record->checkpoints.line[i];
        struct stat status;
        snprintf(path, sizeof path, "%s/checkpoints/%s", record->path, name);
        fputs("* checkpoints/", stream);
        markdown_text(stream, name);
        if (stat(path, &status) == 0)
            fprintf(stream, ", %.1f MB", (double)status.st_size / 1e6);
        fprintf(stream, "%s%s\n", strcmp(links[0], name) == 0 ? ", last" : "",
                strcmp(links[1], name) == 0 ? ", best" : "");
    }
    if (url != NULL && url[0] != '\0')
        line_write(stream, "uploaded to ", url);
    snprintf(path, sizeof path, "%s/.upload.json", record->path);
    json_t *state = json_load_file(path, 0, NULL);
    json_object_foreach(json_object_get(state, "checkpoints"), object, value)
        line_write(stream, "uploaded: ", object);
    json_object_foreach(json_object_get(state, "uploads"), object, value)
        line_write(stream, "upload not finished: ", object);
    json_decref(state);
}

/* The tables that nvidia-smi printed about the middle of the run, one file per node. */
static void nvidia_smi_write(FILE *stream, const struct record *record)
{
    struct lines names = record_names(record, ".", "nvidia-smi", ".txt");
    if (names.count > 0)
        fputs("\n## nvidia-smi, about the middle of the run\n", stream);
    for (int i = 0; i < names.count; i++) {
        char path[sizeof record->path + 300];
        size_t length;
        snprintf(path, sizeof path, "%s/%s", record->path, names.line[i]);
        char *text = text_file_read(path, &length);
        if (text != NULL)
            markdown_block(stream, "text", text);
        free(text);
    }
    lines_free(&names);
}

/* ---- the page */

void page_write(FILE *stream, const struct record *record, const char *logbook)
{
    static void (*const tables[])(struct sheet *, const struct record *) = {
        run_table_splits,  run_table_classes, run_table_units,    run_table_ranks,
        run_table_sensors, run_table_deck,    run_table_attempts,
    };
    struct sheet sheet = {0};

    fputs("\nRun folder: ", stream);
    markdown_text(stream, record->path);
    fputs("\n\n", stream);
    facts_markdown(record, 1, stream);
    run_table_found(&sheet, record, logbook);
    sheet_markdown(&sheet, stream);
    sheet_free(&sheet);
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        tables[i](&sheet, record);
        sheet_markdown(&sheet, stream);
        sheet_free(&sheet);
    }
    checkpoints_write(stream, record);
    nvidia_smi_write(stream, record);
    fputs("\n## Warnings and errors\n\n", stream);
    for (int i = 0; i < record->trouble.count; i++)
        line_write(stream, "", record->trouble.line[i]);
    if (record->trouble.count == 0)
        fputs("None in the log.\n", stream);
    if (record->missing.count > 0)
        fputs("\n## Missing or damaged files\n\n", stream);
    for (int i = 0; i < record->missing.count; i++)
        line_write(stream, "", record->missing.line[i]);
    fputc('\n', stream);
}

/* ---- the index */

static const char *const row_keys[] = {
    "started",       "model",     "ranks",    "nodes",     "strategy",          "precision",
    "global_batch",  "epochs",    "val_top1", "test_top1", "images_per_second", "peak_share",
    "total_seconds", "energy_wh", "ending",   "reason"};
enum { ROW_KEYS = sizeof row_keys / sizeof row_keys[0] };

void page_row_head(FILE *stream)
{
    fputs("| Run |", stream);
    for (int i = 0; i < ROW_KEYS; i++)
        fprintf(stream, " %s |", fact_find(row_keys[i])->name);
    fputs("\n|---|", stream);
    for (int i = 0; i < ROW_KEYS; i++)
        fputs("---|", stream);
    fputc('\n', stream);
}

void page_row_write(FILE *stream, const struct record *record)
{
    char text[FORMAT_TEXT];
    for (int i = 0; i < ROW_KEYS; i++) {
        char cell[61];
        snprintf(cell, sizeof cell, "%s", fact_text(fact_find(row_keys[i]), record, record, text));
        fputs(i > 0 ? " " : "", stream);
        markdown_text(stream, cell);
        fputs(" |", stream);
    }
}
