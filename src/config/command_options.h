// SPDX-License-Identifier: BSD-3-Clause
/* Options of the commands other than train: [predict], [convert], [bench], [plan],
 * [find] and [verify]. A run's deck leaves them out. */
#ifndef VITTRAIN_CONFIG_COMMAND_OPTIONS_H
#define VITTRAIN_CONFIG_COMMAND_OPTIONS_H

#include "config/option_types.h"

#define COLLECTIVE_CHOICES(X)                                                                      \
    X(COLLECTIVE_ALL, "all")                                                                       \
    X(COLLECTIVE_ALL_REDUCE, "all_reduce")                                                         \
    X(COLLECTIVE_REDUCE_SCATTER, "reduce_scatter")                                                 \
    X(COLLECTIVE_ALL_GATHER, "all_gather")                                                         \
    X(COLLECTIVE_BROADCAST, "broadcast")
enum collective_choice { COLLECTIVE_CHOICES(OPTION_CONSTANT) };

#define SPLIT_CHOICES(X) X(SPLIT_TRAIN, "train") X(SPLIT_VALIDATION, "val") X(SPLIT_TEST, "test")
/* SPLIT_ALL: all records of files that `predict` names. */
enum data_split { SPLIT_CHOICES(OPTION_CONSTANT) SPLIT_ALL };

#define SCALING_CHOICES(X) X(SCALING_WEAK, "weak") X(SCALING_STRONG, "strong")
enum scaling_choice { SCALING_CHOICES(OPTION_CONSTANT) };

struct predict_options {
    int split;                /* enum data_split */
    char output[OPTION_TEXT]; /* "-" or empty: standard output */
    int64_t top;              /* classes of a file in the table */
};

struct convert_options {
    bool average; /* convert the EMA of the weights if the checkpoint has it */
};

struct bench_options {
    int collective;           /* enum collective_choice */
    int64_t min, max, factor; /* bytes; ratio of two consecutive sizes */
    double seconds;           /* for one size */
    bool overlap;
    char output[OPTION_TEXT];  /* CSV; empty: none */
    char machine[OPTION_TEXT]; /* machine file to add to; empty: none */
};

struct plan_options {
    int64_t ranks;                /* 0: the number of ranks that were started */
    int64_t node_ranks;           /* 0: as started, or all on one node */
    int64_t memory;               /* bytes a rank may use; 0: the memory of its GPU or node */
    char machine[OPTION_TEXT];    /* "auto": machine.ini if it exists; "none" */
    char cluster[OPTION_TEXT];    /* description of a cluster; empty: none */
    int scaling;                  /* enum scaling_choice */
    char operations[OPTION_TEXT]; /* CSV of a step's kernels; empty: none */
};

struct find_options {
    double first, last; /* learning rates */
    int64_t steps;      /* 0: those of an epoch */
    double beta, stop;
    char output[OPTION_TEXT]; /* prefix of the files' names; empty: none */
};

struct verify_options {
    int64_t from; /* step of a checkpoint; 0: the start; -1: the newest before the last receipt */
    int64_t to;   /* step; 0: the last receipt */
};

#endif
