/* One step of training. No strategy is named here: a unit is gathered before use, freed after it,
 * reduced when its gradient is complete; what that costs is the mesh's affair. */
#include "train/step.h"

#include <math.h>

#include "core/clock.h"

void step_open(struct step_context *step, struct session *session, struct loader *loader,
               const struct image_source *source, const struct optimizer *optimizer)
{
    *step = (struct step_context){.session = session,
                                  .loader = loader,
                                  .source = *source,
                                  .optimizer = optimizer,
                                  .first_trainable = model_first_trainable(session->model)};
}

/* A record that could not be read poisons the gradient: so all ranks see, in the norm that they
 * look at anyway, that one cannot go on. */
static void loss_and_gradient(struct session *session, const struct batch *batch)
{
    const struct cross_entropy loss = {
        .type = session->compute,
        .batch = batch->count,
        .classes = session->model->classes,
        .smoothing = (float)session->options->train.label_smoothing,
        .scale = batch->error.kind == ERROR_NONE ? 1 / (float)batch->global_count : NAN,
        .logits = session->logits,
        .labels = session->labels,
        .dlogits = session->logits,
        .scaler = session->scaler,
        .sums = session->sums};
    session->device->backend->cross_entropy(session->stream, &loss);
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
        flat_gradient_open(flat, u);
        profile_unit(session->profile, u);
        session->model->type->backward(session->model, pass, u);
        profile_unit(session->profile, -1);
        flat_free(flat, u);
        flat_gradient_close(flat, u, last);
    }
}

static void micro_batch_run(struct step_context *step, struct run_place place, bool last,
                            struct step_times *times, struct error *error)
{
    struct session *session = step->session;
    struct batch *batch = loader_next(step->loader, &times->data);
    ENSURE(batch != NULL, "the loader's epoch ended inside a step");
    if (batch->error.kind != ERROR_NONE && error->kind == ERROR_NONE)
        *error = batch->error;
    double begin = clock_now();
    place.position = (uint32_t)batch->position;
    place_upload(&session->places, session->stream, session->place, &place);
    flat_gather_start(&session->flat, 0); /* goes on while the images are made */
    session_upload(session, batch, &step->source, true);
    struct model_pass pass = session_pass(session, batch->count, true);
    session_forward(session, &pass);
    loss_and_gradient(session, batch);
    double middle = clock_now();
    step_backward(step, &pass, last);
    loader_give_back(step->loader, batch);
    times->forward += middle - begin;
    times->backward += clock_now() - middle;
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

/* Says where a gradient that is not finite came from: this rank's weights, the output of a unit in
 * the forward pass, or else the first gradient in backward order. */
static void nonfinite_explain(struct session *session, int64_t number, struct error *error)
{
    static const char advice[] = "try a lower optim.lr, schedule.warmup or train.clip_norm";
    long long step = (long long)number + 1;
    char place[TENSOR_NAME + 32];
    if (flat_find_nonfinite(&session->flat, false, place, sizeof place)) {
        error_set(error, ERROR_NUMERIC, "step %lld: NaN or infinity in the weights %s: %s", step,
                  place, number == 0 ? "they began so; choose another model.init" : advice);
        return;
    }
    int unit = nonfinite_output(session);
    if (unit >= 0)
        error_set(error, ERROR_NUMERIC,
                  "step %lld: NaN or infinity; it began in the forward pass, output of %s: %s",
                  step, session->model->units[unit].name, advice);
    else if (flat_find_nonfinite(&session->flat, true, place, sizeof place))
        error_set(error, ERROR_NUMERIC,
                  "step %lld: NaN or infinity; it began in the backward pass, gradient of %s: %s",
                  step, place, advice);
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
    const struct step_outcome *outcome = session->outcome;
    return isfinite(outcome->norm_squared)
               ? sqrt(outcome->norm_squared) / (double)outcome->used.scale
               : NAN;
}

/* Queues the update, and what it came to on its way to the host. */
static void step_update(struct step_context *step)
{
    struct session *session = step->session;
    const struct device_backend *backend = session->device->backend;
    struct step_outcome *outcome = session->outcome;
    const size_t bytes = sizeof *session->scaler;
    flat_norm(&session->flat);
    if (session->scaler != NULL)
        backend->copy(session->stream, &outcome->used, session->scaler, bytes);
    optimizer_step(step->optimizer, &session->flat, session->place, session->scaler);
    if (session->scaler != NULL)
        backend->copy(session->stream, &outcome->scaler, session->scaler, bytes);
    backend->copy(session->stream, &outcome->norm_squared, session->flat.norm_squared,
                  sizeof outcome->norm_squared);
}

/* Collective, after a gradient that is not finite. In fp16 its scale was too large, as a rule, and
 * half of it will do: false, unless that cannot help, or a record could not be read. */
static bool step_failed(struct session *session, int64_t number, struct error *error)
{
    struct comm *world = session->mesh.world;
    if (session->scaler != NULL) {
        if (!comm_agree(world, error))
            return true;
        if (session->outcome->scaler.scale > LOSS_SCALE_LEAST)
            return false;
    }
    if (error->kind == ERROR_NONE)
        nonfinite_explain(session, number, error);
    if (comm_agree(world, error))
        error_set(error, ERROR_NUMERIC, "step %lld: the norm of the gradient is not finite",
                  (long long)number + 1);
    return true;
}

bool step_run(struct step_context *step, int64_t number, double rate, struct step_times *times,
              struct error *error)
{
    struct session *session = step->session;
    int64_t accumulate = session->options->train.accumulate;
    struct run_place place = optimizer_place(step->optimizer, rate, number);
    if (session->scaler == NULL) /* else the device knows */
        place.update -= session->outcome->scaler.skipped;
    struct step_times before = {0}, none = {0};
    communication_times(session, &none, &before);
    flat_zero_gradients(&session->flat);
    for (int64_t micro = 0; micro < accumulate; micro++)
        micro_batch_run(step, place, micro == accumulate - 1, times, error);
    double begin = clock_now();
    flat_reduce_wait(&session->flat);
    double reduced = clock_now();
    step_update(step);
    session->device->backend->stream_synchronize(session->stream);
    times->reduce += reduced - begin;
    times->update += clock_now() - reduced;
    communication_times(session, &before, times);
    return isfinite(session->outcome->norm_squared) || !step_failed(session, number, error);
}
