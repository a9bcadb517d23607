/* The command `bench`: measures one thing (the topic) on the ranks that it is started with. */
#include "bench/bench.h"

#include <string.h>

#include "app/app.h"
#include "config/command_line.h"
#include "config/options.h"

void bench_write(struct bench *bench, const struct bench_row *row, struct error *error)
{
    struct bench_row whole = *row;
    if (!bench->has_csv || error->kind != ERROR_NONE)
        return;
    whole.ranks = row->ranks > 0 ? row->ranks : bench->world->size;
    whole.nodes = row->nodes > 0 ? row->nodes : bench->nodes;
    bench_row_put(&bench->csv, &bench->host, &whole, error);
}

static bool bench_open(struct bench *bench, struct error *error)
{
    const char *output = bench->options->bench.output;
    int node;
    bench->device = device_cpu.open(0, 1, error);
    bench_host_look(&bench->host);
    bench->nodes = comm_node_count(bench->world, &node);
    if (bench->world->rank == 0 && output[0] != '\0' && error->kind == ERROR_NONE)
        bench->has_csv = csv_open(&bench->csv, output, bench_header, 0, INT64_MAX, error);
    return comm_agree(bench->world, error);
}

static void bench_close(struct bench *bench, struct error *error)
{
    if (bench->has_csv) {
        error_defer(csv_flush(&bench->csv, error));
        csv_close(&bench->csv);
    }
    if (bench->world->rank == 0)
        error_defer(app_output_arrived(error));
    if (bench->device != NULL)
        device_cpu.close(bench->device);
    comm_agree(bench->world, error);
}

/* NULL: there is no such. */
static bool (*topic_find(const struct command_line *line))(struct bench *, struct error *)
{
    if (line->operand_count != 1)
        return NULL;
    if (strcmp(line->operand[0], "comm") == 0)
        return bench_comm;
    return strcmp(line->operand[0], "machine") == 0 ? bench_machine : NULL;
}

static void bench_run(const struct options *options, const struct command_line *line,
                      struct comm *world, struct error *error)
{
    struct bench bench = {.options = options, .world = world};
    comm_set_timeout(options->mesh.timeout);
    bool (*topic)(struct bench *, struct error *) = topic_find(line);
    if (topic == NULL)
        error_set(error, ERROR_USAGE,
                  "bench what? `vittrain bench comm` or `vittrain bench machine`");
    else if (options->bench.min > options->bench.max)
        error_set(error, ERROR_USAGE, "bench.min is more than bench.max");
    else {
        if (bench_open(&bench, error))
            topic(&bench, error);
        bench_close(&bench, error);
    }
}

const struct command command_bench = {
    .name = "bench",
    .synopsis = "bench comm | machine [DECK.ini ...] [section.key=value ...]",
    .summary = "measure collectives, each transport and MPI's own; or the machine, for plan",
    .detail =
        "`bench comm` runs all-reduce, reduce-scatter, all-gather and broadcast of fp32 over all "
        "ranks, from bench.min to bench.max bytes, by each transport that the layout allows (or "
        "the "
        "one of mesh.transport) and by MPI's own blocking calls in turn. Prints a table like that "
        "of nccl-tests: the median of the slowest rank's times, bandwidth (size over time), bus "
        "bandwidth (what each rank's link carries), and how many elements came out wrong; the exit "
        "code is 1 when there are any. `bench machine` measures, in some 20 seconds, what "
        "vittrain plan then computes times from: the device's operations at sizes of "
        "transformers and convolutional models in each precision, with all ranks at once; "
        "collectives between the ranks of a node and between nodes; and what computing and "
        "communicating take from each other. Start it on as many ranks of as many nodes, with "
        "as many threads, as the run will have. It writes bench.machine. "
        "bench.output keeps the numbers as CSV.",
    .run = bench_run};
