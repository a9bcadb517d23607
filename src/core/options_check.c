/* Combinations of options that cannot work, as far as they can be known without a model, files or
 * ranks. */
#include "core/options.h"

#include <math.h>
#include <stdbool.h>

static bool check_model(const struct options *options, struct error *error)
{
    const long long dim = options->model.dim, heads = options->model.heads;
    const long long image = options->model.image, patch = options->model.patch;
    if (dim > 0 && heads > 0 && dim % heads != 0)
        return error_set(error, ERROR_USAGE,
                         "model.heads=%lld does not divide model.dim=%lld: change one", heads, dim);
    if (image > 0 && patch > 0 && image % patch != 0)
        return error_set(error, ERROR_USAGE,
                         "model.patch=%lld does not divide model.image=%lld: change one", patch,
                         image);
    if (options->model.pool == POOL_TOKEN && options->model.class_token == SWITCH_OFF)
        return error_set(error, ERROR_USAGE,
                         "model.pool=token needs model.class_token=on, or use model.pool=mean");
    return true;
}

static bool check_crop(const struct options *options, struct error *error)
{
    const struct option_list *scale = &options->augment.crop_scale;
    const struct option_list *ratio = &options->augment.crop_ratio;
    if (scale->value[0] > scale->value[1])
        return error_set(error, ERROR_USAGE,
                         "augment.crop_scale: the first number must not be above the second");
    if (ratio->value[0] > ratio->value[1])
        return error_set(error, ERROR_USAGE,
                         "augment.crop_ratio: the first number must not be above the second");
    if (options->augment.crop != CROP_NONE && options->augment.random_resized_crop)
        return error_set(error, ERROR_USAGE,
                         "augment.random_resized_crop=on is in place of augment.crop: leave one of "
                         "them out");
    if (options->augment.crop != CROP_NONE && options->augment.resize == 0)
        return error_set(error, ERROR_USAGE,
                         "augment.crop needs augment.resize: what images are resized to first");
    if (options->augment.crop == CROP_NONE && options->augment.resize_to == RESIZE_SHORTER)
        return error_set(error, ERROR_USAGE,
                         "augment.resize_to=shorter needs augment.crop=center or random, as the "
                         "model's images are square");
    return true;
}

static bool check_augment(const struct options *options, struct error *error)
{
    const struct option_list *scale = &options->augment.erase_scale;
    const struct option_list *ratio = &options->augment.erase_ratio;
    if (scale->value[0] > scale->value[1])
        return error_set(error, ERROR_USAGE,
                         "augment.erase_scale: the first number must not be above the second");
    if (ratio->value[0] > ratio->value[1])
        return error_set(error, ERROR_USAGE,
                         "augment.erase_ratio: the first number must not be above the second");
    return true;
}

static bool check_length(const struct options *options, struct error *error)
{
    if (options->train.epochs == 0 && options->train.steps == 0)
        return error_set(error, ERROR_USAGE,
                         "train.epochs=0 and train.steps=0: say how long to train");
    if (options->train.global_batch > 0 && options->train.accumulate > options->train.global_batch)
        return error_set(
            error, ERROR_USAGE, "train.accumulate=%lld is more than train.global_batch=%lld",
            (long long)options->train.accumulate, (long long)options->train.global_batch);
    return true;
}

/* Only a power of two can be multiplied and divided by without rounding. */
static bool check_loss_scale(const struct options *options, struct error *error)
{
    int exponent;
    if (frexp(options->train.loss_scale, &exponent) != 0.5)
        return error_set(error, ERROR_USAGE,
                         "train.loss_scale=%.15g is not a power of two; the nearest below is %.15g",
                         options->train.loss_scale, ldexp(1, exponent - 1));
    return true;
}

/* Plateau and early stopping live on evaluations. */
static bool check_evaluations(const struct options *options, struct error *error)
{
    const bool evaluates = options->train.eval_every > 0 && options->data.val != VALIDATION_NONE;
    if (options->schedule.name == SCHEDULE_PLATEAU && !evaluates)
        return error_set(error, ERROR_USAGE,
                         "schedule.name=plateau needs evaluations: train.eval_every above 0 and "
                         "data.val other than none");
    if (options->train.early_stop > 0 && !evaluates)
        return error_set(error, ERROR_USAGE,
                         "train.early_stop needs evaluations: train.eval_every above 0 and "
                         "data.val other than none");
    return true;
}

static bool check_optimizer(const struct options *options, struct error *error)
{
    if (options->optim.nesterov &&
        (options->optim.name != OPTIMIZER_SGD || options->optim.momentum <= 0))
        return error_set(error, ERROR_USAGE,
                         "optim.nesterov=on needs optim.name=sgd and optim.momentum above 0");
    return true;
}

static bool check_find(const struct options *options, struct error *error)
{
    if (options->find.first >= options->find.last)
        return error_set(error, ERROR_USAGE,
                         "find.first=%g is not below find.last=%g: the rate grows from one to the "
                         "other",
                         options->find.first, options->find.last);
    if (options->find.steps == 1)
        return error_set(error, ERROR_USAGE, "find.steps=1: the rate needs two steps to grow");
    return true;
}

static bool check_output(const struct options *options, struct error *error)
{
    if (options->output.prometheus[0] != '\0' && options->output.monitor <= 0)
        return error_set(error, ERROR_USAGE,
                         "output.prometheus is written every output.monitor seconds: give it some");
    if (options->output.monitor > 0 && options->output.monitor < 0.1)
        return error_set(error, ERROR_USAGE,
                         "output.monitor=%g: give at least 0.1 seconds, or 0 for no sensors",
                         options->output.monitor);
    return true;
}

bool options_check(const struct options *options, struct error *error)
{
    return check_model(options, error) && check_crop(options, error) &&
           check_augment(options, error) && check_length(options, error) &&
           check_loss_scale(options, error) && check_evaluations(options, error) &&
           check_optimizer(options, error) && check_find(options, error) &&
           check_output(options, error);
}
