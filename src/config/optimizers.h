// SPDX-License-Identifier: BSD-3-Clause
/* The table of optimizers. docs/add-optimizer.md describes how to add one. */
#ifndef VITTRAIN_CONFIG_OPTIMIZERS_H
#define VITTRAIN_CONFIG_OPTIMIZERS_H

#include <stdbool.h>

/* Values of optim.name. OPTIMIZER_LION of the options and UPDATE_LION of the devices (device.h) are
 * the same number. */
#define OPTIMIZERS(X, PREFIX)                                                                      \
    X(PREFIX##SGD, "sgd")                                                                          \
    X(PREFIX##ADAM, "adam")                                                                        \
    X(PREFIX##ADAMW, "adamw")                                                                      \
    X(PREFIX##RMSPROP, "rmsprop")                                                                  \
    X(PREFIX##MUON, "muon")                                                                        \
    X(PREFIX##LION, "lion")                                                                        \
    X(PREFIX##LAMB, "lamb")                                                                        \
    X(PREFIX##LARS, "lars")
#define OPTIMIZER_CHOICES(X) OPTIMIZERS(X, OPTIMIZER_)

/* What the update of an element depends on besides its own values: nothing, the norms of its tensor
 * and of the tensor's direction, or the whole matrix. */
enum optimizer_scope { SCOPE_ELEMENT, SCOPE_NORMS, SCOPE_MATRIX };

struct optimizer_facts {
    enum optimizer_scope scope;
    bool moment1, moment2; /* stored for each parameter */
    bool momentum;         /* optim.momentum above 0 needs moment1 */
    bool nesterov;         /* it has optim.nesterov */
    double beta1, beta2;   /* optim.betas=auto */
    double epsilon;        /* optim.eps=auto */
};

/* name: a value of OPTIMIZER_CHOICES. */
const struct optimizer_facts *optimizer_facts(int name);

#endif
