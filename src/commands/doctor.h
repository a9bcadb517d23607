// SPDX-License-Identifier: BSD-3-Clause
/* Shared declarations of `vittrain doctor`. Each rank reads its facts and each node's first rank
 * those of the node. Rank 0 gathers them once and then runs the checks alone (doctor_checks.c), one
 * row each. */
#ifndef VITTRAIN_COMMANDS_DOCTOR_H
#define VITTRAIN_COMMANDS_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "comm/comm.h"
#include "options/option_types.h"

struct options;
struct session;

/* ---- facts */
enum { DOCTOR_HOST = 64, DOCTOR_CORE_WORDS = 16, DOCTOR_CORES = 64 * DOCTOR_CORE_WORDS };
enum { DOCTOR_WHY = 256, DOCTOR_TEXT = 768, DOCTOR_SAMPLES = 64 };
/* The data set of a node, for comparison between nodes: a sum of hashes of all names and sizes, and
 * the content of the files whose names have the lowest hashes, in this order. */
struct doctor_data {
    char why[DOCTOR_WHY]; /* why there is no data set; "" if there is one */
    int64_t cut;          /* 1: time limit reached, the summary is incomplete */
    int64_t files, bytes, samples;
    uint64_t names;
    uint32_t sum[DOCTOR_SAMPLES]; /* CRC32C of pieces of each file */
};

/* Facts of a rank, sent as bytes. */
struct doctor_facts {
    char host[DOCTOR_HOST];
    int64_t rank, node, node_ranks;
    int64_t threads;                   /* compute threads */
    uint64_t cores[DOCTOR_CORE_WORDS]; /* bit c: CPU c is in its affinity mask */
    int64_t online;                    /* CPUs of the machine */
    double quota;                      /* CPU quota of its control group, in CPUs; 0: no limit */
    int64_t slots;                     /* slots of the launcher; 0: unknown */
    uint64_t files, locked;            /* limits (ulimit -n, -l); UINT64_MAX: none */
    int64_t infiniband;                /* adapters */
    char no_gpu[DOCTOR_WHY];           /* why the rank has no GPU; "" if it has one */
    struct device_limits gpu;
    struct device_survey survey;
    /* Of the node, set by its first rank. */
    uint64_t shared_bytes, shared_free; /* of /dev/shm */
    char left[DOCTOR_TEXT / 2];         /* checkpoints in memory of killed runs */
    char folder[OPTION_TEXT];           /* run.dir, or its nearest existing parent */
    char folder_why[DOCTOR_WHY];        /* why it cannot be used; "" if it can */
    int64_t shares_folder, locks_folder;
    uint64_t free; /* bytes there */
    struct doctor_data data;
};

struct doctor {
    const struct options *options;
    int ranks, nodes;
    struct doctor_facts *facts;               /* [ranks] sorted by node, then by rank */
    size_t checkpoint;                        /* bytes of a checkpoint; 0: not known */
    char sample[DOCTOR_SAMPLES][OPTION_TEXT]; /* on the first rank of a node: the compared files */
};

/* Replace a folder that does not exist by its nearest existing parent, and read its free space. */
void doctor_read_space(struct doctor_facts *facts, const struct options *options);

/* Collective. On the first rank of each node: check that the folder can be written, that files can
 * be replaced by renaming, that it is shared and that locks work between nodes. */
void doctor_try_folder(struct doctor_facts *facts, struct comm *world, bool of_node);

/* Summarize the data set below data.root, in at most `seconds`. */
void doctor_read_data(struct doctor *doctor, struct doctor_data *data, double seconds);

/* ---- rows */
enum doctor_verdict { DOCTOR_PASS, DOCTOR_WARN, DOCTOR_FAIL };
enum { DOCTOR_FINDINGS = 3 };

struct doctor_row {
    enum doctor_verdict verdict;
    int findings;            /* number of findings with this verdict */
    char found[DOCTOR_TEXT]; /* the first of them, one line */
};

/* Add a finding to a row. The row keeps its worst findings: a worse verdict replaces the text, an
 * equal one is appended, a better one is ignored. */
void doctor_set(struct doctor_row *row, enum doctor_verdict verdict, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The checks, in the order of their rows. */
enum doctor_check_name { DOCTOR_CORES_ROW = 1, DOCTOR_BINDING_ROW, DOCTOR_SPACE_ROW = 7 };
struct doctor_check {
    const char *name;
    void (*run)(const struct doctor *doctor, struct doctor_row *row);
    const char *advice; /* what to do about a warning or failure */
};
enum { DOCTOR_CHECKS = 9 };
extern const struct doctor_check doctor_checks[DOCTOR_CHECKS];

/* Run the fast checks at the start of `train` and log a warning for each problem. Collective. */
void doctor_start(const struct session *session);

#endif
