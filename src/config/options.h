// SPDX-License-Identifier: BSD-3-Clause
/* All options of the program. One table (options_table.c) has the name, type, default, range and
 * help text of each option; decks, command line, --help, the manual page and the resolved deck are
 * read and written by it. A file that needs one section includes that section's header only. */
#ifndef VITTRAIN_CONFIG_OPTIONS_H
#define VITTRAIN_CONFIG_OPTIONS_H

#include <stddef.h>
#include <stdio.h>

#include "config/command_options.h"
#include "config/data_options.h"
#include "config/mesh_options.h"
#include "config/model_options.h"
#include "config/run_options.h"
#include "config/train_options.h"
#include "core/error.h"

/* The values of all options. Equal options are equal byte by byte. */
struct options {
    struct run_options run;
    struct model_options model;
    struct data_options data;
    struct augment_options augment;
    struct eval_options eval;
    struct train_options train;
    struct optim_options optim;
    struct schedule_options schedule;
    struct mesh_options mesh;
    struct checkpoint_options checkpoint;
    struct output_options output;
    struct debug_options debug;
    struct cuda_options cuda;
    struct predict_options predict;
    struct bench_options bench;
    struct plan_options plan;
    struct find_options find;
    struct convert_options convert;
    struct verify_options verify;
};

/* Set all options to their defaults. */
void options_default(struct options *options);

/* Set one option from "section.key=value". */
MUST_CHECK bool options_set(const char *assignment, struct options *options, struct error *error);

/* Read a deck over the current values; also from memory, as stored in a checkpoint (`name` is for
 * messages). settings: number of settings in the deck. */
MUST_CHECK bool options_read_deck(const char *path, struct options *options, int *settings,
                                  struct error *error);
MUST_CHECK bool options_read_file(const char *path, struct options *options, struct error *error);

/* Read the deck of a run folder: options that were removed are ignored. */
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

/* Call `visit` with `section.key` and value of each option in a run's resolved deck, in the same
 * order. */
typedef void option_visit(void *user, const char *name, const char *value);
void options_visit(const struct options *options, option_visit *visit, void *user);

/* Print the options of a run's deck for the console, one or more lines for each section. A star
 * marks values that are not the default. */
void options_print(const struct options *options, FILE *file);

/* Print the options of a run's deck that are not the default, in at most two lines. */
void options_print_changed(const struct options *options, FILE *file);

/* Write the value of one key as text ("train.batch" -> "64"); aborts on an unknown key. */
void options_value_text(const struct options *options, const char *key, char *text, size_t size);

/* Describe the first option whose values differ, as "train.batch=64, but 32". Return false if all
 * are equal. */
bool options_difference(const struct options *one, const struct options *other, char *text,
                        size_t size);

/* Print the help: all options by section, or one section or key (false if it does
 * not exist). */
void options_help(FILE *file);
bool options_help_key(const char *key, FILE *file);

/* Print a paragraph in lines of the width of the help, indented by `indent` spaces. */
void options_print_wrapped(FILE *file, int indent, const char *text);

/* Print the options as a section of the manual page, in mdoc. */
void options_manual(FILE *file);

/* Print text in mdoc: escaped, each sentence on a line of its own, without a newline at the end. */
void options_manual_text(FILE *file, const char *text);
/* Print text on one line as the argument of a macro; no word is taken as a delimiter. */
void options_manual_words(FILE *file, const char *text);

#endif
