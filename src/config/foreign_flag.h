// SPDX-License-Identifier: BSD-3-Clause
/* Flags that users of other training programs type. */
#ifndef VITTRAIN_CONFIG_FOREIGN_FLAG_H
#define VITTRAIN_CONFIG_FOREIGN_FLAG_H

#include <stdbool.h>

#include "core/error.h"

/* Return the option with the meaning of a flag or key of PyTorch's examples, timm, Lightning or
 * Hydra ("max_epochs", "batch-size"), or NULL. The name has no leading dashes. */
const char *foreign_flag_option(const char *name);

/* Set the error for an unknown flag, with the setting to write instead, and return false. `next` is
 * the next word of the command line or NULL; `known` is the NULL-terminated list of the program's
 * flags. */
bool foreign_flag_refuse(const char *word, const char *next, const char *const *known,
                         struct error *error);

#endif
