/* Rows of the benchmarks' table. */
#define _DEFAULT_SOURCE /* getloadavg */
#include "bench/bench_row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/version.h"
#include "device/device.h"

const char bench_header[] = "date,host_cpu,commit,framework,version,work,model,batch,precision,"
                            "strategy,ranks,threads,metric,value,unit,nodes,host,cores,memory_gib,"
                            "gpu,load";

void bench_host_look(struct bench_host *host)
{
    struct error error = {0};
    struct device_limits limits = {.name = "CPU"};
    struct device *device = device_cpu.open(0, 1, &error);

    memset(host, 0, sizeof *host);
    if (device != NULL) {
        device_cpu.limits(device, &limits);
        device_cpu.close(device);
    }
    host->cores = sysconf(_SC_NPROCESSORS_ONLN);
    host->memory_gib = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE) / (1 << 30);
    snprintf(host->cpu, sizeof host->cpu, "%.*s (%ld cores)", (int)strcspn(limits.name, ","),
             limits.name, host->cores);
    gethostname(host->name, sizeof host->name - 1);
}

static void put_cell(struct csv *csv, const char *text)
{
    char cell[256];

    snprintf(cell, sizeof cell, "%s", text != NULL ? text : "");
    for (char *at = cell; (at = strpbrk(at, ",\"\n")) != NULL;)
        *at = ' ';
    csv_text(csv, cell);
}

static void put_count(struct csv *csv, int count)
{
    csv_integer(csv, count > 0 ? count : 1);
}

void bench_row_put(struct csv *csv, const struct bench_host *host, const struct bench_row *row,
                   struct error *error)
{
    char date[32];
    double load;

    clock_stamp(date, sizeof date);
    const char *begin[] = {date,
                           host->cpu,
                           version_commit,
                           row->framework != NULL ? row->framework : "vittrain",
                           row->framework != NULL ? row->version : version_number,
                           row->work,
                           row->model};
    for (size_t i = 0; i < sizeof begin / sizeof begin[0]; i++)
        put_cell(csv, begin[i]);
    csv_number(csv, row->batch > 0 ? (double)row->batch : NAN);
    put_cell(csv, row->precision != NULL ? row->precision : "fp32");
    put_cell(csv, row->strategy);
    put_count(csv, row->ranks);
    put_count(csv, row->threads);
    put_cell(csv, row->metric);
    csv_number(csv, row->value);
    put_cell(csv, row->unit);
    put_count(csv, row->nodes);
    put_cell(csv, host->name);
    csv_integer(csv, host->cores);
    csv_number(csv, round(host->memory_gib));
    put_cell(csv, row->gpu);
    csv_number(csv, getloadavg(&load, 1) == 1 ? round(100 * load) / 100 : NAN);
    error_defer(csv_end_row(csv, error));
}

void bench_header_print(void)
{
    printf("%s\n", bench_header);
}

void bench_row_print(const struct bench_host *host, const struct bench_row *row)
{
    struct error error = {0};
    struct csv csv = {.stream = stdout, .path = "standard output"};

    bench_row_put(&csv, host, row, &error);
    fflush(stdout);
}
