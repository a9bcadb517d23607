/* What the topics of `vittrain bench` share: where the numbers go. One CSV schema for all
 * benchmarks (benchmarks/README.md). */
#ifndef VITTRAIN_APP_BENCH_H
#define VITTRAIN_APP_BENCH_H

#include "comm/comm.h"
#include "core/options.h"
#include "io/csv.h"

struct bench {
    const struct options *options;
    struct comm *world;
    struct device *device; /* the CPU */
    char host_cpu[128];
    struct csv csv; /* rank 0's, when bench.output is given */
    bool has_csv;
};

/* One number. Text without commas. Rank 0, nothing without bench.output; the first failure to write
 * is kept in `error`. */
struct bench_row {
    const char *framework, *version, *work, *model, *strategy, *metric, *unit;
    double value;
};
void bench_write(struct bench *bench, const struct bench_row *row, struct error *error);

/* The topics; collective. An error is agreed on. */
bool bench_comm(struct bench *bench, struct error *error);

#endif
