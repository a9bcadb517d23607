// SPDX-License-Identifier: BSD-3-Clause
/* Opens data, mesh, device and model in the order in which they depend on each other, and lays out
 * this rank's memory. */
#include "train/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrays/grid.h"
#include "base/base.h"
#include "base/log.h"
#include "base/sensors.h"
#include "base/status.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/memory_checkpoint.h"
#include "checkpoint/model_metadata.h"
#include "checkpoint/safetensors.h"
#include "train/hardware.h"
#include "train/step.h"

/* ---- data */

/* Check that records of both splits have the same shape, and that labels mean the same classes. A
 * split whose classes have no names has their numbers. */
static bool splits_agree(const struct session *session, const struct split_loader *evaluated,
                         struct error *error)
{
    const struct dataset *train = &session->train.dataset, *validation = &evaluated->dataset;
    const struct image_source *is = &evaluated->source, *was = &session->train.source;
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
    if (train->row_weights != NULL && is->rows != was->rows)
        return error_set(error, ERROR_DATA,
                         "train.row_weight: the images for evaluation have %lld rows, those for "
                         "training %lld; set data.root to data whose splits have the same rows",
                         (long long)is->rows, (long long)was->rows);
    const int64_t classes = larger(train->classes, session->options.model.classes);
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

bool session_open_split(struct session *session, enum data_split split, struct split_loader *feed,
                        struct error *error)
{
    if (!split_loader_open(feed, &session->options, split, NULL, 0, session->world, error))
        return false;
    if (splits_agree(session, feed, error) &&
        dataset_copy_origins(&feed->dataset, &session->train.dataset, error))
        split_loader_use_row_weights(feed, session->train.dataset.row_weights);
    return comm_agree(session->world, error);
}

/* ---- mesh, device, model */

/* Sets the normalisation of images and targets by the options or the model's statistics. dataset:
 * its origins (dataset.h) are subtracted from the values; NULL: they are 0. */
static bool normalisation_set(struct session *session, const struct dataset *dataset,
                              struct error *error)
{
    static const double none[IMAGE_CHANNELS];
    const double *origin = dataset != NULL ? dataset->channel_origin : none;
    const double *target_origin =
        dataset != NULL && !dataset->residual ? dataset->target_origin : none;
    struct channel_values mean, std;
    if (!model_normalisation(session->model, &session->options, &mean, &std, error))
        return false;
    for (int c = 0; c < (int)session->model->channels; c++) {
        session->input.mean[c] = (float)(mean.value[mean.count > 1 ? c : 0] - origin[c]);
        session->input.std[c] = (float)std.value[std.count > 1 ? c : 0];
    }
    const struct value_statistics *statistics = &session->model->statistics;
    for (int t = 0; t < IMAGE_CHANNELS; t++) {
        const bool known = t < statistics->target_mean.count;
        session->input.target_mean[t] =
            known ? (float)(statistics->target_mean.value[t] - target_origin[t]) : 0;
        session->input.target_std[t] = known ? (float)statistics->target_std.value[t] : 1;
    }
    return true;
}

/* Fails if options do not fit training with grains, whose results do not depend on the layout. */
static bool grains_check(const struct session *session, struct error *error)
{
    const struct mesh *mesh = &session->mesh;
    const struct options *options = &session->options;
    const struct model *model = session->model;
    const struct {
        bool is_wrong;
        const char *text;
    } rules[] = {
        {options->debug.flip != FLIP_OFF && options->debug.flip_rank >= mesh->world->size,
         "debug.flip_rank is not a rank of the run"},
        {mesh->replica->rank * mesh->shard->size + mesh->shard->rank != mesh->world->rank,
         "train.exact=layout needs ranks that are numbered node by node; start them with mpirun "
         "--map-by slot or srun --distribution=block"},
        {model->batch_norms && options->train.check_every > 0,
         "train.check_every computes single grains, but batch norm uses all samples; leave it out "
         "for this model"},
        {model->local_norms,
         "train.exact=layout: batch norm with model.sync_bn=off uses the samples of one rank; "
         "leave out model.sync_bn"},
        {model->batch_norms && options->train.accumulate > 1,
         "train.exact=layout: batch norm uses the samples of one micro-batch; leave out "
         "train.accumulate"}};
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].is_wrong)
            return error_set(error, ERROR_USAGE, "%s", rules[i].text);
    return true;
}

/* Opens the model, and before it the grains, which it reads when it measures its workspaces. */
static bool model_set_up(struct session *session, bool training, struct error *error)
{
    const struct options *options = &session->options;
    session->grain = options_grain(options, session->global_batch);
    if (session->grain > 0) {
        if (!options_check_grain(options, session->global_batch, error))
            return false;
        session->grains = grains_open(session->device, session->grain);
    }
    session->model = model_open(options, session->device, session->compute, error);
    if (session->model == NULL)
        return false;
    session->input.type = session->compute;
    session->input.channels = session->model->channels;
    session->input.image = session->model->image;
    session->input.classes = session->model->classes;
    session->input.smoothing = (float)options->train.label_smoothing;
    for (int u = 0; u < session->model->unit_count; u++)
        status_name_unit(u, session->model->units[u].name);
    if (options->debug.profile)
        session->profile = profile_open(session->device, session->model->unit_count);
    return normalisation_set(session, NULL, error) &&
           (!training || session->grain == 0 || grains_check(session, error));
}

/* Opens device, model and flat buffers on the open mesh. */
static bool set_up(struct session *session, bool training, struct error *error)
{
    const struct options *options = &session->options;
    const struct mesh *mesh = &session->mesh;
    struct comm *world = session->world;
    session->global_batch = split_loader_global_batch(options, world->size);
    session->accumulate = options->train.accumulate;
    session->timer = (struct step_timer){.phase = STEP_PHASES, .unit = -1};
    session->device = hardware_open(options, mesh->node, error);
    if (session->device != NULL) {
        session->device->backend->limits(session->device, &session->limits);
        session->stream = session->device->backend->stream_open(session->device);
        batch_upload_open(&session->input, session->device);
    }
    if (!comm_agree(world, error) ||
        !hardware_check(options, &session->limits, mesh->node, world, error) ||
        !mesh_use_device(&session->mesh, session->device, error))
        return false;

    /* A 16-bit type only if all ranks can multiply it. */
    int64_t lacking[] = {!session->limits.multiplies_bf16, !session->limits.multiplies_fp16};
    comm_all_reduce(world, lacking, 2, COMM_INT64, COMM_MAX);
    const enum data_type types[] = {[PRECISION_FP32] = TYPE_FP32,
                                    [PRECISION_BF16] = TYPE_BF16,
                                    [PRECISION_FP16] = TYPE_FP16,
                                    [PRECISION_AUTO] = !lacking[0]   ? TYPE_BF16
                                                       : !lacking[1] ? TYPE_FP16
                                                                     : TYPE_FP32};
    session->compute = types[options->train.precision];
    error_defer(model_set_up(session, training, error));
    if (!comm_agree(world, error))
        return false;

    int moments = training ? optimizer_moments(options) : 0;
    flat_open(&session->flat, session->model->units, session->model->unit_count, &session->mesh,
              session->device, session->stream, session->compute, moments, options->optim.ema > 0,
              training);
    /* train.check_every compares computations of different ranks, so each has its own weights. */
    if (mesh->one_node && !hardware_has_memory(session->device) &&
        options->mesh.transport != TRANSPORT_RING && options->train.check_every == 0)
        flat_use_shared_memory(&session->flat);
    if (training && session->grains != NULL)
        flat_use_grains(&session->flat, session_grains(session), options->train.accumulate,
                        options->train.check_every > 0);
    return true;
}

bool session_open_model(struct session *session, bool training,
                        const struct model_metadata *weights, struct error *error)
{
    const struct split_loader *feed = training ? &session->train : &session->validation;
    option_text *loss_weights = &session->options.train.weights;
    if (!training && feed->dataset.target.count == 0) /* evaluations of labels have no weights */
        snprintf(*loss_weights, sizeof *loss_weights, "auto");
    if (error->kind == ERROR_NONE)
        error_defer(options_resolve(&session->options, &feed->dataset, weights, error) &&
                    loss_weights_set(session, &feed->dataset, error));
    if (!comm_agree(session->world, error))
        return false;
    status_set_phase(PHASE_MODEL_OPEN);
    if (!mesh_open(&session->mesh, session->world, &session->options.mesh, error) ||
        !set_up(session, training, error))
        return false;
    if (feed->dataset.target.count > 0)
        session->model->loss = LOSS_TARGETS;
    return true;
}

bool session_imagine(struct session *session, const struct options *options, int ranks,
                     int node_ranks, bool training, struct error *error)
{
    *session = (struct session){.options = *options};
    if (!mesh_imagine(&session->mesh, 0, ranks, node_ranks, &session->options.mesh, error))
        return false;
    session->world = session->mesh.world;
    return set_up(session, training, error);
}

bool session_reads_weights(const struct options *options)
{
    return strcmp(options->model.init, "none") != 0 && options->model.init[0] != '\0';
}

bool session_open(struct session *session, const struct options *options, struct comm *world,
                  struct error *error)
{
    struct model_metadata weights;
    char path[WEIGHTS_PATH];
    *session = (struct session){
        .world = world, .options = *options, .validates = options->data.val != VALIDATION_NONE};
    status_set_phase(PHASE_DATA_OPEN);
    if (!split_loader_open(&session->train, &session->options, SPLIT_TRAIN, NULL, 0, world,
                           error) ||
        (session->validates &&
         !session_open_split(session, SPLIT_VALIDATION, &session->validation, error)))
        return false;
    weights = (struct model_metadata){.class_count = 0};
    if (session_reads_weights(options) &&
        weights_file_find(options->model.init, true, world, path, error)) {
        /* A run that is resumed does not need the file. */
        int64_t there = access(path, R_OK) == 0;
        comm_broadcast(world, &there, 1, COMM_INT64, 0);
        if (there == 0 || model_metadata_read(path, world, &weights, error))
            error_defer(model_metadata_check(&weights, options->model.init, options, true, error));
    }
    const bool good = session_open_model(session, true, &weights, error);
    model_metadata_free(&weights);
    return good;
}

/* ---- memory. The same code measures the arena and allocates from it. */

/* Allocates the buffers of a pass. */
static void batch_allocate(struct session *session, const struct image_source *source)
{
    struct arena *arena = &session->memory.arena;
    const bool training = session->flat.training;
    const struct train_options *train = &session->options.train;
    size_t batch = (size_t)session->batch, outputs = (size_t)model_output_count(session->model);
    batch_upload_allocate(&session->input, arena, session->batch, source,
                          training && mix_is_asked_for(&session->options));
    session->predicted = arena_take(arena, MEMORY_BUFFERS, batch * sizeof *session->predicted);
    session->probabilities =
        arena_take(arena, MEMORY_BUFFERS, batch * outputs * sizeof *session->probabilities);
    size_t logits_bytes = batch * outputs * type_size(session->compute);
    session->logits = arena_take(arena, MEMORY_BUFFERS, logits_bytes);
    session->unflipped_logits =
        session->options.eval.flip ? arena_take(arena, MEMORY_BUFFERS, logits_bytes) : NULL;
    session->loss_weights =
        loss_weights_are_set(&session->options)
            ? arena_take(arena, MEMORY_BUFFERS, (size_t)session->model->classes * sizeof(float))
            : NULL;
    session->row_weights =
        train->row_weight == ROW_WEIGHT_NONE
            ? NULL
            : arena_take(arena, MEMORY_BUFFERS, (size_t)source->rows * sizeof(float));
    session->nonfinite_index = arena_take(arena, MEMORY_BUFFERS, sizeof *session->nonfinite_index);
    step_io_allocate(&session->io, arena, training && session->compute == TYPE_FP16);
    const bool counts = session->model->loss == LOSS_TARGETS || session->loss_weights != NULL;
    session->flat.counted = counts && session->io.sums != NULL ? &session->io.sums->counted : NULL;
}

int64_t session_grains(const struct session *session)
{
    return round_up_division(split_loader_global_batch(&session->options, session->world->size),
                             session->grain);
}

/* Training's activations are laid out first because they are larger. */
static void session_layout(struct session *session, const struct image_source *source)
{
    struct arena *arena = &session->memory.arena;
    const bool training = session->flat.training;
    const struct device_backend *backend = session->device->backend;
    flat_allocate(&session->flat, arena);
    batch_allocate(session, source);
    if (training && session->grains != NULL) {
        int64_t largest = 0, channels = 0; /* elements of a tensor; channels of a batch norm */
        for (int u = 0; u < session->model->unit_count; u++)
            for (int t = 0; t < session->model->units[u].tensor_count; t++) {
                const struct unit_tensor *tensor = &session->model->units[u].tensors[t];
                largest = larger(largest, tensor->count);
                if (tensor->kind == TENSOR_STATE)
                    channels = larger(channels, tensor->count);
            }
        grains_allocate(session->grains, arena, session->batch, session_grains(session), largest,
                        channels);
    }
    size_t workspace = backend->workspace_bytes(session->device);
    void *memory = arena_take(arena, MEMORY_BUFFERS, workspace);
    if (!arena_is_measuring(arena))
        backend->workspace_set(session->device, memory, workspace);
    session->memory.activations_mark = arena_mark(arena);
    if (training)
        session_activations(session, true);
    session_activations(session, false);
    if (training)
        session_activations(session, true);
}

void session_measure(struct session *session, int64_t batch, const struct image_source *source)
{
    const bool training = session->flat.training;
    struct session_memory *memory = &session->memory;
    const struct options *options = &session->options;
    const struct image_source known = batch_upload_source(&session->input, source);
    /* On a GPU node the host has cores and memory to spare, so auto writes in the background. */
    bool background = options->checkpoint.background == SWITCH_AUTO
                          ? hardware_has_memory(session->device)
                          : options->checkpoint.background == SWITCH_ON;
    bool snapshot = training && background && options->checkpoint.writers != WRITERS_NODE0;
    session->batch = batch;
    memory->loader_bytes = split_loader_bytes(options, &known, batch, training);
    if (session->model->loss == LOSS_TARGETS) /* outputs of an evaluation */
        memory->loader_bytes +=
            (size_t)(batch * model_output_count(session->model)) * sizeof(float);
    memory->snapshot_bytes = snapshot ? checkpoint_divide(&session->flat).snapshot_bytes : 0;
    memory->shared_bytes =
        training && options->checkpoint.memory > 0 ? memory_checkpoint_bytes(&session->flat) : 0;
    arena_measure(&memory->arena);
    free(memory->rows);
    memory->rows = memory->arena.by_row =
        allocate((size_t)session->model->unit_count + ARENA_UNIT_ROWS, sizeof *memory->rows);
    session_layout(session, source);
    memory->arena.by_row = NULL;
}

/* Return the planned host memory without the arena, in bytes. */
static size_t session_host_bytes(const struct session *session)
{
    const struct session_memory *memory = &session->memory;
    return memory->loader_bytes + memory->snapshot_bytes + memory->shared_bytes;
}

static void memory_print(const struct session *session)
{
    const struct session_memory *memory = &session->memory;
    struct text_stream parts;
    FILE *stream = text_stream_open(&parts);
    const struct {
        const char *name;
        size_t bytes;
    } others[] = {{"loaders", memory->loader_bytes},
                  {"background checkpoints", memory->snapshot_bytes},
                  {"checkpoints in memory", memory->shared_bytes}};
    for (int i = 0; i < MEMORY_CLASSES; i++)
        if (memory->arena.by_class[i] > 0)
            fprintf(stream, "%s %.2f, ", memory_class_name[i], mib(memory->arena.by_class[i]));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (others[i].bytes > 0)
            fprintf(stream, "%s %.2f, ", others[i].name, mib(others[i].bytes));
    fprintf(stream, "%.2f of these in memory that ranks share", mib(memory->arena.outside));
    char *text = text_stream_close(&parts);
    log_info("memory: %.1f MiB per rank (%s)",
             mib(arena_total(&memory->arena) + session_host_bytes(session)), text);
    free(text);
}

void session_drop_snapshot(struct session *session)
{
    if (session->memory.snapshot != NULL)
        session->device->backend->release_pinned(session->device, session->memory.snapshot);
    session->memory.snapshot = NULL;
    session->memory.snapshot_bytes = 0;
}

static struct memory_shortage shortage; /* room 0: none */

const struct memory_shortage *session_shortage(void)
{
    return shortage.room > 0 ? &shortage : NULL;
}

/* Collective. Measures and prints the memory of the session. Returns false and an error if it is
 * not available. */
static bool session_fits(struct session *session, int64_t batch, const struct image_source *source,
                         struct error *error)
{
    struct session_memory *memory = &session->memory;
    const struct options *options = &session->options;
    struct comm *world = session->world, *node = session->mesh.node;
    session_measure(session, batch, source);
    if (memory->snapshot_bytes > 0 && options->checkpoint.background == SWITCH_AUTO) {
        const size_t available = memory_available("") / (size_t)node->size;
        int64_t lacks = available > 0 && session_host_bytes(session) > available;
        comm_all_reduce(world, &lacks, 1, COMM_INT64, COMM_MAX);
        if (lacks != 0) {
            log_info(
                "checkpoints: not in the background, because a host has too little memory for it");
            memory->snapshot_bytes = 0;
        }
    }
    memory_print(session);

    const size_t needed = session_needs(session);
    memory->base = hardware_memory_base(session->device);
    const size_t room = hardware_memory_room(session->device, node, options, memory->base);
    const bool planned = options->plan.memory > 0, gpu = hardware_has_memory(session->device);
    const bool fits = error->kind != ERROR_NONE || room == 0 || needed <= room;
    shortage.room = 0;
    if (!fits)
        error_set(
            error, ERROR_MEMORY,
            "too little memory: a rank needs %.1f MiB for %lld image%s per pass, and %s%s has "
            "%.1f MiB for it besides a reserve of %d %%",
            mib(needed), (long long)session->batch, session->batch == 1 ? "" : "s",
            gpu && !planned ? "the GPU on " : "", planned ? "plan.memory" : comm_host(), mib(room),
            planned ? 0 : RESERVE_PERCENT);
    if (comm_agree(world, error))
        return true;
    int64_t least = fits ? INT64_MAX : (int64_t)room;
    comm_all_reduce(world, &least, 1, COMM_INT64, COMM_MIN);
    if (least < INT64_MAX)
        shortage = (struct memory_shortage){.options = *options,
                                            .source = *source,
                                            .training = session->flat.training,
                                            .ranks = world->size,
                                            .node_ranks = node->size,
                                            .room = least};
    return false;
}

void session_place(struct session *session, void *memory, size_t bytes,
                   const struct image_source *source)
{
    arena_begin(&session->memory.arena, memory, bytes);
    session_layout(session, source);
}

/* Collective. Measures the memory, opens what ranks share, and checks that all of it is available;
 * without sharing if that is not possible, or leaves too little of /dev/shm for checkpoint.memory.
 * Checkpoints of an earlier attempt count as used. */
static bool memory_settle(struct session *session, int64_t batch, const struct image_source *source,
                          struct error *error)
{
    const struct session_memory *memory = &session->memory;
    struct comm *world = session->world;
    if (session_fits(session, batch, source, error)) {
        const size_t shared = memory->arena.outside, checkpoints = memory->shared_bytes;
        const double free = shared_memory_free();
        const double needed = (double)(shared + checkpoints) * session->mesh.node->size;
        struct error why = {0};
        if (shared > 0 && checkpoints > 0 && free >= 0 && free < needed)
            error_set(
                &why, ERROR_MEMORY,
                "with checkpoint.memory they need %.1f MB of /dev/shm, where %.1f MB are free",
                needed / 1e6, free / 1e6);
        if (comm_agree(world, &why) && flat_share(&session->flat, &why))
            return true;
        log_info("ranks do not share memory for weights and gradients: %s", why.text);
    } else {
        /* Slots can be smaller than a rank's part of whole weights. */
        int64_t could = session->flat.shares_memory && session->mesh.shard_weights;
        comm_all_reduce(world, &could, 1, COMM_INT64, COMM_MAX);
        if (could == 0)
            return false;
        log_info("ranks do not share memory for weights and gradients: slots need less");
        *error = (struct error){0};
    }
    flat_unshare(&session->flat);
    return session_fits(session, batch, source, error);
}

/* Collective. Measures, prints the table of memory, checks that the memory is available, allocates.
 * The error for too little memory is the same on all ranks. */
static bool session_allocate(struct session *session, int64_t batch,
                             const struct image_source *source, struct error *error)
{
    const bool training = session->flat.training;
    struct session_memory *memory = &session->memory;
    if (source->target.count == 0 && session->model->loss == LOSS_TARGETS)
        error_set(error, ERROR_USAGE,
                  "model.name=%s predicts numbers, but the labels of the data are classes: see "
                  "data.task",
                  session->options.model.name);
    if (source->channels != session->model->channels)
        error_set(error, ERROR_USAGE,
                  "the images have %lld channels, but the model has %lld: set model.channels, or "
                  "data.order for arrays",
                  (long long)source->channels, (long long)session->model->channels);
    if (training && session_sees_times(session))
        session->timer.seconds =
            allocate((size_t)session->model->unit_count, sizeof *session->timer.seconds);
    status_set_phase(PHASE_MEMORY);
    if (!memory_settle(session, batch, source, error))
        return false;
    size_t bytes = memory->arena.peak;
    const struct device_backend *backend = session->device->backend;
    memory->allocation = backend->allocate(session->device, bytes, error);
    if (memory->allocation != NULL &&
        step_io_open(&session->io, session->device, session->options.debug.wait, error) &&
        memory->snapshot_bytes > 0)
        memory->snapshot = backend->allocate_pinned(session->device, memory->snapshot_bytes, error);
    if (!comm_agree(session->world, error))
        return false;
    /* Touch all pages now, so that the first checkpoint does not wait for page faults. */
    if (memory->snapshot != NULL)
        memset(memory->snapshot, 0, memory->snapshot_bytes);
    mesh_use_memory(&session->mesh, memory->allocation, bytes);
    session_place(session, memory->allocation, bytes, source);
    const double scale = session->io.scaler != NULL ? session->options.train.loss_scale : 1;
    session_set_scaler(session, &(struct loss_scaler){.scale = (float)scale});
    const struct dataset *dataset = &(training ? &session->train : &session->validation)->dataset;
    if (session->loss_weights != NULL)
        backend->copy(session->stream, session->loss_weights, session->class_weights,
                      (size_t)session->model->classes * sizeof *session->class_weights);
    if (session->row_weights != NULL)
        backend->copy(session->stream, session->row_weights, dataset->row_weights,
                      (size_t)source->rows * sizeof(float));
    backend->stream_synchronize(session->stream);
    return true;
}

size_t session_needs(const struct session *session)
{
    return arena_total(&session->memory.arena) +
           (hardware_has_memory(session->device) ? 0 : session_host_bytes(session));
}

size_t session_memory_used(const struct session *session, bool peak)
{
    return hardware_memory(session->device, peak) + session->memory.arena.outside;
}

void session_set_scaler(struct session *session, const struct loss_scaler *scaler)
{
    const struct device_backend *backend = session->device->backend;
    session->io.result = (struct step_result){.used = *scaler, .scaler = *scaler};
    if (session->io.scaler == NULL)
        return;
    backend->copy(session->stream, session->io.scaler, scaler, sizeof *scaler);
    backend->stream_synchronize(session->stream);
}

/* ---- statistics, weights */

bool session_needs_statistics(const struct session *session, const struct dataset *dataset)
{
    const struct augment_options *augment = &session->options.augment;
    return (dataset->type == DATASET_FLOAT32 || dataset->channels > OPTION_LIST) &&
           (augment->mean.count == 0 || augment->std.count == 0 || dataset->target_normalised);
}

bool session_use_statistics(struct session *session, struct dataset *dataset,
                            const struct value_statistics *statistics, struct error *error)
{
    struct dataset *validation = &session->validation.dataset;
    session->model->statistics = *statistics;
    error_defer(dataset_set_origins(dataset, statistics, error) &&
                (!session->validates || dataset == validation ||
                 dataset_copy_origins(validation, dataset, error)) &&
                normalisation_set(session, dataset, error));
    return comm_agree(session->world, error);
}

bool session_find_statistics(struct session *session, struct error *error)
{
    struct dataset *dataset = &session->train.dataset;
    struct value_statistics statistics = {.mean = {.count = 0}};
    if (!session_needs_statistics(session, dataset))
        return true;
    if (dataset->type == DATASET_FLOAT32) {
        status_set_phase(PHASE_DATA_OPEN);
        if (!statistics_compute(dataset, session->world, (int)session->options.data.workers,
                                &statistics, error))
            return false;
        if (statistics.mean.count == 0) /* a signal requests the end */
            return true;
    }
    return session_use_statistics(session, dataset, &statistics, error);
}

bool session_start(struct session *session, struct error *error)
{
    const struct options *options = &session->options;
    struct comm *world = session->world;
    const struct image_size image = session->model->image;
    const bool training = session->flat.training;
    const struct split_loader *feed = training ? &session->train : &session->validation;
    int64_t batch = training ? split_loader_pass_samples(options, session->global_batch,
                                                         world->size, session->accumulate)
                             : round_up(options->train.batch, larger(1, session->grain));
    if (training && options->data.drop_last && session->train.dataset.count < session->global_batch)
        return error_set(error, ERROR_USAGE,
                         "the global batch of %lld is larger than the %lld samples and "
                         "data.drop_last=on leaves none: use a smaller batch",
                         (long long)session->global_batch, (long long)session->train.dataset.count);
    if (!session_allocate(session, batch, &feed->source, error) ||
        (training &&
         !split_loader_start(&session->train, options, world, session->device,
                             session->global_batch, session->accumulate, image, error)) ||
        (session->validates &&
         !split_loader_start_evaluation(&session->validation, options, world, session->device,
                                        batch, image, error)))
        return false;
    if (!training)
        return true;
    flat_set_segments(&session->flat, options->optim.weight_decay, session->accumulate);
    step_open(session);
    return true;
}

bool session_read_weights(struct session *session, const char *path, bool accepts_other_head,
                          struct error *error)
{
    const struct checkpoint_target target = {.writers = WRITERS_AUTO, .options = &session->options};
    char place[TENSOR_NAME + 32];
    struct error nonfinite = {.kind = ERROR_NONE};
    if (session->world->rank == 0)
        error_defer(weights_file_check(path, error));
    if (!comm_agree(session->world, error))
        return false;
    bool good = text_ends_with(path, ".safetensors")
                    ? safetensors_read(path, accepts_other_head, &session->flat, error)
                    : checkpoint_read(path, &target, &session->flat, NULL, true, error);
    if (!good)
        return false;
    if (flat_find_nonfinite(&session->flat, false, place, sizeof place))
        error_set(&nonfinite, ERROR_NUMERIC, "%s contains NaN or infinity, first in %s", path,
                  place);
    if (!comm_agree(session->world, &nonfinite))
        log_warn("%s", nonfinite.text);
    return true;
}

bool session_initialize(struct session *session, struct error *error)
{
    const char *init = session->options.model.init;
    char path[WEIGHTS_PATH];
    if (!session_find_statistics(session, error))
        return false;
    status_set_phase(PHASE_WEIGHTS_READ);
    flat_initialize(&session->flat, (uint64_t)session->options.run.seed);
    if (!session_reads_weights(&session->options))
        return true;
    if (!weights_file_find(init, true, session->world, path, error))
        return false;
    if (session->world->rank == 0)
        error_defer(weights_file_exists("model.init: ", path, error));
    if (!comm_agree(session->world, error))
        return false;
    log_info("weights: from %s", path);
    return session_read_weights(session, path, true, error);
}

void session_close(struct session *session)
{
    struct session_memory *memory = &session->memory;
    const struct model *model = session->model;
    step_close(session);
    split_loader_close(&session->train);
    split_loader_close(&session->validation);
    if (session->profile != NULL) {
        const char **names = allocate((size_t)model->unit_count + 1, sizeof *names);
        for (int u = 0; u < model->unit_count; u++)
            names[u] = model->units[u].name;
        names[model->unit_count] = "(the step)";
        profile_print(session->profile, names);
        free(names);
    }
    profile_close(session->profile);
    grains_close(session->grains);
    free(session->timer.seconds);
    free(session->class_weights);
    free(memory->rows);
    if (session->device != NULL) {
        const struct device_backend *backend = session->device->backend;
        backend->stream_synchronize(session->stream);
        mesh_leave_device(&session->mesh);
        if (session->flat.buffers != NULL)
            flat_close(&session->flat);
        step_io_close(&session->io);
        batch_upload_close(&session->input);
        session_drop_snapshot(session);
        if (memory->allocation != NULL)
            backend->release(session->device, memory->allocation);
        model_close(session->model);
        backend->stream_close(session->stream);
        backend->close(session->device);
    }
    if (session->mesh.world != NULL)
        mesh_close(&session->mesh);
    memset(session, 0, sizeof *session);
}

/* ---- passes */

void session_activations(struct session *session, bool training)
{
    arena_rewind(&session->memory.arena, session->memory.activations_mark);
    session->model->type->activations(session->model, &session->memory.arena, session->batch,
                                      training);
}

struct model_pass session_pass(struct session *session, int64_t count, bool training)
{
    return (struct model_pass){.stream = session->stream,
                               .flat = &session->flat,
                               .grains = training ? session->grains : NULL,
                               .batch = count,
                               .training = training,
                               .seed = (uint64_t)session->options.run.seed,
                               .params = session->io.params,
                               .images = session->input.images,
                               .logits = session->logits};
}

void session_agree_algorithms(const struct session *session)
{
    struct device *device = session->device;
    const struct device_backend *backend = device->backend;
    struct comm *world = session->world;
    if (backend->choices_are_new == NULL)
        return;
    /* Measuring waits for the rank's stream, and so for collectives of all ranks. */
    backend->stream_synchronize(session->stream);
    for (;;) {
        int64_t lowest = backend->choices_are_new(device) ? world->rank : world->size;
        comm_all_reduce(world, &lowest, 1, COMM_INT64, COMM_MIN);
        if (lowest == world->size)
            return;
        char *own = world->rank == lowest ? backend->choices_export(device) : NULL;
        char *text = comm_broadcast_text(world, own, (int)lowest);
        backend->choices_adopt(device, text);
        free(own);
        free(text);
    }
}

bool session_sees_times(const struct session *session)
{
    return !hardware_has_memory(session->device) || session->profile != NULL;
}
