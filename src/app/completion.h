// SPDX-License-Identifier: BSD-3-Clause
/* Scripts that complete the program's command line in a shell. */
#ifndef VITTRAIN_APP_COMPLETION_H
#define VITTRAIN_APP_COMPLETION_H

#include <stdio.h>

#include "core/error.h"

/* Print the script for a shell, "bash" or "zsh", made from the tables of commands, options and
 * models. */
MUST_CHECK bool completion_print(const char *shell, FILE *file, struct error *error);

#endif
