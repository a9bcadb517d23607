// SPDX-License-Identifier: BSD-3-Clause
/* Opens data, model and memory in the order in which they depend on each other. */
#include "train/run.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/model_metadata.h"
#include "checkpoint/weights_file.h"
#include "config/phase.h"
#include "core/base.h"
#include "core/log.h"
#include "core/status.h"
#include "data/grid.h"

bool run_reads_weights(const struct options *options)
{
    return strcmp(options->model.init, "none") != 0 && options->model.init[0] != '\0';
}

/* Check that records of both splits have the same shape, and that labels mean the same classes. A
 * split whose classes have no names has their numbers. */
static bool splits_agree(const struct run *run, const struct data_feed *evaluated,
                         struct error *error)
{
    const struct dataset *train = &run->train.dataset, *validation = &evaluated->dataset;
    const struct image_source *is = &evaluated->source, *was = &run->train.source;
    if (is->type != was->type || is->channels != was->channels ||
        is->height * is->width > was->height * was->width || /* others are resized */
        is->target.count != was->target.count || is->target.height != was->target.height ||
        is->target.width != was->target.width)
        return error_set(error, ERROR_DATA,
                         "the samples for evaluation have %lldx%lldx%lld values and %lldx%lldx%lld "
                         "targets, those for training %lldx%lldx%lld and %lldx%lldx%lld: set "
                         "data.root to data whose splits have the same shape",
                         (long long)is->channels, (long long)is->height, (long long)is->width,
                         (long long)is->target.count, (long long)is->target.height,
                         (long long)is->target.width, (long long)was->channels,
                         (long long)was->height, (long long)was->width,
                         (long long)was->target.count, (long long)was->target.height,
                         (long long)was->target.width);
    if (train->grid != NULL && validation->grid != NULL &&
        !grid_compare(train->grid, validation->grid, error))
        return false;
    const int64_t classes = larger(train->classes, run->options.model.classes);
    char number[24];
    if (validation->classes > classes)
        return error_set(error, ERROR_DATA,
                         "the samples for evaluation have labels up to %lld, but training has only "
                         "%lld classes: set data.root to data whose splits have the same classes",
                         (long long)validation->classes - 1, (long long)classes);
    if (validation->class_name == NULL || train->class_name == NULL)
        return true;
    for (int64_t c = 0; c < smaller(train->classes, validation->classes); c++) {
        snprintf(number, sizeof number, "%lld", (long long)c);
        if (strcmp(validation->class_name[c], number) != 0 &&
            strcmp(train->class_name[c], number) != 0 &&
            strcmp(validation->class_name[c], train->class_name[c]) != 0)
            return error_set(error, ERROR_DATA,
                             "class %lld is '%s' in the samples for evaluation and '%s' in those "
                             "for training: give both the same names",
                             (long long)c, validation->class_name[c], train->class_name[c]);
    }
    return true;
}

bool run_open_split(struct run *run, enum data_split split, struct data_feed *feed,
                    struct error *error)
{
    if (!feed_open(feed, &run->options, split, run->world, error))
        return false;
    if (splits_agree(run, feed, error) &&
        dataset_copy_origins(&feed->dataset, &run->train.dataset, error))
        feed_use_row_weights(feed, run->train.dataset.row_weights);
    return comm_agree(run->world, error);
}

bool run_open(struct run *run, const struct options *options, struct comm *world,
              struct error *error)
{
    struct model_metadata weights;
    char path[WEIGHTS_PATH];
    *run = (struct run){
        .world = world, .options = *options, .validates = options->data.val != VALIDATION_NONE};
    status_set_phase(PHASE_DATA_OPEN);
    if (!feed_open(&run->train, &run->options, SPLIT_TRAIN, world, error) ||
        (run->validates && !run_open_split(run, SPLIT_VALIDATION, &run->validation, error)))
        return false;
    weights = (struct model_metadata){.class_count = 0};
    if (run_reads_weights(options) &&
        weights_file_find(options->model.init, true, world, path, error)) {
        /* A run that is resumed does not need the file. */
        int64_t there = access(path, R_OK) == 0;
        comm_broadcast(world, &there, 1, COMM_INT64, 0);
        if (there == 0 || model_metadata_read(path, world, &weights, error))
            error_defer(model_metadata_check(&weights, options->model.init, options, true, error));
    }
    const bool good = run_open_model(run, true, &weights, error);
    model_metadata_free(&weights);
    return good;
}

bool run_open_model(struct run *run, bool training, const struct model_metadata *weights,
                    struct error *error)
{
    const struct data_feed *feed = training ? &run->train : &run->validation;
    if (error->kind == ERROR_NONE)
        error_defer(options_resolve(&run->options, &feed->dataset, weights, error));
    if (!comm_agree(run->world, error))
        return false;
    run->global_batch = feed_global_batch(&run->options, run->world->size);
    if (!session_open(&run->session, &run->options, run->world, training, error))
        return false;
    if (feed->dataset.target.count > 0)
        run->session.model->loss = LOSS_TARGETS;
    return true;
}

bool run_needs_statistics(const struct run *run, const struct dataset *dataset)
{
    const struct augment_options *augment = &run->options.augment;
    return (dataset->type == DATASET_FLOAT32 || dataset->channels > OPTION_LIST) &&
           (augment->mean.count == 0 || augment->std.count == 0 || dataset->target_normalised);
}

bool run_use_statistics(struct run *run, struct dataset *dataset,
                        const struct value_statistics *statistics, struct error *error)
{
    struct dataset *validation = &run->validation.dataset;
    run->session.model->statistics = *statistics;
    error_defer(dataset_set_origins(dataset, statistics, error) &&
                (!run->validates || dataset == validation ||
                 dataset_copy_origins(validation, dataset, error)) &&
                session_set_normalisation(&run->session, dataset, error));
    return comm_agree(run->world, error);
}

/* The statistics of uint8 records are those of the data set, if it has them. */
bool run_find_statistics(struct run *run, struct error *error)
{
    struct dataset *dataset = &run->train.dataset;
    struct value_statistics statistics = {.mean = {.count = 0}};
    if (!run_needs_statistics(run, dataset))
        return true;
    if (dataset->type == DATASET_FLOAT32) {
        status_set_phase(PHASE_DATA_OPEN);
        if (!statistics_compute(dataset, run->world, (int)run->options.data.workers, &statistics,
                                error))
            return false;
        if (statistics.mean.count == 0) /* a signal requests the end */
            return true;
    } else if (dataset->mean != NULL) {
        statistics.mean.count = statistics.std.count = (int)dataset->channels;
        memcpy(statistics.mean.value, dataset->mean, (size_t)dataset->channels * sizeof(double));
        memcpy(statistics.std.value, dataset->std, (size_t)dataset->channels * sizeof(double));
    }
    return run_use_statistics(run, dataset, &statistics, error);
}

bool run_start(struct run *run, struct error *error)
{
    const struct options *options = &run->options;
    struct session *session = &run->session;
    struct comm *world = run->world;
    const struct image_size image = session->model->image;
    const bool training = session->flat.training;
    const struct data_feed *feed = training ? &run->train : &run->validation;
    int64_t batch =
        training ? feed_pass_samples(options, run->global_batch, world->size, session->accumulate)
                 : round_up(options->train.batch, larger(1, session->grain));
    if (training && options->data.drop_last && run->train.dataset.count < run->global_batch)
        return error_set(error, ERROR_USAGE,
                         "the global batch of %lld is larger than the %lld samples and "
                         "data.drop_last=on leaves none: use a smaller batch",
                         (long long)run->global_batch, (long long)run->train.dataset.count);
    if (!session_allocate(session, batch, &feed->source, training, error) ||
        (training && !feed_start(&run->train, options, world, session->device, run->global_batch,
                                 session->accumulate, image, error)) ||
        (run->validates && !feed_start_evaluation(&run->validation, options, world, session->device,
                                                  batch, image, error)))
        return false;
    if (!training)
        return true;
    optimizer_open(&run->optimizer, options);
    flat_set_segments(&session->flat, options->optim.weight_decay, session->accumulate);
    step_open(&run->step, session, &run->train, &run->optimizer);
    return true;
}

bool run_initialize(struct run *run, struct error *error)
{
    const char *init = run->options.model.init;
    char path[WEIGHTS_PATH];
    if (!run_find_statistics(run, error))
        return false;
    status_set_phase(PHASE_WEIGHTS_READ);
    flat_initialize(&run->session.flat, (uint64_t)run->options.run.seed);
    if (!run_reads_weights(&run->options))
        return true;
    if (!weights_file_find(init, true, run->world, path, error))
        return false;
    if (run->world->rank == 0)
        error_defer(weights_file_exists("model.init: ", path, error));
    if (!comm_agree(run->world, error))
        return false;
    log_info("weights: from %s", path);
    return session_read_weights(&run->session, path, true, error);
}

void run_close(struct run *run)
{
    step_close(&run->step);
    feed_close(&run->train);
    feed_close(&run->validation);
    session_close(&run->session);
}
