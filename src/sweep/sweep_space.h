/* What a sweep varies: keys of the options table, each with a set of values or a range. As words:
 *   optim.name=sgd,adam          values
 *   "optim.betas=0.9,0.99;0.9,0.95"  values that have commas themselves
 *   optim.lr=1e-4..0.1:log       a range, even in its logarithm
 *   train.batch=16..256          whole numbers
 *   optim.lr=1e-4..0.1:log:4     four values, evenly from one end to the other
 * A setting with one value is none of these, and what decks hold is never taken apart. */
#ifndef VITTRAIN_SWEEP_SWEEP_SPACE_H
#define VITTRAIN_SWEEP_SWEEP_SPACE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/option.h"

struct options;

enum { SWEEP_KEYS = 16, SWEEP_CHOICES = 256, SWEEP_TRIALS = 100000 };

struct sweep_key {
    const struct option_entry *entry;
    int count;      /* of choices; 0: a range */
    char **choices; /* [count], as the options write them */
    double low, high;
    bool log, whole; /* of the range */
};

struct sweep_space {
    int count;
    struct sweep_key keys[SWEEP_KEYS];
};

/* One place in it: of each key the number of the choice, or the value in the range. */
struct sweep_point {
    double value[SWEEP_KEYS];
};

/* Adds the key that a word of the command line varies; *varies false: the word is another setting.
 * ERROR_USAGE: no such key, a bad value, one value twice, one key twice. */
MUST_CHECK bool sweep_space_add(struct sweep_space *space, const char *word, bool *varies,
                                struct error *error);
void sweep_space_free(struct sweep_space *space);

/* The key's value at a point as text for a deck; in ranges of four digits. */
void sweep_value_text(const struct sweep_key *key, double value, char *text, size_t size);

/* The same back; false: it is none of the key's. */
bool sweep_value_read(const struct sweep_key *key, const char *text, double *value);

/* What a key's text makes of a value: in a range of four digits. */
double sweep_value_round(const struct sweep_key *key, double value);

/* Sets the options as the point has them. Combinations are not checked. */
MUST_CHECK bool sweep_point_apply(const struct sweep_space *space, const struct sweep_point *point,
                                  struct options *options, struct error *error);

/* How many points the grid has; -1: a range has no number of values (error), or too many. The
 * number-th one, the last key changing fastest. */
int64_t sweep_grid_size(const struct sweep_space *space, struct error *error);
void sweep_grid_point(const struct sweep_space *space, int64_t number, struct sweep_point *point);

#endif
