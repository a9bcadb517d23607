// SPDX-License-Identifier: BSD-3-Clause
/* The command line: `[COMMAND] [DECK.ini ...] [section.key=value ...]`. */
#ifndef VITTRAIN_OPTIONS_COMMAND_LINE_H
#define VITTRAIN_OPTIONS_COMMAND_LINE_H

#include <stdbool.h>

#include "base/error.h"

struct options;

enum { COMMAND_SETTINGS = 256 };

/* The words of the command line; they point into argv. */
struct command_line {
    const char *command; /* "train" if none was given; with help: NULL */
    /* Words that are neither decks nor key=value; valid until the next options_parse. */
    const char **operand;
    int operand_count;
    const char *setting[COMMAND_SETTINGS]; /* decks and section.key=value, in their order */
    int setting_count;
    const char *default_deck; /* vittrain.ini if it exists and no deck is given, else NULL */
    bool help;                /* --help, -h or help; the topic is `command` or the first operand */
    bool version;             /* --version */
    bool list_models;         /* --list-models */
};

/* The flags without their short forms; NULL-terminated. */
extern const char *const command_flags[];

/* True if the line requests a text about the program, such as --help, instead of a command. */
bool command_line_informs(const struct command_line *line);

/* Parse the command line and read its decks and settings over the defaults; later ones win.
 * `commands` is a NULL-terminated list of the commands' names. Without a deck, ./vittrain.ini is
 * read if it exists. Combinations of options are not checked: call options_check_line. An error
 * names the file and line, or the argument, and the nearest known key or command. */
MUST_CHECK bool options_parse(int argc, char **argv, const char *const *commands,
                              struct options *options, struct command_line *line,
                              struct error *error);

/* Return false with ERROR_USAGE if the line, or a deck of it, sets an option that does not apply
 * with the others. Accepted are values that request nothing (0, off, none, auto, empty). Then set
 * all options that do not apply to their defaults, and call options_check. */
MUST_CHECK bool options_check_line(const struct command_line *line, struct options *options,
                                   struct error *error);

/* Read the line's decks and settings over the current values, as over a checkpoint's deck. */
MUST_CHECK bool options_apply(const struct command_line *line, struct options *options,
                              struct error *error);

#endif
