// SPDX-License-Identifier: BSD-3-Clause
/* Evaluation: the ranks divide a split without padding; one all-reduce sums their counts. */
#include "train/evaluate.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/status.h"
#include "options/phase.h"
#include "train/step.h"

/* ---- metrics of samples that have targets: errors of a regression, pixels of a segmentation,
 * labels that do not exclude each other. They are integers and exact sums, so they do not depend on
 * the number of ranks. */

struct target_metrics {
    const struct session *session;
    const struct dataset *dataset;
    struct exact_sum *sums;       /* regression: [outputs, OUTPUT_SUMS]; else NULL */
    int64_t *confusion;           /* segmentation: [threads, classes, classes]; else NULL */
    struct sample_counts samples; /* of labels */
    float *scores;                /* labels: [classes, most], by label_score; else NULL */
    int64_t most;                 /* largest number of samples of a rank */
    int64_t count;                /* samples added so far */
};

static int64_t plane_of(const struct model *model)
{
    return model->output.height * model->output.width;
}

/* Allocate the counts and set the evaluation's classes or outputs. The records of the split must
 * have targets. Not collective. */
static bool target_metrics_open(struct target_metrics *metrics, const struct session *session,
                                const struct split_loader *feed, struct evaluation *evaluation,
                                struct error *error)
{
    const int64_t outputs = session->model->classes;
    const bool is_regression = session->options.data.task == TASK_REGRESSION;
    const size_t count = (size_t)outputs;
    bool good;
    *metrics = (struct target_metrics){.session = session, .dataset = &feed->dataset};
    evaluation->classes = is_regression ? 0 : outputs;
    evaluation->outputs = is_regression ? outputs : 0;
    if (is_regression) {
        evaluation->errors = calloc(count, sizeof *evaluation->errors);
        metrics->sums = calloc(count * OUTPUT_SUMS, sizeof *metrics->sums);
        good = evaluation->errors != NULL && metrics->sums != NULL;
    } else if (!feed->dataset.target_is_class) {
        metrics->most = sampler_steps(&feed->sampler) *
                        round_up_division(feed->sampler.global_batch, session->world->size);
        metrics->scores = malloc(count * (size_t)metrics->most * sizeof *metrics->scores);
        evaluation->labels = calloc(count, sizeof *evaluation->labels);
        evaluation->average_precision = calloc(count, sizeof *evaluation->average_precision);
        good = metrics->scores != NULL && evaluation->labels != NULL &&
               evaluation->average_precision != NULL;
        for (int64_t i = 0; metrics->scores != NULL && i < outputs * metrics->most; i++)
            metrics->scores[i] = NAN;
    } else {
        metrics->confusion = calloc((size_t)(session->limits.threads * outputs * outputs),
                                    sizeof *metrics->confusion);
        good = metrics->confusion != NULL;
    }
    return good || error_set(error, ERROR_MEMORY, "no memory for the metrics of %lld outputs",
                             (long long)outputs);
}

static void errors_add(struct target_metrics *metrics, const struct batch *batch,
                       const float *predictions)
{
    const struct session *session = metrics->session;
    const struct model *model = session->model;
    const int64_t outputs = model->classes, plane = plane_of(model);
#pragma omp parallel for schedule(static) num_threads(session->limits.threads)
    for (int64_t i = 0; i < batch->count * outputs; i++) {
        const int64_t sample = i / outputs, output = i % outputs;
        float mean = session->input.target_mean[output];
        value_transform_undo((enum value_transform)metrics->dataset->target_transform[output],
                             &mean, 1);
        const struct output_plane args = {
            .height = model->output.height,
            .width = model->output.width,
            .mean = (double)mean,
            .predictions = predictions + i * plane,
            .targets = batch_targets(batch, sample) + output * plane,
            .persistence = batch_persistence(batch, metrics->dataset, sample, output),
            .row_weights = metrics->dataset->row_weights};
        output_sums_add(&metrics->sums[output * OUTPUT_SUMS], &args);
    }
}

/* Add a batch. predictions: [batch->count, outputs, height, width]; those of a regression are in
 * the units of the targets. */
static void target_metrics_add(struct target_metrics *metrics, struct evaluation *evaluation,
                               const struct batch *batch, const float *predictions)
{
    const struct session *session = metrics->session;
    const int64_t outputs = session->model->classes, plane = plane_of(session->model);
    if (metrics->sums != NULL)
        errors_add(metrics, batch, predictions);
    if (metrics->confusion != NULL) {
#pragma omp parallel for schedule(static) num_threads(session->limits.threads)
        for (int64_t i = 0; i < batch->count; i++)
            confusion_add_pixels(metrics->confusion + omp_get_thread_num() * outputs * outputs,
                                 outputs, predictions + i * outputs * plane,
                                 batch_targets(batch, i), plane);
    }
    for (int64_t i = 0; metrics->scores != NULL && i < batch->count; i++) {
        const float *targets = batch_targets(batch, i), *sample = predictions + i * outputs;
        class_counts_add(evaluation->labels, &metrics->samples, outputs, sample, targets);
        for (int64_t c = 0; c < outputs; c++)
            metrics->scores[c * metrics->most + metrics->count] =
                label_score(sample[c], targets[c]);
        metrics->count++;
    }
}

/* Set the confusion matrix of all ranks and threads, the pixel accuracy and the mean IoU. */
static void pixels_reduce(struct target_metrics *metrics, struct evaluation *evaluation)
{
    const struct session *session = metrics->session;
    const int64_t classes = evaluation->classes, cells = classes * classes;
    struct class_metrics macro;
    int64_t right = 0;
    for (int64_t i = 0; i < session->limits.threads * cells; i++)
        evaluation->confusion[i % cells] += metrics->confusion[i];
    comm_all_reduce(session->world, evaluation->confusion, cells, COMM_INT64, COMM_SUM);
    for (int64_t i = 0; i < cells; i++) {
        evaluation->pixels += evaluation->confusion[i];
        right += i / classes == i % classes ? evaluation->confusion[i] : 0;
    }
    evaluation_macro(evaluation, &macro);
    evaluation->top1 = (double)right / (double)evaluation->pixels;
    evaluation->miou = macro.iou;
}

/* Set the average precisions. Each rank computes those of a part of the labels, from the scores of
 * all samples. */
static void average_precisions_reduce(struct target_metrics *metrics, struct evaluation *evaluation)
{
    struct comm *world = metrics->session->world;
    const int64_t most = metrics->most, classes = evaluation->classes;
    const size_t bytes = (size_t)most * sizeof(float);
    float *all = allocate((size_t)world->size, bytes);
    struct class_metrics macro;
    for (int64_t c = 0; c < classes; c++) {
        memcpy(all + world->rank * most, metrics->scores + c * most, bytes);
        comm_all_gather(world, all, most, COMM_FP32);
        if (c % world->size == world->rank)
            evaluation->average_precision[c] = average_precision(all, world->size * most);
    }
    comm_all_reduce(world, evaluation->average_precision, classes, COMM_FP64, COMM_SUM);
    evaluation_macro(evaluation, &macro);
    evaluation->map = macro.average_precision;
    free(all);
}

/* Set the metrics of the evaluation. Collective. */
static void target_metrics_reduce(struct target_metrics *metrics, struct evaluation *evaluation)
{
    struct comm *world = metrics->session->world;
    if (metrics->confusion != NULL)
        pixels_reduce(metrics, evaluation);
    if (evaluation->labels != NULL) {
        comm_all_reduce(world, evaluation->labels,
                        evaluation->classes * (int64_t)sizeof *evaluation->labels / 8, COMM_INT64,
                        COMM_SUM);
        comm_all_reduce(world, &metrics->samples, sizeof metrics->samples / 8, COMM_INT64,
                        COMM_SUM);
        evaluation->top1 = (double)metrics->samples.right / (double)metrics->samples.counted;
        average_precisions_reduce(metrics, evaluation);
    }
    if (metrics->sums != NULL)
        comm_all_reduce(world, metrics->sums,
                        evaluation->outputs * OUTPUT_SUMS * (int64_t)sizeof *metrics->sums / 8,
                        COMM_INT64, COMM_SUM);
    for (int64_t i = 0; metrics->sums != NULL && i < evaluation->outputs; i++)
        evaluation->errors[i] = output_errors_of(&metrics->sums[i * OUTPUT_SUMS]);
}

/* ---- passes */

/* Runs the forward pass of the samples in the session's input. With train.exact=layout, they are
 * whole grains. Grain numbers start at 0, because no gradients are added. */
static void logits_compute(struct session *session, const struct model_pass *pass)
{
    if (session->grains != NULL)
        grains_begin(session->grains, 0, pass->batch, pass->batch);
    step_forward(session, pass);
    if (session->grains != NULL)
        grains_end(session->grains);
}

/* Runs the forward pass of the mirrored batch and replaces the logits by the mean of both passes.
 */
static void mirror_evaluate(struct session *session, struct split_loader *feed, struct batch *batch,
                            const struct model_pass *pass)
{
    const struct device_backend *backend = session->device->backend;
    const int64_t outputs = model_output_count(session->model);
    const size_t bytes = (size_t)(batch->count * outputs) * type_size(session->compute);
    backend->copy(session->stream, session->unflipped_logits, session->logits, bytes);
    batch_upload_mirror(&session->input, session->stream, batch, &feed->source);
    logits_compute(session, pass);
    const struct matrix_sum mean = {.type = session->compute,
                                    .rows = batch->count,
                                    .width = outputs,
                                    .x = session->logits,
                                    .z = session->unflipped_logits,
                                    .x_factor = 0.5f,
                                    .z_factor = 0.5f,
                                    .y = session->logits};
    backend->matrix_sum(session->stream, &mean);
}

/* Converts the outputs of a regression from normalised values to the units of the data. */
static void outputs_scale(const struct session *session, const struct dataset *dataset,
                          int64_t count, float *outputs)
{
    const struct model *model = session->model;
    const int64_t plane = plane_of(model);
    for (int64_t i = 0; i < count * model->classes; i++) {
        const float std = session->input.target_std[i % model->classes];
        const float mean = session->input.target_mean[i % model->classes];
        for (int64_t p = 0; p < plane; p++)
            outputs[i * plane + p] = outputs[i * plane + p] * std + mean;
        value_transform_undo((enum value_transform)dataset->target_transform[i % model->classes],
                             outputs + i * plane, plane);
    }
}

/* Undoes data.transform in the targets of a batch, and in its pixels if the targets are planes. */
static void batch_undo(const struct dataset *dataset, struct batch *batch)
{
    const int64_t plane = dataset->target.height * dataset->target.width;
    for (int64_t i = 0; i < batch->count; i++) {
        uint8_t *record = batch->pixels + i * batch->record_bytes;
        float *pixels = (float *)(void *)record;
        float *targets = (float *)(void *)(record + batch->target_offset);
        for (int64_t c = 0; plane > 1 && c < dataset->channels; c++)
            value_transform_undo((enum value_transform)dataset->channel_transform[c],
                                 pixels + c * plane, plane);
        for (int64_t t = 0; t < dataset->target.count; t++)
            value_transform_undo((enum value_transform)dataset->target_transform[t],
                                 targets + t * plane, plane);
    }
}

/* Runs the forward pass of a batch. predicted, probabilities (or NULL; the outputs of a
 * regression): host memory. */
static void batch_evaluate(struct session *session, struct split_loader *feed, struct batch *batch,
                           int32_t *predicted, float *probabilities)
{
    const struct device_backend *backend = session->device->backend;
    batch_upload_start(&session->input, session->stream, batch, &feed->source, false, NULL);
    struct model_pass pass = session_pass(session, batch->count, false);
    logits_compute(session, &pass);
    if (session->unflipped_logits != NULL)
        mirror_evaluate(session, feed, batch, &pass);
    step_loss(session, batch->count, 1, false,
              probabilities != NULL ? session->probabilities : NULL);
    const size_t count = (size_t)batch->count;
    const size_t outputs = (size_t)model_output_count(session->model);
    if (session->model->loss == LOSS_CROSS_ENTROPY)
        backend->copy(session->stream, predicted, session->predicted, count * sizeof *predicted);
    else if (probabilities != NULL)
        backend->convert(session->stream, TYPE_FP32, session->probabilities, session->compute,
                         session->logits, (int64_t)(count * outputs));
    if (probabilities != NULL)
        backend->copy(session->stream, probabilities, session->probabilities,
                      count * outputs * sizeof *probabilities);
    backend->stream_synchronize(session->stream);
    if (probabilities != NULL && session->model->statistics.target_std.count > 0)
        outputs_scale(session, &feed->dataset, batch->count, probabilities);
    batch_undo(&feed->dataset, batch);
}

/* The arguments that all batches share. */
struct pass {
    struct session *session;
    struct split_loader *feed;
    const struct evaluation_visitor *visitor; /* or NULL */
    struct control *control;                  /* or NULL */
    int32_t *predicted;
    float *probabilities;           /* or NULL */
    struct target_metrics *targets; /* or NULL */
};

static void batches_run(const struct pass *pass, struct evaluation *evaluation, struct error *error)
{
    struct split_loader *feed = pass->feed;
    int64_t steps = sampler_steps(&feed->sampler), classes = evaluation->classes;
    double waited = 0;
    loader_start(feed->loader, 0, 0, steps);
    for (int64_t step = 0; step < steps && !evaluation->given_up; step++) {
        if (pass->control != NULL)
            control_start(pass->control, &(struct control_flags){.stop = comm_stop_wanted()});
        status_set_phase(PHASE_DATA);
        struct batch *batch = loader_next(feed->loader, &waited);
        status_set_phase(PHASE_EVALUATION);
        ENSURE(batch != NULL, "the loader ended inside an evaluation");
        if (batch->error.kind != ERROR_NONE && error->kind == ERROR_NONE)
            *error = batch->error;
        /* After an error a rank continues to take part in the collectives of the others. */
        batch_evaluate(pass->session, feed, batch, pass->predicted, pass->probabilities);
        if (error->kind == ERROR_NONE && pass->targets != NULL)
            target_metrics_add(pass->targets, evaluation, batch, pass->probabilities);
        else if (error->kind == ERROR_NONE && classes > 0)
            for (int64_t i = 0; i < batch->count; i++)
                evaluation->confusion[batch->labels[i] * classes + pass->predicted[i]]++;
        if (pass->visitor != NULL)
            pass->visitor->visit(pass->visitor->self, batch, pass->predicted, pass->probabilities,
                                 error);
        loader_give_back(feed->loader, batch);
        evaluation->given_up = pass->control != NULL && control_wait(pass->control).stop != 0;
    }
}

bool evaluation_run(struct session *session, struct split_loader *feed,
                    const struct evaluation_visitor *visitor, struct control *control,
                    struct evaluation *evaluation, struct error *error)
{
    const struct device_backend *backend = session->device->backend;
    const struct model *model = session->model;
    struct comm *world = session->world;
    const bool counts = visitor == NULL || visitor->counts;
    const bool is_single = model->loss == LOSS_CROSS_ENTROPY;
    const double begin = clock_now();
    struct pass pass = {.session = session, .feed = feed, .visitor = visitor, .control = control};
    struct target_metrics targets = {0};
    status_set_phase(PHASE_EVALUATION);
    *evaluation = (struct evaluation){.top1 = NAN, .top5 = NAN, .miou = NAN, .map = NAN};
    if (is_single)
        evaluation->classes = counts ? model->classes : 0;
    else if (counts && target_metrics_open(&targets, session, feed, evaluation, error))
        pass.targets = &targets;

    const int64_t cells = evaluation->classes * evaluation->classes;
    const size_t batch = (size_t)session->batch;
    const size_t outputs =
        visitor != NULL || pass.targets != NULL ? batch * (size_t)model_output_count(model) : 0;
    evaluation->confusion = calloc((size_t)cells + 1, sizeof *evaluation->confusion);
    pass.predicted = calloc(batch, sizeof *pass.predicted);
    pass.probabilities = outputs > 0 ? calloc(outputs, sizeof *pass.probabilities) : NULL;
    if (evaluation->confusion == NULL || pass.predicted == NULL ||
        (outputs > 0 && pass.probabilities == NULL))
        error_set(error, ERROR_MEMORY,
                  "no memory for the confusion matrix of %lld classes: use fewer classes or "
                  "data.val=none",
                  (long long)evaluation->classes);
    bool good = comm_agree(world, error);
    if (good) {
        session_activations(session, false);
        backend->zero(session->stream, session->io.sums, sizeof *session->io.sums);
        batches_run(&pass, evaluation, error);
        good = comm_agree(world, error);
    }
    if (good && !evaluation->given_up) {
        const struct loss_sums own = step_io_take_sums(&session->io, session->stream);
        double sums[] = {own.loss, own.top1, own.top5, own.samples, own.empty};
        comm_all_reduce(world, sums, 5, COMM_FP64, COMM_SUM);
        const double samples = sums[3];
        evaluation->counted = (int64_t)samples;
        evaluation->samples = (int64_t)(samples + sums[4]);
        evaluation->loss = sums[0] / samples; /* NAN if there are none */
        if (is_single && cells > 0) {
            comm_all_reduce(world, evaluation->confusion, cells, COMM_INT64, COMM_SUM);
            evaluation->top1 = sums[1] / samples;
            evaluation->top5 = sums[2] / samples;
        }
        if (pass.targets != NULL)
            target_metrics_reduce(&targets, evaluation);
    } else {
        evaluation_free(evaluation);
    }
    free(targets.sums);
    free(targets.confusion);
    free(targets.scores);
    free(pass.predicted);
    free(pass.probabilities);
    /* Training continues with sums of zero. */
    backend->zero(session->stream, session->io.sums, sizeof *session->io.sums);
    evaluation->seconds = clock_now() - begin;
    return good;
}
