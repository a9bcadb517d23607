/* What the table says of one option, and the steps that work on one entry. Private to options*.c.
 */
#ifndef VITTRAIN_CORE_OPTIONS_TABLE_H
#define VITTRAIN_CORE_OPTIONS_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/options.h"

enum option_kind {
    OPTION_IS_TEXT,    /* char[OPTION_TEXT] */
    OPTION_IS_INTEGER, /* int64_t */
    OPTION_IS_NUMBER,  /* double */
    OPTION_IS_SECONDS, /* double; 90, 90s, 1.5m or 2h */
    OPTION_IS_BYTES,   /* int64_t; 4096, 64KiB, 1.5MiB or 2GiB */
    OPTION_IS_SWITCH,  /* bool */
    OPTION_IS_CHOICE,  /* int: number of the word in `choices`, counted from first_choice */
    OPTION_IS_LIST     /* struct option_list */
};

struct option_entry {
    const char *name; /* "train.batch" */
    size_t offset;    /* in struct options */
    enum option_kind kind;
    const char *preset;           /* the default, as a deck would give it */
    double least, most;           /* of a number, or of each number of a list */
    bool above_least, below_most; /* the bound itself is not allowed */
    bool has_automatic;           /* the word "auto" stands for `automatic` */
    double automatic;
    int least_count, most_count; /* of a list */
    int first_choice;
    const char *const *choices; /* NULL-terminated */
    const char *help;           /* one or two sentences */
};

/* Ends with an entry whose name is NULL; entries of a section lie together. */
extern const struct option_entry option_table[];

/* What a section is about: "how long and how much at a time"; aborts on an unknown section. */
const char *option_section_help(const char *section);

/* NULL when there is none of that name. */
const struct option_entry *option_find(const char *name);

/* The key nearest to a name that is none: "optim.lr" for "train.lr" and "optim.rl"; or NULL. */
const char *option_find_nearest(const char *name);

/* The part of an entry's name after the section. */
const char *option_key(const struct option_entry *entry);

/* Is a word key=value, with a key such as an option could have? A file name may hold '=', too. */
bool option_is_setting(const char *word);

/* Are two entries in one section? */
bool option_same_section(const struct option_entry *one, const struct option_entry *other);

/* Sets the option from text. `where` opens the message: "deck.ini:12: ". */
bool option_read(const struct option_entry *entry, const char *where, const char *text,
                 struct options *options, struct error *error);

/* The option's value, such that option_read gives it back; at most OPTION_TEXT bytes. */
void option_write(const struct option_entry *entry, const struct options *options, char *text,
                  size_t size);

/* Can a deck give this text as a value, on lines as short as inih wants them? */
bool deck_can_hold(const char *text);

/* Sets the option of that name. A name that ends with '+' adds to a text. */
bool option_assign(const char *name, const char *where, const char *text, struct options *options,
                   struct error *error);

/* "a whole number from 1 to 8", "auto, cpu or cuda". */
void option_describe(const struct option_entry *entry, char *text, size_t size);

#endif
