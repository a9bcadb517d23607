// SPDX-License-Identifier: BSD-3-Clause
/* One option: its entry in the table, and how its value is read from text and written. */
#ifndef VITTRAIN_CONFIG_OPTION_H
#define VITTRAIN_CONFIG_OPTION_H

#include <stdbool.h>
#include <stddef.h>

#include "config/option_types.h"
#include "core/error.h"

struct options;

enum option_kind {
    OPTION_IS_TEXT,    /* char[OPTION_TEXT] */
    OPTION_IS_INTEGER, /* int64_t */
    OPTION_IS_NUMBER,  /* double */
    OPTION_IS_SECONDS, /* double; 90, 90s, 1.5m or 2h */
    OPTION_IS_BYTES,   /* int64_t; 4096, 64KiB, 1.5MiB or 2GiB */
    OPTION_IS_SWITCH,  /* bool */
    OPTION_IS_CHOICE,  /* int: a constant of `choices` */
    OPTION_IS_LIST     /* struct option_list */
};

struct option_choice {
    int value;
    const char *word;
};

struct option_entry {
    const char *name; /* "train.batch" */
    size_t offset;    /* in struct options */
    enum option_kind kind;
    const char *preset; /* the default, as written in a deck */
    const char *flags;  /* of other programs with this meaning: "amp=auto fp16=fp16 amp-dtype" */
    double least, most; /* range of a number, or of each number of a list */
    bool above_least, below_most; /* the bound itself is not allowed */
    int64_t multiple;             /* a whole number must be one of this; 0: any */
    bool has_automatic;           /* the word "auto" means `automatic` */
    double automatic;
    int least_count, most_count;         /* of a list */
    const struct option_choice *choices; /* ends with a NULL word */
    size_t number_offset; /* choices that accept a number, too: offset of its double; else 0 */
    int number_choice;    /* their constant if a number is given */
    const char *help;     /* one or two sentences */
};

/* Ends with an entry whose name is NULL. The entries of a section are consecutive. */
extern const struct option_entry option_table[];

/* Return the help text of a section: "the optimizer"; aborts on an unknown section. */
const char *option_section_help(const char *section);

/* True if the option belongs into a run's deck; false if only another command reads it. */
bool option_is_of_run(const struct option_entry *entry);

/* Return the option of that name, or NULL. */
const struct option_entry *option_find(const char *name);

/* Return the option with the meaning of a flag or key of PyTorch's examples, timm, Lightning or
 * Hydra
 * ("max_epochs", "batch-size"), or NULL. *value: the text after the name in `flags`. */
const struct option_entry *option_of_flag(const char *name, const char **value);

/* Return the name of the option nearest to an unknown name ("optim.lr" for "train.lr" and
 * "optim.rl"), or NULL. */
const char *option_find_nearest(const char *name);

/* Return the part of an entry's name after the section. */
const char *option_key(const struct option_entry *entry);

/* True if a word is key=value with a key that an option could have; a file name may contain '='. */
bool option_is_setting(const char *word);

/* True if this is the first entry of its section. */
bool option_begins_section(const struct option_entry *entry);

/* Set the option from text. `where` is the start of the error's text: "deck.ini:12: ".
 * Setting train.batch clears train.global_batch, and vice versa. */
MUST_CHECK bool option_read(const struct option_entry *entry, const char *where, const char *text,
                            struct options *options, struct error *error);

/* True for train.batch if train.global_batch is set, and for train.global_batch if it is not. */
bool option_is_cleared(const struct option_entry *entry, const struct options *options);

/* Write the option's value as text that option_read accepts; at most OPTION_TEXT bytes. */
void option_write(const struct option_entry *entry, const struct options *options, char *text,
                  size_t size);

/* Set the option of that name. A name that ends with '+' appends to a text. A removed option is an
 * error, except with its default value and in the deck of a run or checkpoint (is_stored). */
MUST_CHECK bool option_assign(const char *name, const char *where, const char *text, bool is_stored,
                              struct options *options, struct error *error);

/* A deck with at least this many settings is a resolved deck; those of all versions have more. */
enum { RESOLVED_DECK = 64 };

/* Summary of the settings in one source (a deck or the command line); initialize it with zero. */
struct option_source {
    int settings;
    int64_t batch, global_batch; /* train.batch and train.global_batch; 0: not set */
};

/* Record that the source set the option of that name to its value in `options`. */
void option_source_add(struct option_source *source, const char *name,
                       const struct options *options);

/* Return false with an error if the source sets both train.batch and train.global_batch. Resolved
 * decks are accepted: those of older versions contain both, and train.global_batch applies. `name`
 * is the start of the error's text. */
MUST_CHECK bool option_source_check(const struct option_source *source, const char *name,
                                    struct error *error);

/* Describe the allowed values: "a whole number from 1 to 8", "auto, cpu or cuda". */
void option_describe(const struct option_entry *entry, char *text, size_t size);

/* Options and commands of version 0.2 that were removed, with their replacements. */

struct removed {
    const char *name;    /* "sweep.trials", or a command: "sweep" */
    const char *preset;  /* the option's default, which decks of version 0.2 contain */
    const char *instead; /* what to do instead: "use tools/sweep.py" */
};

/* Return the removed option or command of that name, or NULL. */
const struct removed *removed_find(const char *name);

#endif
