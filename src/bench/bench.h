/* What the topics of `vittrain bench` share: where the numbers go. One CSV schema for all
 * benchmarks (benchmarks/README.md). */
#ifndef VITTRAIN_BENCH_BENCH_H
#define VITTRAIN_BENCH_BENCH_H

#include "bench/bench_row.h"
#include "comm/comm.h"
#include "device/device.h"

struct options;

struct bench {
    const struct options *options;
    struct comm *world;
    struct device *device; /* the CPU */
    struct bench_host host;
    int nodes;
    struct csv csv; /* rank 0's, when bench.output is given */
    bool has_csv;
};

/* One number; ranks and nodes are those of the world where the row has none. Rank 0, nothing
 * without bench.output; the first failure to write is kept in `error`. */
void bench_write(struct bench *bench, const struct bench_row *row, struct error *error);

/* The topics; collective. An error is agreed on. */
MUST_CHECK bool bench_comm(struct bench *bench, struct error *error);
MUST_CHECK bool bench_machine(struct bench *bench, struct error *error);

#endif
