// SPDX-License-Identifier: BSD-3-Clause
/* Options that differ between two attempts of a run. */
#ifndef VITTRAIN_CONFIG_OPTION_CHANGES_H
#define VITTRAIN_CONFIG_OPTION_CHANGES_H

#include <stdbool.h>

#include "config/option_types.h"

struct options;

enum option_effect {
    EFFECT_LEARNING, /* changes what is learned from now on */
    EFFECT_NONE,     /* layout, length and output of the run */
    EFFECT_MODEL     /* another model or other variables, with which a run cannot continue */
};

struct option_change {
    const char *name;
    enum option_effect effect;
    char before[OPTION_TEXT], now[OPTION_TEXT];
};

/* Return the effect of changing the option of that name. */
enum option_effect option_effect_of(const char *name);

/* Call `visit` for each option of a run's deck whose values differ, in the order of the deck. */
typedef void option_change_visit(void *user, const struct option_change *change);
void option_changes(const struct options *before, const struct options *now,
                    option_change_visit *visit, void *user);

/* True if all differences have EFFECT_NONE. */
bool option_changes_nothing(const struct options *before, const struct options *now);

#endif
