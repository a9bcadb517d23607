/* The command `find`: what is best found by trying it on the ranks that will train. */
#ifndef VITTRAIN_APP_FIND_H
#define VITTRAIN_APP_FIND_H

#include "comm/comm.h"

struct options;

/* Collective. Print the result on rank 0's standard output. */
void find_lr(const struct options *options, struct comm *world, struct error *error);

/* Rank 0: the curve as NAME.svg and NAME.png. */
struct range_test;
struct range_suggestion;
MUST_CHECK bool find_lr_plot(const char *name, const struct range_test *test,
                             const struct range_suggestion *suggestion, struct error *error);

/* Rank 0: a row of the log book (output.logbook); strategy and model are the options'. That it
 * cannot be written is a warning. */
struct found;
void find_note(const struct options *options, struct found *found);

#endif
