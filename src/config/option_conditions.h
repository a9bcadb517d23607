// SPDX-License-Identifier: BSD-3-Clause
/* The table of options that apply only together with certain values of another option. */
#ifndef VITTRAIN_CONFIG_OPTION_CONDITIONS_H
#define VITTRAIN_CONFIG_OPTION_CONDITIONS_H

#include <stddef.h>

#include "core/error.h"

struct options;

/* Return false with ERROR_USAGE if a word of the command line (section.key=VALUE or a deck) sets an
 * option that does not apply. Accepted are values that request nothing (0, off, none, auto, empty);
 * in decks also defaults, and options that applied until a later deck or setting changed the
 * condition. Resolved decks are accepted. */
MUST_CHECK bool option_word_check(const char *word, const struct options *options,
                                  struct error *error);

/* Set all options that do not apply to their defaults. */
void options_settle(struct options *options);

/* Write the conditions of an option as "with optim.name=sgd or lars"; empty: it always applies. */
void option_conditions_text(const char *name, char *text, size_t size);

#endif
