// SPDX-License-Identifier: BSD-3-Clause
/* Lays out this rank's memory. The same code measures the arena and allocates from it. */
#include "train/session.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/log.h"
#include "base/sensors.h"
#include "base/status.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/memory_checkpoint.h"
#include "train/hardware.h"

/* Allocates the buffers of a pass. */
static void batch_allocate(struct session *session, const struct image_source *source,
                           bool training)
{
    struct arena *arena = &session->memory.arena;
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
        train->weights.count == 0
            ? NULL
            : arena_take(arena, MEMORY_BUFFERS, (size_t)train->weights.count * sizeof(float));
    session->row_weights = train->row_weight == ROW_WEIGHT_NONE
                               ? NULL
                               : arena_take(arena, MEMORY_BUFFERS,
                                            (size_t)session->model->output.height * sizeof(float));
    session->nonfinite_index = arena_take(arena, MEMORY_BUFFERS, sizeof *session->nonfinite_index);
    step_io_allocate(&session->io, arena, training && session->compute == TYPE_FP16);
    const bool counts = session->model->loss == LOSS_TARGETS && session->io.sums != NULL;
    session->flat.counted = counts ? &session->io.sums->counted : NULL;
}

int64_t session_grains(const struct session *session)
{
    return round_up_division(split_loader_global_batch(&session->options, session->world->size),
                             session->grain);
}

/* Training's activations are laid out first because they are larger. */
static void session_layout(struct session *session, const struct image_source *source,
                           bool training)
{
    struct arena *arena = &session->memory.arena;
    const struct device_backend *backend = session->device->backend;
    flat_allocate(&session->flat, arena);
    batch_allocate(session, source, training);
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

void session_measure(struct session *session, int64_t batch, const struct image_source *source,
                     bool training, size_t (*rows)[MEMORY_CLASSES])
{
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
    memory->snapshot_bytes = snapshot ? checkpoint_snapshot_bytes(&session->flat) : 0;
    memory->shared_bytes =
        training && options->checkpoint.memory > 0 ? memory_checkpoint_bytes(&session->flat) : 0;
    arena_measure(&memory->arena);
    memory->arena.by_row = rows;
    session_layout(session, source, training);
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
    char classes[256] = "";
    for (int i = 0; i < MEMORY_CLASSES; i++) {
        const size_t used = strlen(classes);
        if (memory->arena.by_class[i] > 0)
            snprintf(classes + used, sizeof classes - used, "%s%s %.1f", used > 0 ? ", " : "",
                     memory_class_name[i], mib(memory->arena.by_class[i]));
    }
    log_info("memory: %.1f MiB per rank (%s)",
             mib(arena_total(&memory->arena) + session_host_bytes(session)), classes);
    for (int i = 0; i < MEMORY_CLASSES; i++)
        log_detail("  %-12s %10.2f MiB", memory_class_name[i], mib(memory->arena.by_class[i]));
    log_detail("  %-12s %10.2f MiB", "arena", mib(arena_total(&memory->arena)));
    if (memory->arena.outside > 0)
        log_detail("  %-12s %10.2f MiB of the arena: weights and gradients that ranks share",
                   "in /dev/shm", mib(memory->arena.outside));
    log_detail("  %-12s %10.2f MiB for batches that are loaded ahead", "loaders",
               mib(memory->loader_bytes));
    if (memory->snapshot_bytes > 0)
        log_detail("  %-12s %10.2f MiB for background checkpoints", "snapshot",
                   mib(memory->snapshot_bytes));
    if (memory->shared_bytes > 0)
        log_detail("  %-12s %10.2f MiB for checkpoints in memory", "/dev/shm",
                   mib(memory->shared_bytes));
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
                         bool training, struct error *error)
{
    struct session_memory *memory = &session->memory;
    const struct options *options = &session->options;
    struct comm *world = session->world, *node = session->mesh.node;
    const size_t rows = (size_t)session->model->unit_count + ARENA_UNIT_ROWS;
    memset(memory->rows, 0, rows * sizeof *memory->rows);
    session_measure(session, batch, source, training, memory->rows);
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
    const bool fits = error->kind != ERROR_NONE || room == 0 || needed <= room;
    shortage.room = 0;
    if (!fits) {
        char where[256];
        if (options->plan.memory > 0)
            snprintf(where, sizeof where, "plan.memory leaves %.1f MiB besides its libraries",
                     mib(room));
        else if (hardware_has_memory(session->device))
            snprintf(where, sizeof where,
                     "its GPU on %s has %.1f MiB free besides a reserve of %d %%", comm_host(),
                     mib(room), RESERVE_PERCENT);
        else
            snprintf(
                where, sizeof where,
                "%s has %.1f MiB available for each of its %d rank%s besides a reserve of %d %%",
                comm_host(), mib(room), node->size, node->size == 1 ? "" : "s", RESERVE_PERCENT);
        error_set(error, ERROR_MEMORY,
                  "too little memory: a rank needs %.1f MiB for %lld image%s per pass, and %s. "
                  "`vittrain plan` shows what fits",
                  mib(needed), (long long)session->batch, session->batch == 1 ? "" : "s", where);
    }
    if (comm_agree(world, error))
        return true;
    int64_t least = fits ? INT64_MAX : (int64_t)room;
    comm_all_reduce(world, &least, 1, COMM_INT64, COMM_MIN);
    if (least < INT64_MAX)
        shortage = (struct memory_shortage){.options = *options,
                                            .source = *source,
                                            .training = training,
                                            .ranks = world->size,
                                            .node_ranks = node->size,
                                            .room = least};
    return false;
}

void session_place(struct session *session, void *memory, size_t bytes,
                   const struct image_source *source, bool training)
{
    arena_begin(&session->memory.arena, memory, bytes);
    session_layout(session, source, training);
}

/* Collective. Measures the memory, opens what ranks share, and checks that all of it is available;
 * without sharing if that is not possible, or leaves too little of /dev/shm for checkpoint.memory.
 * Checkpoints of an earlier attempt count as used. */
static bool memory_settle(struct session *session, int64_t batch, const struct image_source *source,
                          bool training, struct error *error)
{
    const struct session_memory *memory = &session->memory;
    struct comm *world = session->world;
    if (session_fits(session, batch, source, training, error)) {
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
    return session_fits(session, batch, source, training, error);
}

bool session_allocate(struct session *session, int64_t batch, const struct image_source *source,
                      bool training, struct error *error)
{
    struct session_memory *memory = &session->memory;
    size_t units = (size_t)session->model->unit_count;
    if ((source->target.count > 0) != (session->model->loss == LOSS_TARGETS))
        error_set(error, ERROR_USAGE,
                  "model.name=%s predicts %s, but the labels of the data are %s: see data.task",
                  session->options.model.name,
                  session->model->loss == LOSS_TARGETS ? "numbers" : "classes",
                  source->target.count > 0 ? "numbers" : "classes");
    if (source->channels != session->model->channels)
        error_set(error, ERROR_USAGE,
                  "the images have %lld channels, but model.channels%s is %lld; %s%s",
                  (long long)source->channels, training ? "" : " of the weights",
                  (long long)session->model->channels,
                  training ? "set it to that number" : "use data with as many",
                  strcmp(session->options.data.format, "arrays") == 0
                      ? ", or set data.order=chw or hwc if that is the order of the dimensions"
                  : source->type == DATASET_UINT8 ? " (image files always have 3)"
                                                  : "");
    memory->rows = allocate(units + ARENA_UNIT_ROWS, sizeof *memory->rows);
    if (training && session_sees_times(session))
        session->timer.seconds = allocate(units, sizeof *session->timer.seconds);
    status_set_phase(PHASE_MEMORY);
    if (!memory_settle(session, batch, source, training, error))
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
    session_place(session, memory->allocation, bytes, source, training);
    const double scale = session->io.scaler != NULL ? session->options.train.loss_scale : 1;
    session_set_scaler(session, &(struct loss_scaler){.scale = (float)scale});
    /* The weights of the loss. */
    const struct option_list *weights = &session->options.train.weights;
    float values[OPTION_LIST];
    for (int i = 0; i < weights->count; i++)
        values[i] = (float)weights->value[i];
    if (session->loss_weights != NULL)
        backend->copy(session->stream, session->loss_weights, values,
                      (size_t)weights->count * sizeof *values);
    if (session->row_weights != NULL)
        backend->copy(session->stream, session->row_weights,
                      (training ? &session->train : &session->validation)->dataset.row_weights,
                      (size_t)session->model->output.height * sizeof(float));
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

void session_log_memory(const struct session *session)
{
    bool gpu = hardware_has_memory(session->device);
    size_t arena = arena_total(&session->memory.arena), base = session->memory.base;
    size_t needed = session_needs(session), planned = needed + base;
    size_t peak = session_memory_used(session, true);
    log_detail("memory of rank 0: planned %.1f MiB (arena %.1f + loaders and checkpoints %.1f + %s "
               "%.1f), %s at most %.1f MiB (%+.1f %%)",
               mib(planned), mib(arena), mib(needed - arena), gpu ? "context" : "libraries",
               mib(base), gpu ? "in use on the GPU" : "resident", mib(peak),
               100 * ((double)peak / (double)planned - 1));
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
