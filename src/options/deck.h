// SPDX-License-Identifier: BSD-3-Clause
/* Decks: INI files of lines [section] and key = value. A '#' or ';' at the beginning of a line or
 * after a space begins a comment. */
#ifndef VITTRAIN_OPTIONS_DECK_H
#define VITTRAIN_OPTIONS_DECK_H

#include <stdbool.h>
#include <stdio.h>

#include "base/error.h"

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
