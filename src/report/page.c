/* A run's page: what was run, how it went, what came of it. Figures: page_figures.c; the machine's:
 * page_hardware.c. */
#include "report/page.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report/found.h"
#include "report/markdown.h"

/* ---- values as text; unknown ones are empty */

enum { TURNS = 16, TURN_SIZE = FORMAT_TEXT + 16 };

static char *turn_next(void)
{
    static char turns[TURNS][TURN_SIZE];
    static int turn;
    turn = (turn + 1) % TURNS;
    turns[turn][0] = '\0';
    return turns[turn];
}

const char *page_figure(enum figure figure, double value)
{
    char *text = turn_next();
    if (!isnan(value))
        format_figure(text, figure, value);
    return text;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
const char *page_number(const char *format, double value)
{
    char *text = turn_next();
    if (!isnan(value))
        snprintf(text, TURN_SIZE, format, value);
    return text;
}
#pragma GCC diagnostic pop

double page_number_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* Names of an array, as "a, b"; the caller frees. */
static char *names_join(const json_t *array)
{
    char *text = NULL;
    size_t length = 0, index;
    const json_t *name;
    FILE *stream = open_memstream(&text, &length);
    ENSURE(stream != NULL, "no memory for a page of the log book");
    json_array_foreach(array, index, name)
    {
        const char *word = json_string_value(name);
        fprintf(stream, "%s%s", index > 0 ? ", " : "", word != NULL ? word : "?");
    }
    ENSURE(fclose(stream) == 0, "no memory for a page of the log book");
    return text;
}

static const json_t *part_of(const struct record *record, int part)
{
    return json_array_get(record_value(record, "parts"), (size_t)part);
}

static const char *part_text(const json_t *part, const char *key)
{
    const char *text = json_string_value(json_object_get(part, key));
    return text != NULL ? text : "";
}

const char *page_started(const struct record *record)
{
    const char *started = part_text(part_of(record, 0), "started");
    return started[0] != '\0' ? started : "unknown";
}

/* "finished: all steps done", and what else can have come of a run. */
static void outcome_text(const struct record *record, char *text, size_t size)
{
    int parts = record_parts(record);
    const json_t *last = part_of(record, parts - 1);
    const char *failure = part_text(last, "error"), *reason = record_text(record, "stop_reason");
    bool ended = part_text(last, "ended")[0] != '\0';
    if (failure[0] != '\0')
        snprintf(text, size, "failed: %s", failure);
    else if (parts > 0 && !ended)
        snprintf(text, size, "cut off, or still running");
    else if (record->result != NULL)
        snprintf(text, size, "%s: %s",
                 json_is_false(record_value(record, "finished")) ? "stopped" : "finished",
                 reason != NULL ? reason : "?");
    else
        snprintf(text, size, "cut off, or still running");
}

/* ---- what was run */

static void run_write(FILE *stream, const struct record *record)
{
    int parts = record_parts(record);
    const json_t *last = part_of(record, parts - 1);
    char *hosts = names_join(json_object_get(last, "hosts"));
    char *devices = names_join(json_object_get(last, "devices"));
    const char *strategy = record_text(record, "strategy"), *model = record_text(record, "model");
    const char *precision = record_text(record, "precision");
    const char *transport = record_text(record, "transport");
    const char *format = record_option(record, "data.format");
    const char *root = record_option(record, "data.root");
    char outcome[2200];
    outcome_text(record, outcome, sizeof outcome);
    markdown_pairs_begin(stream, "What was run");
    markdown_pair(stream, "outcome", "%s", outcome);
    markdown_pair(stream, "run folder", "%s", record->path);
    markdown_pair(stream, "model", "%s", model != NULL ? model : "");
    markdown_pair(stream, "parameters", "%s",
                  page_number("%.0f", record_number(record, "parameters")));
    markdown_pair(stream, "work an image", "%s",
                  page_number("%.4g GFLOP", record_number(record, "flops_per_image") / 1e9));
    markdown_pair(stream, "data", "%s%s%s", format != NULL ? format : "",
                  root != NULL && root[0] != '\0' ? ", " : "", root != NULL ? root : "");
    markdown_pair(stream, "training samples", "%s",
                  page_number("%.0f", record_number(record, "train_samples")));
    markdown_pair(stream, "validation samples", "%s",
                  page_number("%.0f", record_number(record, "val_samples")));
    markdown_pair(stream, "test samples", "%s",
                  page_number("%.0f", record_number(record, "test_samples")));
    markdown_pair(stream, "computing in", "%s", precision != NULL ? precision : "");
    markdown_pair(stream, "ranks", "%s", page_number("%.0f", record_number(record, "ranks")));
    markdown_pair(stream, "nodes", "%s", page_number("%.0f", record_number(record, "nodes")));
    markdown_pair(stream, "threads a rank", "%s",
                  page_number("%.0f", record_number(record, "threads")));
    markdown_pair(stream, "mesh", "%s%s%s%s%s", strategy != NULL ? strategy : "",
                  page_number(", replica %.0f", record_number(record, "replica")),
                  page_number(" x shard %.0f", record_number(record, "shard")),
                  transport != NULL ? ", " : "", transport != NULL ? transport : "");
    markdown_pair(stream, "hosts", "%s", hosts);
    markdown_pair(stream, "devices", "%s", devices);
    markdown_pair(stream, "global batch", "%s",
                  page_number("%.0f", record_number(record, "global_batch")));
    markdown_pair(stream, "program", "%s %s", part_text(last, "version"),
                  part_text(last, "commit"));
    free(hosts);
    free(devices);
}

/* Each start of the run. */
static void parts_write(FILE *stream, const struct record *record)
{
    static const char *const head[] = {"part",  "started", "ended",       "steps",
                                       "ranks", "set-up",  "how it ended"};
    enum { COLUMNS = sizeof head / sizeof head[0] };
    int parts = record_parts(record);
    const json_t *part;
    if (parts == 0)
        return;
    fputs("\n## Parts\n\n", stream);
    markdown_row(stream, COLUMNS, head);
    fputs("|---|---|---|---|---|---|---|\n", stream);
    for (int i = 0; i < parts; i++) {
        part = part_of(record, i);
        const char *failure = part_text(part, "error"), *reason = part_text(part, "stop_reason");
        char number[16], steps[64];
        snprintf(number, sizeof number, "%d", i + 1);
        snprintf(steps, sizeof steps, "%lld to %s",
                 (long long)json_integer_value(json_object_get(part, "from_step")),
                 json_is_integer(json_object_get(part, "to_step"))
                     ? page_number("%.0f", page_number_at(part, "to_step"))
                     : "?");
        const char *const cells[] = {
            number,
            part_text(part, "started"),
            part_text(part, "ended"),
            steps,
            page_number("%.0f", page_number_at(part, "ranks")),
            page_figure(FIGURE_SECONDS, page_number_at(part, "setup_seconds")),
            failure[0] != '\0'  ? failure
            : reason[0] != '\0' ? reason
                                : "not known: it was cut off"};
        markdown_row(stream, COLUMNS, cells);
    }
    const char *command = part_text(part_of(record, parts - 1), "command");
    if (command[0] != '\0') {
        fputs("\nThe newest part's command (each rank's):\n", stream);
        markdown_block(stream, "sh", command);
    }
}

static void deck_write(FILE *stream, const struct record *record)
{
    static const char *const head[] = {"option", "value", "default"};
    if (record->deck_count == 0)
        return;
    fputs("\n## Deck: what differs from the defaults\n\n", stream);
    if (record->setting_count == 0) {
        fputs("Nothing.\n", stream);
        return;
    }
    markdown_row(stream, 3, head);
    fputs("|---|---|---|\n", stream);
    for (int i = 0; i < record->setting_count; i++) {
        const struct record_setting *setting = record->settings[i];
        const char *const cells[] = {setting->key, setting->value,
                                     setting->preset != NULL ? setting->preset
                                                             : "(not known to this version)"};
        markdown_row(stream, 3, cells);
    }
}

/* ---- what it left, and what went wrong */

static void lines_write(FILE *stream, const char *title, const struct lines *lines)
{
    if (lines->count == 0)
        return;
    fprintf(stream, "\n## %s\n\n", title);
    for (int i = 0; i < lines->count; i++) {
        fputs("* ", stream);
        markdown_text(stream, lines->line[i]);
        fputc('\n', stream);
    }
}

/* The names in the store of what the uploads have sent. */
static void sent_write(FILE *stream, const struct record *record)
{
    char path[sizeof record->path + 32];
    const char *url = record_option(record, "output.upload"), *object;
    json_t *value;
    snprintf(path, sizeof path, "%s/.upload.json", record->path);
    json_t *state = json_load_file(path, 0, NULL);
    if (url != NULL && url[0] != '\0') {
        fputs("* sent to ", stream);
        markdown_text(stream, url);
        fputc('\n', stream);
    }
    json_object_foreach(json_object_get(state, "checkpoints"), object, value)
    {
        fputs("* sent: ", stream);
        markdown_text(stream, object);
        fputc('\n', stream);
    }
    json_object_foreach(json_object_get(state, "uploads"), object, value)
    {
        fputs("* begun to be sent, and not ended: ", stream);
        markdown_text(stream, object);
        fputc('\n', stream);
    }
    json_decref(state);
}

static void checkpoint_write_line(FILE *stream, const struct record *record, const char *name)
{
    char path[sizeof record->path + 300], links[2][300] = {"", ""};
    static const char *const link_names[] = {"last.h5", "best.h5"};
    struct stat status;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/checkpoints/%s", record->path, link_names[i]);
        ssize_t length = readlink(path, links[i], sizeof links[i] - 1);
        links[i][length > 0 ? length : 0] = '\0';
    }
    snprintf(path, sizeof path, "%s/checkpoints/%s", record->path, name);
    fputs("* checkpoints/", stream);
    markdown_text(stream, name);
    if (stat(path, &status) == 0)
        fprintf(stream, ", %.1f MB", (double)status.st_size / 1e6);
    fprintf(stream, "%s%s\n", strcmp(links[0], name) == 0 ? ", the last" : "",
            strcmp(links[1], name) == 0 ? ", the best" : "");
}

static void checkpoints_write(FILE *stream, const struct record *record)
{
    fputs("\n## Checkpoints\n\n", stream);
    if (record->checkpoints.count == 0)
        fputs("None.\n", stream);
    for (int i = 0; i < record->checkpoints.count; i++)
        checkpoint_write_line(stream, record, record->checkpoints.line[i]);
    sent_write(stream, record);
}

/* Restarts and skipped updates in figures, then the log's words. */
static void trouble_write(FILE *stream, const struct record *record)
{
    int parts = record_parts(record);
    const struct table *metrics = &record->metrics;
    int column = table_column(metrics, "skipped_steps");
    double skipped = NAN;
    for (int64_t row = 0; row < metrics->rows; row++) {
        double value = table_number(metrics, row, column);
        skipped = isnan(value) ? skipped : value;
    }
    fputs("\n## What went wrong\n\n", stream);
    if (parts > 1)
        fprintf(stream, "* it was started %d times\n", parts);
    if (skipped > 0)
        fprintf(stream, "* %.0f updates were skipped, as gradients overflowed in fp16\n", skipped);
    for (int i = 0; i < parts; i++) {
        const char *failure = part_text(part_of(record, i), "error");
        if (failure[0] == '\0')
            continue;
        fprintf(stream, "* part %d failed: ", i + 1);
        markdown_text(stream, failure);
        fputc('\n', stream);
    }
    for (int i = 0; i < record->trouble.count; i++) {
        fputs("* ", stream);
        markdown_text(stream, record->trouble.line[i]);
        fputc('\n', stream);
    }
    if (parts <= 1 && !(skipped > 0) && record->trouble.count == 0)
        fputs("Nothing that is known.\n", stream);
}

static void found_row_write(FILE *stream, const struct table *table, int64_t row, const char *name,
                            const char *unit)
{
    static const char *const told[][2] = {{"global_batch", "global batch "},
                                          {"peak_bytes", "peak bytes "},
                                          {"limit", "of bytes "},
                                          {"date", ""},
                                          {"host", "on "},
                                          {"detail", ""}};
    char text[2048];
    if (row < 0)
        return;
    int used = snprintf(text, sizeof text, "%s%s",
                        table_text(table, row, table_column(table, "value")), unit);
    for (size_t i = 0; i < sizeof told / sizeof told[0] && used < (int)sizeof text; i++) {
        const char *value = table_text(table, row, table_column(table, told[i][0]));
        if (value[0] != '\0')
            used += snprintf(text + used, sizeof text - (size_t)used, "; %s%s", told[i][1], value);
    }
    markdown_pair(stream, name, "%s", text);
}

/* What searches found for this model on so many ranks. */
static void found_write(FILE *stream, const struct record *record, const char *logbook)
{
    char path[4096 + 32];
    struct table table;
    struct error ignored = {.kind = ERROR_NONE};
    snprintf(path, sizeof path, "%s/found.csv", logbook);
    if (!table_read(&table, path, &ignored))
        return;
    int64_t batch = found_newest(&table, "batch", record);
    int64_t rate = found_newest(&table, "lr", record);
    if (batch >= 0 || rate >= 0)
        markdown_pairs_begin(stream, "What searches found");
    found_row_write(stream, &table, batch, "largest batch (find batch)", " samples a rank");
    found_row_write(stream, &table, rate, "learning rate (find lr)", "");
    table_free(&table);
}

void page_write(FILE *stream, const struct record *record, const char *logbook)
{
    run_write(stream, record);
    page_figures_write(stream, record);
    if (logbook != NULL)
        found_write(stream, record, logbook);
    page_hardware_write(stream, record);
    parts_write(stream, record);
    deck_write(stream, record);
    checkpoints_write(stream, record);
    trouble_write(stream, record);
    lines_write(stream, "What is missing", &record->missing);
    fputc('\n', stream);
}

/* ---- the index */

const char page_row_head[] = "| run | started | model | ranks | mesh | type | global batch | "
                             "epochs | val top-1 | test top-1 "
                             "| img/s | MFU | time | energy | outcome |\n"
                             "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";

void page_row_write(FILE *stream, const struct record *record)
{
    char started[24], ranks[40], outcome[2200];
    const char *model = record_text(record, "model"), *strategy = record_text(record, "strategy");
    const char *precision = record_text(record, "precision");
    snprintf(started, sizeof started, "%.19s", page_started(record));
    char *middle = strchr(started, 'T');
    if (middle != NULL)
        *middle = ' ';
    double count = record_number(record, "ranks"), nodes = record_number(record, "nodes");
    snprintf(ranks, sizeof ranks, "%s%s", page_number("%.0f", count),
             page_number(nodes > 1 ? " on %.0f nodes" : " on %.0f node", nodes));
    outcome_text(record, outcome, sizeof outcome);
    outcome[60] = '\0';
    const char *const cells[] = {
        started,
        model != NULL ? model : "",
        ranks,
        strategy != NULL ? strategy : "",
        precision != NULL ? precision : "",
        page_number("%.0f", record_number(record, "global_batch")),
        page_number("%.0f", record_number(record, "epochs")),
        page_figure(FIGURE_SHARE, record_number(record, "top1")),
        page_figure(FIGURE_SHARE, record_number(record, "test.top1")),
        page_figure(FIGURE_RATE, record_number(record, "images_per_second")),
        page_figure(FIGURE_SHARE, record_step_mean(record, "peak_share")),
        page_figure(FIGURE_SECONDS, record_number(record, "total_seconds")),
        page_figure(FIGURE_WATT_HOURS, record_number(record, "sensors.energy_wh")),
        outcome};
    char *row = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&row, &length);
    ENSURE(memory != NULL, "no memory for the log book's index");
    markdown_row(memory, sizeof cells / sizeof cells[0], cells);
    ENSURE(fclose(memory) == 0, "no memory for the log book's index");
    /* The first bar is the link's, the end of the line the index's. */
    fprintf(stream, "%.*s", (int)length - 3, row + 2);
    free(row);
}
