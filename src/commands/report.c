// SPDX-License-Identifier: BSD-3-Clause
/* The command `report` runs tools/report.py, which reads run folders. It does not use MPI. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/launcher.h"
#include "base/log.h"
#include "commands/app.h"

static int report_run(int count, char **words)
{
    static const char name[] = "tools/report.py";
    char script[PATH_MAX];
    struct error error = {0};
    if (launcher_rank() > 0)
        return ERROR_NONE; /* one rank is enough */
    if (!folder_installed(name, script, sizeof script)) {
        error_set(&error, ERROR_FILE, "report: cannot read %s: %s; install vittrain again", script,
                  strerror(errno));
    } else {
        char **arguments = allocate((size_t)count + 4, sizeof *arguments);
        arguments[0] = (char[]){"python3"};
        arguments[1] = (char[]){"-B"}; /* no files beside the script */
        arguments[2] = script;
        memcpy(arguments + 3, words, (size_t)count * sizeof *arguments);
        execvp(arguments[0], arguments);
        error_set(&error, ERROR_FILE, "report: cannot start python3: %s; install Python 3",
                  strerror(errno));
        free(arguments);
    }
    log_error(&error);
    return (int)error.kind;
}

const struct command command_report = {
    .name = "report",
    .synopsis = "report RUN... [report.output=FILE.html] [report.csv=FILE] "
                "[report.format=course|imagenet|lightning] [output.logbook=FOLDER]",
    .summary = "write an HTML page about one run or several side by side",
    .detail =
        "Reads run folders, also of interrupted or running runs, and writes one self-contained "
        "HTML file: a summary, curves, step time by phase and unit, memory by unit, sensors, "
        "metrics of each class, confusion matrix, options, warnings and missing files. The file "
        "is RUN/report.html, or report.html in the working directory for several runs, or "
        "report.output; its path is printed. report.csv is a table with one row per run. "
        "report.format also writes the log lines and files of another program to each run folder. "
        "The pages of the runs in their log book are updated. For FIND_LR.csv of find lr it "
        "writes FIND_LR.html with the curve. Needs Python 3.",
    .run_alone = report_run};
