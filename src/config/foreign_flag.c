// SPDX-License-Identifier: BSD-3-Clause
/* Flags of PyTorch's examples, torchrun, timm, Lightning and Hydra, and the settings with the same
 * meaning. */
#include "config/foreign_flag.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "config/option.h"
#include "config/options.h"
#include "core/text.h"

enum { FLAG_MOST = 64 };

/* Names with '-' instead of '_', separated by spaces. No entry is needed for a flag whose name is
 * nearly the same as the key ("--weight-decay", "--seed"). */
static const struct {
    const char *names, *key;
    const char *value; /* to suggest if the flag has no value, or NULL */
} flags[] = {
    {"max-epochs num-epochs total-epochs num-train-epochs", "train.epochs", NULL},
    {"max-steps num-steps iterations", "train.steps", NULL},
    {"b bs batch-size per-device-train-batch-size train-batch-size", "train.batch", NULL},
    {"global-batch-size total-batch-size", "train.global_batch", NULL},
    {"grad-accum-steps accumulate-grad-batches gradient-accumulation-steps", "train.accumulate",
     NULL},
    {"amp", "train.precision", "auto"},
    {"fp16 half", "train.precision", "fp16"},
    {"bf16", "train.precision", "bf16"},
    {"amp-dtype dtype", "train.precision", NULL},
    {"grad-checkpointing gradient-checkpointing", "train.checkpoint_activations", "block"},
    {"clip-grad max-grad-norm gradient-clip-val", "train.clip_norm", NULL},
    {"smoothing", "train.label_smoothing", NULL},
    {"learning-rate base-lr", "optim.lr", NULL},
    {"wd", "optim.weight_decay", NULL},
    {"opt optimizer", "optim.name", NULL},
    {"model-ema", "optim.ema", "0.9998"},
    {"model-ema-decay ema-decay", "optim.ema", NULL},
    {"sched scheduler lr-scheduler", "schedule.name", NULL},
    {"warmup-epochs warmup-steps", "schedule.warmup", NULL},
    {"a arch model net backbone", "model.name", NULL},
    {"pretrained initial-checkpoint finetune", "model.init", "FILE.safetensors"},
    {"num-classes", "model.classes", NULL},
    {"img-size image-size input-size", "model.image", NULL},
    {"drop", "model.dropout", NULL},
    {"data data-dir data-path data-root root", "data.root", NULL},
    {"dataset", "data.format", NULL},
    {"j num-workers", "data.workers", NULL},
    {"hflip", "augment.flip", NULL},
    {"vflip", "augment.vflip", NULL},
    {"reprob random-erase", "augment.erase", NULL},
    {"ra aa auto-augment", "augment.rand_augment", NULL},
    {"o output output-dir out-dir save-dir log-dir logdir checkpoint-dir model-folder", "run.dir",
     NULL},
    {"experiment exp-name", "run.name", NULL},
    {"accelerator device gpu cuda", "run.backend", "cuda"},
    {"no-cuda cpu", "run.backend", "cpu"},
    {"resume auto-resume", "checkpoint.resume", "auto"},
    {"ckpt-path resume-from-checkpoint", "checkpoint.resume", NULL},
    {"save-every save-freq save-interval", "checkpoint.every", NULL},
    {"p print-freq log-interval log-every-n-steps", "output.log_every", NULL},
    {"fast-dev-run dry-run limit-train-batches", "debug.batches", "1"},
    {"overfit-batches", "debug.overfit", NULL},
    {"profile profiler", "debug.profile", "on"},
};

/* Flags without a corresponding option. */
static const struct {
    const char *names, *advice;
} others[] = {
    {"c cfg config config-file config-name config-path",
     "name the deck without a flag: `vittrain FILE.ini`"},
    {"gpus devices n nproc nproc-per-node nnodes num-nodes num-processes world-size",
     "start one rank per GPU or group of cores: `mpirun -np RANKS vittrain`"},
    {"e eval evaluate test validate", "use `vittrain eval CHECKPOINT`"},
    {"class-weights class-weight pos-weight",
     "class weights are not supported; docs/train.md lists what is supported"},
    {"m multirun", "use tools/sweep.py (docs/tuning.md)"},
};

/* True if `name` is one of the words in `names`, regardless of case; '_' equals '-'. */
static bool names_have(const char *names, const char *name)
{
    const size_t length = strlen(name);
    while (*names != '\0') {
        const size_t word = strcspn(names, " ");
        bool equal = word == length;
        for (size_t i = 0; equal && i < length; i++)
            equal = names[i] == (name[i] == '_' ? '-' : (char)tolower((unsigned char)name[i]));
        if (equal)
            return true;
        names += word + strspn(names + word, " ");
    }
    return false;
}

/* Return the index in flags[] of a name, or -1. */
static int flag_find(const char *name)
{
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (names_have(flags[i].names, name))
            return (int)i;
    return -1;
}

const char *foreign_flag_option(const char *name)
{
    const int found = flag_find(name);
    return found >= 0 ? flags[found].key : NULL;
}

/* Return the value of a flag: the text after '=', or the next word if it is not a flag or setting.
 * NULL if the flag has no value. */
static const char *flag_value(const char *word, const char *next)
{
    const char *equals = strchr(word, '=');
    if (equals != NULL)
        return equals + 1;
    return next != NULL && next[0] != '-' && !option_is_setting(next) ? next : NULL;
}

/* Write "key=value" with the first value that the option accepts, else "key=VALUE". */
static void setting_write(const char *key, const char *const values[2], char *text, size_t size)
{
    static struct options scratch;
    options_default(&scratch);
    for (int i = 0; i < 2; i++) {
        struct error error = {0};
        snprintf(text, size, "%s=%s", key, values[i] != NULL ? values[i] : "");
        if (values[i] != NULL && options_set(text, &scratch, &error))
            return;
        error_clear(&error);
    }
    snprintf(text, size, "%s=VALUE", key);
}

/* Return the flag of this program of which `word` is an abbreviation or a misspelling, or NULL. */
static const char *flag_nearest(const char *word, const char *const *known)
{
    enum { SHORTEST = 4 }; /* minimum length of an abbreviation, including dashes */
    for (int i = 0; known[i] != NULL && strlen(word) >= SHORTEST; i++)
        if (strncmp(known[i], word, strlen(word)) == 0)
            return known[i];
    return text_nearest(word, known);
}

bool foreign_flag_refuse(const char *word, const char *next, const char *const *known,
                         struct error *error)
{
    char flag[FLAG_MOST], name[FLAG_MOST], setting[OPTION_KEY + OPTION_TEXT];
    snprintf(flag, sizeof flag, "%.*s", (int)strcspn(word, "="), word);
    snprintf(name, sizeof name, "%s", flag + strspn(flag, "-"));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (names_have(others[i].names, name))
            return error_set(error, ERROR_USAGE, "%s: no such flag; %s", flag, others[i].advice);
    const int found = flag_find(name);
    const char *nearest = found < 0 ? flag_nearest(flag, known) : NULL;
    if (nearest != NULL)
        return error_set(error, ERROR_USAGE, "%s: no such flag; did you mean %s?", flag, nearest);
    for (char *c = name; *c != '\0'; c++)
        *c = *c == '-' ? '_' : *c;
    const char *key = found >= 0 ? flags[found].key : option_find_nearest(name);
    if (key == NULL)
        return error_set(error, ERROR_USAGE,
                         "%s: no such flag; settings are section.key=value, see `vittrain --help`",
                         flag);
    const char *const values[2] = {flag_value(word, next), found >= 0 ? flags[found].value : NULL};
    setting_write(key, values, setting, sizeof setting);
    return error_set(error, ERROR_USAGE, "%s: no such flag; write %s (`vittrain --help %s`)", flag,
                     setting, key);
}
