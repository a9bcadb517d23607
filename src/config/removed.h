// SPDX-License-Identifier: BSD-3-Clause
/* Options and commands of version 0.2 that were removed, with their replacements. */
#ifndef VITTRAIN_CONFIG_REMOVED_H
#define VITTRAIN_CONFIG_REMOVED_H

struct removed {
    const char *name;    /* "sweep.trials", or a command: "sweep" */
    const char *preset;  /* the option's default, which decks of version 0.2 contain */
    const char *instead; /* what to do instead: "use tools/sweep.py" */
};

/* Return the removed option or command of that name, or NULL. */
const struct removed *removed_find(const char *name);

#endif
