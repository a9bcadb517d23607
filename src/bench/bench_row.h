/* The table of all benchmarks, whoever measures (benchmarks/README.md has its columns): what a row
 * says of the machine, and how it is written. benchmarks/common.sh and bench_common.py write the
 * same for shell and Python. */
#ifndef VITTRAIN_BENCH_BENCH_ROW_H
#define VITTRAIN_BENCH_BENCH_ROW_H

#include <stdint.h>

#include "core/csv.h"

extern const char bench_header[];

/* The machine that measures. */
struct bench_host {
    char cpu[128], name[64]; /* "Intel(R) Xeon(R) Processor (2 cores)", its host name */
    long cores;
    double memory_gib;
};
void bench_host_look(struct bench_host *host);

/* One number. NULL and 0 are "", and 1 rank, thread and node; commas, quotes and ends of lines in
 * texts become spaces. */
struct bench_row {
    const char *framework, *version; /* NULL: vittrain, and this one */
    const char *work, *model, *strategy, *metric, *unit;
    const char *precision; /* NULL: fp32 */
    const char *gpu;       /* that computed; NULL: the CPU did */
    int64_t batch;         /* samples of all ranks together; 0: there are none */
    int ranks, threads, nodes;
    double value;
};
void bench_row_put(struct csv *csv, const struct bench_host *host, const struct bench_row *row,
                   struct error *error);

/* The same as a line on standard output, for programs whose output is a table. */
void bench_header_print(void);
void bench_row_print(const struct bench_host *host, const struct bench_row *row);

#endif
