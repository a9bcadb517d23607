// SPDX-License-Identifier: BSD-3-Clause
/* Types and limits of options, and the choices of those that have a list of them. */
#ifndef VITTRAIN_OPTIONS_OPTION_TYPES_H
#define VITTRAIN_OPTIONS_OPTION_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "options/optimizers.h"

/* Limits of data: channels of an image, its height and width in pixels (limit of the rotation's
 * fixed-point numbers), classes. */
enum { IMAGE_CHANNELS = 512, IMAGE_LARGEST = 8192, CLASSES_MOST = 500000 };

enum {
    OPTION_TEXT = 1024, /* bytes of a text, with the final zero */
    OPTION_LIST = 32,   /* numbers of a list */
    OPTION_KEY = 64     /* bytes of a section's or a key's name */
};

typedef char option_text[OPTION_TEXT];

struct option_list {
    int count;
    double value[OPTION_LIST];
};

/* One number for each channel, or one for all. A count of 0: none. */
struct channel_values {
    int count;
    double value[IMAGE_CHANNELS];
};

/* Mean and standard deviation of the training samples: of each channel of the pixels, and of each
 * target of a regression. */
struct value_statistics {
    struct channel_values mean, std, target_mean, target_std;
};

/* The values of an option with choices are one list, LIST(X): X(CONSTANT, "word") for each choice.
 * Both its enum and the table's list of words are generated from it. */
#define OPTION_CONSTANT(constant, word) constant,

/* On, off or decided by the program. */
#define SWITCH_CHOICES(X) X(SWITCH_AUTO, "auto") X(SWITCH_OFF, "off") X(SWITCH_ON, "on")
enum switch_choice { SWITCH_CHOICES(OPTION_CONSTANT) };

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

#define POOL_CHOICES(X)                                                                            \
    X(POOL_AUTO, "auto") X(POOL_TOKEN, "token") X(POOL_MEAN, "mean") X(POOL_MAP, "map")
enum pool_choice { POOL_CHOICES(OPTION_CONSTANT) };

#define HEAD_CHOICES(X) X(HEAD_CLASS, "class") X(HEAD_DENSE, "dense")
enum head_choice { HEAD_CHOICES(OPTION_CONSTANT) };

#define POSITION_CHOICES(X)                                                                        \
    X(POSITION_AUTO, "auto")                                                                       \
    X(POSITION_LEARNED, "learned")                                                                 \
    X(POSITION_PATCHES, "patches")                                                                 \
    X(POSITION_SINCOS, "sincos") X(POSITION_ROTARY, "rotary")
enum position_choice { POSITION_CHOICES(OPTION_CONSTANT) };

#define PAD_CHOICES(X)                                                                             \
    X(PAD_AUTO, "auto") X(PAD_EDGE, "edge") X(PAD_WRAP, "wrap") X(PAD_NONE, "none")
enum pad_choice { PAD_CHOICES(OPTION_CONSTANT) };

#define GELU_CHOICES(X) X(GELU_AUTO, "auto") X(GELU_EXACT, "exact") X(GELU_TANH, "tanh")
enum gelu_choice { GELU_CHOICES(OPTION_CONSTANT) };

#define MLP_CHOICES(X) X(MLP_AUTO, "auto") X(MLP_GELU, "gelu") X(MLP_SWIGLU, "swiglu")
enum mlp_choice { MLP_CHOICES(OPTION_CONSTANT) };

#define VALIDATION_CHOICES(X)                                                                      \
    X(VALIDATION_TEST, "test")                                                                     \
    X(VALIDATION_REFERENCE, "reference")                                                           \
    X(VALIDATION_NONE, "none")                                                                     \
    X(VALIDATION_VAL, "val")
enum validation_choice {
    VALIDATION_CHOICES(OPTION_CONSTANT) VALIDATION_FRACTION,
    VALIDATION_PERIODS
};

#define VAL_FROM_CHOICES(X) X(VAL_FROM_CLASSES, "classes") X(VAL_FROM_END, "end")
enum val_from_choice { VAL_FROM_CHOICES(OPTION_CONSTANT) };

#define SHUFFLE_CHOICES(X) X(SHUFFLE_OFF, "off") X(SHUFFLE_ON, "on") X(SHUFFLE_CHUNKS, "chunks")
enum shuffle_choice { SHUFFLE_CHOICES(OPTION_CONSTANT) };

#define TASK_CHOICES(X)                                                                            \
    X(TASK_CLASSES, "classes") X(TASK_LABELS, "labels") X(TASK_REGRESSION, "regression")
enum task_choice { TASK_CHOICES(OPTION_CONSTANT) };

#define DATA_ORDER_CHOICES(X)                                                                      \
    X(DATA_ORDER_AUTO, "auto") X(DATA_ORDER_CHW, "chw") X(DATA_ORDER_HWC, "hwc")
enum data_order_choice { DATA_ORDER_CHOICES(OPTION_CONSTANT) };

#define COORDINATES_CHOICES(X) X(COORDINATES_CHECK, "check") X(COORDINATES_IGNORE, "ignore")
enum coordinates_choice { COORDINATES_CHOICES(OPTION_CONSTANT) };

#define MISSING_CHOICES(X) X(MISSING_FILL, "fill") X(MISSING_ERROR, "error")
enum missing_choice { MISSING_CHOICES(OPTION_CONSTANT) };

#define VALUES_CHOICES(X) X(VALUES_UINT8, "uint8") X(VALUES_FLOAT32, "float32")
enum values_choice { VALUES_CHOICES(OPTION_CONSTANT) };

#define CHECK_CHOICES(X) X(CHECK_NONE, "none") X(CHECK_HEADER, "header") X(CHECK_FULL, "full")
enum check_choice { CHECK_CHOICES(OPTION_CONSTANT) };

#define RESIZE_CHOICES(X)                                                                          \
    X(RESIZE_AUTO, "auto") X(RESIZE_SQUARE, "square") X(RESIZE_SHORTER, "shorter")
enum resize_choice { RESIZE_CHOICES(OPTION_CONSTANT) };

#define CROP_CHOICES(X)                                                                            \
    X(CROP_AUTO, "auto")                                                                           \
    X(CROP_NONE, "none") X(CROP_CENTER, "center") X(CROP_RANDOM, "random")
enum crop_choice { CROP_CHOICES(OPTION_CONSTANT) };

#define ROLL_CHOICES(X) X(ROLL_NONE, "none") X(ROLL_X, "x") X(ROLL_Y, "y") X(ROLL_XY, "xy")
enum roll_choice { ROLL_CHOICES(OPTION_CONSTANT) };

#define RECIPE_CHOICES(X)                                                                          \
    X(RECIPE_AUTO, "auto")                                                                         \
    X(RECIPE_CIFAR, "cifar") X(RECIPE_PHOTOS, "photos") X(RECIPE_PLAIN, "plain")
enum recipe_choice { RECIPE_CHOICES(OPTION_CONSTANT) };

#define INTERPOLATION_CHOICES(X)                                                                   \
    X(INTERPOLATION_AUTO, "auto")                                                                  \
    X(INTERPOLATION_BILINEAR, "bilinear")                                                          \
    X(INTERPOLATION_BICUBIC, "bicubic")
enum interpolation_choice { INTERPOLATION_CHOICES(OPTION_CONSTANT) };

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

#define OPTIMIZER_CHOICES(X) OPTIMIZERS(X, OPTIMIZER_)
enum optimizer_choice { OPTIMIZER_CHOICES(OPTION_CONSTANT) };

#define MUON_SCALE_CHOICES(X)                                                                      \
    X(MUON_SCALE_MATCH_RMS_ADAMW, "match_rms_adamw") X(MUON_SCALE_ORIGINAL, "original")
enum muon_scale_choice { MUON_SCALE_CHOICES(OPTION_CONSTANT) };

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

#define STRATEGY_CHOICES(X)                                                                        \
    X(STRATEGY_DDP, "ddp")                                                                         \
    X(STRATEGY_ZERO1, "zero1")                                                                     \
    X(STRATEGY_ZERO2, "zero2")                                                                     \
    X(STRATEGY_FSDP, "fsdp")                                                                       \
    X(STRATEGY_HSDP, "hsdp")
enum strategy_choice { STRATEGY_CHOICES(OPTION_CONSTANT) STRATEGIES };

#define REDUCE_CHOICES(X) X(REDUCE_FP32, "fp32") X(REDUCE_COMPUTE, "compute")
enum reduce_choice { REDUCE_CHOICES(OPTION_CONSTANT) };

#define TRANSPORT_CHOICES(X)                                                                       \
    X(TRANSPORT_AUTO, "auto")                                                                      \
    X(TRANSPORT_RING, "ring")                                                                      \
    X(TRANSPORT_SHARED, "shared")                                                                  \
    X(TRANSPORT_HIERARCHICAL, "hierarchical")
enum transport_choice { TRANSPORT_CHOICES(OPTION_CONSTANT) };

#define SPLIT_CHOICES(X) X(SPLIT_TRAIN, "train") X(SPLIT_VALIDATION, "val") X(SPLIT_TEST, "test")
/* SPLIT_ALL: all records of files that `predict` names. */
enum data_split { SPLIT_CHOICES(OPTION_CONSTANT) SPLIT_ALL };

#endif
