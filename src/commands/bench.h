// SPDX-License-Identifier: BSD-3-Clause
/* Shared by the topics of `vittrain bench` and by the programs in benchmarks/: rows of one CSV
 * table (benchmarks/README.md lists its columns). Shell and Python scripts write the same rows by
 * benchmarks/common.sh. */
#ifndef VITTRAIN_COMMANDS_BENCH_H
#define VITTRAIN_COMMANDS_BENCH_H

#include <stdint.h>

#include "base/columns.h"
#include "comm/comm.h"
#include "device/device.h"

struct machine;
struct options;

/* The machine that measures. */
struct bench_host {
    char cpu[128], name[64]; /* "Intel(R) Xeon(R) Processor (2 cores)", its host name */
    long cores;
    double memory_gib;
};
void bench_host_read(struct bench_host *host);

/* One measured value. */
struct bench_row {
    const char *framework, *version; /* NULL: vittrain and its version */
    const char *work, *model, *strategy, *metric, *unit;
    const char *precision;         /* NULL: fp32 */
    const char *gpu;               /* NULL: computed on the CPU */
    double batch;                  /* samples of all ranks together; 0: none */
    int64_t ranks, threads, nodes; /* 0: 1 */
    double value;

    /* Set when the row is written. */
    const char *date, *host_cpu, *commit, *host;
    int64_t cores;
    double memory_gib, load;
};
extern const struct column bench_columns[];

/* Print header and rows on standard output, for programs whose output is a table. */
void bench_header_print(void);
void bench_row_print(const struct bench_host *host, const struct bench_row *row);

struct bench {
    const struct options *options;
    const char *subject; /* the operand after the topic, or NULL */
    struct comm *world;
    struct bench_host host;
    int nodes;
    struct csv csv;          /* rank 0 with bench.output; else not open */
    struct machine *machine; /* with bench.machine: the topics add what they measure; else NULL */
};

/* Rank 0: append a row to bench.output, if given. Missing ranks and nodes are those of the world.
 * The first failure is kept in `error`. */
void bench_write(struct bench *bench, const struct bench_row *row, struct error *error);

/* The topics. Collective; an error is agreed on. */
MUST_CHECK bool bench_comm(struct bench *bench, struct error *error);
MUST_CHECK bool bench_device(struct bench *bench, struct error *error);

#endif
