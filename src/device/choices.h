/* Which of several ways to do something was the fastest, measured once and kept in a text file: for
 * the algorithms of a GPU's library of matrix products. Ranks of a node that share the file make
 * the same choices. All ranks of a run make the same ones by exchanging them as text, and a resumed
 * run by reading them from its checkpoint. */
#ifndef VITTRAIN_DEVICE_CHOICES_H
#define VITTRAIN_DEVICE_CHOICES_H

#include <stdbool.h>
#include <stdint.h>

enum { CHOICE_KEY = 128, CHOICE_WORDS = 8 };

/* What the library calls one way: opaque. */
struct choice {
    uint64_t words[CHOICE_WORDS];
};

struct choices;

/* `folder`/products-OF, made when there is something to keep; `of` names all that the choices are
 * valid for: the GPU, the library's version. folder "": nothing is kept. A file that is damaged or
 * another's is a warning, and what can be read of it counts. */
struct choices *choices_open(const char *folder, const char *of);
void choices_close(struct choices *choices);

/* Seconds that a candidate takes; INFINITY: it cannot be used. */
typedef double choice_time(void *context, int candidate);

/* The choice for `key` (one line, shorter than CHOICE_KEY): what was chosen before, here or by a
 * process that shares the file, if `usable` accepts it; else the fastest of count > 0 candidates.
 * Others that share the file wait meanwhile: `time` must not wait for another process. Returns
 * false when no candidate can be used. */
typedef bool choice_usable(void *context, const struct choice *choice);
bool choices_make(struct choices *choices, const char *key, const struct choice *candidates,
                  int count, choice_time *time, choice_usable *usable, void *context,
                  struct choice *chosen);

/* The part of choices_make that neither measures nor reads the file: false if this process does not
 * know a usable choice for `key`. */
bool choices_find(struct choices *choices, const char *key, choice_usable *usable, void *context,
                  struct choice *chosen);

/* Keep a choice that was not measured, in this process only. */
void choices_put(struct choices *choices, const char *key, const struct choice *choice);

/* All choices in use, as text; the caller frees it. "": none. */
char *choices_export(const struct choices *choices);

/* True if a choice was made here that no adopted text contains yet. */
bool choices_are_new(const struct choices *choices);

/* Adopt the choices in a text of choices_export. They replace this process's own and take
 * precedence over the file, unless `usable` refuses one later. Text for another GPU or library
 * version has no effect but a line in the log. Returns true if a choice in use changed. */
bool choices_adopt(struct choices *choices, const char *text);

#endif
