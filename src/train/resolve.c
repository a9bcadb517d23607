// SPDX-License-Identifier: BSD-3-Clause
/* The recipe `photos` is that of timm and torchvision: RandomResizedCrop and a flip for training;
 * for evaluation the shorter side is resized to the model's size divided by the crop fraction, and
 * the centre is cropped (timm.data.create_transform). The recipe `cifar` is that of the CIFAR ViT.
 */
#include "train/session.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "arrays/grid.h"
#include "base/log.h"
#include "checkpoint/model_metadata.h"
#include "data/crop.h"
#include "data/dataset.h"
#include "image/augment.h"
#include "model/model.h"
#include "options/options.h"

enum { PHOTO_MIN_PIXELS = 64 /* pixels: smaller images have the recipe `cifar` */ };
static const double usual_crop_fraction = 0.875;

static bool crop_is_set(enum crop_choice crop)
{
    return crop == CROP_CENTER || crop == CROP_RANDOM;
}

static void list_set(struct option_list *list, const double *values, int64_t channels)
{
    if (list->count > 0)
        return;
    for (int64_t c = 0; c < channels; c++)
        list->value[list->count++] = values[c];
}

static void number_set(double *option, double value)
{
    if (*option < 0)
        *option = value;
}

/* Set a choice that is automatic. */
#define CHOICE_SET(option, automatic, value)                                                       \
    do {                                                                                           \
        if ((option) == (automatic))                                                               \
            (option) = (value);                                                                    \
    } while (0)

/* Evaluate the centre of an image. If the metadata of the weights have a size for the resize, use
 * it in proportion to the size of the model's images; else resize the shorter side. */
static void evaluation_resolve(struct eval_options *eval, const struct model_entry *entry,
                               const struct model_metadata *weights, int64_t image)
{
    const double fraction = entry->crop_fraction > 0 ? entry->crop_fraction : usual_crop_fraction;
    const struct options *trained = weights != NULL ? &weights->options : NULL;
    const bool known = trained != NULL && trained->model.image > 0 && trained->eval.resize > 0 &&
                       trained->eval.crop == CROP_CENTER;
    CHOICE_SET(eval->crop, CROP_AUTO, CROP_CENTER);
    if (eval->crop == CROP_NONE)
        return;
    CHOICE_SET(eval->resize_to, RESIZE_AUTO, known ? trained->eval.resize_to : RESIZE_SHORTER);
    if (eval->resize == 0)
        eval->resize = known ? image * trained->eval.resize / trained->model.image
                             : (int64_t)floor((double)image / fraction);
}

static void normalisation_resolve(struct augment_options *augment, const struct dataset *dataset,
                                  const struct model_entry *entry,
                                  const struct model_metadata *weights)
{
    if (dataset->type == DATASET_FLOAT32 || dataset->channels > OPTION_LIST)
        return; /* session_find_statistics */
    if (weights != NULL && weights->statistics.mean.count == dataset->channels &&
        weights->statistics.std.count == dataset->channels) {
        list_set(&augment->mean, weights->statistics.mean.value, dataset->channels);
        list_set(&augment->std, weights->statistics.std.value, dataset->channels);
    }
    if (augment->recipe == RECIPE_PHOTOS && dataset->channels == 3) {
        list_set(&augment->mean, entry->mean, 3);
        list_set(&augment->std, entry->std, 3);
    }
}

/* float32 values are no photographs. Return false if an option is for photographs only. */
static bool values_check(const struct options *options, struct error *error)
{
    static const char *const names[] = {
        "augment.rand_augment", "augment.brightness", "augment.contrast",     "augment.saturation",
        "augment.hue",          "augment.greyscale",  "augment.three_augment"};
    const struct augment_options *augment = &options->augment;
    if (augment->recipe == RECIPE_PHOTOS)
        return error_set(error, ERROR_USAGE,
                         "augment.recipe=photos is for image files, and the data has float32 "
                         "values: leave it out, or set augment.random_resized_crop=on");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char value[32];
        options_value_text(options, names[i], value, sizeof value);
        if (strcmp(value, "0") != 0 && strcmp(value, "off") != 0)
            return error_set(error, ERROR_USAGE,
                             "%s=%s changes the colors of photographs, and the data has float32 "
                             "values: leave it out",
                             names[i], value);
    }
    return true;
}

/* Weights of rows are those of the stored image. */
static bool rows_check(const struct options *options, struct error *error)
{
    const struct augment_options *augment = &options->augment;
    const char *moves = augment->vflip > 0       ? "augment.vflip"
                        : augment->rot90         ? "augment.rot90"
                        : augment->rotate > 0    ? "augment.rotate"
                        : augment->translate > 0 ? "augment.translate"
                        : augment->roll != ROLL_NONE && augment->roll != ROLL_X ? "augment.roll"
                        : augment->random_resized_crop == SWITCH_ON ? "augment.random_resized_crop"
                                                                    : NULL;
    return moves == NULL || options->train.row_weight == ROW_WEIGHT_NONE ||
           error_set(error, ERROR_USAGE,
                     "%s moves rows of the image, and train.row_weight has a weight for each row: "
                     "leave one of them out",
                     moves);
}

/* Set and check model.pad for images that the patch does not divide. Parts of images are not
 * periodic. */
static bool pad_resolve(struct options *options, const struct dataset *dataset, int64_t width,
                        struct error *error)
{
    const int64_t columns = window_field(dataset).width;
    const bool is_window = window_is_asked_for(options) && width != columns;
    const bool is_part =
        is_window || (!window_is_asked_for(options) && crop_is_active(options, false));
    if (is_window && options->model.pad == PAD_WRAP)
        return error_set(error, ERROR_USAGE,
                         "model.pad=wrap needs all %lld columns, and windows have %lld; set "
                         "model.pad=edge or model.image_width=%lld",
                         (long long)columns, (long long)width, (long long)columns);
    CHOICE_SET(options->model.pad, PAD_AUTO,
               !is_part && dataset->grid != NULL && grid_is_periodic(dataset->grid) ? PAD_WRAP
                                                                                    : PAD_EDGE);
    return true;
}

static bool recipe_resolve(struct options *options, const struct dataset *dataset,
                           const struct model_metadata *weights, struct error *error)
{
    struct augment_options *augment = &options->augment;
    struct model *model = model_open(options, NULL, TYPE_FP32, error);
    if (model == NULL)
        return false;
    const struct model_entry *entry = model->entry;
    const int64_t image = model->image.height, width = model->image.width;
    const bool pads = model->pads;
    model_close(model);
    if (pads && !pad_resolve(options, dataset, width, error))
        return false;
    if (augment->rot90 && image != width)
        return error_set(error, ERROR_USAGE,
                         "augment.rot90=on needs square images, and the model reads %lld x %lld "
                         "pixels: leave it out, or set augment.flip and augment.vflip",
                         (long long)image, (long long)width);
    if (weights != NULL && strcmp(weights->options.model.name, options->model.name) != 0)
        weights = NULL; /* no metadata, or those of another model */
    const bool free_geometry =
        augment->resize == 0 && augment->resize_to == RESIZE_AUTO && augment->crop == CROP_AUTO;
    /* Decks of earlier versions have fixed values and no recipe. */
    const bool evaluates_centre = augment->recipe == RECIPE_PHOTOS || free_geometry;
    const bool values = dataset->type == DATASET_FLOAT32;
    if (values && !values_check(options, error))
        return false;
    if (!rows_check(options, error))
        return false;
    const bool has_planes = dataset->target.height * dataset->target.width > 1;
    if (augment->recipe == RECIPE_AUTO)
        augment->recipe = values || has_planes       ? RECIPE_PLAIN
                          : image < PHOTO_MIN_PIXELS ? RECIPE_CIFAR
                          : dataset->encoded         ? RECIPE_PHOTOS
                                                     : RECIPE_PLAIN;
    const bool photos = augment->recipe == RECIPE_PHOTOS, cifar = augment->recipe == RECIPE_CIFAR;
    number_set(&augment->flip, values ? 0 : 0.5);
    number_set(&augment->rotate, cifar ? 15 : 0);
    number_set(&augment->translate, cifar ? 0.1 : 0);
    number_set(&augment->erase, cifar ? 0.5 : 0);
    CHOICE_SET(augment->random_resized_crop, SWITCH_AUTO,
               photos && free_geometry ? SWITCH_ON : SWITCH_OFF);
    CHOICE_SET(augment->crop, CROP_AUTO, CROP_NONE);
    CHOICE_SET(augment->resize_to, RESIZE_AUTO, RESIZE_SQUARE);
    if (photos && evaluates_centre && augment->random_resized_crop == SWITCH_ON)
        evaluation_resolve(&options->eval, entry, weights, image);
    normalisation_resolve(augment, dataset, entry, weights);
    if (photos && weights != NULL)
        CHOICE_SET(augment->interpolation, INTERPOLATION_AUTO,
                   weights->options.augment.interpolation);
    CHOICE_SET(augment->interpolation, INTERPOLATION_AUTO,
               photos ? entry->interpolation : INTERPOLATION_BILINEAR);
    CHOICE_SET(augment->interpolation, INTERPOLATION_AUTO, INTERPOLATION_BILINEAR);
    return true;
}

/* Set data.task, train.loss and checkpoint.monitor, and check them. */
static bool loss_resolve(struct options *options, const struct dataset *dataset,
                         struct error *error)
{
    char text[32];
    const bool has_labels = dataset->target.count == 0, is_class = dataset->target_is_class;
    if (options->data.task == TASK_CLASSES && !has_labels && !is_class)
        options->data.task = TASK_LABELS;
    if (options->data.task == TASK_LABELS && (has_labels || is_class))
        return error_set(error, ERROR_USAGE,
                         "data.task=labels needs several labels per sample, but the data has one "
                         "class per %s: leave data.task out",
                         has_labels ? "image" : "pixel");
    const bool several = options->data.task == TASK_LABELS;
    const bool is_regression = options->data.task == TASK_REGRESSION;
    const enum train_loss_choice usual = is_regression ? TRAIN_LOSS_SQUARED
                                         : several     ? TRAIN_LOSS_BCE
                                                       : TRAIN_LOSS_CROSS_ENTROPY;
    const char *what = is_regression ? "a regression"
                       : several     ? "several labels of a sample"
                       : is_class    ? "classes of pixels"
                                     : "classes";
    const bool has_metric[] = {
        [MONITOR_TOP1] = !is_regression, [MONITOR_LOSS] = true,   [MONITOR_TOP5] = has_labels,
        [MONITOR_MIOU] = is_class,       [MONITOR_MAP] = several, [MONITOR_NONE] = true};
    CHOICE_SET(options->train.loss, TRAIN_LOSS_AUTO, usual);
    CHOICE_SET(options->checkpoint.monitor, MONITOR_AUTO, has_labels ? MONITOR_TOP1 : MONITOR_LOSS);
    const enum train_loss_choice loss = options->train.loss;
    options_value_text(options, "train.loss", text, sizeof text);
    const bool binary = loss == TRAIN_LOSS_BCE || loss == TRAIN_LOSS_BCE_SUM;
    if (loss != usual && !(binary && (has_labels || several)) &&
        !(is_regression && loss >= TRAIN_LOSS_SQUARED))
        return error_set(error, ERROR_USAGE, "train.loss=%s is not a loss of %s: use %s", text,
                         what,
                         is_regression ? "squared, absolute or huber"
                         : several     ? "bce or bce_sum"
                         : has_labels  ? "cross_entropy, bce or bce_sum"
                                       : "cross_entropy");
    options_value_text(options, "checkpoint.monitor", text, sizeof text);
    if (has_metric[options->checkpoint.monitor])
        return true;
    return error_set(error, ERROR_USAGE,
                     "checkpoint.monitor=%s is not a metric of %s: set loss%s or none", text, what,
                     is_regression ? ""
                     : several     ? ", top1, map"
                     : is_class    ? ", top1, miou"
                                   : ", top1, top5");
}

/* Check options that do not apply to the targets. */
static bool targets_check(const struct options *options, const struct dataset *dataset,
                          struct error *error)
{
    const struct target_shape *target = &dataset->target;
    const struct train_options *train = &options->train;
    const bool has_targets = target->count > 0, has_planes = target->height * target->width > 1;
    const bool is_dense = options->model.head == HEAD_DENSE;
    const bool weighs = loss_weights_are_set(options);
    const bool balances = loss_weights_are_balanced(options);
    const struct {
        bool is_wrong;
        const char *text;
    } rules[] = {
        {has_planes && !is_dense, "data.y has planes of targets: set model.head=dense"},
        {is_dense && !has_planes,
         "model.head=dense predicts planes of several pixels, and the data has none: leave it out"},
        {has_targets && mix_is_asked_for(options), "augment.mixup and augment.cutmix mix single "
                                                   "labels, and the data has other targets: leave "
                                                   "these options out"},
        {has_targets && options->data.balance,
         "data.balance=on needs single labels, and the data has other targets: leave it out"},
        {has_targets && train->label_smoothing > 0,
         "train.label_smoothing changes single labels, and the data has other targets: leave this "
         "option out"},
        {weighs && !has_targets && train->loss != TRAIN_LOSS_CROSS_ENTROPY,
         "train.weights of single labels needs train.loss=cross_entropy: leave one of them out"},
        {balances && has_targets,
         "train.weights=balanced needs single labels, and the data has other targets: set numbers"},
        {balances && options->data.balance,
         "train.weights=balanced and data.balance=on balance the classes twice: set only one of "
         "them"},
        {!has_planes &&
             (train->row_weight != ROW_WEIGHT_NONE || train->ignore_label != IGNORE_NONE),
         "train.row_weight and train.ignore_label need planes of targets (model.head=dense): leave "
         "them out"}};
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].is_wrong)
            return error_set(error, ERROR_USAGE, "%s", rules[i].text);
    if (!weighs)
        return true;
    OWNED float *weights = allocate((size_t)options->model.classes, sizeof *weights);
    return loss_weights_read(options, dataset, weights, error);
}

/* Planes of targets have the size of the images, which are not resized. */
static bool planes_resolve(struct options *options, const struct dataset *dataset,
                           struct error *error)
{
    const struct target_shape *target = &dataset->target;
    if (target->height * target->width <= 1)
        return true;
    if (options->model.image == 0) {
        options->model.image = target->height;
        options->model.image_width = target->width;
    }
    const int64_t height = options->model.image;
    const int64_t width =
        options->model.image_width > 0 ? options->model.image_width : options->model.image;
    if (height != target->height || width != target->width)
        return error_set(error, ERROR_USAGE,
                         "model.image=%lld, but the planes of targets have %lldx%lld pixels, and "
                         "they are not resized: leave model.image and model.image_width out, or "
                         "set augment.crop=random to train on windows of this size",
                         (long long)height, (long long)target->height, (long long)target->width);
    if ((crop_is_active(options, false) && !window_is_asked_for(options)) || options->eval.flip)
        return error_set(error, ERROR_USAGE,
                         "options that resize or crop images, and eval.flip, do not apply to "
                         "planes of targets: leave them out");
    if (options->augment.erase > 0)
        return error_set(error, ERROR_USAGE,
                         "augment.erase=%g does not apply to planes of targets: leave it out",
                         options->augment.erase);
    return true;
}

bool options_resolve(struct options *options, const struct dataset *dataset,
                     const struct model_metadata *weights, struct error *error)
{
    if (options->model.classes == 0)
        options->model.classes = dataset->classes;
    const bool outputs = dataset->target.count > 0 && !dataset->target_is_class;
    if (options->model.classes < dataset->classes ||
        (outputs && options->model.classes != dataset->classes))
        return error_set(
            error, ERROR_USAGE,
            "model.classes=%lld, but the data has %lld %s: leave model.classes out, or "
            "use the data of this model",
            (long long)options->model.classes, (long long)dataset->classes,
            outputs ? "outputs" : "classes");
    /* With a crop, images are cropped to the model's size after the resize. */
    const bool is_resized = options->augment.resize != 0 && !crop_is_set(options->augment.crop);
    if (is_resized && options->model.image == 0)
        options->model.image = options->augment.resize;
    if (is_resized && options->augment.resize != options->model.image)
        return error_set(error, ERROR_USAGE,
                         "augment.resize=%lld and model.image=%lld differ: leave one of them out",
                         (long long)options->augment.resize, (long long)options->model.image);
    /* The channels of float32 records are those of the data, unless the option has a value. */
    if (dataset->type == DATASET_FLOAT32 && options->model.channels == 0) {
        options->model.channels = dataset->channels;
        if (dataset->channels > IMAGE_CHANNELS)
            return error_set(error, ERROR_DATA, "the images have %lld channels, and the most is %d",
                             (long long)dataset->channels, IMAGE_CHANNELS);
    }
    return loss_resolve(options, dataset, error) && targets_check(options, dataset, error) &&
           planes_resolve(options, dataset, error) &&
           recipe_resolve(options, dataset, weights, error);
}

void recipe_log(const struct session *session)
{
    const struct options *options = &session->options;
    const struct eval_options *eval = &options->eval;
    const struct model *model = session->model;
    char recipe[16], interpolation[16], pad[16];
    options_value_text(options, "model.pad", pad, sizeof pad);
    if (model->pads)
        log_info(
            "model.pad=%s: the model pads images of %lldx%lld pixels to multiples of its patch",
            pad, (long long)model->image.height, (long long)model->image.width);
    if (options->data.task == TASK_REGRESSION)
        return;
    options_value_text(options, "augment.recipe", recipe, sizeof recipe);
    options_value_text(options, "augment.interpolation", interpolation, sizeof interpolation);
    log_info("recipe for images: %s, %s interpolation; augment.recipe changes it", recipe,
             interpolation);
    if (eval->crop == CROP_CENTER && eval->resize > 0 && eval->resize < options->model.image)
        log_warn("eval.resize=%lld is less than model.image=%lld, so evaluated images have a "
                 "border: set eval.resize=auto",
                 (long long)eval->resize, (long long)options->model.image);
}
