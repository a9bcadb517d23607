// SPDX-License-Identifier: BSD-3-Clause
/* Options of the ranks' cooperation: [mesh]. Defaults, ranges and help: options_table.c. */
#ifndef VITTRAIN_CONFIG_MESH_OPTIONS_H
#define VITTRAIN_CONFIG_MESH_OPTIONS_H

#include "config/option_types.h"

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

struct mesh_options {
    int strategy;  /* enum strategy_choice */
    int64_t shard; /* ranks that hold one copy of the model; 0: the strategy's default */
    int reduce;    /* enum reduce_choice */
    int transport; /* enum transport_choice */
    bool elastic;
    double timeout;           /* of a collective, in seconds; 0: none */
    double heartbeat_timeout; /* seconds; 0: none */
    double stall_warning;     /* seconds; 0: none */
};

#endif
