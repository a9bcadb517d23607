// SPDX-License-Identifier: BSD-3-Clause
/* The fastest of several algorithms, measured once and stored in a text file; used for matrix
 * products on GPUs. Ranks of a node that share the file make the same choices. All ranks of a run
 * agree by exchanging choices as text, and a resumed run reads them from its checkpoint. */
#ifndef VITTRAIN_DEVICE_ALGORITHM_CHOICES_H
#define VITTRAIN_DEVICE_ALGORITHM_CHOICES_H

#include <stdbool.h>
#include <stdint.h>

enum { CHOICE_KEY = 128, CHOICE_WORDS = 8 };

/* An algorithm in the library's own encoding. */
struct choice {
    uint64_t words[CHOICE_WORDS];
};

struct choices;

/* Open the choices stored in `folder`/products-OF; the file is created when the first choice is
 * made. `of` identifies what the choices are valid for: processor and library version. folder "":
 * nothing is stored. A damaged or foreign file causes a warning; its valid lines are used. */
struct choices *choices_open(const char *folder, const char *of);
void choices_close(struct choices *choices);

/* Return the seconds that a candidate takes; INFINITY if it cannot be used. */
typedef double choice_time(void *context, int candidate);

/* Find or make the choice for `key` (one line, shorter than CHOICE_KEY): an earlier choice of this
 * process or of one that shares the file, if `usable` accepts it, else the fastest of count > 0
 * candidates. Other processes that share the file wait meanwhile, so `time` must not wait for
 * another process. log_detail prints the times of all candidates in one line. Return false if no
 * candidate can be used.
 *
 * Choices are nested: `time` may call choices_make for another key, as a variant of a layer does
 * for its matrix products. The inner call uses the lock of the outer one. */
typedef bool choice_usable(void *context, const struct choice *choice);
bool choices_make(struct choices *choices, const char *key, const struct choice *candidates,
                  int count, choice_time *time, choice_usable *usable, void *context,
                  struct choice *chosen);

/* Like choices_make, but without measuring and without reading the file: return false if this
 * process has no usable choice for `key`. */
bool choices_find(struct choices *choices, const char *key, choice_usable *usable, void *context,
                  struct choice *chosen);

/* Store a choice that was not measured, in this process only. */
void choices_put(struct choices *choices, const char *key, const struct choice *choice);

/* Return a line with `of` (choices_open) and all choices in use as text; the caller frees it. */
char *choices_export(const struct choices *choices);

/* True if this process made a choice that no adopted text contains yet. */
bool choices_are_new(const struct choices *choices);

/* Adopt the choices in a text of choices_export. They replace this process's own and take
 * precedence over the file, unless `usable` refuses one later. Text for another GPU or library
 * version is ignored with a log line. Return true if a choice in use changed. */
bool choices_adopt(struct choices *choices, const char *text);

#endif
