// SPDX-License-Identifier: BSD-3-Clause
/* The table of options: what a row has, and how values are read from text and written. */
#ifndef VITTRAIN_OPTIONS_OPTION_H
#define VITTRAIN_OPTIONS_OPTION_H

#include "options/options.h"

enum option_kind {
    OPTION_IS_TEXT,
    OPTION_IS_INTEGER,
    OPTION_IS_NUMBER,
    OPTION_IS_SECONDS, /* 90, 90s, 1.5m or 2h */
    OPTION_IS_BYTES,   /* 4096, 64KiB, 1.5MiB or 2GiB */
    OPTION_IS_SWITCH,
    OPTION_IS_CHOICE,
    OPTION_IS_LIST
};

struct option_choice {
    int value;
    const char *word;
};

/* The values of other options with which an option applies. */
struct option_condition {
    bool (*holds)(const struct options *options);
    const char *text; /* "optim.name=lamb or lars" */
};

struct option_section {
    const char *name;                       /* "train" */
    const char *help;                       /* "the optimizer" */
    enum option_effect effect;              /* of options without one */
    const struct option_condition *applies; /* of all options, in addition to theirs; or NULL */
};

struct option_entry {
    const char *name; /* "train.batch" */
    const struct option_section *section;
    size_t offset; /* in struct options */
    enum option_kind kind;
    const char *preset; /* the default, as written in a deck */
    const char *help;   /* one or two sentences */
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
    size_t text_offset;   /* choices that accept other texts, too: offset of the text; else 0 */
    int text_choice;      /* their constant if a text is given */
    bool (*is_text)(const char *text);
    const char *text_example;               /* for messages: "a period of time, such as 2019" */
    const struct option_condition *applies; /* NULL: always */
    enum option_effect effect;
};

/* Ends with an entry whose name is NULL. The entries of a section are consecutive. */
extern const struct option_entry option_table[];

/* Return the option of that name, or NULL. */
const struct option_entry *option_find(const char *name);

/* Return the option with the meaning of a flag or key of PyTorch's examples, timm, Lightning or
 * Hydra ("max_epochs", "batch-size"), or NULL. *value: the text after the name in `flags`. */
const struct option_entry *option_of_flag(const char *name, const char **value);

/* Return the name of the option nearest to an unknown name ("optim.lr" for "train.lr" and
 * "optim.rl"), or NULL. */
const char *option_find_nearest(const char *name);

/* Return the part of an entry's name after the section. */
const char *option_key(const struct option_entry *entry);

enum option_effect option_effect(const struct option_entry *entry);

/* Return the condition of an option, or of its section, that does not hold; NULL: it applies. */
const struct option_condition *option_unmet(const struct option_entry *entry,
                                            const struct options *options);

/* True if a word is key=value with a key that an option could have; a file name may contain '='. */
bool option_is_setting(const char *word);

/* Set the option from text. `where` is the start of the error's text: "deck.ini:12: ".
 * Setting train.batch clears train.global_batch, and vice versa. */
MUST_CHECK bool option_read(const struct option_entry *entry, const char *where, const char *text,
                            struct options *options, struct error *error);

/* Read the decimal number at the start of a text; false for others, such as "inf" and "0x1p3". */
bool option_read_decimal(const char *text, double *value, char **end);

/* True if the option is in the deck of a run with these options: not one of other commands, and of
 * train.batch and train.global_batch the one that was set. */
bool option_is_in_deck(const struct option_entry *entry, const struct options *options);

/* Write the option's value as text that option_read accepts; at most OPTION_TEXT bytes. */
void option_write(const struct option_entry *entry, const struct options *options, char *text,
                  size_t size);

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

/* True if the option changed the weights, so that a stored deck must have its default, too. */
bool removed_trains(const struct removed *entry);

/* ---- Decks (options.c): INI files of lines [section] and key = value. A '#' or ';' at the
 * beginning of a line or after a space begins a comment. */

/* Called with each `section.key` of a deck and its value; a key may come several times. `where`
 * is the start of an error's text: "FILE:12: ". */
typedef bool deck_pair(void *user, const char *where, const char *name, const char *value,
                       struct error *error);

/* Open a deck for reading; NULL with an error if it is not a readable file. A deck input/NAME that
 * does not exist in the working directory is the one installed with the program. */
FILE *deck_file_open(const char *path, struct error *error);

/* Read all pairs of a deck; stop at the first error. `name` is the file's name for messages. */
MUST_CHECK bool deck_read_pairs(FILE *file, const char *name, deck_pair *pair, void *user,
                                struct error *error);

/* True if a deck can hold this text as a value. */
bool deck_can_hold(const char *text);

#endif
