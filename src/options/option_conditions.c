// SPDX-License-Identifier: BSD-3-Clause
/* The tables of options: conditions, sections, options, optimizers, and options of version 0.2. */
#include <fnmatch.h>
#include <math.h>
#include <string.h>

#include "options/option.h"

/* ---- conditions under which options apply */

static bool model_is(const struct options *options, const char *pattern)
{
    return fnmatch(pattern, options->model.name, 0) == 0;
}

static bool model_is_vit(const struct options *options)
{
    return model_is(options, "vit_*") || model_is(options, "deit3_*");
}

static bool format_is(const struct options *options, const char *format)
{
    return strcmp(options->data.format, format) == 0;
}

/* The optimizers as bits of a set. */
#define OPTIMIZER_BIT(name, word) name = 1 << OPTIMIZER_##name,
enum { OPTIMIZERS(OPTIMIZER_BIT, ) };

static bool optimizer_in(const struct options *options, unsigned set)
{
    return (1u << options->optim.name & set) != 0;
}

/* options_settle makes one pass over the table. If option A depends on B, and B depends on C, then
 * B is before A in the list, or A depends on C, too. */
#define CONDITION(name, expression, words)                                                         \
    static bool name##_holds(const struct options *o)                                              \
    {                                                                                              \
        return expression;                                                                         \
    }                                                                                              \
    static const struct option_condition name = {name##_holds, words};

CONDITION(with_vit, model_is_vit(o), "model.name=vit_* or deit3_*")
CONDITION(with_vit_classes, model_is_vit(o) && o->model.head != HEAD_DENSE,
          "model.name=vit_* or deit3_*, and model.head=class")
CONDITION(with_head, model_is_vit(o) || model_is(o, "resnet*"),
          "model.name=vit_*, deit3_* or resnet*")
CONDITION(with_batch_norm, !model_is_vit(o) && !model_is(o, "cnn_a*") && !model_is(o, "linear"),
          "model.name=resnet*, cnn_b or cnn_c")
CONDITION(with_images, !model_is(o, "linear"), "a model.name other than linear")
CONDITION(with_mirror, !model_is(o, "linear") && o->model.head != HEAD_DENSE,
          "model.head=class and a model.name other than linear")
CONDITION(with_files, !format_is(o, "synthetic"), "a data.format other than synthetic")
CONDITION(with_synthetic, format_is(o, "synthetic"), "data.format=synthetic")
CONDITION(with_synthetic_classes, format_is(o, "synthetic") && o->data.task == TASK_CLASSES,
          "data.format=synthetic and data.task=classes")
CONDITION(with_task, format_is(o, "synthetic") || format_is(o, "arrays"),
          "data.format=synthetic or arrays")
CONDITION(with_arrays, format_is(o, "arrays"), "data.format=arrays")
CONDITION(with_planes,
          format_is(o, "arrays") && o->data.task == TASK_REGRESSION && o->model.head == HEAD_DENSE,
          "data.format=arrays, data.task=regression and model.head=dense")
CONDITION(with_coordinates, format_is(o, "arrays") && o->data.coordinates == COORDINATES_CHECK,
          "data.format=arrays and data.coordinates=check")
CONDITION(with_folders, format_is(o, "imagefolder"), "data.format=imagefolder")
CONDITION(with_image_files, format_is(o, "imagefolder") || format_is(o, "webdataset"),
          "data.format=imagefolder or webdataset")
CONDITION(with_fraction, o->data.val == VALIDATION_FRACTION, "data.val=FRACTION")
CONDITION(with_float, o->data.values != VALUES_UINT8 || format_is(o, "arrays"),
          "data.values=float32 or data.format=arrays")
CONDITION(with_erase, o->augment.erase != 0, "augment.erase above 0")
CONDITION(with_rand_augment, o->augment.rand_augment > 0, "augment.rand_augment above 0")
CONDITION(with_region,
          o->augment.random_resized_crop == SWITCH_ON ||
              (o->augment.random_resized_crop == SWITCH_AUTO &&
               (o->augment.recipe == RECIPE_PHOTOS ||
                (o->augment.recipe == RECIPE_AUTO && !format_is(o, "cifar10") &&
                 !format_is(o, "synthetic")))),
          "augment.random_resized_crop=on or augment.recipe=photos")
CONDITION(with_eval_pad, o->eval.crop == CROP_RANDOM && !model_is(o, "linear"), "eval.crop=random")
CONDITION(with_exact, o->train.exact == EXACT_LAYOUT, "train.exact=layout")
CONDITION(with_checks, o->train.check_every > 0, "train.check_every above 0")
CONDITION(with_flip, o->debug.flip != FLIP_OFF, "debug.flip other than off")
CONDITION(with_fp16, o->train.precision == PRECISION_FP16 || o->train.precision == PRECISION_AUTO,
          "train.precision=fp16 or auto")
CONDITION(with_lr_scale, o->optim.lr_scale != RATE_SCALE_NONE, "optim.lr_scale=linear or sqrt")
CONDITION(with_momentum, optimizer_in(o, SGD | RMSPROP | MUON | LARS),
          "optim.name=sgd, rmsprop, muon or lars")
CONDITION(with_nesterov, optimizer_in(o, SGD | MUON | LARS) && o->optim.momentum > 0,
          "optim.name=sgd, muon or lars, and optim.momentum above 0")
CONDITION(with_betas, optimizer_in(o, ADAM | ADAMW | MUON | LION | LAMB),
          "optim.name=adam, adamw, muon, lion or lamb")
CONDITION(with_eps, !optimizer_in(o, SGD | LION), "an optim.name other than sgd and lion")
CONDITION(with_rmsprop, optimizer_in(o, RMSPROP), "optim.name=rmsprop")
CONDITION(with_lars, optimizer_in(o, LARS), "optim.name=lars")
CONDITION(with_trust_ratio, optimizer_in(o, LAMB | LARS), "optim.name=lamb or lars")
CONDITION(with_muon, optimizer_in(o, MUON), "optim.name=muon")
CONDITION(with_minimum, o->schedule.name == SCHEDULE_COSINE || o->schedule.name == SCHEDULE_PLATEAU,
          "schedule.name=cosine or plateau")
CONDITION(with_step, o->schedule.name == SCHEDULE_STEP, "schedule.name=step")
CONDITION(with_onecycle, o->schedule.name == SCHEDULE_ONECYCLE, "schedule.name=onecycle")
CONDITION(with_plateau, o->schedule.name == SCHEDULE_PLATEAU, "schedule.name=plateau")
CONDITION(with_linear, o->schedule.name == SCHEDULE_LINEAR, "schedule.name=linear")
CONDITION(with_shards, o->mesh.strategy != STRATEGY_DDP, "a mesh.strategy other than ddp")
CONDITION(with_heartbeats, o->mesh.heartbeat_timeout > 0, "mesh.heartbeat_timeout above 0")
CONDITION(with_tensorboard, o->output.tensorboard, "output.tensorboard=on")
CONDITION(with_upload, o->output.upload[0] != '\0', "output.upload")
CONDITION(with_gpu, o->run.backend != BACKEND_CPU, "run.backend=cuda or auto")

/* ---- sections */

#define SECTION(section, text, of_section, condition)                                              \
    static const struct option_section section##_section = {                                       \
        .name = #section, .help = text, .effect = of_section, .applies = condition};
#define OPTION(...)
#define VALUE_ONLY(...)
#define SECTION_END(...)
#include "options/options_list.h"

/* ---- options */

/* True if a text can be a list of periods of time, whose dates begin with years of four digits. */
static bool text_is_period(const char *text)
{
    const char *date = text + (strncmp(text, "..", 2) == 0 ? 2 : 0);
    return strspn(date, "0123456789") >= 4 && text[strspn(text, "0123456789-.:T,")] == '\0';
}

/* 2^53: every whole number up to this one is a double. */
#define LARGEST 9007199254740992.0

#define AUTO(value) .has_automatic = true, .automatic = (value)
#define WORD(constant, text) {constant, text},
#define TEXT(...) .kind = OPTION_IS_TEXT, ##__VA_ARGS__
#define INTEGER(...) .kind = OPTION_IS_INTEGER, ##__VA_ARGS__
#define NUMBER(...) .kind = OPTION_IS_NUMBER, ##__VA_ARGS__
#define SECONDS(...) .kind = OPTION_IS_SECONDS, ##__VA_ARGS__
#define BYTES(...) .kind = OPTION_IS_BYTES, ##__VA_ARGS__
#define SWITCH(...) .kind = OPTION_IS_SWITCH, ##__VA_ARGS__
#define LIST(...) .kind = OPTION_IS_LIST, ##__VA_ARGS__
#define CHOICE(choice, list, ...)                                                                  \
    .kind = OPTION_IS_CHOICE, .choices = (const struct option_choice[]){list(WORD){0, NULL}},      \
    ##__VA_ARGS__
#define SECTION(...)
#define OPTION(group, member, value, facts, text)                                                  \
    {.name = #group "." #member,                                                                   \
     .section = &group##_section,                                                                  \
     .offset = offsetof(struct options, group.member),                                             \
     .preset = (value),                                                                            \
     .help = (text),                                                                               \
     facts},
#define VALUE_ONLY(...)
#define SECTION_END(...)
const struct option_entry option_table[] = {
#include "options/options_list.h"
    {.name = NULL},
};

/* ---- optimizers */

enum { NO, YES };

/* Columns: scope, moment1, moment2, momentum, beta1, beta2, epsilon. Rules that do not
 * read beta1 and beta2 have Adam's values. */
static const struct optimizer_facts optimizers[] = {
    [OPTIMIZER_SGD] = {SCOPE_ELEMENT, NO, NO, YES, 0.9, 0.999, 1e-8},
    [OPTIMIZER_ADAM] = {SCOPE_ELEMENT, YES, YES, NO, 0.9, 0.999, 1e-8},
    [OPTIMIZER_ADAMW] = {SCOPE_ELEMENT, YES, YES, NO, 0.9, 0.999, 1e-8},
    [OPTIMIZER_RMSPROP] = {SCOPE_ELEMENT, NO, YES, YES, 0.9, 0.999, 1e-8},
    [OPTIMIZER_MUON] = {SCOPE_MATRIX, YES, YES, YES, 0.9, 0.95, 1e-7},
    [OPTIMIZER_LION] = {SCOPE_ELEMENT, YES, NO, NO, 0.9, 0.99, 1e-8},
    [OPTIMIZER_LAMB] = {SCOPE_NORMS, YES, YES, NO, 0.9, 0.999, 1e-6},
    [OPTIMIZER_LARS] = {SCOPE_NORMS, NO, NO, YES, 0.9, 0.999, 1e-8},
};

const struct optimizer_facts *optimizer_facts(int name)
{
    ENSURE(name >= 0 && (size_t)name < sizeof optimizers / sizeof optimizers[0],
           "unknown optimizer %d", name);
    return &optimizers[name];
}

/* ---- options of version 0.2, sorted by name */

static const char shards[] = "write tar shards with tar (docs/data.md)";

static const struct removed removed[] = {
    {"augment.mix_switch", "0.5", "with mixup and cutmix, half of the pairs have cutmix"},
    {"bench.collective", "all", "all collectives are measured"},
    {"bench.factor", "8", "sizes grow by a factor of 8 up to bench.max"},
    {"bench.min", "8", "sizes begin at 8 bytes"},
    {"bench.overlap", "off", "see exposed_comm_seconds in metrics.csv"},
    {"bench.quick", "off", "use bench device product:SIDE or attention:BATCH:TOKENS"},
    {"convert.average", "on", "the EMA of the weights is converted if there is one"},
    {"convert.file_size", "0", shards},
    {"convert.kind", "auto", shards},
    {"convert.output", "", shards},
    {"convert.resize_to", "shorter", shards},
    {"convert.shuffle", "off", shards},
    {"convert.size", "0", shards},
    {"data.shuffle_block", "0",
     "raise data.workers if random reads are slow, or copy the shards to a local disk"},
    {"data.truncated", "error", "data.skip_broken=on leaves out truncated image files"},
    {"eval.output", "", "redirect standard output to a file"},
    {"fetch", NULL, "use tools/fetch.sh cifar10, or tools/fetch.sh weights NAME"},
    {"fetch.dir", "data", "use tools/fetch.sh --dir FOLDER"},
    {"fetch.url", "", "use tools/fetch.sh --url URL"},
    {"optim.muon_factors", "quintic", "the coefficients are those of quintic"},
    {"output.csv", "on",
     "metrics.csv is always written; output.monitor=0 switches monitor.csv off"},
    {"output.prometheus", "",
     "use a node exporter; metrics.csv and monitor.csv have the values of a run"},
    {"output.upload_every", "1m", "the run is copied after each checkpoint"},
    {"output.upload_rate", "0", "set RCLONE_BWLIMIT=50M in the environment"},
    {"plan.scaling", "weak",
     "set train.batch for weak scaling, or train.global_batch for strong scaling"},
    {"predict.top", "5", "predict.output=FILE.csv has all classes"},
    {"report.csv", "", "pass it to `vittrain report RUN`"},
    {"report.format", "html", "pass it to `vittrain report RUN`"},
    {"report.output", "", "pass it to `vittrain report RUN`"},
    {"sweep", NULL, "use tools/sweep.py"},
    {"sweep.dir", "", "use tools/sweep.py FOLDER"},
    {"sweep.method", "grid", "use tools/sweep.py --method=METHOD"},
    {"sweep.seed", "42", "use tools/sweep.py --seed=N"},
    {"sweep.slurm", "", "set VITTRAIN_SWEEP and call sbatch --array (docs/tuning.md)"},
    {"sweep.tasks", "4", "set VITTRAIN_SWEEP and call sbatch --array (docs/tuning.md)"},
    {"sweep.trials", "20", "use tools/sweep.py --trials=N"},
    {"upload", NULL, "use rclone copy --links RUN REMOTE:RUN"},
    {NULL, NULL, NULL},
};

const struct removed *removed_find(const char *name)
{
    for (const struct removed *entry = removed; entry->name != NULL; entry++)
        if (strcmp(entry->name, name) == 0)
            return entry;
    return NULL;
}

bool removed_trains(const struct removed *entry)
{
    return strncmp(entry->name, "augment.", strlen("augment.")) == 0 ||
           strncmp(entry->name, "data.", strlen("data.")) == 0 ||
           strncmp(entry->name, "optim.", strlen("optim.")) == 0;
}
