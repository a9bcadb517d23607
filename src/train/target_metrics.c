// SPDX-License-Identifier: BSD-3-Clause
#include "train/evaluate.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "core/integer.h"

static int64_t plane_of(const struct model *model)
{
    return model->output.height * model->output.width;
}

static bool labels_open(struct target_metrics *metrics, const struct sampler *sampler,
                        struct evaluation *evaluation)
{
    const int64_t classes = evaluation->classes, ranks = metrics->session->mesh.world->size;
    metrics->most = sampler_steps(sampler) * round_up_division(sampler->global_batch, ranks);
    metrics->scores = malloc((size_t)(classes * metrics->most) * sizeof *metrics->scores);
    evaluation->labels = calloc((size_t)classes, sizeof *evaluation->labels);
    evaluation->average_precision = calloc((size_t)classes, sizeof *evaluation->average_precision);
    for (int64_t i = 0; metrics->scores != NULL && i < classes * metrics->most; i++)
        metrics->scores[i] = NAN;
    return metrics->scores != NULL && evaluation->labels != NULL &&
           evaluation->average_precision != NULL;
}

bool target_metrics_open(struct target_metrics *metrics, const struct session *session,
                         const struct data_feed *feed, struct evaluation *evaluation,
                         struct error *error)
{
    const int64_t outputs = session->model->classes;
    const bool is_regression = session->options->data.task == TASK_REGRESSION;
    bool good;
    *metrics = (struct target_metrics){.session = session, .dataset = &feed->dataset};
    evaluation->classes = is_regression ? 0 : outputs;
    evaluation->outputs = is_regression ? outputs : 0;
    if (is_regression) {
        evaluation->errors = calloc((size_t)outputs, sizeof *evaluation->errors);
        metrics->sums = calloc((size_t)outputs * OUTPUT_SUMS, sizeof *metrics->sums);
        good = evaluation->errors != NULL && metrics->sums != NULL;
    } else if (!feed->dataset.target_is_class) {
        good = labels_open(metrics, &feed->sampler, evaluation);
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

static void pixels_add(struct target_metrics *metrics, const struct batch *batch,
                       const float *predictions)
{
    const struct session *session = metrics->session;
    const int64_t classes = session->model->classes, plane = plane_of(session->model);
#pragma omp parallel for schedule(static) num_threads(session->limits.threads)
    for (int64_t i = 0; i < batch->count; i++)
        confusion_add_pixels(metrics->confusion + omp_get_thread_num() * classes * classes, classes,
                             predictions + i * classes * plane, batch_targets(batch, i), plane);
}

void target_metrics_add(struct target_metrics *metrics, struct evaluation *evaluation,
                        const struct batch *batch, const float *predictions)
{
    const int64_t outputs = metrics->session->model->classes;
    if (metrics->sums != NULL)
        errors_add(metrics, batch, predictions);
    if (metrics->confusion != NULL)
        pixels_add(metrics, batch, predictions);
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
    comm_all_reduce(session->mesh.world, evaluation->confusion, cells, COMM_INT64, COMM_SUM);
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
    struct comm *world = metrics->session->mesh.world;
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

void target_metrics_reduce(struct target_metrics *metrics, struct evaluation *evaluation)
{
    struct comm *world = metrics->session->mesh.world;
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

void target_metrics_close(struct target_metrics *metrics)
{
    free(metrics->sums);
    free(metrics->confusion);
    free(metrics->scores);
    *metrics = (struct target_metrics){0};
}
