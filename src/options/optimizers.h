// SPDX-License-Identifier: BSD-3-Clause
/* The table of optimizers. docs/add-optimizer.md describes how to add one. */
#ifndef VITTRAIN_OPTIONS_OPTIMIZERS_H
#define VITTRAIN_OPTIONS_OPTIMIZERS_H

#include <stdbool.h>

/* Values of optim.name. The list defines two enums with equal values: OPTIMIZER_LION for options,
 * UPDATE_LION for devices (operations.h). */
#define OPTIMIZERS(X, PREFIX)                                                                      \
    X(PREFIX##SGD, "sgd")                                                                          \
    X(PREFIX##ADAM, "adam")                                                                        \
    X(PREFIX##ADAMW, "adamw")                                                                      \
    X(PREFIX##RMSPROP, "rmsprop")                                                                  \
    X(PREFIX##MUON, "muon")                                                                        \
    X(PREFIX##LION, "lion")                                                                        \
    X(PREFIX##LAMB, "lamb")                                                                        \
    X(PREFIX##LARS, "lars")

/* Inputs of an element's update. ELEMENT: its weight, gradient and moments. NORMS: also the norms
 * of its tensor's weights and direction. MATRIX: all elements of its matrix. */
enum optimizer_scope { SCOPE_ELEMENT, SCOPE_NORMS, SCOPE_MATRIX };

struct optimizer_facts {
    enum optimizer_scope scope;
    bool moment1, moment2; /* stored for each parameter */
    bool momentum;         /* stores moment1 if optim.momentum is above 0 */
    double beta1, beta2;   /* values for optim.betas=auto */
    double epsilon;        /* value for optim.eps=auto */
};

/* Return the row of an optimizer. name: a value of OPTIMIZER_CHOICES. */
const struct optimizer_facts *optimizer_facts(int name);

#endif
