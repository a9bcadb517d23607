// SPDX-License-Identifier: BSD-3-Clause
/* The command `report` writes an HTML page about runs and a table in CSV. It does not use MPI. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/app.h"
#include "config/command_line.h"
#include "config/option.h"
#include "config/options.h"
#include "core/atomic_file.h"
#include "core/launcher.h"
#include "core/log.h"
#include "tools/report/export.h"
#include "tools/report/facts.h"
#include "tools/report/html.h"
#include "tools/report/logbook.h"

struct report {
    int count;
    bool names_logbook; /* output.logbook was given */
    struct record *records;
    struct options options;
};

/* Split the arguments into run folders and options. */
static bool arguments_parse(struct report *report, int count, char **words, const char **folders,
                            struct error *error)
{
    options_default(&report->options);
    for (int i = 0; i < count; i++) {
        const bool names = strncmp(words[i], "output.logbook=", 15) == 0;
        const bool sets =
            names || (strncmp(words[i], "report.", 7) == 0 && strchr(words[i], '=') != NULL);
        report->names_logbook |= names;
        if (sets && !options_set(words[i], &report->options, error))
            return false;
        if (sets)
            continue;
        folders[report->count++] = words[i];
    }
    return report->count > 0 ||
           error_set(error, ERROR_USAGE,
                     "report: no run given; call `vittrain report RUN...` with run folders");
}

static bool records_read(struct report *report, const char *const *folders, struct error *error)
{
    report->records = allocate((size_t)report->count, sizeof *report->records);
    for (int i = 0; i < report->count; i++)
        if (!record_read(&report->records[i], folders[i], error)) {
            report->count = i;
            return false;
        }
    return true;
}

static bool csv_write(const struct report *report, struct error *error)
{
    struct atomic_file file;
    if (report->options.report.csv[0] == '\0')
        return true;
    if (!atomic_file_open(&file, report->options.report.csv, error))
        return false;
    facts_csv(report->records, report->count, file.stream);
    return atomic_file_commit(&file, error);
}

static bool page_write(const struct report *report, struct error *error)
{
    char path[FILE_PATH];
    const char *given = report->options.report.output;
    if (given[0] != '\0')
        snprintf(path, sizeof path, "%s", given);
    else if (report->count > 1)
        snprintf(path, sizeof path, "report.html");
    else if (snprintf(path, sizeof path, "%s/report.html", report->records[0].path) >=
             (int)sizeof path)
        return error_set(error, ERROR_USAGE,
                         "report: the path of %s is too long; set report.output",
                         report->records[0].name);
    if (!html_write(report->records, report->count, path, error))
        return false;
    log_info("report: %s", path);
    return true;
}

static bool exports_write(const struct report *report, struct error *error)
{
    char name[OPTION_KEY];
    options_value_text(&report->options, "report.format", name, sizeof name);
    for (int i = 0; report->options.report.format != FORMAT_HTML && i < report->count; i++) {
        if (!export_write(&report->records[i], report->options.report.format, error))
            return false;
        log_info("report: files of report.format=%s are in %s", name, report->records[i].path);
    }
    return true;
}

/* Update the run's page in the log book: the one of output.logbook, else the run's own if it
 * exists. */
static void logbook_update_run(const struct report *report, const struct record *record)
{
    struct error error = {.kind = ERROR_NONE};
    const char *logbook = report->names_logbook ? report->options.output.logbook
                                                : record_option(record, "output.logbook");
    if (logbook == NULL || logbook[0] == '\0' ||
        (!report->names_logbook && access(logbook, F_OK) != 0))
        return;
    if (logbook_add(logbook, record, &error))
        log_info("log book: %s/README.md", logbook);
    else
        log_warn("cannot write the log book's page of %s: %s", record->name, error.text);
}

static int report_run(int count, char **words)
{
    static struct report report;
    struct error error = {0};
    if (count > 0 && (strcmp(words[0], "--help") == 0 || strcmp(words[0], "-h") == 0))
        return app_inform(&(struct command_line){.command = command_report.name, .help = true});
    if (launcher_rank() > 0)
        return ERROR_NONE; /* one rank is enough */
    const char **folders = allocate((size_t)count + 1, sizeof *folders);
    log_open(0, LOG_INFO);
    if (arguments_parse(&report, count, words, folders, &error) &&
        records_read(&report, folders, &error) && page_write(&report, &error) &&
        csv_write(&report, &error) && exports_write(&report, &error))
        error_defer(app_output_arrived(&error));
    for (int i = 0; error.kind == ERROR_NONE && i < report.count; i++)
        logbook_update_run(&report, &report.records[i]);
    for (int i = 0; i < report.count && report.records != NULL; i++)
        record_free(&report.records[i]);
    free(report.records);
    free(folders);
    if (error.kind != ERROR_NONE)
        log_error(&error);
    log_close();
    return (int)error.kind;
}

const struct command command_report = {
    .name = "report",
    .synopsis = "report RUN... [report.output=FILE.html] [report.csv=FILE] "
                "[report.format=FORMAT] [output.logbook=FOLDER]",
    .summary = "write an HTML page about one run or several side by side",
    .detail =
        "Reads run folders, also of interrupted or running runs, and writes one self-contained "
        "HTML file: a summary, curves, step time by phase and unit, memory by unit, sensors, "
        "metrics of each class, confusion matrix, options, warnings and missing files. The file is "
        "RUN/report.html, or report.html in the working directory for several runs, or "
        "report.output; its path is printed. The pages of the runs in their log book are updated.",
    .run_alone = report_run};
