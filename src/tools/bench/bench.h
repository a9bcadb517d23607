// SPDX-License-Identifier: BSD-3-Clause
/* Shared by the topics of `vittrain bench` and by the programs in benchmarks/: rows of one CSV
 * table (benchmarks/README.md lists its columns). Shell and Python scripts write the same rows by
 * benchmarks/common.sh. */
#ifndef VITTRAIN_TOOLS_BENCH_BENCH_H
#define VITTRAIN_TOOLS_BENCH_BENCH_H

#include <stdint.h>

#include "comm/comm.h"
#include "core/columns.h"
#include "device/count.h"

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
    struct device *device; /* the CPU */
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

/* ---- Trials (bench_trials.c): operations of a device at any size, for `bench device`. `bench
 * comm` opens its GPUs with them. */

enum { TRIAL_TENSORS = 6 };

struct product_cache;

struct trials {
    struct counter counter; /* first: count.h passes it back; results go to `counted` */
    struct counted counted;
    struct bench *bench;
    struct comm *world, *node;
    struct device *device;
    struct device_limits limits;
    struct stream *stream;
    enum data_type type; /* of the tensors of the next trial */
    /* Tensors at the same offset in their pools. */
    void *x, *y, *weight, *other, *pre, *gradient;
    void *pool[TRIAL_TENSORS], *workspace;
    size_t spare, moved;            /* bytes by which the tensors can move, and have moved */
    struct product_cache *products; /* of the caller, for trials of oneDNN */
};

/* Collective. Initialize all and open the device; false and an agreed error on failure. Close in
 * both cases. */
MUST_CHECK bool trials_open(struct trials *self, struct bench *bench, struct error *error);
void trials_close(struct trials *self);

/* Collective. Allocate and fill tensors of `bytes` each. */
MUST_CHECK bool trials_tensors_open(struct trials *self, size_t bytes, struct error *error);

/* Start one operation of the given size on the stream. */
typedef void trial(struct trials *self, const int64_t *size);

/* Rows, in, out. */
trial trial_linear_forward, trial_linear_backward;
/* Samples, tokens, heads. */
trial trial_attention_forward, trial_attention_backward;
/* Rows, width. */
trial trial_copy, trial_add;

/* With bench.machine: move all tensors on by `bytes`, out of what the caches hold. In a training
 * step an operation finds its tensors outside of the caches, because all other tensors were used
 * since. With tensors that stay in the caches, predicted steps are 12 to 20 % too short. */
void trials_move(struct trials *self, double bytes);

/* Fill in self->counted: the operation's FLOP and bytes, by the count that `plan` uses. */
void trials_count(struct trials *self, trial *run, const int64_t *size);

#endif
