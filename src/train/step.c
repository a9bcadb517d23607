// SPDX-License-Identifier: BSD-3-Clause
/* One training step. It names no strategy: a unit is gathered before its use, freed after it, and
 * reduced when its gradient is complete; the mesh decides what these calls send. If the device can
 * record, a step is recorded as a graph once and then replayed, so that a small model's many short
 * operations cost the host one call. */
#include "train/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/status.h"
#include "device/update_rule.h"
#include "mesh/flat.h"
#include "options/options.h"

/* A micro-batch, as far as its pass depends on it. */
struct micro_batch {
    int64_t number;   /* in the step, from 0 */
    int64_t position; /* index of its first sample in the global batch */
    int64_t count, global_count;
    double running_weight; /* of the pass */
    bool good;             /* all its records were readable */
    bool last;             /* of the step */
    bool spare;            /* its gradients are discarded (flat_spare_open) */
};

static const char advice[] = "try a lower optim.lr, schedule.warmup or train.clip_norm";

void step_open(struct session *session)
{
    struct step *step = &session->step;
    *step = (struct step){.records = session->device->backend->graph_begin != NULL &&
                                     session->options.cuda.graph && session->accumulate == 1 &&
                                     session->profile == NULL};
    optimizer_open(&session->optimizer, &session->options);
    grain_check_open(session);
}

void step_close(struct session *session)
{
    if (session->step.graph != NULL)
        session->device->backend->graph_close(session->step.graph);
    session->step.graph = NULL;
    grain_check_close(&session->step.check);
}

/* ---- phases and units: status of the process, profiler ranges, times of units */

/* Seconds that this process has waited for other ranks. */
static double exposed_now(void)
{
    double busy, exposed;
    comm_times(&busy, &exposed);
    return exposed;
}

static void phase_begin(struct session *session, enum step_phase phase)
{
    static const int status[STEP_PHASES] = {[STEP_DATA] = PHASE_DATA,
                                            [STEP_FORWARD] = PHASE_FORWARD,
                                            [STEP_BACKWARD] = PHASE_BACKWARD,
                                            [STEP_UPDATE] = PHASE_UPDATE};
    const struct device_backend *backend = session->device->backend;
    status_set_phase(status[phase]);
    if (backend->range_begin != NULL)
        backend->range_begin(status_phase_name(status[phase]));
    session->timer.phase = (int)phase;
    if (session->timer.seconds != NULL)
        session->timer.exposed = exposed_now();
}

static void phase_end(struct session *session)
{
    session->timer.phase = STEP_PHASES;
    if (session->device->backend->range_end != NULL)
        session->device->backend->range_end();
}

/* Add the time since the last call that was spent waiting for other ranks to the times of the
 * timer's unit, if they are measured, and with `computes` the rest of the time, too. */
static void unit_time(struct session *session, bool computes)
{
    struct step_timer *timer = &session->timer;
    if (timer->seconds == NULL || timer->phase == STEP_PHASES)
        return;
    struct unit_seconds *seconds = &timer->seconds[timer->unit];
    const bool forward = timer->phase == STEP_FORWARD;
    const double now = clock_now(), exposed = exposed_now(), waited = exposed - timer->exposed;
    *(forward ? &seconds->forward_waiting : &seconds->backward_waiting) += waited;
    if (computes)
        *(forward ? &seconds->forward : &seconds->backward) += now - timer->unit_begin - waited;
    timer->exposed = exposed;
    timer->unit_begin = now;
}

static void unit_begin(struct session *session, int unit)
{
    profile_unit(session->profile, unit);
    status_set_unit(unit);
    if (session->device->backend->range_begin != NULL)
        session->device->backend->range_begin(session->model->units[unit].name);
    session->timer.unit = unit;
    unit_time(session, false);
}

static void unit_end(struct session *session)
{
    unit_time(session, true);
    session->timer.unit = -1;
    if (session->device->backend->range_end != NULL)
        session->device->backend->range_end();
    profile_unit(session->profile, -1);
}

/* ---- forward, loss, backward */

void step_forward(struct session *session, const struct model_pass *pass)
{
    struct flat_model *flat = &session->flat;
    const int units = session->model->unit_count;
    const bool in_grains = session->grains != NULL && !pass->training;
    if (in_grains)
        grains_begin(session->grains, 0, pass->batch, pass->batch);
    flat_gather_start(flat, 0);
    for (int u = 0; u < units; u++) {
        flat_gather_wait(flat, u);
        if (u + 1 < units)
            flat_gather_start(flat, u + 1);
        unit_begin(session, u);
        session->model->type->forward(session->model, pass, u);
        unit_end(session);
        flat_release(flat, u);
    }
    if (in_grains)
        grains_end(session->grains);
}

void step_loss(struct session *session, int64_t count, double scale, bool gradient,
               float *probabilities)
{
    static const enum cross_entropy_kind entropy[] = {
        [TRAIN_LOSS_AUTO] = CROSS_ENTROPY_SOFTMAX,
        [TRAIN_LOSS_CROSS_ENTROPY] = CROSS_ENTROPY_SOFTMAX,
        [TRAIN_LOSS_BCE] = CROSS_ENTROPY_BINARY,
        [TRAIN_LOSS_BCE_SUM] = CROSS_ENTROPY_BINARY_SUM};
    static const enum target_loss_kind kinds[] = {[TRAIN_LOSS_CROSS_ENTROPY] = TARGET_CROSS_ENTROPY,
                                                  [TRAIN_LOSS_BCE] = TARGET_BINARY,
                                                  [TRAIN_LOSS_BCE_SUM] = TARGET_BINARY,
                                                  [TRAIN_LOSS_SQUARED] = TARGET_SQUARED,
                                                  [TRAIN_LOSS_ABSOLUTE] = TARGET_ABSOLUTE,
                                                  [TRAIN_LOSS_HUBER] = TARGET_HUBER};
    const struct train_options *train = &session->options.train;
    const struct model *model = session->model;
    void *derivative = gradient ? session->logits : NULL;
    struct loss_scaler *scaler = gradient ? session->io.scaler : NULL;
    if (model->loss == LOSS_CROSS_ENTROPY)
        OPERATION_RUN(
            session->device, session->stream, cross_entropy, .type = session->compute,
            .kind = gradient ? entropy[train->loss] : CROSS_ENTROPY_SOFTMAX, .batch = count,
            .classes = model->classes, .smoothing = gradient ? (float)train->label_smoothing : 0,
            .scale = (float)scale, .logits = session->logits, .labels = session->input.labels,
            .targets = gradient ? session->input.targets : NULL,
            .weights = gradient ? session->loss_weights : NULL, .dlogits = derivative,
            .scaler = scaler, .sums = session->io.sums,
            .predicted = gradient ? NULL : session->predicted, .probabilities = probabilities);
    else
        OPERATION_RUN(session->device, session->stream, target_loss, .type = session->compute,
                      .kind = kinds[train->loss], .is_sum = train->loss == TRAIN_LOSS_BCE_SUM,
                      .batch = count, .outputs = model->classes, .height = model->output.height,
                      .width = model->output.width, .scale = (float)scale,
                      .weights = session->loss_weights, .row_weights = session->row_weights,
                      .first_rows = session->input.labels, .predictions = session->logits,
                      .targets = session->input.target_values, .dpredictions = derivative,
                      .scaler = scaler, .sums = session->io.sums);
}

/* Queues the backward pass down to the first trainable unit. The reduction of a unit's gradient
 * overlaps with the next unit's computation. */
static void step_backward(struct session *session, const struct model_pass *pass,
                          const struct micro_batch *micro)
{
    struct flat_model *flat = &session->flat;
    const int units = session->model->unit_count, last = session->model->first_trainable;
    flat_gather_start(flat, units - 1);
    for (int u = units - 1; u >= last; u--) {
        flat_gather_wait(flat, u);
        if (u > last)
            flat_gather_start(flat, u - 1);
        if (micro->spare)
            flat_spare_open(flat, u, pass->batch > 0);
        else
            flat_gradient_open(flat, u, pass->batch > 0);
        if (session->grains != NULL)
            grains_unit(session->grains, flat->buffers[u].stride, flat->partials.slot);
        unit_begin(session, u);
        session->model->type->backward(session->model, pass, u);
        unit_end(session);
        flat_release(flat, u);
        if (micro->spare)
            flat_spare_close(flat, u);
        else
            flat_gradient_close(flat, u, micro->last);
    }
}

/* Queues forward pass, loss and backward pass of the samples in the session's input. With
 * train.exact=layout, call it after grains_begin; it calls grains_end. */
static void pass_run(struct session *session, const struct micro_batch *micro,
                     struct step_times *times)
{
    struct step *step = &session->step;
    const double begin = clock_now();
    struct model_pass pass = session_pass(session, micro->count, true);
    pass.running_weight = micro->running_weight;
    phase_begin(session, STEP_FORWARD);
    step_forward(session, &pass);
    /* An unreadable record makes the gradient NaN: all ranks see it in the norm. */
    double scale = micro->good ? 1 / (double)micro->global_count : NAN;
    step_loss(session, micro->count, scale, true, NULL);
    if (step->hashes != NULL && !micro->spare)
        grain_hashes_add(session, micro->position, micro->count, micro->global_count);
    phase_end(session);
    const double middle = clock_now();
    phase_begin(session, STEP_BACKWARD);
    step_backward(session, &pass, micro);
    phase_end(session);
    if (session->grains != NULL)
        grains_end(session->grains);
    times->forward += middle - begin;
    times->backward += clock_now() - middle;
}

uint64_t step_recompute(struct session *session, int64_t position, int64_t count)
{
    struct step *step = &session->step;
    const struct device_backend *backend = session->device->backend;
    const struct micro_batch grain = {.position = count > 0 ? position : 0,
                                      .count = count,
                                      .global_count = (int64_t)step->params.samples,
                                      .good = true,
                                      .spare = true};
    struct step_params params = step->params;
    struct step_times unused = {0};
    struct loss_sums sums;
    params.position = (uint32_t)grain.position;
    backend->copy(session->stream, &sums, session->io.sums, sizeof sums);
    step_io_upload_params(&session->io, session->stream, &params);
    grains_begin(session->grains, grain.position, count, grain.global_count);
    grains_watch(session->grains, session->stream, count > 0 ? position / session->grain : -1,
                 FLIP_OFF, 0);
    pass_run(session, &grain, &unused);
    backend->copy(session->stream, session->io.sums, &sums, sizeof sums);
    return grains_hash(session->grains, session->stream);
}

/* Queues forward and backward pass of a micro-batch, and after the last one the update. */
static void pass_queue(struct session *session, const struct micro_batch *micro,
                       struct step_times *times)
{
    struct step *step = &session->step;
    if (micro->number == 0)
        flat_begin_gradients(&session->flat);
    if (session->grains != NULL) {
        grains_begin(session->grains, micro->count > 0 ? micro->position : 0, micro->count,
                     micro->global_count);
        flat_begin_pass(&session->flat, round_up_division(micro->global_count, session->grain),
                        micro->number);
    }
    const bool checked = step->checked && micro->number == 0; /* later ones may be empty */
    if (checked)
        grain_check_begin(session, micro->position, micro->good ? micro->count : 0);
    pass_run(session, micro, times);
    if (checked)
        grain_check_take(session);
    status_set_phase(PHASE_REDUCE);
    if (!micro->last)
        return;
    const double begin = clock_now();
    flat_reduce_wait(&session->flat);
    if (step->checked)
        error_defer(grain_check_end(session, &step->wrong));
    const double reduced = clock_now();
    times->reduce += reduced - begin;
    phase_begin(session, STEP_UPDATE);
    /* After its all-reduce no rank reads the weights: the update may write them if they are shared.
     */
    flat_norm(&session->flat);
    optimizer_step(&session->optimizer, &session->flat, session->io.params, session->io.scaler);
    phase_end(session);
    times->update += clock_now() - reduced;
}

/* ---- recorded steps */

/* Runs the recorded step, after recording it if needed: libraries choose their algorithms in the
 * steps before that. Returns false if the step must be queued operation by operation. */
static bool step_replay(struct session *session, const struct micro_batch *micro)
{
    enum { STEPS_BEFORE_RECORDING = 2 };
    struct step *step = &session->step;
    const struct device_backend *backend = session->device->backend;
    /* Only full global batches: NCCL requires all ranks of a collective to record it. */
    if (!step->records || step->checked || step->hashes != NULL ||
        micro->global_count != session->batch * session->train.sampler.size)
        return false;
    if (step->graph == NULL) {
        struct step_times unused = {0};
        if (step->regular_steps++ < STEPS_BEFORE_RECORDING)
            return false;
        backend->graph_begin(session->stream);
        /* A graph may wait only for events recorded in it: record those of the flat buffers. */
        flat_updated(&session->flat);
        pass_queue(session, micro, &unused);
        step->graph = backend->graph_end(session->stream);
    }
    if (!micro->good) {
        /* The scale of the loss gradient is in the recorded step: make all pixels of the first
         * image NaN, and so the gradient. All bits set are a NaN in each type. The host waits, but
         * the run ends anyway. */
        const size_t bytes = session->input.image_bytes;
        void *bits = memset(allocate(1, bytes), 0xff, bytes);
        backend->copy(session->stream, session->input.images, bits, bytes);
        backend->stream_synchronize(session->stream);
        free(bits);
    }
    status_set_phase(PHASE_RECORDED);
    backend->graph_run(step->graph, session->stream);
    flat_updated(&session->flat);
    return true;
}

/* ---- the step */

/* The weight of this rank's micro-batch in the running statistics of batch norm. */
static double running_weight(const struct session *session, const struct batch *batch,
                             int64_t micro)
{
    const struct sampler *sampler = &session->train.sampler;
    int64_t pieces = sampler->accumulate;
    while (pieces > 1 && sampler_piece_samples(sampler, batch->global_count, pieces - 1) == 0)
        pieces--;
    double weight = flat_running_weight(sampler->accumulate, pieces, micro);
    int64_t all = sampler_piece_samples(sampler, batch->global_count, micro);
    if (session->model->local_norms && all > 0)
        weight *= (double)batch->count / (double)all;
    return weight;
}

static void micro_batch_run(struct session *session, int64_t number, struct step_times *times)
{
    struct step *step = &session->step;
    status_set_phase(PHASE_DATA);
    struct batch *batch = loader_next(session->train.loader, &times->data);
    ENSURE(batch != NULL, "the loader ended before the last step");
    if (batch->error.kind != ERROR_NONE && step->unread.kind == ERROR_NONE)
        step->unread = batch->error;
    const struct micro_batch micro = {.number = number,
                                      .position = batch->position,
                                      .count = batch->count,
                                      .global_count = batch->global_count,
                                      .running_weight = running_weight(session, batch, number),
                                      .good = batch->error.kind == ERROR_NONE,
                                      .last = number == session->accumulate - 1};
    double begin = clock_now();
    step->params.position = (uint32_t)batch->position;
    step->params.samples = (double)batch->global_count;
    step_io_upload_params(&session->io, session->stream, &step->params);
    if (!step->records)
        flat_gather_start(&session->flat, 0); /* overlaps with the transform of the images */
    batch_upload_start(&session->input, session->stream, batch, &session->train.source, true,
                       session->train.loader);
    times->forward += clock_now() - begin;
    if (!step_replay(session, &micro))
        pass_queue(session, &micro, times);
}

void step_rehearse(struct session *session)
{
    struct step *step = &session->step;
    int64_t accumulate = session->accumulate;
    int64_t global_count =
        session->grains != NULL
            ? split_loader_global_batch(&session->options, session->mesh.world->size)
            : session->batch;
    struct step_times unused = {0};
    for (int64_t number = 0; number < accumulate; number++) {
        const struct micro_batch micro = {.number = number,
                                          .count = smaller(session->batch, global_count),
                                          .global_count = global_count,
                                          .running_weight = 1,
                                          .good = true,
                                          .last = number == accumulate - 1};
        phase_begin(session, STEP_DATA);
        if (!step->records)
            flat_gather_start(&session->flat, 0);
        batch_upload_transform(&session->input, session->stream, micro.count,
                               &session->train.source, true);
        phase_end(session);
        pass_queue(session, &micro, &unused);
    }
}

/* ---- results: norms that are not finite, unreadable records */

/* Origins of a value that is not finite, the earliest first. The gradient is global. */
enum origin { ORIGIN_WEIGHTS, ORIGIN_OUTPUT, ORIGIN_GRADIENT, ORIGIN_UNKNOWN };

/* Sets the error for a gradient that is not finite to where that began: in this rank's weights, in
 * the output of a unit, or in the first gradient in backward order. */
static enum origin nonfinite_explain(struct session *session, int64_t number, struct error *error)
{
    const struct device_backend *backend = session->device->backend;
    const struct model *model = session->model;
    long long step = (long long)number + 1;
    char place[TENSOR_NAME + 32];
    if (flat_find_nonfinite(&session->flat, false, place, sizeof place)) {
        error_set(error, ERROR_NUMERIC, "step %lld: NaN or infinity in the weights %s: %s", step,
                  place,
                  number == 0 ? "they were so at the start; choose another model.init" : advice);
        return ORIGIN_WEIGHTS;
    }
    for (int u = 0; u < model->unit_count; u++) {
        int64_t count = 0, index = -1;
        const void *output = model->type->output(model, u, &count);
        if (output == NULL)
            continue;
        OPERATION_RUN(session->device, session->stream, nonfinite, .type = session->compute,
                      .count = count, .values = output, .index = session->nonfinite_index);
        backend->copy(session->stream, &index, session->nonfinite_index, sizeof index);
        backend->stream_synchronize(session->stream);
        if (index < 0)
            continue;
        error_set(error, ERROR_NUMERIC,
                  "step %lld: NaN or infinity; it began in the forward pass, output of %s: %s",
                  step, model->units[u].name, advice);
        return ORIGIN_OUTPUT;
    }
    if (!flat_find_nonfinite(&session->flat, true, place, sizeof place))
        return ORIGIN_UNKNOWN;
    error_set(error, ERROR_NUMERIC,
              "step %lld: NaN or infinity; it began in the backward pass, gradient of %s: %s", step,
              place, advice);
    return ORIGIN_GRADIENT;
}

double step_norm(const struct session *session)
{
    const struct step_result *result = &session->io.result;
    const double share = counted_share(result->counted, result->samples);
    return isfinite(result->norm_squared)
               ? sqrt(result->norm_squared) / (double)result->used.scale / share
               : NAN;
}

/* Collective, after a gradient that was not finite. Returns false if that only skips the update: in
 * fp16, while the loss scale can still be halved. */
static bool step_failed(struct session *session, struct error *error)
{
    const int64_t number = session->io.result.number;
    struct step *step = &session->step;
    struct comm *world = session->mesh.world;
    *error = step->unread;
    if (!comm_agree(world, error))
        return true;
    if (session->io.scaler != NULL && session->io.result.scaler.scale > LOSS_SCALE_LEAST)
        return false;
    enum origin origin = ORIGIN_UNKNOWN;
    if (session->io.count == 0)
        origin = nonfinite_explain(session, number, error);
    /* The ranks that found the earliest origin report it. */
    int64_t earliest = origin;
    comm_all_reduce(world, &earliest, 1, COMM_INT64, COMM_MIN);
    if (origin > earliest)
        error_clear(error);
    if (comm_agree(world, error))
        error_set(error, ERROR_NUMERIC,
                  "step %lld: the norm of the gradient is not finite: %s; debug.wait=on finds out "
                  "where that begins",
                  (long long)number + 1, advice);
    return true;
}

/* Collective. Reads the results that are due; all: all results. */
static bool results_read(struct session *session, bool all, struct error *error)
{
    while (step_io_take_result(&session->io, all))
        if (!isfinite(session->io.result.norm_squared) && step_failed(session, error))
            return false;
    return true;
}

bool step_run(struct session *session, int64_t number, double rate, struct step_times *times,
              struct error *error)
{
    struct step *step = &session->step;
    double begin_busy, begin_exposed, busy, exposed;
    profile_step(session->profile);
    comm_times(&begin_busy, &begin_exposed);
    step->checked =
        step->check.own != NULL && (number + 1) % session->options.train.check_every == 0;
    step->number = number;
    step->params = optimizer_params(&session->optimizer, rate, number);
    if (session->io.scaler == NULL) /* with a scaler, the device subtracts them */
        step->params.update -= session->io.result.scaler.skipped;
    for (int64_t micro = 0; micro < session->accumulate; micro++)
        micro_batch_run(session, micro, times);
    if (step->wrong.kind != ERROR_NONE) {
        *error = step->wrong;
        return false;
    }
    double begin = clock_now();
    step_io_queue_result(&session->io, session->stream, number, session->flat.norm_squared,
                         step->params.samples);
    bool good = results_read(session, false, error);
    times->update += clock_now() - begin;
    comm_times(&busy, &exposed);
    times->communication += busy - begin_busy;
    times->exposed += exposed - begin_exposed;
    return good;
}

bool step_finish(struct session *session, struct step_times *times, struct error *error)
{
    double begin = clock_now();
    bool good = results_read(session, true, error);
    batch_upload_finish(&session->input);
    times->update += clock_now() - begin;
    return good;
}

/* ---- control flags: one small all-reduce (maximum) for each step */

void control_start(struct control *control, const struct control_flags *flags)
{
    enum { FLAGS = sizeof *flags / sizeof(int64_t) };
    struct comm *world = control->world;
    ENSURE(!control->started, "control flags: the previous all-reduce was not waited for");
    control->flags = *flags;
    control->request =
        comm_start_all_reduce(world, &control->flags, FLAGS, COMM_INT64, COMM_MAX, NULL);
    control->started = true;
}

struct control_flags control_wait(struct control *control)
{
    ENSURE(control->started, "control flags: no all-reduce was started");
    control->world->backend->wait(control->request, NULL);
    control->started = false;
    return control->flags;
}

void control_close(struct control *control)
{
    if (control->started)
        control_wait(control);
}
