// SPDX-License-Identifier: BSD-3-Clause
#include "plan/plan_checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint/checkpoint_file.h"
#include "checkpoint/checkpoint_read.h"
#include "checkpoint/weights_file.h"
#include "config/option.h"
#include "config/options.h"

static const char *const deck_keys[] = {
    "run.name",      "data.format",        "data.root",        "train.epochs",    "train.steps",
    "train.batch",   "train.global_batch", "train.accumulate", "train.precision", "optim.name",
    "optim.lr",      "optim.weight_decay", "optim.ema",        "schedule.name",   "schedule.warmup",
    "mesh.strategy", "mesh.shard",         "mesh.reduce",      "model.init"};

enum { DECK_KEYS = sizeof deck_keys / sizeof deck_keys[0], DECK_WIDTH = 78 };

static void deck_print(const struct options *deck)
{
    size_t column = DECK_WIDTH;
    for (int k = 0; k < DECK_KEYS; k++) {
        char value[OPTION_TEXT], text[OPTION_TEXT + 64];
        if (option_is_cleared(option_find(deck_keys[k]), deck))
            continue;
        options_value_text(deck, deck_keys[k], value, sizeof value);
        size_t length = (size_t)snprintf(text, sizeof text, " %s=%s", deck_keys[k], value);
        if (column + length > DECK_WIDTH) {
            printf("%s%-8s", k == 0 ? "" : "\n", k == 0 ? "deck" : "");
            column = 0;
        }
        fputs(text, stdout);
        column += length;
    }
    putchar('\n');
}

static void state_print(const struct checkpoint_contents *contents, const struct options *deck)
{
    const struct training_state *state = &contents->state;
    char monitor[16];
    options_value_text(deck, "checkpoint.monitor", monitor, sizeof monitor);
    printf("state    step %lld, epoch %lld (from 0) with %lld steps done, global batch %lld, seed "
           "%llu, %s\n",
           (long long)state->step, (long long)state->epoch, (long long)state->epoch_step,
           (long long)state->global_batch, (unsigned long long)state->seed,
           state->finished ? "finished" : "not finished");
    if (state->loss_scale > 0)
        printf(
            "fp16     loss scale %.15g, %lld steps since it changed, %lld steps skipped in all\n",
            state->loss_scale, (long long)state->loss_scale_good_steps,
            (long long)state->skipped_steps);
    printf("time     %.1f s in %lld attempt%s, %.1f s of training alone\n", state->total_seconds,
           (long long)state->parts, state->parts == 1 ? "" : "s", state->train_seconds);
    if (state->epoch_samples > 0)
        printf("epoch    loss %.6f  top1 %.4f  top5 %.4f  on %.0f samples%s\n",
               state->epoch_loss_sum / state->epoch_samples,
               state->epoch_top1_sum / state->epoch_samples,
               state->epoch_top5_sum / state->epoch_samples, state->epoch_samples,
               state->epoch_step > 0 ? " so far" : ", of the last epoch");
    if (isnan(state->best_metric))
        printf("best     no evaluation yet\n");
    else
        printf("best     %s %.6f at step %lld, %lld evaluations without a better one since\n",
               monitor, state->best_metric, (long long)state->best_step,
               (long long)state->evaluations_without_gain);
}

static void head_print(const char *path, const struct checkpoint_contents *contents,
                       const struct options *deck)
{
    char strategy[OPTION_TEXT];
    options_value_text(deck, "mesh.strategy", strategy, sizeof strategy);
    printf("%s: a checkpoint of format %lld, %lld bytes\n", path, (long long)contents->format,
           (long long)contents->bytes);
    printf("written  %s by %s: %s, replica %lld x shard %lld, computing in %s\n", contents->date,
           contents->program, strategy, (long long)contents->replica, (long long)contents->shard,
           contents->compute);
    printf("model    %s\n", contents->model);
    state_print(contents, deck);
    deck_print(deck);
    printf("vectors ");
    for (enum flat_vector kind = 0; kind < FLAT_VECTORS; kind++)
        if (checkpoint_has(contents, kind))
            printf(" %s", flat_vector_name[kind]);
    printf(" (fp32, each as long as its unit)\n\n");
}

/* Print which rank of the mesh wrote which elements of a unit, in how many pieces. */
static void parts_print(const struct checkpoint_contents *contents, int64_t u)
{
    const struct checkpoint_layout *layout = &contents->layout[u];
    const struct checkpoint_piece *piece = contents->pieces + layout->first_piece;
    const struct checkpoint_piece *last = piece + layout->piece_count;
    for (int64_t shard = 0; shard < contents->shard; shard++)
        for (int64_t replica = 0; replica < contents->replica; replica++) {
            int64_t begin, end, pieces = 0;
            checkpoint_range(contents, u, shard, replica, &begin, &end);
            for (; piece < last && piece->begin < end; piece++)
                pieces++;
            if (begin < end)
                printf("    shard %lld, replica %lld: elements %lld to %lld, %lld piece%s\n",
                       (long long)shard, (long long)replica, (long long)begin, (long long)end - 1,
                       (long long)pieces, pieces == 1 ? "" : "s");
        }
}

static void units_print(const struct checkpoint_contents *contents)
{
    int64_t elements = 0, parameters = 0, tensors = 0, vectors = 0;
    char shape[128];
    for (enum flat_vector kind = 0; kind < FLAT_VECTORS; kind++)
        vectors += checkpoint_has(contents, kind);
    printf("%-36s %-6s %-22s %12s %14s\n", "unit and tensors", "type", "shape", "elements",
           "bytes");
    for (int64_t u = 0; u < contents->unit_count; u++) {
        const struct unit *unit = &contents->units[u];
        printf("%-36s %-6s %2lld x %-17lld %12lld %14lld\n", unit->name, "", (long long)vectors,
               (long long)unit->count, (long long)(vectors * unit->count),
               (long long)(vectors * unit->count) * (long long)sizeof(float));
        for (int t = 0; t < unit->tensor_count; t++) {
            const struct unit_tensor *tensor = &unit->tensors[t];
            vector_shape_text(tensor->shape, tensor->dimensions, shape, sizeof shape);
            printf("  %-34s %-6s %-22s %12lld %14lld\n", tensor->name,
                   tensor->kind == TENSOR_STATE ? "state" : "fp32", shape, (long long)tensor->count,
                   (long long)tensor->count * (long long)sizeof(float));
            if (tensor->kind == TENSOR_PARAMETER)
                parameters += tensor->count;
        }
        parts_print(contents, u);
        tensors += unit->tensor_count;
        elements += vectors * unit->count;
    }
    printf("total: %lld units, %lld tensors, %lld parameters, %lld pieces, %lld bytes in vectors\n",
           (long long)contents->unit_count, (long long)tensors, (long long)parameters,
           (long long)contents->piece_count, (long long)elements * (long long)sizeof(float));
}

bool plan_checkpoint_print(const char *path, struct error *error)
{
    struct checkpoint_contents contents = {.unit_count = 0};
    struct options *deck = allocate(1, sizeof *deck);
    char file[WEIGHTS_PATH];
    snprintf(file, sizeof file, "%s", path);
    weights_file_hold(file);
    options_default(deck);
    bool good = checkpoint_file_read(file, &contents, error) &&
                checkpoint_deck_parse(contents.deck, path, deck, error);
    if (good) {
        head_print(path, &contents, deck);
        units_print(&contents);
    }
    free(deck);
    checkpoint_contents_free(&contents);
    return good;
}
