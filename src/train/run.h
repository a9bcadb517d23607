// SPDX-License-Identifier: BSD-3-Clause
/* A run: resolved options, splits of the data, and a session. Every command that trains or
 * evaluates opens one. */
#ifndef VITTRAIN_TRAIN_RUN_H
#define VITTRAIN_TRAIN_RUN_H

#include "config/options.h"
#include "train/feed.h"
#include "train/optimizer.h"
#include "train/session.h"
#include "train/step.h"

struct model_metadata;

struct run {
    struct comm *world;
    struct options options; /* resolved (options_resolve); not changed after run_open */
    struct session session;
    struct data_feed train;      /* not open without training */
    struct data_feed validation; /* the split that is evaluated; open if `validates` */
    bool validates;
    int64_t global_batch; /* samples of a step */
    /* With training, after run_start. */
    struct optimizer optimizer;
    struct step_context step;
};

/* Collective. Opens the training data, unless data.val=none the validation data, and the model for
 * training. Close the run also after a failure of this function and of the next two. */
MUST_CHECK bool run_open(struct run *run, const struct options *options, struct comm *world,
                         struct error *error);

/* Collective. Opens another split for evaluations during the training. Its samples must have the
 * shape of the training samples, and it takes their weights of rows. */
MUST_CHECK bool run_open_split(struct run *run, enum data_split split, struct data_feed *feed,
                               struct error *error);

/* Collective. Opens the model for a split that the caller has opened: `train` or, without training,
 * `validation`. The caller has set world, options and validates. weights: metadata of the initial
 * weights, or NULL. */
MUST_CHECK bool run_open_model(struct run *run, bool training, const struct model_metadata *weights,
                               struct error *error);

/* Collective. Allocates the memory and starts the loaders. The caller may have changed
 * run->global_batch and session.accumulate. */
MUST_CHECK bool run_start(struct run *run, struct error *error);

/* True if records are normalised by statistics of the training samples, as the options do not have
 * the values, or have no room for them. */
bool run_needs_statistics(const struct run *run, const struct dataset *dataset);

/* Collective. Uses the statistics for the data set, which is that of the training or of
 * predictions, and for the validation split. */
MUST_CHECK bool run_use_statistics(struct run *run, struct dataset *dataset,
                                   const struct value_statistics *statistics, struct error *error);

/* Collective. Sets the statistics to those of the training samples, if they are needed. After a
 * signal that requests the end they are not complete. */
MUST_CHECK bool run_find_statistics(struct run *run, struct error *error);

/* Collective. Sets the weights to random values, or to those of model.init, and the statistics
 * (run_find_statistics). Call flat_refresh afterwards. */
MUST_CHECK bool run_initialize(struct run *run, struct error *error);

/* Does nothing on a zeroed struct. */
void run_close(struct run *run);

/* True if model.init names weights. */
bool run_reads_weights(const struct options *options);

/* ---- Options that depend on the data and the model: numbers of classes and channels, size of the
 * images, and the recipe for images, that is, the options of `augment` and `eval` that are auto. */

/* Set the automatic options. Options with a value keep it. `weights`: metadata of the initial
 * weights, whose preprocessing is preferred to that of the architecture; or NULL. Return false with
 * ERROR_USAGE if options are invalid or contradict the data. */
MUST_CHECK bool options_resolve(struct options *options, const struct dataset *dataset,
                                const struct model_metadata *weights, struct error *error);

/* Log the recipe of resolved options in one line. */
void recipe_log(const struct options *options);

#endif
