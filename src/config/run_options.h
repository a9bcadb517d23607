// SPDX-License-Identifier: BSD-3-Clause
/* Options of a run as a whole: [run], [checkpoint], [output], [debug] and [cuda]. Defaults, ranges
 * and help: options_table.c. */
#ifndef VITTRAIN_CONFIG_RUN_OPTIONS_H
#define VITTRAIN_CONFIG_RUN_OPTIONS_H

#include "config/option_types.h"

#define BACKEND_CHOICES(X) X(BACKEND_AUTO, "auto") X(BACKEND_CPU, "cpu") X(BACKEND_CUDA, "cuda")
enum backend_choice { BACKEND_CHOICES(OPTION_CONSTANT) };

#define MONITOR_CHOICES(X)                                                                         \
    X(MONITOR_AUTO, "auto")                                                                        \
    X(MONITOR_TOP1, "top1")                                                                        \
    X(MONITOR_LOSS, "loss")                                                                        \
    X(MONITOR_TOP5, "top5")                                                                        \
    X(MONITOR_MIOU, "miou")                                                                        \
    X(MONITOR_MAP, "map")                                                                          \
    X(MONITOR_NONE, "none")
enum monitor_choice { MONITOR_CHOICES(OPTION_CONSTANT) };

#define WRITERS_CHOICES(X) X(WRITERS_AUTO, "auto") X(WRITERS_ALL, "all") X(WRITERS_NODE0, "node0")
enum writers_choice { WRITERS_CHOICES(OPTION_CONSTANT) };

#define BACKGROUND_CHOICES(X)                                                                      \
    X(BACKGROUND_AUTO, "auto") X(BACKGROUND_YES, "yes") X(BACKGROUND_NO, "no")
enum background_choice { BACKGROUND_CHOICES(OPTION_CONSTANT) };

#define FLIP_CHOICES(X)                                                                            \
    X(FLIP_OFF, "off")                                                                             \
    X(FLIP_ACTIVATION, "activation")                                                               \
    X(FLIP_GRADIENT, "gradient") X(FLIP_WEIGHT, "weight") X(FLIP_MESSAGE, "message")
enum flip_choice { FLIP_CHOICES(OPTION_CONSTANT) };

/* Programs whose tags are written; course writes vittrain's. */
#define TAGS_CHOICES(X)                                                                            \
    X(TAGS_VITTRAIN, "vittrain")                                                                   \
    X(TAGS_COURSE, "course")                                                                       \
    X(TAGS_IMAGENET, "imagenet")                                                                   \
    X(TAGS_LIGHTNING, "lightning")
enum tags_choice { TAGS_CHOICES(OPTION_CONSTANT) };

enum { LOG_EVERY_DEFAULT = 10 }; /* output.log_every */

struct run_options {
    char name[OPTION_TEXT]; /* also the prefix of the run folder */
    char tags[OPTION_TEXT]; /* a comma-separated list */
    char dir[OPTION_TEXT];  /* empty: runs/NAME-DATE */
    int64_t seed;
    int backend;     /* enum backend_choice */
    int64_t threads; /* per rank; 0: the rank's share of the node's cores */
};

struct checkpoint_options {
    double every; /* epochs; 0: only at the end */
    double every_seconds;
    int64_t keep;
    int64_t memory;           /* steps between checkpoints in memory; 0: none */
    char resume[OPTION_TEXT]; /* auto, never or a file */
    int monitor;              /* enum monitor_choice */
    int writers;              /* enum writers_choice */
    int background;           /* enum background_choice */
};

struct output_options {
    int tensorboard_tags; /* enum tags_choice */
    int64_t log_every;    /* steps */
    int64_t receipt;      /* steps between rows of receipt.csv; 0: none */
    bool verbose;         /* all start-up lines on the console */
    double monitor;       /* seconds between readings of the sensors; 0: none */
    bool tensorboard, csv, weights;
    char logbook[OPTION_TEXT]; /* a folder; empty: none */
    double target;             /* top-1 accuracy; 0: none */
    char upload[OPTION_TEXT];  /* REMOTE:PATH; empty: none */
    double upload_wait;        /* seconds, at the end */
};

struct debug_options {
    int64_t batches;       /* maximum number of batches in an epoch and in an evaluation; 0: all */
    double fraction;       /* of the data */
    int64_t overfit;       /* train on the first N batches only; 0: on all */
    bool profile;          /* time each unit and operation */
    int64_t capture;       /* the step that an external profiler records; 0: none */
    int64_t check_weights; /* steps between comparisons of the ranks' weights; 0: never */
    bool wait;             /* synchronize with the device in each step */
    int flip;              /* enum flip_choice */
    int64_t flip_rank;     /* rank in which faults are injected */
    char pause[OPTION_TEXT]; /* PHASE:STEP:FILE (status_pause_at), or none */
};

struct cuda_options {
    bool graph; /* record steps as CUDA graphs */
    bool tf32;
    bool dependent_launch;   /* kernels start before the preceding one ends */
    char cache[OPTION_TEXT]; /* "auto", "none" or a folder */
    bool share;              /* several ranks on one GPU */
};

#endif
