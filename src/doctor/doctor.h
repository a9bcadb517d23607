/* What the checks of `vittrain doctor` share. Every rank looks at the same things in the same order
 * (doctor.c has the table); what ranks say of themselves comes together as facts, and rank 0 makes
 * a row of each check. Nothing waits without an end: see doctor_watch.c. */
#ifndef VITTRAIN_DOCTOR_DOCTOR_H
#define VITTRAIN_DOCTOR_DOCTOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "app/app.h"
#include "mesh/flat.h"

struct command_line;
struct options;

/* ---- rows */
enum doctor_verdict { DOCTOR_SKIP, DOCTOR_PASS, DOCTOR_WARN, DOCTOR_FAIL };
enum { DOCTOR_TEXT = 768, DOCTOR_CHECKS = 24 };

struct doctor_row {
    const char *check;
    enum doctor_verdict verdict;
    char found[DOCTOR_TEXT];  /* what there is, one line */
    char advice[DOCTOR_TEXT]; /* what to do; "" where nothing is to be done */
};

/* Says something of a row. The worst that is said counts: it takes the place of what is better;
 * what is as bad is added. advice: NULL for none. */
void doctor_say(struct doctor_row *row, enum doctor_verdict verdict, const char *advice,
                const char *format, ...) __attribute__((format(printf, 4, 5)));

struct doctor_summary {
    int ranks, nodes; /* nodes: 0 where it is not known */
    double seconds;
};
int doctor_count(const struct doctor_row *rows, int count, enum doctor_verdict verdict);
void doctor_print_table(const struct doctor_row *rows, int count,
                        const struct doctor_summary *summary, FILE *file);
void doctor_print_json(const struct doctor_row *rows, int count,
                       const struct doctor_summary *summary, FILE *file);

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

/* What a rank says of itself; sent as it is. */
struct doctor_facts {
    char host[DOCTOR_HOST];
    int64_t node;                      /* number of its node */
    int64_t threads;                   /* that it will compute with */
    uint64_t cores[DOCTOR_CORE_WORDS]; /* bit c: it may run on CPU c */
    int64_t online;                    /* CPUs of the machine */
    double quota;                      /* CPUs' time that its control group may take; 0: no limit */
    int64_t numa_nodes;                /* of the machine, those with CPUs */
    int64_t numa_used;                 /* on how many of them it may run */
    int64_t slots;                     /* that the launcher has in all; 0: it does not say */
    uint64_t limit[DOCTOR_LIMITS];     /* by enum doctor_limit; UINT64_MAX: none */
    int64_t infiniband;                /* adapters */
    uint64_t shared_bytes, shared_free; /* of /dev/shm */
};

/* ---- the examination */
struct doctor {
    const struct options *options; /* rank 0's */
    const struct command_line *line;
    const struct error *parse_error; /* what this rank's options came to */
    const struct flat_model *flat;   /* whose checkpoints need room; NULL: found from the options */
    struct comm *world, *node, *leaders; /* leaders: the first rank of each node, NULL on others */
    int node_index, node_count;          /* count: 0 where it is not known */
    bool owns_node;               /* else the caller has given node, node_index and node_count */
    struct doctor_facts *facts;   /* [ranks] */
    int *first_rank;              /* [nodes] */
    struct node_network *network; /* [nodes], rank 0's; NULL: not measured (doctor_network.h) */
    bool stop; /* ranks cannot go on together: the rest is not looked at; the same on all */
    const char *stop_reason;
    struct doctor_row row[DOCTOR_CHECKS];
    atomic_int rows; /* that are complete */
    double start;
};

/* Looks at one thing; collective. All ranks get a row to fill in, rank 0's counts. */
typedef void doctor_look(struct doctor *doctor, struct doctor_row *row);

doctor_look doctor_look_program, doctor_look_deck, doctor_look_libraries, doctor_look_ranks,
    doctor_look_cores, doctor_look_binding, doctor_look_numa, doctor_look_gpus, doctor_look_limits,
    doctor_look_shared_memory, doctor_look_folder, doctor_look_space, doctor_look_data,
    doctor_look_rclone, doctor_look_clock, doctor_look_latency, doctor_look_bandwidth,
    doctor_look_interface;

/* Collective. Fills in node, leaders, facts and what follows from them; once. */
void doctor_gather_facts(struct doctor *doctor);
void doctor_free_facts(struct doctor *doctor);

/* The name of a node's host. */
const char *doctor_host(const struct doctor *doctor, int node);

/* Collective. Each rank's text, "" for nothing: rank 0 says those that are not empty in its row,
 * "rank 3 on node2: TEXT" (leaders: "node2: TEXT"), the first few of them. */
void doctor_say_of_ranks(struct doctor *doctor, struct doctor_row *row, const char *text,
                         enum doctor_verdict verdict, const char *advice);
void doctor_say_of_nodes(struct doctor *doctor, struct doctor_row *row, const char *text,
                         enum doctor_verdict verdict, const char *advice);

/* Bytes of a checkpoint of these buffers; is there room for those of a run? */
size_t doctor_checkpoint_bytes(const struct flat_model *flat);
void doctor_judge_space(struct doctor_row *row, uint64_t free_bytes, size_t checkpoint,
                        int64_t keep, const char *folder);

/* ---- limits of time */
/* Before MPI, whose start may take `patience` seconds: from now on what is under way must be over
 * in time. Else rank 0 says what is known (last_words); `grace` seconds later it ends itself, and
 * so the job, where nobody else has; then the other ranks do. */
void doctor_watch_open(double patience, double grace);
void doctor_watch_speaker(int rank, void (*last_words)(const char *what, double seconds));
/* The next thing, which may take so many seconds. */
void doctor_watch(const char *what, double seconds);
void doctor_watch_close(void);

/* Runs work(argument) in a thread of its own: false when it has not come back in time (a file
 * system that does not answer); the argument must then stay as it is. */
bool doctor_bounded(void (*work)(void *), void *argument, double seconds);

/* ---- what is tested alone */
/* The set of CPUs that has the most threads a CPU, of those that ranks of one node are bound to and
 * what these make together. */
struct doctor_crowd {
    int ranks, threads, cores;
    uint64_t set[DOCTOR_CORE_WORDS];
};
/* narrow: only of sets that are not all that the ranks have. threads is 0 where there is none. */
struct doctor_crowd doctor_find_crowd(const struct doctor_facts *facts, int ranks, int64_t node,
                                      bool narrow);
int doctor_core_count(const uint64_t set[DOCTOR_CORE_WORDS]);
/* "0-3,8" */
void doctor_cores_text(const uint64_t set[DOCTOR_CORE_WORDS], char *text, size_t size);
/* How many NUMA nodes have CPUs, and on how many of them the set lies. root: where /sys lies. */
void doctor_numa_read(const char *root, const uint64_t set[DOCTOR_CORE_WORDS], int64_t *nodes,
                      int64_t *used);

#endif
