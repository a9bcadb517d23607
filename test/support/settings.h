// SPDX-License-Identifier: BSD-3-Clause
/* Options of a test, as words of a command line. */
#ifndef VITTRAIN_TEST_SETTINGS_H
#define VITTRAIN_TEST_SETTINGS_H

#include "options/options.h"

/* Apply each "section.key=value" of words separated by spaces. The test fails at an error. */
void settings_apply(struct options *options, const char *words);

/* The same, from the defaults. */
void settings_set(struct options *options, const char *words);

#endif
