/* Opens a trained model and a split of data. A checkpoint contains the deck of its run, so `eval
 * CHECKPOINT` needs no other options. */
#include "train/inference.h"

#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint_check.h"
#include "checkpoint/checkpoint_read.h"
#include "config/command_line.h"
#include "config/options.h"
#include "core/log.h"
#include "core/text.h"
#include "train/recipe.h"

/* Reads the deck of a checkpoint. Section mesh is left at its defaults, because the ranks are not
 * those of the training run. */
static bool deck_read(const char *checkpoint, struct options *options, struct comm *world,
                      struct error *error)
{
    char *deck = NULL;
    if (!checkpoint_read_deck(checkpoint, world, &deck, error))
        return false;
    options_default(options);
    const struct mesh_options mesh = options->mesh;
    error_defer(checkpoint_deck_parse(deck, checkpoint, options, error));
    options->mesh = mesh;
    free(deck);
    return comm_agree(world, error);
}

/* Sets the options by the file's deck or metadata, and then by the command line. */
static bool options_take(struct inference *inference, const char *weights,
                         const struct command_line *line, struct comm *world, struct error *error)
{
    struct options *options = &inference->options;
    if (!model_metadata_read(weights, world, &inference->metadata, error))
        return false;
    if (text_ends_with(weights, ".safetensors"))
        model_metadata_apply(&inference->metadata, options);
    else if (!deck_read(weights, options, world, error))
        return false;
    if (options_apply(line, options, error))
        error_defer(options_check(options, error));
    return comm_agree(world, error);
}

static bool inference_prepare(struct inference *inference, const char *weights, struct comm *world,
                              struct error *error)
{
    struct options *options = &inference->options;
    struct session *session = &inference->session;
    static const char *const names[] = {"train", "val", "test"};
    const char *name = inference->split_name = options->predict.split;
    int split = 0;
    while (split < 3 && strcmp(name, names[split]) != 0)
        split++;
    if (split == 3)
        return error_set(error, ERROR_USAGE, "predict.split=%s: must be train, val or test", name);
    if (!feed_open(&inference->feed, options, (enum data_split)split, world, error))
        return false;
    if (session_resolve(options, &inference->feed.dataset, NULL, error))
        recipe_log(options);
    int64_t batch = options->train.batch;
    if (!comm_agree(world, error) || !session_open(session, options, world, false, error) ||
        !session_allocate(session, batch, &inference->feed.source, false, error))
        return false;
    /* A head that does not fit the weights keeps its initial values. */
    flat_initialize(&session->flat, (uint64_t)options->run.seed);
    return session_read_weights(session, weights, error) &&
           feed_start(&inference->feed, options, world, session->device, batch * world->size,
                      session->model->image, false, error);
}

bool inference_open(struct inference *inference, const char *weights, const struct options *options,
                    const struct command_line *line, struct comm *world, struct error *error)
{
    memset(inference, 0, sizeof *inference);
    inference->options = *options;
    if (options_take(inference, weights, line, world, error) &&
        inference_prepare(inference, weights, world, error)) {
        struct flat_model *flat = &inference->session.flat;
        if (flat->averaged)
            flat_swap_average(flat);
        flat_refresh(flat);
        return true;
    }
    inference_close(inference);
    return false;
}

void inference_close(struct inference *inference)
{
    feed_close(&inference->feed);
    session_close(&inference->session);
    model_metadata_free(&inference->metadata);
}
