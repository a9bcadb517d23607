// SPDX-License-Identifier: BSD-3-Clause
/* Evaluation: the ranks divide a split without padding; one all-reduce sums their counts. */
#include "train/evaluate.h"

#include <math.h>
#include <stdlib.h>

#include "config/phase.h"
#include "core/clock.h"
#include "core/status.h"
#include "train/step.h"

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
static void mirror_evaluate(struct session *session, struct data_feed *feed, struct batch *batch,
                            const struct model_pass *pass)
{
    const struct device_backend *backend = session->device->backend;
    const int64_t outputs = model_output_count(session->model);
    const size_t bytes = (size_t)(batch->count * outputs) * type_size(session->compute);
    backend->copy(session->stream, session->unflipped_logits, session->logits, bytes);
    input_mirror(&session->input, session->stream, batch, &feed->source);
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
    const int64_t plane = model->output.height * model->output.width;
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
static void batch_evaluate(struct session *session, struct data_feed *feed, struct batch *batch,
                           int32_t *predicted, float *probabilities)
{
    const struct device_backend *backend = session->device->backend;
    input_upload(&session->input, session->stream, batch, &feed->source, false, NULL);
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
    struct data_feed *feed;
    const struct evaluation_visitor *visitor; /* or NULL */
    struct control *control;                  /* or NULL */
    int32_t *predicted;
    float *probabilities;           /* or NULL */
    struct target_metrics *targets; /* or NULL */
};

static void batches_run(const struct pass *pass, struct evaluation *evaluation, struct error *error)
{
    struct data_feed *feed = pass->feed;
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

static void sums_reduce(struct session *session, struct evaluation *evaluation)
{
    struct comm *world = session->mesh.world;
    const struct loss_sums own = step_io_take_sums(&session->io, session->stream);
    double sums[5] = {own.loss, own.top1, own.top5, own.samples, own.empty};
    comm_all_reduce(world, sums, 5, COMM_FP64, COMM_SUM);
    const double samples = sums[3];
    evaluation->counted = (int64_t)samples;
    evaluation->samples = (int64_t)(samples + sums[4]);
    evaluation->loss = sums[0] / samples; /* NAN if there are none */
    if (session->model->loss != LOSS_CROSS_ENTROPY || evaluation->classes == 0)
        return;
    comm_all_reduce(world, evaluation->confusion, evaluation->classes * evaluation->classes,
                    COMM_INT64, COMM_SUM);
    evaluation->top1 = sums[1] / samples;
    evaluation->top5 = sums[2] / samples;
}

/* Collective. Allocates the results of a batch and the confusion matrix. */
static bool results_allocate(const struct session *session, struct evaluation *evaluation,
                             int32_t **predicted, float **probabilities, struct error *error)
{
    size_t classes = (size_t)evaluation->classes, batch = (size_t)session->batch;
    evaluation->confusion = calloc(classes * classes + 1, sizeof(int64_t));
    *predicted = calloc(batch, sizeof **predicted);
    if (probabilities != NULL)
        *probabilities =
            calloc(batch * (size_t)model_output_count(session->model), sizeof **probabilities);
    if (evaluation->confusion == NULL || *predicted == NULL ||
        (probabilities != NULL && *probabilities == NULL))
        error_set(error, ERROR_MEMORY,
                  "no memory for the confusion matrix of %zu classes: use fewer classes or "
                  "data.val=none",
                  classes);
    return comm_agree(session->mesh.world, error);
}

bool evaluation_run(struct session *session, struct data_feed *feed,
                    const struct evaluation_visitor *visitor, struct control *control,
                    struct evaluation *evaluation, struct error *error)
{
    const struct device_backend *backend = session->device->backend;
    const bool counts = visitor == NULL || visitor->counts;
    const double begin = clock_now();
    struct pass pass = {.session = session, .feed = feed, .visitor = visitor, .control = control};
    struct target_metrics targets = {0};
    status_set_phase(PHASE_EVALUATION);
    *evaluation = (struct evaluation){.top1 = NAN, .top5 = NAN, .miou = NAN, .map = NAN};
    if (session->model->loss == LOSS_CROSS_ENTROPY)
        evaluation->classes = counts ? session->model->classes : 0;
    else if (counts && target_metrics_open(&targets, session, feed, evaluation, error))
        pass.targets = &targets;
    bool good = results_allocate(
        session, evaluation, &pass.predicted,
        visitor != NULL || pass.targets != NULL ? &pass.probabilities : NULL, error);
    if (good) {
        session_activations(session, false);
        backend->zero(session->stream, session->io.sums, sizeof *session->io.sums);
        batches_run(&pass, evaluation, error);
        good = comm_agree(session->mesh.world, error);
    }
    if (good && !evaluation->given_up) {
        sums_reduce(session, evaluation);
        if (pass.targets != NULL)
            target_metrics_reduce(&targets, evaluation);
    } else {
        evaluation_free(evaluation);
    }
    target_metrics_close(&targets);
    free(pass.predicted);
    free(pass.probabilities);
    /* Training continues with sums of zero. */
    backend->zero(session->stream, session->io.sums, sizeof *session->io.sums);
    evaluation->seconds = clock_now() - begin;
    return good;
}
