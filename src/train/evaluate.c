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
#include "train/step.h"

/* A running evaluation. */
struct pass {
    struct session *session;
    struct split_loader *feed;
    const struct evaluation_visitor *visitor; /* or NULL */
    struct control *control;                  /* or NULL */
    struct evaluation *evaluation;
    int64_t outputs, plane; /* of the model; pixels of an output */
    int32_t *predicted;
    float *probabilities; /* or the outputs, if the loss is not that of labels; or NULL */
    /* Metrics of samples that have targets. They are integers and exact sums, so they do not depend
     * on the number of ranks. */
    struct exact_sum *sums;       /* regression: [outputs, OUTPUT_SUMS]; else NULL */
    int64_t *confusion;           /* segmentation: [threads, classes, classes]; else NULL */
    struct sample_counts samples; /* of labels that do not exclude each other */
    float *scores;                /* of these: [classes, most], by label_score; else NULL */
    int64_t most;                 /* largest number of samples of a rank */
    int64_t count;                /* samples added so far */
};

/* ---- metrics */

/* Allocate the counts and set the evaluation's classes or outputs. */
static void metrics_open(struct pass *pass)
{
    const struct session *session = pass->session;
    struct evaluation *evaluation = pass->evaluation;
    const size_t outputs = (size_t)pass->outputs;
    if (session->model->loss == LOSS_TARGETS && session->options.data.task == TASK_REGRESSION) {
        evaluation->outputs = pass->outputs;
        evaluation->errors = allocate(outputs, sizeof *evaluation->errors);
        pass->sums = allocate(outputs * OUTPUT_SUMS, sizeof *pass->sums);
        return;
    }
    evaluation->classes = pass->outputs;
    if (session->model->loss == LOSS_CROSS_ENTROPY)
        return;
    if (pass->feed->dataset.target_is_class) {
        pass->confusion =
            allocate((size_t)session->limits.threads * outputs * outputs, sizeof *pass->confusion);
        return;
    }
    pass->most = sampler_steps(&pass->feed->sampler) *
                 round_up_division(pass->feed->sampler.global_batch, session->world->size);
    pass->scores = allocate(outputs * (size_t)pass->most, sizeof *pass->scores);
    evaluation->labels = allocate(outputs, sizeof *evaluation->labels);
    evaluation->average_precision = allocate(outputs, sizeof *evaluation->average_precision);
    for (int64_t i = 0; i < pass->outputs * pass->most; i++)
        pass->scores[i] = NAN;
}

/* Return output i % outputs of sample i / outputs of a batch. */
static struct output_plane plane_of(const struct pass *pass, const struct batch *batch, int64_t i)
{
    const struct session *session = pass->session;
    const struct dataset *dataset = &pass->feed->dataset;
    const int64_t sample = i / pass->outputs, output = i % pass->outputs;
    return (struct output_plane){.height = session->model->output.height,
                                 .width = session->model->output.width,
                                 .mean = (double)session->input.target_mean[output],
                                 .predictions = pass->probabilities + i * pass->plane,
                                 .targets = batch_targets(batch, sample) + output * pass->plane,
                                 .persistence = batch_persistence(batch, dataset, sample, output),
                                 .row_weights = dataset->row_weights != NULL
                                                    ? dataset->row_weights + batch->labels[sample]
                                                    : NULL};
}

/* Add the losses of the outputs of a regression, which are still normalised, in a batch. */
static void losses_add(const struct pass *pass, const struct batch *batch)
{
    const struct session *session = pass->session;
#pragma omp parallel for schedule(static) num_threads(session->limits.threads)
    for (int64_t i = 0; i < batch->count * pass->outputs; i++) {
        const struct output_plane args = plane_of(pass, batch, i);
        const int64_t output = i % pass->outputs;
        output_loss_add(&pass->sums[output * OUTPUT_SUMS], &args,
                        (double)session->input.target_std[output], session->options.train.loss);
    }
}

/* Add a batch. The outputs of a regression are in the units of the targets. */
static void metrics_add(struct pass *pass, const struct batch *batch)
{
    const struct session *session = pass->session;
    const struct dataset *dataset = &pass->feed->dataset;
    struct evaluation *evaluation = pass->evaluation;
    const float *predictions = pass->probabilities;
    const int64_t outputs = pass->outputs, plane = pass->plane;
    if (pass->sums != NULL) {
#pragma omp parallel for schedule(static) num_threads(session->limits.threads)
        for (int64_t i = 0; i < batch->count * outputs; i++) {
            struct output_plane args = plane_of(pass, batch, i);
            const int64_t output = i % outputs;
            float mean = session->input.target_mean[output];
            if (dataset->residual)
                mean += session->input.mean[dataset->persistence[output]];
            value_transform_undo((enum value_transform)dataset->target_transform[output], &mean, 1);
            args.mean = (double)mean;
            output_sums_add(&pass->sums[output * OUTPUT_SUMS], &args);
        }
    } else if (pass->confusion != NULL) {
#pragma omp parallel for schedule(static) num_threads(session->limits.threads)
        for (int64_t i = 0; i < batch->count; i++)
            confusion_add_pixels(pass->confusion + omp_get_thread_num() * outputs * outputs,
                                 outputs, predictions + i * outputs * plane,
                                 batch_targets(batch, i), plane);
    } else if (pass->scores != NULL) {
        for (int64_t i = 0; i < batch->count; i++, pass->count++) {
            const float *targets = batch_targets(batch, i), *sample = predictions + i * outputs;
            class_counts_add(evaluation->labels, &pass->samples, outputs, sample, targets);
            for (int64_t c = 0; c < outputs; c++)
                pass->scores[c * pass->most + pass->count] = label_score(sample[c], targets[c]);
        }
    } else if (evaluation->classes > 0) {
        for (int64_t i = 0; i < batch->count; i++)
            evaluation->confusion[batch->labels[i] * outputs + pass->predicted[i]]++;
    }
}

/* Set the metrics from the counts of all ranks and threads. Collective. */
static void metrics_reduce(struct pass *pass)
{
    struct comm *world = pass->session->world;
    struct evaluation *evaluation = pass->evaluation;
    const int64_t classes = evaluation->classes, cells = classes * classes, most = pass->most;
    struct class_metrics macro;
    int64_t right = 0;
    for (int64_t i = 0; pass->confusion != NULL && i < pass->session->limits.threads * cells; i++)
        evaluation->confusion[i % cells] += pass->confusion[i];
    if (pass->scores == NULL && cells > 0)
        comm_all_reduce(world, evaluation->confusion, cells, COMM_INT64, COMM_SUM);
    if (pass->confusion != NULL) {
        for (int64_t i = 0; i < cells; i++) {
            evaluation->pixels += evaluation->confusion[i];
            right += i / classes == i % classes ? evaluation->confusion[i] : 0;
        }
        evaluation_macro(evaluation, &macro);
        evaluation->top1 = (double)right / (double)evaluation->pixels;
        evaluation->miou = macro.iou;
    }
    if (pass->scores != NULL) {
        comm_all_reduce(world, evaluation->labels,
                        classes * (int64_t)sizeof *evaluation->labels / 8, COMM_INT64, COMM_SUM);
        comm_all_reduce(world, &pass->samples, sizeof pass->samples / 8, COMM_INT64, COMM_SUM);
        evaluation->top1 = (double)pass->samples.right / (double)pass->samples.counted;
        /* Each rank computes the average precisions of a part of the labels, from all scores. */
        OWNED float *all = allocate((size_t)(world->size * most), sizeof *all);
        for (int64_t c = 0; c < classes; c++) {
            memcpy(all + world->rank * most, pass->scores + c * most, (size_t)most * sizeof *all);
            comm_all_gather(world, all, most, COMM_FP32);
            if (c % world->size == world->rank)
                evaluation->average_precision[c] = average_precision(all, world->size * most);
        }
        comm_all_reduce(world, evaluation->average_precision, classes, COMM_FP64, COMM_SUM);
        evaluation_macro(evaluation, &macro);
        evaluation->map = macro.average_precision;
    }
    if (pass->sums != NULL)
        comm_all_reduce(world, pass->sums,
                        pass->outputs * OUTPUT_SUMS * (int64_t)sizeof *pass->sums / 8, COMM_INT64,
                        COMM_SUM);
    for (int64_t i = 0; i < evaluation->outputs; i++)
        evaluation->errors[i] = output_errors_of(&pass->sums[i * OUTPUT_SUMS]);
}

/* ---- passes */

/* With data.residual=on, add the input from which a predicted or true difference was taken. */
static void residual_undo(const struct batch *batch, const struct dataset *dataset, int64_t sample,
                          int64_t output, float *values)
{
    const float *input =
        dataset->residual ? batch_persistence(batch, dataset, sample, output) : NULL;
    for (int64_t p = 0; input != NULL && p < dataset->height * dataset->width; p++)
        values[p] += input[p];
}

/* Converts the outputs of a regression from normalised values to the units of the data, and undoes
 * data.transform in them, in the targets of a batch, and in its pixels if the targets are planes.
 */
static void batch_undo(const struct pass *pass, struct batch *batch)
{
    const struct session *session = pass->session;
    const struct dataset *dataset = &pass->feed->dataset;
    const int64_t plane = dataset->target.height * dataset->target.width;
    const bool scales =
        pass->probabilities != NULL && session->model->statistics.target_std.count > 0;
    for (int64_t i = 0; scales && i < batch->count * pass->outputs; i++) {
        const int64_t output = i % pass->outputs;
        float *values = pass->probabilities + i * pass->plane;
        for (int64_t p = 0; p < pass->plane; p++)
            values[p] =
                values[p] * session->input.target_std[output] + session->input.target_mean[output];
        residual_undo(batch, dataset, i / pass->outputs, output, values);
        value_transform_undo((enum value_transform)dataset->target_transform[output], values,
                             pass->plane);
    }
    for (int64_t i = 0; i < batch->count; i++) {
        uint8_t *record = batch->pixels + i * batch->record_bytes;
        float *pixels = (float *)(void *)record;
        float *targets = (float *)(void *)(record + batch->target_offset);
        for (int64_t t = 0; t < dataset->target.count; t++) {
            residual_undo(batch, dataset, i, t, targets + t * plane);
            value_transform_undo((enum value_transform)dataset->target_transform[t],
                                 targets + t * plane, plane);
        }
        for (int64_t c = 0; plane > 1 && c < dataset->channels; c++)
            value_transform_undo((enum value_transform)dataset->channel_transform[c],
                                 pixels + c * plane, plane);
    }
}

/* Runs the forward pass of a batch and copies the results to the host. */
static void batch_evaluate(const struct pass *pass, struct batch *batch)
{
    struct session *session = pass->session;
    const struct device_backend *backend = session->device->backend;
    const int64_t values = batch->count * pass->outputs * pass->plane;
    float *probabilities = pass->probabilities != NULL ? session->probabilities : NULL;
    batch_upload_start(&session->input, session->stream, batch, &pass->feed->source, false, NULL);
    const struct model_pass forward = session_pass(session, batch->count, false);
    step_forward(session, &forward);
    if (session->unflipped_logits != NULL) { /* the mean with those of the mirrored images */
        backend->copy(session->stream, session->unflipped_logits, session->logits,
                      (size_t)values * type_size(session->compute));
        batch_upload_mirror(&session->input, session->stream, batch, &pass->feed->source);
        step_forward(session, &forward);
        OPERATION_RUN(session->device, session->stream, matrix_sum, .type = session->compute,
                      .rows = batch->count, .width = pass->outputs * pass->plane,
                      .x = session->logits, .z = session->unflipped_logits, .x_factor = 0.5f,
                      .z_factor = 0.5f, .y = session->logits);
    }
    step_loss(session, batch->count, 1, false, probabilities);
    if (session->model->loss == LOSS_CROSS_ENTROPY)
        backend->copy(session->stream, pass->predicted, session->predicted,
                      (size_t)batch->count * sizeof *pass->predicted);
    else if (probabilities != NULL)
        backend->convert(session->stream, TYPE_FP32, probabilities, session->compute,
                         session->logits, values);
    if (probabilities != NULL)
        backend->copy(session->stream, pass->probabilities, probabilities,
                      (size_t)values * sizeof *probabilities);
    backend->stream_synchronize(session->stream);
    if (pass->sums != NULL)
        losses_add(pass, batch);
    batch_undo(pass, batch);
}

static void batches_run(struct pass *pass, struct error *error)
{
    struct split_loader *feed = pass->feed;
    const int64_t steps = sampler_steps(&feed->sampler);
    struct evaluation *evaluation = pass->evaluation;
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
        batch_evaluate(pass, batch);
        if (error->kind == ERROR_NONE)
            metrics_add(pass, batch);
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
    const bool is_single = model->loss == LOSS_CROSS_ENTROPY;
    const size_t batch = (size_t)session->batch, values = (size_t)model_output_count(model);
    const double begin = clock_now();
    struct pass pass = {.session = session,
                        .feed = feed,
                        .visitor = visitor,
                        .control = control,
                        .evaluation = evaluation,
                        .outputs = model->classes,
                        .plane = model->output.height * model->output.width};
    status_set_phase(PHASE_EVALUATION);
    *evaluation = (struct evaluation){.top1 = NAN, .top5 = NAN, .miou = NAN, .map = NAN};
    if (visitor == NULL || visitor->counts)
        metrics_open(&pass);
    const size_t classes = (size_t)evaluation->classes;
    evaluation->confusion = allocate(classes * classes, sizeof *evaluation->confusion);
    pass.predicted = allocate(batch, sizeof *pass.predicted);
    if (visitor != NULL || !is_single)
        pass.probabilities = allocate(batch * values, sizeof *pass.probabilities);
    session_activations(session, false);
    backend->zero(session->stream, session->io.sums, sizeof *session->io.sums);
    batches_run(&pass, error);
    const bool good = comm_agree(session->world, error);
    if (good && !evaluation->given_up) {
        const struct loss_sums own = step_io_take_sums(&session->io, session->stream);
        double sums[] = {own.loss, own.top1, own.top5, own.samples, own.empty};
        comm_all_reduce(session->world, sums, 5, COMM_FP64, COMM_SUM);
        const double samples = sums[3];
        evaluation->counted = (int64_t)samples;
        evaluation->samples = (int64_t)(samples + sums[4]);
        evaluation->loss = sums[0] / samples; /* NAN if there are none */
        if (is_single && evaluation->classes > 0) {
            evaluation->top1 = sums[1] / samples;
            evaluation->top5 = sums[2] / samples;
        }
        metrics_reduce(&pass);
    } else {
        evaluation_free(evaluation);
    }
    free(pass.sums);
    free(pass.confusion);
    free(pass.scores);
    free(pass.predicted);
    free(pass.probabilities);
    /* Training continues with sums of zero. */
    backend->zero(session->stream, session->io.sums, sizeof *session->io.sums);
    evaluation->seconds = clock_now() - begin;
    return good;
}
