/* One step of training. No strategy is named here: a unit is gathered before use, freed after it,
 * reduced when its gradient is complete; what that costs is the mesh's affair. Where the device can
 * record, whole steps are recorded once and run again: a small model's many short operations then
 * cost the host one call. */
#include "train/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"
#include "config/phase.h"
#include "core/clock.h"

/* What must be known of a batch to queue its pass. */
struct micro_batch {
    int64_t count, global_count;
    double running_weight; /* of the pass */
    bool good;             /* all its records could be read */
    bool first, last;      /* of the step */
};

static const char advice[] = "try a lower optim.lr, schedule.warmup or train.clip_norm";

void step_open(struct step_context *step, struct session *session, struct data_feed *feed,
               const struct optimizer *optimizer)
{
    *step = (struct step_context){.session = session,
                                  .loader = feed->loader,
                                  .sampler = &feed->sampler,
                                  .source = feed->source,
                                  .optimizer = optimizer,
                                  .first_trainable = model_first_trainable(session->model)};
    step->records = session->device->backend->graph_begin != NULL && session->options->cuda.graph &&
                    session->options->train.accumulate == 1 && session->profile == NULL;
}

void step_close(struct step_context *step)
{
    if (step->graph != NULL)
        step->session->device->backend->graph_close(step->graph);
    step->graph = NULL;
}

/* A record that could not be read poisons the gradient: so all ranks see, in the norm that they
 * look at anyway, that one cannot go on. */
static void loss_and_gradient(struct step_context *step, const struct micro_batch *micro)
{
    double scale = micro->good ? 1 / (double)micro->global_count : NAN;
    session_loss(step->session, &step->source, micro->count, scale, true, NULL);
}

/* The backward pass of all units that train; each unit's gradient goes off to be added up over the
 * mesh, at the latest after the last micro-batch, while the next unit is computed. */
static void step_backward(struct step_context *step, const struct model_pass *pass, bool last)
{
    struct session *session = step->session;
    struct flat_model *flat = &session->flat;
    int units = session->model->unit_count;
    flat_gather_start(flat, units - 1);
    for (int u = units - 1; u >= step->first_trainable; u--) {
        flat_gather_wait(flat, u);
        if (u > step->first_trainable)
            flat_gather_start(flat, u - 1);
        flat_gradient_open(flat, u, pass->batch > 0);
        session_unit_begin(session, u);
        session->model->type->backward(session->model, pass, u);
        session_unit_end(session);
        flat_free(flat, u);
        flat_gradient_close(flat, u, last);
    }
}

/* All that is put on the stream between a batch's images and its gradients, with the update behind
 * the last. */
static void pass_queue(struct step_context *step, const struct micro_batch *micro,
                       struct step_times *times)
{
    struct session *session = step->session;
    double begin = clock_now();
    if (micro->first)
        flat_begin_gradients(&session->flat);
    struct model_pass pass = session_pass(session, micro->count, true);
    pass.running_weight = micro->running_weight;
    session_phase_begin(session, PHASE_FORWARD);
    session_forward(session, &pass);
    loss_and_gradient(step, micro);
    session_phase_end(session);
    double middle = clock_now();
    session_phase_begin(session, PHASE_BACKWARD);
    step_backward(step, &pass, micro->last);
    session_phase_end(session);
    status_set_phase(PHASE_REDUCE);
    double end = clock_now();
    times->forward += middle - begin;
    times->backward += end - middle;
    if (!micro->last)
        return;
    flat_reduce_wait(&session->flat);
    double reduced = clock_now();
    times->reduce += reduced - end;
    session_phase_begin(session, PHASE_UPDATE);
    flat_norm(&session->flat);
    optimizer_step(step->optimizer, &session->flat, session->place, session->scaler);
    session_phase_end(session);
    times->update += clock_now() - reduced;
}

/* True if a recorded step can take this batch, which has the same number of samples on all ranks:
 * NCCL allows no collective that only some ranks record. */
static bool is_regular(const struct step_context *step, const struct micro_batch *micro)
{
    return micro->global_count == step->session->batch * step->sampler->size;
}

/* Make all pixels of the first image NaN, and so the loss and the gradient. All bits set are a NaN
 * in each type. The host waits, but the run ends anyway. */
static void image_poison(struct session *session)
{
    const struct device_backend *backend = session->device->backend;
    const struct model *model = session->model;
    size_t bytes =
        (size_t)(model->channels * model->image * model->image) * type_size(session->compute);
    void *bits = malloc(bytes);
    ENSURE(bits != NULL, "no memory for an image");
    memset(bits, 0xff, bytes);
    backend->copy(session->stream, session->images, bits, bytes);
    backend->stream_synchronize(session->stream);
    free(bits);
}

/* Records pass_queue. Waits within it are only for events within it: those of the flat buffers
 * are recorded anew at its begin. */
static void step_record(struct step_context *step, const struct micro_batch *micro)
{
    struct session *session = step->session;
    const struct device_backend *backend = session->device->backend;
    struct step_times unused = {0};
    backend->graph_begin(session->stream);
    flat_updated(&session->flat);
    pass_queue(step, micro, &unused);
    step->graph = backend->graph_end(session->stream);
}

/* Runs the recorded step, which is recorded when libraries have made all their choices in steps
 * before it. False: this one is not for it. */
static bool step_replay(struct step_context *step, const struct micro_batch *micro)
{
    enum { STEPS_BEFORE_RECORDING = 2 };
    struct session *session = step->session;
    if (!step->records || !is_regular(step, micro))
        return false;
    if (step->graph == NULL) {
        if (step->regular_steps++ < STEPS_BEFORE_RECORDING)
            return false;
        step_record(step, micro);
    }
    if (!micro->good) /* the recorded step has the scale of the loss in it */
        image_poison(session);
    status_set_phase(PHASE_RECORDED);
    session->device->backend->graph_run(step->graph, session->stream);
    flat_updated(&session->flat);
    return true;
}

/* What this rank's piece weighs in running statistics. */
static double running_weight(const struct step_context *step, const struct batch *batch,
                             int64_t micro)
{
    const struct sampler *sampler = step->sampler;
    int64_t pieces = sampler->accumulate;
    while (pieces > 1 && sampler_piece_samples(sampler, batch->global_count, pieces - 1) == 0)
        pieces--;
    double weight = flat_running_weight(sampler->accumulate, pieces, micro);
    int64_t all = sampler_piece_samples(sampler, batch->global_count, micro);
    if (step->session->model->local_norms && all > 0)
        weight *= (double)batch->count / (double)all;
    return weight;
}

static void micro_batch_run(struct step_context *step, struct step_params place, int64_t number,
                            struct step_times *times)
{
    struct session *session = step->session;
    status_set_phase(PHASE_DATA);
    struct batch *batch = loader_next(step->loader, &times->data);
    ENSURE(batch != NULL, "the loader ended before the last step");
    if (batch->error.kind != ERROR_NONE && step->unread.kind == ERROR_NONE)
        step->unread = batch->error;
    const struct micro_batch micro = {.count = batch->count,
                                      .global_count = batch->global_count,
                                      .running_weight = running_weight(step, batch, number),
                                      .good = batch->error.kind == ERROR_NONE,
                                      .first = number == 0,
                                      .last = number == session->options->train.accumulate - 1};
    double begin = clock_now();
    place.position = (uint32_t)batch->position;
    place_upload(&session->places, session->stream, session->place, &place);
    if (!step->records)
        flat_gather_start(&session->flat, 0); /* goes on while the images are made */
    session_upload(session, batch, &step->source, true, step->loader);
    times->forward += clock_now() - begin;
    if (!step_replay(step, &micro))
        pass_queue(step, &micro, times);
}

void step_rehearse(struct step_context *step)
{
    struct session *session = step->session;
    int64_t accumulate = session->options->train.accumulate;
    struct step_times unused = {0};
    for (int64_t number = 0; number < accumulate; number++) {
        const struct micro_batch micro = {.count = session->batch,
                                          .global_count = session->batch,
                                          .running_weight = 1,
                                          .good = true,
                                          .first = number == 0,
                                          .last = number == accumulate - 1};
        session_phase_begin(session, PHASE_DATA);
        if (!step->records)
            flat_gather_start(&session->flat, 0);
        session_transform(session, micro.count, &step->source, true);
        session_phase_end(session);
        pass_queue(step, &micro, &unused);
    }
}

/* The first unit whose output of the forward pass is not finite on this rank, or -1. */
static int nonfinite_output(struct session *session)
{
    const struct device_backend *backend = session->device->backend;
    const struct model *model = session->model;
    for (int u = 0; u < model->unit_count; u++) {
        int64_t count = 0, index = -1;
        const void *output = model->type->output(model, u, &count);
        const struct nonfinite search = {.type = session->compute,
                                         .count = count,
                                         .values = output,
                                         .index = session->nonfinite_index};
        if (output == NULL)
            continue;
        backend->nonfinite(session->stream, &search);
        backend->copy(session->stream, &index, session->nonfinite_index, sizeof index);
        backend->stream_synchronize(session->stream);
        if (index >= 0)
            return u;
    }
    return -1;
}

/* How near to its beginning a value that is not finite was found. The gradient is of all ranks. */
enum origin { ORIGIN_WEIGHTS, ORIGIN_OUTPUT, ORIGIN_GRADIENT, ORIGIN_UNKNOWN };

/* Says where a gradient that is not finite came from: this rank's weights, the output of a unit in
 * the forward pass, or else the first gradient in backward order. */
static enum origin nonfinite_explain(struct session *session, int64_t number, struct error *error)
{
    long long step = (long long)number + 1;
    char place[TENSOR_NAME + 32];
    if (flat_find_nonfinite(&session->flat, false, place, sizeof place)) {
        error_set(error, ERROR_NUMERIC, "step %lld: NaN or infinity in the weights %s: %s", step,
                  place, number == 0 ? "they began so; choose another model.init" : advice);
        return ORIGIN_WEIGHTS;
    }
    int unit = nonfinite_output(session);
    if (unit >= 0) {
        error_set(error, ERROR_NUMERIC,
                  "step %lld: NaN or infinity; it began in the forward pass, output of %s: %s",
                  step, session->model->units[unit].name, advice);
        return ORIGIN_OUTPUT;
    }
    if (!flat_find_nonfinite(&session->flat, true, place, sizeof place))
        return ORIGIN_UNKNOWN;
    error_set(error, ERROR_NUMERIC,
              "step %lld: NaN or infinity; it began in the backward pass, gradient of %s: %s", step,
              place, advice);
    return ORIGIN_GRADIENT;
}

/* Collective. Of all ranks that found something those speak that are nearest to its beginning. */
static void nonfinite_agree(struct comm *world, enum origin own, struct error *error)
{
    int64_t nearest = own;
    comm_all_reduce(world, &nearest, 1, COMM_INT64, COMM_MIN);
    if (own > nearest)
        error_clear(error);
}

/* What the communication thread did, and was waited for, since `before`. */
static void communication_times(const struct session *session, const struct step_times *before,
                                struct step_times *times)
{
    struct comm *world = session->mesh.world;
    double busy, exposed;
    world->backend->times(world, &busy, &exposed);
    times->communication += busy - before->communication;
    times->exposed += exposed - before->exposed;
}

double step_norm(const struct session *session)
{
    const struct step_outcome *outcome = &session->outcome;
    return isfinite(outcome->norm_squared)
               ? sqrt(outcome->norm_squared) / (double)outcome->used.scale
               : NAN;
}

/* Collective, after a gradient that is not finite. In fp16 its scale was too large, as a rule, and
 * half of it will do: false, unless that cannot help, or a record could not be read. */
static bool step_failed(struct step_context *step, int64_t number, struct error *error)
{
    struct session *session = step->session;
    struct comm *world = session->mesh.world;
    *error = step->unread;
    if (!comm_agree(world, error))
        return true; /* which is the reason, whatever other ranks find */
    if (session->scaler != NULL && session->outcome.scaler.scale > LOSS_SCALE_LEAST)
        return false;
    enum origin origin = ORIGIN_UNKNOWN;
    if (session->outcomes.count == 0)
        origin = nonfinite_explain(session, number, error);
    nonfinite_agree(world, origin, error);
    if (comm_agree(world, error))
        error_set(error, ERROR_NUMERIC,
                  "step %lld: the norm of the gradient is not finite: %s; debug.wait=on finds out "
                  "where that begins",
                  (long long)number + 1, advice);
    return true;
}

/* Looks at the outcomes that are due, or at all. */
static bool step_settle(struct step_context *step, bool all, struct error *error)
{
    struct session *session = step->session;
    int64_t number;
    while (outcome_take(&session->outcomes, all, &session->outcome, &number))
        if (!isfinite(session->outcome.norm_squared) && step_failed(step, number, error))
            return false;
    return true;
}

bool step_run(struct step_context *step, int64_t number, double rate, struct step_times *times,
              struct error *error)
{
    struct session *session = step->session;
    int64_t accumulate = session->options->train.accumulate;
    struct step_params place = optimizer_place(step->optimizer, rate, number);
    if (session->scaler == NULL) /* else the device knows */
        place.update -= session->outcome.scaler.skipped;
    struct step_times before = {0}, none = {0};
    communication_times(session, &none, &before);
    for (int64_t micro = 0; micro < accumulate; micro++)
        micro_batch_run(step, place, micro, times);
    double begin = clock_now();
    outcome_queue(&session->outcomes, session->stream, number, session->flat.norm_squared,
                  session->scaler);
    bool good = step_settle(step, false, error);
    times->update += clock_now() - begin;
    communication_times(session, &before, times);
    return good;
}

bool step_finish(struct step_context *step, struct step_times *times, struct error *error)
{
    double begin = clock_now();
    bool good = step_settle(step, true, error);
    staging_finish(&step->session->staging);
    times->update += clock_now() - begin;
    return good;
}
