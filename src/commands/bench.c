// SPDX-License-Identifier: BSD-3-Clause
/* The command `bench`: selects the topic and writes rows of the benchmarks' table. */
#define _DEFAULT_SOURCE /* getloadavg */
#include "commands/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/file.h"
#include "commands/app.h"
#include "options/options.h"
#include "plan/plan.h"

#define CELL(kind, name) COLUMN(bench_row, kind, name)
const struct column bench_columns[] = {
    CELL(TEXT, date),      CELL(TEXT, host_cpu), CELL(TEXT, commit),       CELL(TEXT, framework),
    CELL(TEXT, version),   CELL(TEXT, work),     CELL(TEXT, model),        CELL(NUMBER, batch),
    CELL(TEXT, precision), CELL(TEXT, strategy), CELL(INTEGER, ranks),     CELL(INTEGER, threads),
    CELL(TEXT, metric),    CELL(NUMBER, value),  CELL(TEXT, unit),         CELL(INTEGER, nodes),
    CELL(TEXT, host),      CELL(INTEGER, cores), CELL(NUMBER, memory_gib), CELL(TEXT, gpu),
    CELL(NUMBER, load),    COLUMNS_END};

void bench_host_read(struct bench_host *host)
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

static bool row_write(struct csv *csv, const struct bench_host *host, const struct bench_row *row,
                      struct error *error)
{
    struct bench_row whole = *row;
    char date[32];
    double load;
    clock_stamp(date, sizeof date);
    if (row->framework == NULL) {
        whole.framework = "vittrain";
        whole.version = version_number;
    }
    char gpu[128] = ""; /* scripts cut rows at each comma */
    if (row->gpu != NULL)
        snprintf(gpu, sizeof gpu, "%s", row->gpu);
    for (char *comma = gpu; (comma = strchr(comma, ',')) != NULL;)
        *comma = ' ';
    whole.gpu = row->gpu != NULL ? gpu : NULL;
    whole.precision = row->precision != NULL ? row->precision : "fp32";
    whole.batch = row->batch > 0 ? row->batch : NAN;
    whole.ranks = larger(row->ranks, 1);
    whole.threads = larger(row->threads, 1);
    whole.nodes = larger(row->nodes, 1);
    whole.date = date;
    whole.host_cpu = host->cpu;
    whole.commit = version_commit;
    whole.host = host->name;
    whole.cores = host->cores;
    whole.memory_gib = round(host->memory_gib);
    whole.load = getloadavg(&load, 1) == 1 ? round(100 * load) / 100 : NAN;
    return columns_write(bench_columns, &whole, csv, error);
}

void bench_header_print(void)
{
    char *header = columns_header(bench_columns);
    printf("%s\n", header);
    free(header);
}

void bench_row_print(const struct bench_host *host, const struct bench_row *row)
{
    struct error error = {0};
    struct csv csv = {.stream = stdout, .path = "standard output"};
    error_defer(row_write(&csv, host, row, &error));
    fflush(stdout);
}

void bench_write(struct bench *bench, const struct bench_row *row, struct error *error)
{
    struct bench_row whole = *row;
    if (bench->csv.stream == NULL || error->kind != ERROR_NONE)
        return;
    whole.ranks = row->ranks > 0 ? row->ranks : bench->world->size;
    whole.nodes = row->nodes > 0 ? row->nodes : bench->nodes;
    error_defer(row_write(&bench->csv, &bench->host, &whole, error));
}

static void bench_run(const struct options *options, const struct command_line *line,
                      struct comm *world, struct error *error)
{
    struct bench bench = {.options = options, .world = world};
    struct atomic_file file = {0};
    const char *output = options->bench.output, *machine = options->bench.machine;
    const int count = line->operand_count;
    const char *name = count > 0 ? line->operand[0] : "";
    bool (*topic)(struct bench *, struct error *) = NULL;
    int node;
    if (strcmp(name, "comm") == 0 && count == 1)
        topic = bench_comm;
    else if (strcmp(name, "device") == 0 && count <= 2)
        topic = bench_device;
    bench.subject = count > 1 ? line->operand[1] : NULL;
    comm_set_timeout(options->mesh.timeout);
    if (topic == NULL)
        error_set(error, ERROR_USAGE,
                  "bench: no such topic; use `vittrain bench comm` or `vittrain bench device`");
    if (error->kind != ERROR_NONE)
        return;
    bench_host_read(&bench.host);
    bench.nodes = comm_node_count(world, &node);
    if (world->rank == 0 && output[0] != '\0' && error->kind == ERROR_NONE)
        error_defer(columns_open(&bench.csv, output, bench_columns,
                                 &(struct csv_keep){.last = INT64_MAX}, error));
    /* The machine may have measurements already. */
    if (machine[0] != '\0')
        bench.machine = allocate(1, sizeof *bench.machine);
    if (machine[0] != '\0' && world->rank == 0 && machine_read(bench.machine, machine, true, error))
        error_defer(atomic_file_open(&file, machine, error));
    if (comm_agree(world, error))
        error_defer(topic(&bench, error));
    if (file.stream != NULL && error->kind != ERROR_NONE) {
        atomic_file_discard(&file);
    } else if (file.stream != NULL) {
        machine_write(bench.machine, file.stream);
        if (atomic_file_commit(&file, error))
            printf("written to %s\n", machine);
    }
    free(bench.machine);
    if (bench.csv.stream != NULL)
        error_defer(csv_flush(&bench.csv, error));
    csv_close(&bench.csv);
    if (world->rank == 0)
        error_defer(app_output_arrived(error));
    comm_agree(world, error);
}

const struct command command_bench = {
    .name = "bench",
    .synopsis = "bench comm | device [product:SIDE | attention:BATCH:TOKENS] [DECK.ini ...] "
                "[section.key=value ...]",
    .summary = "measure collectives, or operations of a device",
    .detail =
        "`bench comm` runs all-reduce, reduce-scatter, all-gather and broadcast of fp32 over all "
        "ranks, from 8 to bench.max bytes, by each transport that the layout allows (or the one of "
        "mesh.transport), by MPI's blocking calls and, with run.backend=cuda, by NCCL in turn. "
        "Prints a table like that of nccl-tests: the median of the slowest rank's times, bandwidth "
        "(size over time), bus bandwidth (load of each rank's link), and the number of wrong "
        "elements; the exit code is 1 if there are any. `bench device` measures the linear layers "
        "and the attention of some ViTs on all ranks at once; or only a copy and one square "
        "product; or only attention with 12 heads of 64. train.precision selects the type, "
        "run.backend the device. bench.output appends all values to a CSV table. Both add what "
        "they measure to bench.machine, from which vittrain "
        "plan predicts times: start them with the ranks, nodes and threads of the planned run.",
    .run = bench_run};
