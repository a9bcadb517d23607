// SPDX-License-Identifier: BSD-3-Clause
#include "options/optimizers.h"

#include "base/error.h"
#include "options/option_types.h"

enum { NO, YES };

/* Columns: scope, moment1, moment2, momentum, beta1, beta2, epsilon. Rules that do not
 * read beta1 and beta2 have Adam's values. */
static const struct optimizer_facts table[] = {
    [OPTIMIZER_SGD] = {SCOPE_ELEMENT, NO, NO, YES, 0.9, 0.999, 1e-8},
    [OPTIMIZER_ADAM] = {SCOPE_ELEMENT, YES, YES, NO, 0.9, 0.999, 1e-8},
    [OPTIMIZER_ADAMW] = {SCOPE_ELEMENT, YES, YES, NO, 0.9, 0.999, 1e-8},
    [OPTIMIZER_RMSPROP] = {SCOPE_ELEMENT, NO, YES, YES, 0.9, 0.999, 1e-8},
    [OPTIMIZER_MUON] = {SCOPE_MATRIX, YES, YES, YES, 0.9, 0.95, 1e-7},
    [OPTIMIZER_LION] = {SCOPE_ELEMENT, YES, NO, NO, 0.9, 0.99, 1e-8},
    [OPTIMIZER_LAMB] = {SCOPE_NORMS, YES, YES, NO, 0.9, 0.999, 1e-6},
    [OPTIMIZER_LARS] = {SCOPE_NORMS, NO, NO, YES, 0.9, 0.999, 1e-8},
};

enum { OPTIMIZERS_COUNT = sizeof table / sizeof table[0] };

const struct optimizer_facts *optimizer_facts(int name)
{
    ENSURE(name >= 0 && name < OPTIMIZERS_COUNT, "unknown optimizer %d", name);
    return &table[name];
}
