// SPDX-License-Identifier: BSD-3-Clause
/* Options of the model: [model]. Defaults, ranges and help: options_table.c. */
#ifndef VITTRAIN_CONFIG_MODEL_OPTIONS_H
#define VITTRAIN_CONFIG_MODEL_OPTIONS_H

#include "config/option_types.h"

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

#define GELU_CHOICES(X) X(GELU_AUTO, "auto") X(GELU_EXACT, "exact") X(GELU_TANH, "tanh")
enum gelu_choice { GELU_CHOICES(OPTION_CONSTANT) };

#define MLP_CHOICES(X) X(MLP_AUTO, "auto") X(MLP_GELU, "gelu") X(MLP_SWIGLU, "swiglu")
enum mlp_choice { MLP_CHOICES(OPTION_CONSTANT) };

struct model_options {
    char name[OPTION_TEXT];
    char init[OPTION_TEXT]; /* "none", FILE.safetensors or a checkpoint */
    /* The shape; 0 (or auto): the registry's value for this name. */
    int64_t image, image_width, channels, patch, dim, depth, heads, classes;
    double mlp_ratio;
    double dropout, drop_path;                      /* negative: the registry's value */
    int qkv_bias, qk_norm, class_token, embed_norm; /* enum switch_choice */
    int64_t registers;                              /* negative: the registry's value */
    int position;                                   /* enum position_choice */
    int head;                                       /* enum head_choice */
    int pool;                                       /* enum pool_choice */
    int fc_norm;                                    /* enum switch_choice */
    double layer_scale;                             /* negative: the registry's value */
    int mlp;                                        /* enum mlp_choice */
    int gelu;                                       /* enum gelu_choice */
    int64_t width;                                  /* of ResNets */
    int sync_bn;                                    /* enum switch_choice; auto: on */
};

#endif
