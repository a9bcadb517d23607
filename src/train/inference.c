// SPDX-License-Identifier: BSD-3-Clause
/* Opens a trained model and a split of data. The options are those of the checkpoint's deck, so
 * `eval CHECKPOINT` needs no others. */
#include "train/inference.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrays/arrays.h"
#include "base/base.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint_file.h"
#include "checkpoint/model_metadata.h"
#include "model/model.h"
#include "options/options.h"

/* If a relative data.root of a deck does not exist here, search it from the folders above the
 * checkpoint: commands may run in another folder than the training. */
static void root_find(const char *checkpoint, char root[OPTION_TEXT])
{
    char folder[PATH_MAX], path[PATH_MAX + OPTION_TEXT];
    if (root[0] == '\0' || root[0] == '/' || access(root, F_OK) == 0 ||
        realpath(checkpoint, folder) == NULL)
        return;
    for (char *slash; (slash = strrchr(folder, '/')) != NULL;) {
        *slash = '\0';
        const int length = snprintf(path, sizeof path, "%s/%s", folder, root);
        if (access(path, F_OK) == 0 && length < OPTION_TEXT) {
            memcpy(root, path, (size_t)length + 1);
            log_info("data.root=%s, which the run names relative to its folder", root);
            return;
        }
    }
}

/* Set the options from the file's deck or metadata, and then from the command line. Section mesh of
 * a deck is not used, because the ranks are not those of the training run. reads_files: the input
 * is image files, to which the options of image folders apply. */
static bool options_read(struct inference *inference, const char *weights, bool reads_files,
                         const struct command_line *line, struct comm *world, struct error *error)
{
    struct options *options = &inference->session.options;
    const char *architecture = inference->metadata.options.model.name;
    if (!model_metadata_read(weights, world, &inference->metadata, error))
        return false;
    struct options defaults;
    options_default(&defaults);
    if (text_ends_with(weights, ".safetensors")) {
        model_metadata_apply(&inference->metadata, options);
    } else {
        struct checkpoint_contents contents;
        if (checkpoint_contents_read(weights, world, 0, &contents, error)) {
            *options = defaults;
            error_defer(checkpoint_deck_parse(contents.text[TEXT_DECK], weights, options, error));
            options->mesh = defaults.mesh;
            root_find(weights, options->data.root);
        }
        checkpoint_contents_free(&contents);
        if (!comm_agree(world, error))
            return false;
    }
    const int64_t global_batch = options->train.global_batch;
    error_defer(options_apply(line, options, error));
    if (reads_files && strcmp(options->data.format, "arrays") != 0)
        snprintf(options->data.format, sizeof options->data.format, "imagefolder");
    /* train.batch clears the global batch, but the size of a grain depends on that of the run. */
    if (options->train.exact == EXACT_LAYOUT && options->train.global_batch == 0)
        options->train.global_batch = global_batch;
    if (error->kind == ERROR_NONE && options_check_line(line, options, error) &&
        model_metadata_check(&inference->metadata, weights, options, false, error) &&
        architecture[0] != '\0' && registry_find(architecture) == NULL &&
        strcmp(options->model.name, defaults.model.name) == 0)
        error_set(error, ERROR_USAGE,
                  "%s contains weights of %s, which is not a model of this program (vittrain "
                  "--list-models); set model.name to one with the same tensors",
                  weights, architecture);
    return comm_agree(world, error);
}

/* Warn if the classes of the weights differ from those of the data. Without data in the options,
 * the data are the sample of CIFAR-10, and the difference is an error. */
static bool names_compare(const struct inference *inference, struct error *error)
{
    const struct dataset *dataset = &inference->session.validation.dataset;
    const struct model_metadata *metadata = &inference->metadata;
    const struct data_options *data = &inference->session.options.data;
    int64_t i = 0;
    if (metadata->class_count == 0 || dataset->class_name == NULL)
        return true;
    while (i < dataset->classes && i < metadata->class_count &&
           strcmp(dataset->class_name[i], metadata->class_name[i]) == 0)
        i++;
    if (i == dataset->classes && i == metadata->class_count)
        return true;
    if (data->root[0] == '\0' && strcmp(data->format, "cifar10") == 0)
        return error_set(error, ERROR_USAGE,
                         "no data are given, and the weights are not for the classes of the "
                         "sample of CIFAR-10 (class 0 is \"%s\"); set data.format and data.root, "
                         "or name image files for predict",
                         metadata->class_name[0]);
    if (i < dataset->classes && i < metadata->class_count) {
        struct error difference = {0}; /* error_set replaces control characters */
        error_set(&difference, ERROR_DATA,
                  "class %lld is \"%s\" in the data, but \"%s\" in the weights; set data.format "
                  "and data.root to data with the classes of the training run",
                  (long long)i, dataset->class_name[i], metadata->class_name[i]);
        log_warn("%s", difference.text);
    }
    return true;
}

/* The data set takes the names of classes from the metadata, if they are those of the model. */
static void names_set(struct inference *inference)
{
    struct model_metadata *metadata = &inference->metadata;
    struct dataset *dataset = &inference->session.validation.dataset;
    const int64_t classes = inference->session.options.model.classes;
    if (metadata->class_count == 0 || (classes != 0 && classes != metadata->class_count))
        return;
    dataset->class_name = metadata->class_name;
    dataset->classes = metadata->class_count;
    metadata->class_name = NULL;
    metadata->class_count = 0;
}

/* Files without data.y: set the targets that the model predicts. They are missing in all samples.
 */
static bool targets_assume(struct inference *inference, struct error *error)
{
    const struct options *options = &inference->session.options;
    const struct model_metadata *metadata = &inference->metadata;
    struct dataset *dataset = &inference->session.validation.dataset;
    const bool is_dense = options->model.head == HEAD_DENSE;
    const bool is_regression = options->data.task == TASK_REGRESSION;
    const bool is_single = !is_dense && options->data.task == TASK_CLASSES;
    const int64_t outputs = is_regression                ? metadata->statistics.target_mean.count
                            : options->model.classes > 0 ? options->model.classes
                                                         : metadata->class_count;
    dataset->classes = outputs;
    dataset->target_is_class = is_dense && !is_regression;
    dataset->target_normalised = is_regression;
    if (!is_single)
        dataset->target = (struct target_shape){.count = dataset->target_is_class ? 1 : outputs,
                                                .height = is_dense ? dataset->height : 1,
                                                .width = is_dense ? dataset->width : 1};
    const struct arrays *arrays = arrays_of(dataset);
    if (arrays == NULL || !is_regression)
        return true;
    for (int v = 0; arrays->y_count > 1 && arrays->y_count != outputs && v < arrays->y_count; v++)
        if (arrays->y[v].transform != TRANSFORM_NONE)
            return error_set(error, ERROR_DATA,
                             "the files do not have data.y, so the outputs to which "
                             "data.transform=%s applies are not known: add data.y",
                             options->data.transform);
    variables_list_transforms(arrays->y, arrays->y_count, outputs, dataset->target_transform);
    return true;
}

/* Open files of arrays, which replace data.root. All of their records are predicted. */
static bool arrays_open(struct inference *inference, const char *const *files, int count,
                        struct comm *world, struct error *error)
{
    struct options *options = &inference->session.options;
    struct split_loader *feed = &inference->session.validation;
    size_t used = 0;
    for (int n = 0; n < count && used < sizeof options->data.root; n++)
        used += (size_t)snprintf(options->data.root + used, sizeof options->data.root - used,
                                 "%s%s", n > 0 ? "::" : "", files[n]);
    if (used >= sizeof options->data.root)
        return error_set(error, ERROR_USAGE,
                         "the names of the files have more than %zu characters: name their folder "
                         "or predict them one after another",
                         sizeof options->data.root - 1);
    options->debug.batches = 0;
    options->debug.fraction = 1;
    if (!split_loader_open(feed, options, SPLIT_ALL, NULL, 0, world, error))
        return false;
    snprintf(inference->split_name, sizeof inference->split_name, "all");
    if (!feed->dataset.unlabelled)
        return names_compare(inference, error);
    if (!targets_assume(inference, error))
        return false;
    feed->source = split_loader_source(options, &feed->dataset);
    names_set(inference);
    return true;
}

/* Open the files, or the split predict.split. Without test images, the test split is the held-out
 * part of the training images, on which the run chose its best checkpoint. */
static bool data_open(struct inference *inference, const char *const *files, int count,
                      struct comm *world, struct error *error)
{
    struct options *options = &inference->session.options;
    struct split_loader *feed = &inference->session.validation;
    if (count > 0 && strcmp(options->data.format, "arrays") == 0)
        return arrays_open(inference, files, count, world, error);
    if (count > 0)
        options->debug.batches = 0;
    else if (options->predict.split == SPLIT_TRAIN && window_is_tiled(options, SPLIT_ALL))
        return error_set(error, ERROR_USAGE,
                         "predict.split=train: training samples are windows of fields; name the "
                         "files, which are predicted whole");
    if (!split_loader_open(feed, options, options->predict.split, files, count, world, error))
        return false;
    if (count > 0) {
        options->train.batch = smaller(options->train.batch, feed->dataset.count);
        names_set(inference);
        return true;
    }
    if (options->predict.split == SPLIT_TEST && feed->dataset.held_out)
        options->predict.split = SPLIT_VALIDATION;
    options_value_text(options, "predict.split", inference->split_name,
                       sizeof inference->split_name);
    inference->chose_best = options->predict.split == SPLIT_VALIDATION &&
                            options_hold_out(options) &&
                            options->checkpoint.monitor != MONITOR_NONE;
    return names_compare(inference, error);
}

/* Compare the shape and the grid of arrays with those of the model; planes are not resized. */
static bool arrays_compare(struct inference *inference, const char *weights, struct error *error)
{
    struct dataset *dataset = &inference->session.validation.dataset;
    const struct model_options *model = &inference->session.options.model;
    const struct image_size field = window_field(dataset);
    const int64_t width = model->image_width > 0 ? model->image_width : model->image;
    const struct arrays *arrays = arrays_of(dataset);
    char size[64] = "";
    const bool has_channels = model->channels == 0 || dataset->channels == model->channels;
    const bool has_size = model->image == 0 ||
                          dataset->target.height * dataset->target.width <= 1 ||
                          (dataset->height == model->image && dataset->width == width);
    if (arrays == NULL)
        return true;
    if (has_channels && has_size)
        return arrays_check_grid(dataset, inference->metadata.grid, weights, error);
    if (model->image > 0)
        snprintf(size, sizeof size, " of %lldx%lld pixels", (long long)model->image,
                 (long long)width);
    return error_set(error, ERROR_DATA,
                     "%s has images of %lld channels of %lldx%lld pixels, and the model of %s "
                     "reads %lld channels%s: use data of this shape%s",
                     arrays->grid.path, (long long)dataset->channels, (long long)field.height,
                     (long long)field.width, weights, (long long)model->channels, size,
                     has_channels ? "" : ", or set data.order");
}

/* Takes the statistics and the row weights with which the model was trained. */
static bool statistics_set(struct inference *inference, const char *weights, struct error *error)
{
    struct session *session = &inference->session;
    struct dataset *dataset = &session->validation.dataset;
    const struct model_metadata *metadata = &inference->metadata;
    const bool has_rows = session->options.train.row_weight != ROW_WEIGHT_NONE;
    const int64_t rows = window_field(dataset).height;
    if (has_rows && metadata->rows != rows)
        return error_set(error, ERROR_USAGE,
                         "train.row_weight=latitude: %s has weights of %lld rows, and the images "
                         "have %lld; set train.row_weight=none",
                         weights, (long long)metadata->rows, (long long)rows);
    split_loader_use_row_weights(&session->validation, has_rows ? metadata->row_weights : NULL);
    if (!session_needs_statistics(session, dataset))
        return true;
    const struct value_statistics *statistics = &metadata->statistics;
    if (statistics->mean.count == 0 || statistics->std.count == 0 ||
        (dataset->target_normalised && statistics->target_mean.count != dataset->target.count))
        return error_set(error, ERROR_CHECKPOINT,
                         "%s has no mean and standard deviation of float32 values: set "
                         "augment.mean and augment.std to those of the training samples",
                         weights);
    return session_use_statistics(session, dataset, statistics, error);
}

/* Opens the model for the open data set, and reads the weights. */
static bool model_prepare(struct inference *inference, const char *weights, struct error *error)
{
    struct session *session = &inference->session;
    struct flat_model *flat = &session->flat;
    error_defer(arrays_compare(inference, weights, error));
    if (!comm_agree(session->world, error) || !session_open_model(session, false, NULL, error) ||
        !statistics_set(inference, weights, error))
        return false;
    recipe_log(session);
    if (!session_start(session, error))
        return false;
    flat_initialize(flat, (uint64_t)session->options.run.seed);
    if (!session_read_weights(session, weights, false, error))
        return false;
    flat_swap_average(flat);
    flat_refresh(flat);
    return true;
}

bool inference_open(struct inference *inference, const char *weights, const char *const *files,
                    int count, const struct options *options, const struct command_line *line,
                    struct comm *world, struct error *error)
{
    char path[WEIGHTS_PATH];
    memset(inference, 0, sizeof *inference);
    inference->session.options = *options;
    inference->session.world = world;
    inference->session.validates = true;
    if (weights_file_find(weights, false, world, path, error) &&
        options_read(inference, path, count > 0, line, world, error) &&
        data_open(inference, files, count, world, error) && model_prepare(inference, path, error))
        return true;
    inference_close(inference);
    return false;
}

bool inference_check(const struct inference *inference, double number, struct error *error)
{
    return isfinite(number) ||
           error_set(error, ERROR_NUMERIC,
                     "the output of %s is NaN or infinity: the weights are damaged, or their "
                     "numbers are too large; use other weights or train.precision=fp32",
                     inference->session.options.model.name);
}

void inference_close(struct inference *inference)
{
    session_close(&inference->session);
    model_metadata_free(&inference->metadata);
}
