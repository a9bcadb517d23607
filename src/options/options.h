// SPDX-License-Identifier: BSD-3-Clause
/* All options of the program. One list (options_list.h) has the name, type, default, range, help,
 * condition and effect of each option; decks, command line, --help and the resolved
 * deck are read and written by it. */
#ifndef VITTRAIN_OPTIONS_OPTIONS_H
#define VITTRAIN_OPTIONS_OPTIONS_H

#include <stddef.h>
#include <stdio.h>

#include "base/error.h"
#include "options/option_types.h"

/* The values of all options: struct run_options run, struct model_options model, ... Equal options
 * are equal byte by byte. */
struct options {
#define TEXT(...) option_text
#define INTEGER(...) int64_t
#define NUMBER(...) double
#define SECONDS(...) double
#define BYTES(...) int64_t
#define SWITCH(...) bool
#define LIST(...) struct option_list
#define CHOICE(choice, ...) enum choice
#define SECTION(section, ...) struct section##_options {
#define OPTION(section, member, preset, type, help) type member;
#define VALUE_ONLY(type, member) type member;
#define SECTION_END(section)                                                                       \
    }                                                                                              \
    section;
#include "options/options_list.h"
};

/* True if data.val holds out training samples: a fraction of them, or periods of time. */
static inline bool options_hold_out(const struct options *options)
{
    return options->data.val == VALIDATION_FRACTION || options->data.val == VALIDATION_PERIODS;
}

/* Set all options to their defaults. */
void options_default(struct options *options);

/* Set one option from "section.key=value". */
MUST_CHECK bool options_set(const char *assignment, struct options *options, struct error *error);

/* Read a deck over the current values: a file, the deck of a run folder, or one stored in a
 * checkpoint (`name` is for messages). In the latter two, options that were removed are ignored. */
MUST_CHECK bool options_read_file(const char *path, struct options *options, struct error *error);
MUST_CHECK bool options_read_stored(const char *path, struct options *options, struct error *error);
MUST_CHECK bool options_read_text(const char *text, const char *name, struct options *options,
                                  struct error *error);

/* Return false with ERROR_USAGE for combinations that cannot work. Models and files are not
 * checked. */
MUST_CHECK bool options_check(const struct options *options, struct error *error);

/* Return the samples of a grain, for a global batch of this many samples; 0 with train.exact=off.
 */
int64_t options_grain(const struct options *options, int64_t global_batch);

/* Return false with ERROR_USAGE if this global batch has too many grains. */
MUST_CHECK bool options_check_grain(const struct options *options, int64_t global_batch,
                                    struct error *error);

/* Return the resolved deck of a run: every option of train with its value, but only one of
 * train.batch and train.global_batch. The caller frees the text. */
char *options_to_run_deck(const struct options *options);

/* Return the options of a run's deck that are not the default: " optim.lr=0.1 train.batch=8". The
 * caller frees the text. */
char *options_changed(const struct options *options);

/* Write the value of one key as text ("train.batch" -> "64"); aborts on an unknown key. */
void options_value_text(const struct options *options, const char *key, char *text, size_t size);

/* Describe the first option whose values differ, as "train.batch=64, but 32". Return false if all
 * are equal. */
bool options_difference(const struct options *one, const struct options *other, char *text,
                        size_t size);

/* What a new value of an option changes when a run resumes. */
enum option_effect {
    EFFECT_OF_SECTION, /* as the other options of its section */
    EFFECT_LEARNING,   /* what is learned from now on */
    EFFECT_NONE,       /* layout, length and output of the run */
    EFFECT_MODEL,      /* the model or its variables: the run cannot continue */
    EFFECT_OF_COMMAND  /* nothing: only commands other than train read it; not in a run's deck */
};

struct option_change {
    const char *name;
    enum option_effect effect;
    char before[OPTION_TEXT], now[OPTION_TEXT];
};

/* Call `visit` for each option of a run's deck whose values differ, in the order of the deck. */
typedef void option_change_visit(void *user, const struct option_change *change);
void option_changes(const struct options *before, const struct options *now,
                    option_change_visit *visit, void *user);

/* True if all differences have EFFECT_NONE. */
bool option_changes_nothing(const struct options *before, const struct options *now);

/* ---- The command line: `[COMMAND] [DECK.ini ...] [section.key=value ...]` */

/* The words of the command line; they point into argv. The lists are valid until the next
 * options_parse. */
struct command_line {
    const char *command;  /* the first word; "train" if none was given; with help: topic or NULL */
    const char **operand; /* other words that are neither decks nor key=value */
    const char **setting; /* decks and section.key=value, in their order */
    int operand_count, setting_count;
    const char *default_deck; /* vittrain.ini if it exists and no deck is given, else NULL */
    bool help;                /* --help, -h or help */
    bool version;             /* --version */
    bool list_models;         /* --list-models */
};

/* True if the line requests a text about the program, such as --help, instead of a command. */
bool command_line_informs(const struct command_line *line);

/* Parse the command line and read its decks and settings over the defaults; later ones win. Without
 * a deck, ./vittrain.ini is read if it exists. Combinations of options are not checked: call
 * options_check_line. An error names the file and line, or the argument, and the nearest key. */
MUST_CHECK bool options_parse(int argc, char **argv, struct options *options,
                              struct command_line *line, struct error *error);

/* Return false with ERROR_USAGE if the line, or a deck of it, sets an option that does not apply
 * with the others. Accepted are values that request nothing (0, off, none, auto, empty). Then set
 * all options that do not apply to their defaults, and call options_check. */
MUST_CHECK bool options_check_line(const struct command_line *line, struct options *options,
                                   struct error *error);

/* Read the line's decks and settings over the current values, as over a checkpoint's deck. */
MUST_CHECK bool options_apply(const struct command_line *line, struct options *options,
                              struct error *error);

#endif
