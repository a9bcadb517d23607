// SPDX-License-Identifier: BSD-3-Clause
/* Options of training: [train], [optim] and [schedule]. Defaults, ranges and help: options_table.c.
 */
#ifndef VITTRAIN_CONFIG_TRAIN_OPTIONS_H
#define VITTRAIN_CONFIG_TRAIN_OPTIONS_H

#include "config/optimizers.h"
#include "config/option_types.h"

/* Maximum and default of train.batch. A search for the largest batch ends at the maximum, too. */
enum { BATCH_MOST = 1000000, BATCH_DEFAULT = 64 };

#define PRECISION_CHOICES(X)                                                                       \
    X(PRECISION_AUTO, "auto")                                                                      \
    X(PRECISION_FP32, "fp32")                                                                      \
    X(PRECISION_BF16, "bf16")                                                                      \
    X(PRECISION_FP16, "fp16")
enum precision_choice { PRECISION_CHOICES(OPTION_CONSTANT) };

#define CHECKPOINT_ACTIVATIONS_CHOICES(X)                                                          \
    X(CHECKPOINT_ACTIVATIONS_NONE, "none") X(CHECKPOINT_ACTIVATIONS_BLOCK, "block")
enum checkpoint_activations_choice { CHECKPOINT_ACTIVATIONS_CHOICES(OPTION_CONSTANT) };

#define TRAIN_LOSS_CHOICES(X)                                                                      \
    X(TRAIN_LOSS_AUTO, "auto")                                                                     \
    X(TRAIN_LOSS_CROSS_ENTROPY, "cross_entropy")                                                   \
    X(TRAIN_LOSS_BCE, "bce")                                                                       \
    X(TRAIN_LOSS_BCE_SUM, "bce_sum")                                                               \
    X(TRAIN_LOSS_SQUARED, "squared")                                                               \
    X(TRAIN_LOSS_ABSOLUTE, "absolute")                                                             \
    X(TRAIN_LOSS_HUBER, "huber")
enum train_loss_choice { TRAIN_LOSS_CHOICES(OPTION_CONSTANT) };

#define ROW_WEIGHT_CHOICES(X) X(ROW_WEIGHT_NONE, "none") X(ROW_WEIGHT_LATITUDE, "latitude")
enum row_weight_choice { ROW_WEIGHT_CHOICES(OPTION_CONSTANT) };

/* train.ignore_label: limits; no label is ignored. */
enum { IGNORE_LEAST = -32768, IGNORE_MOST = 65535, IGNORE_NONE = IGNORE_LEAST - 1 };

enum optimizer_choice { OPTIMIZER_CHOICES(OPTION_CONSTANT) };

#define MUON_SCALE_CHOICES(X)                                                                      \
    X(MUON_SCALE_MATCH_RMS_ADAMW, "match_rms_adamw") X(MUON_SCALE_ORIGINAL, "original")
enum muon_scale_choice { MUON_SCALE_CHOICES(OPTION_CONSTANT) };

#define MUON_FACTORS_CHOICES(X)                                                                    \
    X(MUON_FACTORS_QUINTIC, "quintic") X(MUON_FACTORS_ORIGINAL, "original")
enum muon_factors_choice { MUON_FACTORS_CHOICES(OPTION_CONSTANT) };

#define EXACT_CHOICES(X) X(EXACT_OFF, "off") X(EXACT_LAYOUT, "layout")
enum exact_choice { EXACT_CHOICES(OPTION_CONSTANT) };

#define CHECK_ACTION_CHOICES(X) X(CHECK_STOP, "stop") X(CHECK_CONTINUE, "continue")
enum check_action_choice { CHECK_ACTION_CHOICES(OPTION_CONSTANT) };

/* train.grain is a multiple of GRAIN_STEP samples. A global batch has at most GRAINS_MOST grains,
 * with train.grain=auto at most AUTO_GRAINS. */
enum { GRAIN_STEP = 8, AUTO_GRAINS = 8, GRAINS_MOST = 256 };

#define RATE_SCALE_CHOICES(X)                                                                      \
    X(RATE_SCALE_NONE, "none") X(RATE_SCALE_LINEAR, "linear") X(RATE_SCALE_SQRT, "sqrt")
enum rate_scale_choice { RATE_SCALE_CHOICES(OPTION_CONSTANT) };

#define SCHEDULE_CHOICES(X)                                                                        \
    X(SCHEDULE_CONSTANT, "constant")                                                               \
    X(SCHEDULE_COSINE, "cosine")                                                                   \
    X(SCHEDULE_STEP, "step")                                                                       \
    X(SCHEDULE_ONECYCLE, "onecycle")                                                               \
    X(SCHEDULE_PLATEAU, "plateau")                                                                 \
    X(SCHEDULE_LINEAR, "linear")
enum schedule_choice { SCHEDULE_CHOICES(OPTION_CONSTANT) };

#define SCHEDULE_PER_CHOICES(X) X(SCHEDULE_PER_STEP, "step") X(SCHEDULE_PER_EPOCH, "epoch")
enum schedule_per_choice { SCHEDULE_PER_CHOICES(OPTION_CONSTANT) };

struct train_options {
    int64_t epochs, steps;
    int64_t batch;        /* BATCH_DEFAULT if global_batch is set */
    int64_t global_batch; /* 0: batch times the number of ranks */
    int64_t accumulate;
    int exact;                  /* enum exact_choice */
    int64_t grain;              /* 0: auto */
    int64_t check_every;        /* steps; 0: never */
    int check_action;           /* enum check_action_choice */
    int precision;              /* enum precision_choice */
    double loss_scale;          /* fp16: the initial scale */
    int checkpoint_activations; /* enum checkpoint_activations_choice */
    double clip_norm;
    int loss;                   /* enum train_loss_choice */
    struct option_list weights; /* of classes or outputs; count 0: 1 */
    int row_weight;             /* enum row_weight_choice */
    int64_t ignore_label;       /* or IGNORE_NONE */
    double label_smoothing;
    int64_t eval_every; /* epochs; 0: only at the end */
    double max_seconds; /* 0: no limit */
    int64_t early_stop; /* evaluations without improvement; 0: never */
    bool test;          /* evaluate the test split at the end */
};

struct optim_options {
    int name; /* enum optimizer_choice */
    double lr;
    int lr_scale;     /* enum rate_scale_choice */
    int64_t lr_batch; /* the global batch size that lr is meant for */
    double weight_decay;
    bool no_decay;
    double layer_decay;       /* 1: none */
    char freeze[OPTION_TEXT]; /* comma-separated unit names or prefixes of tensor names */
    double ema;               /* decay; 0: none */
    double momentum;
    bool nesterov;
    struct option_list betas;
    double eps, alpha;
    double trust_coeff; /* -1: the optimizer's default */
    bool trust_clip, always_adapt;
    int muon_scale, muon_factors;   /* enum muon_scale_choice, muon_factors_choice */
    char muon_exclude[OPTION_TEXT]; /* list in the format of `freeze` */
};

struct schedule_options {
    int name;       /* enum schedule_choice */
    int per;        /* enum schedule_per_choice: the unit of warmup and step_size */
    int64_t warmup; /* steps or epochs */
    double min_lr;
    int64_t step_size; /* steps or epochs */
    double gamma;
    double pct_start, div_factor, final_div_factor; /* onecycle */
    double factor, threshold;                       /* plateau */
    int64_t patience;
    double end_factor; /* linear */
};

#endif
