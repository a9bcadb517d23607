/* A trained model with a split of data, for the commands that do not train. */
#ifndef VITTRAIN_TRAIN_INFERENCE_H
#define VITTRAIN_TRAIN_INFERENCE_H

#include "config/options.h"
#include "train/evaluate.h"

struct command_line;

struct inference {
    struct options options; /* the deck that was trained with but for `mesh`, overridden by the
                             * command line */
    struct session session;
    struct data_feed feed;
    const char *split_name;
};

/* Collective. `weights`: a checkpoint (whose deck is the base, `line` is read over it), or
 * safetensors (then options describe the model). */
MUST_CHECK bool inference_open(struct inference *inference, const char *weights,
                               const struct options *options, const struct command_line *line,
                               struct comm *world, struct error *error);
void inference_close(struct inference *inference);

#endif
