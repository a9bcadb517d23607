/* A row is appended by a single write. The file with its header is created under another name and
 * linked, so concurrent writers lose nothing. */
#include "report/found.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/csv.h"
#include "core/durable.h"
#include "core/folder.h"
#include "core/version.h"
#include "report/record.h"

static const char header[] = "date,host,commit,what,model,image,precision,strategy,ranks,nodes,"
                             "value,global_batch,peak_bytes,limit,detail\n";

/* Create the file with its header if it does not exist. */
static bool table_make(const char *path, struct error *error)
{
    char part[FILE_PATH + 128];
    if (access(path, F_OK) == 0)
        return true;
    snprintf(part, sizeof part, "%s.%s-%ld", path, error_host(), (long)getpid());
    int file = durable_create(part, error);
    if (file < 0)
        return false;
    bool good = durable_write(file, part, header, sizeof header - 1, 0, error);
    good = durable_close(file, part, error) && good;
    if (good && link(part, path) != 0 && access(path, F_OK) != 0)
        good = durable_rename(part, path, error); /* file systems without hard links */
    unlink(part);
    return good;
}

static void row_write(const struct found *found, FILE *stream)
{
    char date[32];
    struct csv row = {.stream = stream};
    clock_stamp_utc(date, sizeof date);
    csv_text(&row, date);
    csv_text(&row, error_host());
    csv_text(&row, version_commit);
    csv_text(&row, found->what);
    csv_text(&row, found->model);
    csv_integer(&row, found->image);
    csv_text(&row, found->precision);
    csv_text(&row, found->strategy);
    csv_integer(&row, found->ranks);
    csv_integer(&row, found->nodes);
    csv_number(&row, found->value);
    csv_integer(&row, found->global_batch);
    csv_number(&row, found->peak_bytes < 0 ? NAN : (double)found->peak_bytes);
    csv_number(&row, found->limit < 0 ? NAN : (double)found->limit);
    csv_text(&row, found->detail);
    fputc('\n', stream);
}

static bool row_append(const char *path, const char *row, size_t length, struct error *error)
{
    int file = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file < 0)
        return durable_failed(error, "write", path, errno);
    ssize_t written = write(file, row, length);
    int reason = written < 0 ? errno : ENOSPC;
    if (close(file) != 0 && written == (ssize_t)length)
        return durable_failed(error, "write", path, errno);
    return written == (ssize_t)length || durable_failed(error, "write", path, reason);
}

bool found_add(const char *logbook, const struct found *found, struct error *error)
{
    char path[FILE_PATH], *row = NULL;
    size_t length = 0;
    if (!folder_make(logbook, "choose another by output.logbook", error))
        return false;
    snprintf(path, sizeof path, "%s/found.csv", logbook);
    FILE *stream = open_memstream(&row, &length);
    ENSURE(stream != NULL, "no memory for a row of %s", path);
    row_write(found, stream);
    ENSURE(fclose(stream) == 0, "no memory for a row of %s", path);
    bool good = table_make(path, error) && row_append(path, row, length, error);
    free(row);
    return good;
}

static bool same_text(const struct table *table, int64_t row, const char *column, const char *text)
{
    return text != NULL && strcmp(table_text(table, row, table_column(table, column)), text) == 0;
}

static bool same_number(const struct table *table, int64_t row, const char *column, double number)
{
    return table_number(table, row, table_column(table, column)) == number;
}

int64_t found_newest(const struct table *table, const char *what, const struct record *record)
{
    for (int64_t row = table->rows - 1; row >= 0; row--)
        if (same_text(table, row, "what", what) &&
            same_text(table, row, "model", record_option(record, "model.name")) &&
            same_number(table, row, "image", record_number(record, "image")) &&
            same_text(table, row, "precision", record_text(record, "precision")) &&
            same_text(table, row, "strategy", record_option(record, "mesh.strategy")) &&
            same_number(table, row, "ranks", record_number(record, "ranks")))
            return row;
    return -1;
}
