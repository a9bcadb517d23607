/* Opens device, mesh and model and lays out a rank's memory: the same code measures and takes. */
#include "train/session.h"

#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint_writer.h"
#include "config/options.h"
#include "config/phase.h"
#include "core/available.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/text.h"
#include "plan/fit.h"
#include "train/feed.h"
#include "train/hardware.h"
#include "train/optimizer.h"

/* Collective: the same on all ranks, so 16 bits only where all of them multiply them. Imagined
 * ranks say zero, which changes nothing. */
static enum data_type compute_type(const struct session *session)
{
    int64_t lacking[] = {!session->limits.multiplies_bf16, !session->limits.multiplies_fp16};
    comm_all_reduce(session->mesh.world, lacking, 2, COMM_INT64, COMM_MAX);
    switch ((enum precision_choice)session->options->train.precision) {
    case PRECISION_FP32:
        return TYPE_FP32;
    case PRECISION_BF16:
        return TYPE_BF16;
    case PRECISION_FP16:
        return TYPE_FP16;
    case PRECISION_AUTO:
        break;
    }
    return !lacking[0] ? TYPE_BF16 : !lacking[1] ? TYPE_FP16 : TYPE_FP32;
}

/* What the images are normalised with: the options', else the model's. */
static bool normalisation_choose(struct session *session, struct error *error)
{
    const struct model *model = session->model;
    const struct option_list *mean = &session->options->augment.mean;
    const struct option_list *std = &session->options->augment.std;
    if ((mean->count > 1 && mean->count != model->channels) ||
        (std->count > 1 && std->count != model->channels))
        return error_set(error, ERROR_USAGE,
                         "augment.mean and augment.std need one value, or one for each of the %lld "
                         "channels",
                         (long long)model->channels);
    for (int c = 0; c < (int)model->channels; c++) {
        int known = c < 3 ? c : 2; /* the registry knows three */
        int mean_at = mean->count > 1 ? c : 0, std_at = std->count > 1 ? c : 0;
        session->augment_mean[c] =
            mean->count > 0 ? (float)mean->value[mean_at] : model->mean[known];
        session->augment_std[c] = std->count > 0 ? (float)std->value[std_at] : model->std[known];
        if (!(session->augment_std[c] > 0))
            return error_set(error, ERROR_USAGE, "augment.std must be above 0");
    }
    return true;
}

static bool device_open(struct session *session, struct error *error)
{
    session->device = hardware_open(session->options, session->mesh.node, error);
    if (session->device == NULL)
        return false;
    session->device->backend->limits(session->device, &session->limits);
    session->stream = session->device->backend->stream_open(session->device);
    staging_open(&session->staging, session->device);
    return true;
}

static bool model_prepare(struct session *session, struct error *error)
{
    const struct options *options = session->options;
    session->model = model_open(options, session->device, session->compute, error);
    if (session->model == NULL)
        return false;
    for (int u = 0; u < session->model->unit_count; u++)
        status_name_unit(u, session->model->units[u].name);
    if (options->debug.profile)
        session->profile = profile_open(session->device, session->model->unit_count);
    if (session->model->loss != LOSS_CROSS_ENTROPY && mix_is_asked_for(options))
        return error_set(
            error, ERROR_USAGE,
            "augment.mixup and augment.cutmix mix classes, and model.name=%s has none: "
            "leave them out",
            options->model.name);
    return normalisation_choose(session, error);
}

static void normalisation_take(struct option_list *list, const double *values, int64_t channels)
{
    for (int64_t c = 0; c < channels; c++)
        list->value[list->count++] = values[c];
}

bool session_resolve(struct options *options, const struct dataset *dataset, struct error *error)
{
    if (options->model.classes == 0)
        options->model.classes = dataset->classes;
    if (options->model.classes < dataset->classes)
        return error_set(
            error, ERROR_USAGE,
            "model.classes=%lld, but the data has %lld classes: leave model.classes out "
            "or raise it",
            (long long)options->model.classes, (long long)dataset->classes);
    if (options->augment.mean.count == 0 && dataset->normalised)
        normalisation_take(&options->augment.mean, dataset->mean, dataset->channels);
    if (options->augment.std.count == 0 && dataset->normalised)
        normalisation_take(&options->augment.std, dataset->std, dataset->channels);
    if (options->augment.crop != CROP_NONE)
        return true; /* what is resized to is not the model's size */
    if (options->model.image == 0)
        options->model.image = options->augment.resize;
    if (options->augment.resize != 0 && options->augment.resize != options->model.image)
        return error_set(error, ERROR_USAGE,
                         "augment.resize=%lld and model.image=%lld differ: leave one of them out",
                         (long long)options->augment.resize, (long long)options->model.image);
    return true;
}

/* Everything behind the mesh. */
static bool session_prepare(struct session *session, bool training, struct error *error)
{
    const struct options *options = session->options;
    struct comm *world = session->mesh.world;
    device_open(session, error);
    if (!comm_agree(world, error) || !hardware_compare(&session->limits, world, error) ||
        !hardware_alone(options, &session->limits, session->mesh.node, world, error) ||
        !mesh_use_device(&session->mesh, session->device, error))
        return false;
    session->compute = compute_type(session);
    model_prepare(session, error);
    if (!comm_agree(world, error))
        return false;
    int moments = training ? optimizer_moments(options) : 0;
    flat_open(&session->flat, session->model->units, session->model->unit_count, &session->mesh,
              session->device, session->stream, session->compute, moments, options->optim.ema > 0,
              training);
    return true;
}

bool session_open(struct session *session, const struct options *options, struct comm *world,
                  bool training, struct error *error)
{
    *session = (struct session){.options = options};
    status_set_phase(PHASE_MODEL_OPEN);
    return mesh_open(&session->mesh, world, &options->mesh, error) &&
           session_prepare(session, training, error);
}

bool session_imagine(struct session *session, const struct options *options, int ranks,
                     int node_ranks, bool training, struct error *error)
{
    *session = (struct session){.options = options};
    return mesh_imagine(&session->mesh, 0, ranks, node_ranks, &options->mesh, error) &&
           session_prepare(session, training, error);
}

struct image_source session_source(const struct session *session, const struct image_source *source)
{
    struct image_source known = *source;
    if (known.height == 0)
        known.height = known.width = session->model->image;
    return known;
}

/* The memory that a batch passes through on the device. */
static void batch_allocate(struct session *session, const struct image_source *source,
                           bool training)
{
    struct arena *arena = &session->arena;
    const struct model *model = session->model;
    size_t batch = (size_t)session->batch, classes = (size_t)model->classes;
    size_t source_bytes = (size_t)(source->channels * source->height * source->width);
    size_t image_bytes =
        (size_t)(model->channels * model->image * model->image) * type_size(session->compute);
    const struct image_transform transform = {.type = session->compute,
                                              .batch = session->batch,
                                              .channels = source->channels,
                                              .source_height = source->height,
                                              .source_width = source->width,
                                              .height = model->image,
                                              .width = model->image};
    staging_allocate(&session->staging, arena, session->batch, source_bytes);
    session->labels = arena_take(arena, MEMORY_BUFFERS, batch * sizeof(int32_t));
    session->predicted = arena_take(arena, MEMORY_BUFFERS, batch * sizeof(int32_t));
    session->losses = arena_take(arena, MEMORY_BUFFERS, batch * sizeof(float));
    session->probabilities = arena_take(arena, MEMORY_BUFFERS, batch * classes * sizeof(float));
    session->targets = NULL;
    if (training && mix_is_asked_for(session->options))
        session->targets = arena_take(arena, MEMORY_BUFFERS, batch * classes * sizeof(float));
    session->images = arena_take(arena, MEMORY_BUFFERS, batch * image_bytes);
    session->logits =
        arena_take(arena, MEMORY_BUFFERS, batch * classes * type_size(session->compute));
    session->transform_scratch =
        arena_take(arena, MEMORY_BUFFERS, image_transform_scratch(&transform));
    session->sums = arena_take(arena, MEMORY_BUFFERS, sizeof *session->sums);
    session->nonfinite_index = arena_take(arena, MEMORY_BUFFERS, sizeof(int64_t));
    session->place = arena_take(arena, MEMORY_BUFFERS, sizeof *session->place);
    session->scaler = NULL;
    if (training && session->compute == TYPE_FP16)
        session->scaler = arena_take(arena, MEMORY_BUFFERS, sizeof *session->scaler);
}

/* Activations of training come first: they are the most, and grow the arena unit by unit. */
static void session_layout(struct session *session, const struct image_source *source,
                           bool training)
{
    struct arena *arena = &session->arena;
    const struct device_backend *backend = session->device->backend;
    flat_allocate(&session->flat, arena);
    batch_allocate(session, source, training);
    size_t workspace = backend->workspace_bytes(session->device);
    void *memory = arena_take(arena, MEMORY_BUFFERS, workspace);
    if (!arena_is_measuring(arena))
        backend->workspace_set(session->device, memory, workspace);
    session->activations_mark = arena_mark(arena);
    if (training)
        session_activations(session, true);
    session_activations(session, false);
    if (training)
        session_activations(session, true);
}

/* Are checkpoints written in the background? By itself only where a GPU computes: there the host's
 * cores and memory have little else to do. */
static bool writes_in_background(const struct session *session)
{
    const struct options *options = session->options;
    if (options->checkpoint.writers == WRITERS_NODE0)
        return false;
    if (options->checkpoint.background == BACKGROUND_AUTO)
        return hardware_has_memory(session->device);
    return options->checkpoint.background == BACKGROUND_YES;
}

void session_measure(struct session *session, int64_t batch, const struct image_source *source,
                     bool training, size_t (*rows)[MEMORY_CLASSES])
{
    const struct image_source known = session_source(session, source);
    session->batch = batch;
    session->feed_bytes = feed_bytes(session->options, &known, batch, training);
    session->snapshot_bytes =
        training && writes_in_background(session) ? checkpoint_snapshot_bytes(&session->flat) : 0;
    arena_measure(&session->arena);
    session->arena.by_row = rows;
    session_layout(session, &known, training);
    session->arena.by_row = NULL;
}

/* Collective. What is in the background by itself must not be what a host has no memory for. */
static void snapshot_decide(struct session *session)
{
    struct comm *node = session->mesh.node;
    if (session->snapshot_bytes == 0 || session->options->checkpoint.background != BACKGROUND_AUTO)
        return;
    size_t available = memory_available("") / (size_t)node->size;
    int64_t lacks = available > 0 && session->feed_bytes + session->snapshot_bytes > available;
    comm_all_reduce(session->mesh.world, &lacks, 1, COMM_INT64, COMM_MAX);
    if (lacks == 0)
        return;
    log_info("checkpoints: not in the background, as a host has too little memory for it");
    session->snapshot_bytes = 0;
}

static void memory_print(const struct session *session)
{
    const struct arena *arena = &session->arena;
    for (int i = 0; i < MEMORY_CLASSES; i++)
        log_info("  %-12s %10.2f MiB", memory_class_name[i], mib(arena->by_class[i]));
    log_info("  %-12s %10.2f MiB a rank, one allocation", "arena", mib(arena->peak));
    log_info("  %-12s %10.2f MiB a rank besides, for batches that are loaded ahead", "loaders",
             mib(session->feed_bytes));
    if (session->snapshot_bytes > 0)
        log_info("  %-12s %10.2f MiB a rank besides, for checkpoints in the background", "snapshot",
                 mib(session->snapshot_bytes));
}

/* All of it is touched now, so that the first checkpoint does not wait for it. */
static bool snapshot_allocate(struct session *session, struct error *error)
{
    if (session->snapshot_bytes == 0)
        return true;
    session->snapshot =
        session->device->backend->allocate_pinned(session->device, session->snapshot_bytes, error);
    if (session->snapshot == NULL)
        return false;
    memset(session->snapshot, 0, session->snapshot_bytes);
    return true;
}

void session_drop_snapshot(struct session *session)
{
    if (session->snapshot != NULL)
        session->device->backend->release_pinned(session->device, session->snapshot);
    session->snapshot = NULL;
    session->snapshot_bytes = 0;
}

static bool pinned_allocate(struct session *session, struct error *error)
{
    const struct device_backend *backend = session->device->backend;
    session->host_sums =
        backend->allocate_pinned(session->device, sizeof *session->host_sums, error);
    return session->host_sums != NULL &&
           outcome_open(&session->outcomes, session->device, session->options->debug.wait, error) &&
           place_open(&session->places, session->device, error) &&
           snapshot_allocate(session, error);
}

/* Room for what is known of units. */
static void units_prepare(struct session *session, bool training)
{
    size_t units = (size_t)session->model->unit_count;
    session->memory_rows = calloc(units + ARENA_UNIT_ROWS, sizeof *session->memory_rows);
    ENSURE(session->memory_rows != NULL, "no memory for what units take");
    if (!training || !session_sees_times(session))
        return;
    session->unit_seconds = calloc(units, sizeof *session->unit_seconds);
    ENSURE(session->unit_seconds != NULL, "no memory for what units take");
}

void session_place(struct session *session, void *memory, size_t bytes,
                   const struct image_source *source, bool training)
{
    const struct image_source known = session_source(session, source);
    arena_begin(&session->arena, memory, bytes);
    session_layout(session, &known, training);
}

bool session_allocate(struct session *session, int64_t batch, const struct image_source *source,
                      bool training, struct error *error)
{
    if ((source->label_unit > 0) != (session->model->loss == LOSS_SQUARED_ERROR))
        error_set(error, ERROR_USAGE,
                  "model.name=%s learns %s, and the data are of %s: see data.task",
                  session->options->model.name,
                  session->model->loss == LOSS_SQUARED_ERROR ? "numbers" : "classes",
                  source->label_unit > 0 ? "numbers" : "classes");
    if (source->channels != session->model->channels)
        error_set(error, ERROR_USAGE,
                  "the images have %lld channels and model.channels is %lld: set model.channels",
                  (long long)source->channels, (long long)session->model->channels);
    const struct image_source known = session_source(session, source);
    units_prepare(session, training);
    session_measure(session, batch, &known, training, session->memory_rows);
    snapshot_decide(session);
    size_t bytes = session->arena.peak;
    status_set_phase(PHASE_MEMORY);
    log_info("memory:");
    memory_print(session);
    session->base = hardware_memory_base(session->device);
    if (!fit_check(session, source, training, error))
        return false;
    session->memory = session->device->backend->allocate(session->device, bytes, error);
    if (session->memory != NULL)
        pinned_allocate(session, error);
    if (!comm_agree(session->mesh.world, error))
        return false;
    mesh_use_memory(&session->mesh, session->memory, bytes);
    session_place(session, session->memory, bytes, source, training);
    const double scale = session->scaler != NULL ? session->options->train.loss_scale : 1;
    session_set_scaler(session, &(struct loss_scaler){.scale = (float)scale});
    return true;
}

size_t session_needs(const struct session *session)
{
    size_t host = session->feed_bytes + session->snapshot_bytes;
    return session->arena.peak + (hardware_has_memory(session->device) ? 0 : host);
}

void session_set_scaler(struct session *session, const struct loss_scaler *scaler)
{
    const struct device_backend *backend = session->device->backend;
    session->outcome = (struct step_outcome){.used = *scaler, .scaler = *scaler};
    if (session->scaler == NULL)
        return;
    backend->copy(session->stream, session->scaler, scaler, sizeof *scaler);
    backend->stream_synchronize(session->stream);
}

void session_say_memory(const struct session *session)
{
    bool own = hardware_has_memory(session->device);
    size_t needed = session_needs(session), planned = needed + session->base;
    size_t peak = hardware_memory_peak(session->device);
    log_info(
        "memory of rank 0: arena %.1f MiB + loaders and snapshot %.1f MiB + %s %.1f MiB = %.1f MiB "
        "planned, %s at most %.1f MiB (%+.1f %%)",
        mib(session->arena.peak), mib(needed - session->arena.peak), own ? "context" : "libraries",
        mib(session->base), mib(planned), own ? "in use on the GPU" : "resident", mib(peak),
        100 * ((double)peak / (double)planned - 1));
}

/* Names for the profile: the units', and one for what belongs to none. */
static void profile_report(const struct session *session)
{
    const struct model *model = session->model;
    const char **names = calloc((size_t)model->unit_count + 1, sizeof *names);
    ENSURE(names != NULL, "no memory for a profile");
    for (int u = 0; u < model->unit_count; u++)
        names[u] = model->units[u].name;
    names[model->unit_count] = "(the step)";
    profile_print(session->profile, names);
    free(names);
}

void session_close(struct session *session)
{
    if (session->profile != NULL)
        profile_report(session);
    profile_close(session->profile);
    free(session->unit_seconds);
    free(session->memory_rows);
    if (session->device != NULL) {
        const struct device_backend *backend = session->device->backend;
        backend->stream_synchronize(session->stream);
        mesh_leave_device(&session->mesh);
        if (session->flat.buffers != NULL)
            flat_close(&session->flat);
        if (session->host_sums != NULL)
            backend->release_pinned(session->device, session->host_sums);
        outcome_close(&session->outcomes);
        staging_close(&session->staging);
        place_close(&session->places);
        session_drop_snapshot(session);
        if (session->memory != NULL)
            backend->release(session->device, session->memory);
        model_close(session->model);
        backend->stream_close(session->stream);
        backend->close(session->device);
    }
    if (session->mesh.world != NULL)
        mesh_close(&session->mesh);
    memset(session, 0, sizeof *session);
}

void session_activations(struct session *session, bool training)
{
    arena_rewind(&session->arena, session->activations_mark);
    session->model->type->activations(session->model, &session->arena, session->batch, training);
}

static void batch_mix(struct session *session, int64_t count)
{
    const struct staging *staging = &session->staging;
    const struct images_mix mix = {.type = session->compute,
                                   .batch = count,
                                   .channels = session->model->channels,
                                   .height = session->model->image,
                                   .width = session->model->image,
                                   .classes = session->model->classes,
                                   .smoothing = (float)session->options->train.label_smoothing,
                                   .plans = staging->place[staging->turn].mixes,
                                   .labels = session->labels,
                                   .images = session->images,
                                   .targets = session->targets};
    session->device->backend->images_mix(session->stream, &mix);
}

/* From the place of the newest batch to images, and to labels that lie where what is recorded reads
 * them, whatever place the batch came to. */
void session_transform(struct session *session, int64_t count, const struct image_source *source,
                       bool augmented)
{
    const struct device_backend *backend = session->device->backend;
    const struct staging *staging = &session->staging;
    const struct image_source known = session_source(session, source);
    backend->copy(session->stream, session->labels, staging->place[staging->turn].labels,
                  (size_t)count * sizeof(int32_t));
    const struct image_transform transform = {
        .type = session->compute,
        .batch = count,
        .channels = known.channels,
        .source_height = known.height,
        .source_width = known.width,
        .height = session->model->image,
        .width = session->model->image,
        .source = staging->place[staging->turn].pixels,
        .plans = augmented ? staging->place[staging->turn].plans : NULL,
        .mean = session->augment_mean,
        .std = session->augment_std,
        .images = session->images,
        .scratch = session->transform_scratch};
    backend->image_transform(session->stream, &transform);
    if (augmented && session->targets != NULL)
        batch_mix(session, count);
}

void session_upload(struct session *session, struct batch *batch, const struct image_source *source,
                    bool augmented, struct loader *loader)
{
    const struct image_source known = session_source(session, source);
    size_t source_bytes = (size_t)(known.channels * known.height * known.width);
    int64_t count = batch->count; /* the loader may have the batch back below */
    bool mixed = augmented && session->targets != NULL;
    staging_upload(&session->staging, session->stream, batch, source_bytes, augmented, mixed,
                   loader);
    session_transform(session, count, source, augmented);
}

/* Two kinds of losses: of classes, of numbers. */
void session_loss(struct session *session, const struct image_source *source, int64_t count,
                  double scale, bool dlogits, float *probabilities)
{
    const struct device_backend *backend = session->device->backend;
    const struct model *model = session->model;
    const struct cross_entropy classes = {
        .type = session->compute,
        .batch = count,
        .classes = model->classes,
        .smoothing = dlogits ? (float)session->options->train.label_smoothing : 0,
        .scale = (float)scale,
        .logits = session->logits,
        .labels = session->labels,
        .targets = dlogits ? session->targets : NULL,
        .dlogits = dlogits ? session->logits : NULL,
        .scaler = dlogits ? session->scaler : NULL,
        .sums = session->sums,
        .predicted = dlogits ? NULL : session->predicted,
        .probabilities = probabilities};
    const struct squared_error numbers = {.type = session->compute,
                                          .batch = count,
                                          .outputs = model->classes,
                                          .scale = (float)scale,
                                          .label_unit = source->label_unit,
                                          .predictions = session->logits,
                                          .labels = session->labels,
                                          .dpredictions = dlogits ? session->logits : NULL,
                                          .scaler = dlogits ? session->scaler : NULL,
                                          .sums = session->sums};
    if (model->loss == LOSS_CROSS_ENTROPY)
        backend->cross_entropy(session->stream, &classes);
    else
        backend->squared_error(session->stream, &numbers);
}

struct model_pass session_pass(struct session *session, int64_t count, bool training)
{
    return (struct model_pass){.stream = session->stream,
                               .flat = &session->flat,
                               .batch = count,
                               .training = training,
                               .seed = (uint64_t)session->options->run.seed,
                               .place = session->place,
                               .images = session->images,
                               .logits = session->logits};
}

static void range_begin(const struct session *session, const char *name)
{
    if (session->device->backend->range_begin != NULL)
        session->device->backend->range_begin(name);
}

static void range_end(const struct session *session)
{
    if (session->device->backend->range_end != NULL)
        session->device->backend->range_end();
}

bool session_sees_times(const struct session *session)
{
    return !hardware_has_memory(session->device) || session->profile != NULL;
}

/* ---- the time of units: a look at the clock where one begins and where it ends */

/* Seconds that this process waited for others so far. */
static double exposed_now(const struct session *session)
{
    struct comm *world = session->mesh.world;
    double busy, exposed = 0;
    if (world->size > 1)
        world->backend->times(world, &busy, &exposed);
    return exposed;
}

static void unit_clock_begin(struct session *session, int unit)
{
    struct unit_seconds *seconds = &session->unit_seconds[unit];
    bool forward = session->phase == PHASE_FORWARD;
    session->unit_into = forward ? &seconds->forward : &seconds->backward;
    session->unit_waiting = forward ? &seconds->forward_waiting : &seconds->backward_waiting;
    session->unit_exposed = exposed_now(session);
    *session->unit_waiting += session->unit_exposed - session->exposed_seen;
    session->unit_began = clock_now();
}

static void unit_clock_end(struct session *session)
{
    double passed = clock_now() - session->unit_began;
    session->exposed_seen = exposed_now(session);
    double waited = session->exposed_seen - session->unit_exposed;
    *session->unit_into += passed - waited;
    *session->unit_waiting += waited;
    session->unit_into = NULL;
}

void session_phase_begin(struct session *session, enum phase phase)
{
    status_set_phase(phase);
    range_begin(session, status_phase_name(phase));
    session->phase = phase;
    if (session->unit_seconds != NULL)
        session->exposed_seen = exposed_now(session);
}

void session_phase_end(struct session *session)
{
    session->phase = PHASE_START;
    range_end(session);
}

void session_unit_begin(struct session *session, int unit)
{
    profile_unit(session->profile, unit);
    status_set_unit(unit);
    range_begin(session, session->model->units[unit].name);
    if (session->unit_seconds != NULL && session->phase != PHASE_START)
        unit_clock_begin(session, unit);
}

void session_unit_end(struct session *session)
{
    if (session->unit_into != NULL)
        unit_clock_end(session);
    range_end(session);
    profile_unit(session->profile, -1);
}

void session_forward(struct session *session, const struct model_pass *pass)
{
    struct flat_model *flat = &session->flat;
    int units = session->model->unit_count;
    flat_gather_start(flat, 0);
    for (int u = 0; u < units; u++) {
        flat_gather_wait(flat, u);
        if (u + 1 < units)
            flat_gather_start(flat, u + 1);
        session_unit_begin(session, u);
        session->model->type->forward(session->model, pass, u);
        session_unit_end(session);
        flat_free(flat, u);
    }
}
