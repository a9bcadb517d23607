// SPDX-License-Identifier: BSD-3-Clause
/* Shared declarations of the checks of `vittrain doctor`. All ranks run the same checks in the same
 * order (the table is in doctor.c). Each rank's facts are gathered, and rank 0 prints one row per
 * check. Every check has a time limit (doctor_watch.c). */
#ifndef VITTRAIN_TOOLS_DOCTOR_DOCTOR_H
#define VITTRAIN_TOOLS_DOCTOR_DOCTOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "app/app.h"
#include "config/option_types.h"
#include "mesh/flat.h"

struct command_line;
struct options;

/* ---- rows */
enum doctor_verdict { DOCTOR_SKIP, DOCTOR_PASS, DOCTOR_WARN, DOCTOR_FAIL };
enum { DOCTOR_TEXT = 768, DOCTOR_CHECKS = 12 };

struct doctor_row {
    const char *check;
    enum doctor_verdict verdict;
    char found[DOCTOR_TEXT];  /* findings, one line */
    char advice[DOCTOR_TEXT]; /* what to do; "" for none */
};

/* Add a finding to a row. The row keeps its worst findings: a worse verdict replaces the text, an
 * equal one is appended, a better one is ignored. `advice` may be NULL. */
void doctor_set(struct doctor_row *row, enum doctor_verdict verdict, const char *advice,
                const char *format, ...) __attribute__((format(printf, 4, 5)));

/* ---- facts */
enum { DOCTOR_HOST = 64, DOCTOR_CORE_WORDS = 16, DOCTOR_CORES = 64 * DOCTOR_CORE_WORDS };
enum doctor_limit {
    DOCTOR_LIMIT_FILES,
    DOCTOR_LIMIT_PROCESSES,
    DOCTOR_LIMIT_FILE_SIZE,
    DOCTOR_LIMIT_LOCKED,
    DOCTOR_LIMIT_MEMORY,
    DOCTOR_LIMITS
};

/* Facts about a rank, sent as bytes. */
struct doctor_facts {
    char host[DOCTOR_HOST];
    int64_t node;                       /* index of its node */
    int64_t threads;                    /* compute threads */
    uint64_t cores[DOCTOR_CORE_WORDS];  /* bit c: CPU c is in its affinity mask */
    int64_t online;                     /* CPUs of the machine */
    double quota;                       /* CPU quota of its control group, in CPUs; 0: no limit */
    int64_t slots;                      /* slots of the launcher; 0: unknown */
    uint64_t limit[DOCTOR_LIMITS];      /* by enum doctor_limit; UINT64_MAX: none */
    int64_t infiniband;                 /* adapters */
    uint64_t shared_bytes, shared_free; /* of /dev/shm */
};

/* ---- the state of the checks */
struct doctor {
    const struct options *options; /* those of rank 0 */
    const struct command_line *line;
    const struct error *parse_error;     /* error of this rank's options */
    const struct flat_model *flat;       /* for the size of checkpoints; NULL: from the options */
    struct comm *world, *node, *leaders; /* leaders: the first rank of each node, NULL on others */
    int node_index, node_count;          /* node_count: 0 if unknown */
    bool owns_node;                      /* false: the caller owns `node` */
    struct doctor_facts *facts;          /* [ranks] */
    int *first_rank;                     /* [nodes] */
    bool stop;                           /* skip the remaining checks; the same on all ranks */
    const char *stop_reason;
    struct doctor_row row[DOCTOR_CHECKS];
    atomic_int rows; /* number of complete rows */
    double start;
};

/* A check; collective. All ranks fill in a row; that of rank 0 is printed. */
typedef void doctor_check(struct doctor *doctor, struct doctor_row *row);

doctor_check doctor_check_ranks, doctor_check_cores, doctor_check_binding, doctor_check_gpus,
    doctor_check_limits, doctor_check_shared_memory, doctor_check_folder, doctor_check_space,
    doctor_check_data;

/* Open the groups of the ranks of a node and of the nodes' first ranks. Collective. */
void doctor_open_groups(struct doctor *doctor);
/* Gather the facts of all ranks of doctor->world on each rank. Collective. */
void doctor_gather_facts(struct doctor *doctor);
/* Free the facts and the groups. */
void doctor_free_facts(struct doctor *doctor);

/* Return the host name of a node. */
const char *doctor_host(const struct doctor *doctor, int node);

/* Add the findings of all ranks of `group` to the row of rank 0; collective over the group, which
 * is doctor->world or doctor->leaders. Each rank with `found` contributes a text. The first few are
 * added as "rank 3 on node2: TEXT" (world) or "node2: TEXT" (leaders). */
void doctor_set_of(struct doctor *doctor, struct comm *group, struct doctor_row *row, bool found,
                   enum doctor_verdict verdict, const char *advice, const char *format, ...)
    __attribute__((format(printf, 7, 8)));

/* Warn that nodes have `least` to `most` CPUs if these differ. */
void doctor_compare_cpus(struct doctor_row *row, int64_t least, int64_t most);

/* Compare the free space with the checkpoints of a run. */
void doctor_judge_space(struct doctor_row *row, uint64_t free_bytes, size_t checkpoint,
                        int64_t keep, const char *folder);

/* ---- limits of time */
/* Start the time limits, before MPI is initialized, which may take `patience` seconds. After a
 * time-out rank 0 calls last_words; if nothing else has ended the job `grace` seconds later, rank 0
 * exits, then the other ranks do. */
void doctor_watch_open(double patience, double grace);
void doctor_watch_speaker(int rank, void (*last_words)(const char *what, double seconds));
/* Start the next activity, with its time limit in seconds. */
void doctor_watch(const char *what, double seconds);
void doctor_watch_close(void);

/* Run work(argument) in a thread. Return false after a time-out, as with a file system that does
 * not respond; the caller must then leave the argument to the thread. */
bool doctor_bounded(void (*work)(void *), void *argument, double seconds);

/* ---- functions for unit tests */
void doctor_print_table(const struct doctor *doctor, double seconds, FILE *file);
void doctor_print_json(const struct doctor *doctor, double seconds, FILE *file);

/* The most crowded set of CPUs of a node, by threads per CPU. */
struct doctor_crowd {
    int ranks, threads, cores;
    uint64_t set[DOCTOR_CORE_WORDS];
};
/* Find it among the affinity masks of a node's ranks and their unions. `narrow`: only among sets
 * smaller than all CPUs of the ranks; threads is 0 if there is none. */
struct doctor_crowd doctor_find_crowd(const struct doctor_facts *facts, int ranks, int64_t node,
                                      bool narrow);
int doctor_core_count(const uint64_t set[DOCTOR_CORE_WORDS]);
/* "0-3,8" */
void doctor_cores_text(const uint64_t set[DOCTOR_CORE_WORDS], char *text, size_t size);
/* ---- the data set of a node, for comparison between nodes (doctor_data.c) */
enum { DATA_SAMPLES = 64 };

struct data_sample {
    uint64_t order; /* hash of the file's name */
    uint32_t sum;   /* CRC32C of the pieces read */
    char path[OPTION_TEXT + 256];
};

struct data_scan {
    char root[OPTION_TEXT];
    bool shards, arrays; /* data.format is webdataset or arrays */
    double seconds;      /* time limit */
    /* The result. */
    struct error error; /* the data set is missing */
    bool cut;           /* time limit reached: the summary is incomplete */
    int64_t files, bytes;
    uint64_t names; /* sum of hashes of names below the root with their sizes */
    struct data_sample sample[DATA_SAMPLES]; /* sorted by `order` */
    int samples;
    size_t root_length;
    double start;
};

/* Fill in the result. The argument is a struct data_scan with root, shards, arrays and seconds. */
void doctor_data_read(void *argument);

/* True if this node's data set differs from that of the first node; the text describes the
 * difference. "" if they are equal or cannot be compared. */
bool doctor_data_differs(const struct data_scan *own, const struct data_scan *first, char *text,
                         size_t size);

/* Run the fast checks at the start of `train` and log a warning for each problem. Collective. */
struct session;
void doctor_start(const struct session *session);

#endif
