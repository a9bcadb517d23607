// SPDX-License-Identifier: BSD-3-Clause
/* The search space of a sweep: options, each with a list of values or a range. On the command line:
 *   optim.name=sgd,adam              values
 *   "optim.betas=0.9,0.99;0.9,0.95"  values that contain commas
 *   optim.lr=1e-4..0.1:log           a log-uniform range
 *   train.batch=16..256              a range of integers
 *   optim.lr=1e-4..0.1:log:4         four evenly spaced values of a range
 * A setting with one value does not vary. Settings in decks never vary. */
#ifndef VITTRAIN_TOOLS_SWEEP_SWEEP_SPACE_H
#define VITTRAIN_TOOLS_SWEEP_SWEEP_SPACE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/option.h"

struct options;

enum { SWEEP_KEYS = 16, SWEEP_CHOICES = 256, SWEEP_TRIALS = 100000 };

struct sweep_key {
    const struct option_entry *entry;
    int count;      /* number of choices; 0: a range */
    char **choices; /* [count], in the notation of option_write */
    double low, high;
    bool log, whole; /* range: log-uniform, integers */
};

struct sweep_space {
    int count;
    struct sweep_key keys[SWEEP_KEYS];
};

/* A point: for each key the index of the choice, or the value in the range. */
struct sweep_point {
    double value[SWEEP_KEYS];
};

/* Add the key that a word of the command line varies; *varies false: the word is a plain setting.
 * ERROR_USAGE: unknown key, bad value, duplicate value or key. */
MUST_CHECK bool sweep_space_add(struct sweep_space *space, const char *word, bool *varies,
                                struct error *error);
void sweep_space_free(struct sweep_space *space);

/* Write a value as text for a deck; values of ranges have four digits. */
void sweep_value_text(const struct sweep_key *key, double value, char *text, size_t size);

/* Parse such a text; false if the key does not have this value. */
bool sweep_value_read(const struct sweep_key *key, const char *text, double *value);

/* Round a value to the digits of its text. */
double sweep_value_round(const struct sweep_key *key, double value);

/* Set the options to the values of the point. Combinations are not checked. */
MUST_CHECK bool sweep_point_apply(const struct sweep_space *space, const struct sweep_point *point,
                                  struct options *options, struct error *error);

/* Return the number of points of the grid; -1 and an error if a range has no number of values or
 * the grid is too large. sweep_grid_point: the last key changes fastest. */
int64_t sweep_grid_size(const struct sweep_space *space, struct error *error);
void sweep_grid_point(const struct sweep_space *space, int64_t number, struct sweep_point *point);

#endif
