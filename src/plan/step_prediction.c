// SPDX-License-Identifier: BSD-3-Clause
/* Predicts the time of a step. Its script is recorded: the step's code runs on a device that counts
 * operations (device/count.h) and on groups of ranks that record collectives. The arena is reserved
 * address space without memory: reading it would fault. Then two queues are simulated. Operations
 * and collectives slow each other down, since they share cores or a GPU (struct network:
 * compute_speed, send_speed). */
#define _GNU_SOURCE /* MAP_NORESERVE */
#include "plan/plan.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/base.h"
#include "comm/comm.h"
#include "train/step.h"

/* ---- the script ---- */

/* The script that is being recorded: the backends' functions have no argument for it. */
static struct {
    struct counter counter;
    struct step_script *script;
    const struct session *session;
    struct comm_backend recording;
    enum step_phase phase;
    int last_unit; /* of an event, or -1 */
} active;

static struct script_event *event_add(enum script_event_kind kind)
{
    const struct step_timer *timer = &active.session->timer;
    struct step_script *script = active.script;
    /* The wait for reductions after a backward pass belongs to the update. */
    if (timer->phase != STEP_PHASES)
        active.phase = (enum step_phase)timer->phase;
    else if (active.phase == STEP_BACKWARD)
        active.phase = STEP_UPDATE;
    if (timer->unit >= 0)
        active.last_unit = timer->unit;
    if (script->count == script->capacity) {
        script->capacity = 2 * script->capacity + 256;
        script->event =
            allocate_resized(script->event, (size_t)script->capacity * sizeof *script->event);
    }
    struct script_event *event = &script->event[script->count++];
    *event = (struct script_event){.kind = kind, .phase = active.phase, .unit = timer->unit};
    return event;
}

static void record_operation(struct counter *counter, const struct counted *counted)
{
    (void)counter;
    event_add(EVENT_OPERATION)->counted = *counted;
}

/* Returns the unit whose gradients or weights are in the buffer. A reduce-scatter or an
 * all-to-all starts right after its unit's backward pass, from memory that units share. */
static int unit_served(enum collective_action action, const void *buffer)
{
    const struct flat_model *flat = &active.session->flat;
    if (active.session->timer.unit >= 0)
        return active.session->timer.unit;
    if (action == ACTION_SCATTER || action == ACTION_ALL_TO_ALL)
        return active.last_unit;
    for (int u = 0; u < flat->count; u++) {
        const struct flat_buffer *unit = &flat->buffers[u];
        if (action == ACTION_GATHER ? buffer == unit->weights
                                    : buffer == unit->gradient || buffer == unit->gradient_low)
            return u;
    }
    return -1;
}

/* A request is the collective's number, from 1, which is never dereferenced. */
static struct comm_request *record_start(struct comm *comm, const struct comm_call *call)
{
    static const enum collective_action action[] = {[COMM_ALL_REDUCE] = ACTION_SUM,
                                                    [COMM_REDUCE_SCATTER] = ACTION_SCATTER,
                                                    [COMM_ALL_GATHER] = ACTION_GATHER,
                                                    [COMM_ALL_TO_ALL] = ACTION_ALL_TO_ALL};
    const int64_t blocks = call->action == COMM_ALL_TO_ALL ? call->parts[comm->rank] : 1;
    if (comm->size == 1 || blocks == 0)
        return NULL;
    struct script_event *event = event_add(EVENT_START);
    event->unit = unit_served(action[call->action], call->sent);
    event->number = active.script->collectives++;
    event->collective =
        (struct collective){.action = action[call->action],
                            .replica = comm == active.session->mesh.replica_data,
                            .bytes = (double)(blocks * call->count * comm_type_size(call->type))};
    return (struct comm_request *)((uintptr_t)event->number + 1);
}

static void record_wait(struct comm_request *request, struct stream *stream)
{
    (void)stream;
    if (request != NULL)
        event_add(EVENT_WAIT)->number = (int)((uintptr_t)request - 1);
}

void step_script_make(struct step_script *script, struct session *session,
                      const struct image_source *source)
{
    struct mesh *mesh = &session->mesh;
    const struct comm_backend *backend = mesh->shard->backend;
    const size_t bytes = session->memory.arena.peak;
    ENSURE(mesh->imagined && mesh->shard_data == mesh->shard,
           "only steps of an imagined mesh can be recorded");
    void *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ENSURE(memory != MAP_FAILED, "no address space of %zu bytes to record a step", bytes);
    *script = (struct step_script){0};
    struct error error = {0};
    ENSURE(flat_share(&session->flat, &error), "%s", error.text);
    active.counter = (struct counter){.operation = record_operation};
    active.script = script;
    active.session = session;
    active.phase = STEP_DATA;
    active.last_unit = -1;
    active.recording = *backend;
    active.recording.start = record_start;
    active.recording.wait = record_wait;
    mesh->shard->backend = mesh->replica->backend = &active.recording;
    count_open(session->device, &active.counter);
    session_place(session, memory, bytes, source);
    session->train.source = *source;
    flat_set_segments(&session->flat, 0, session->accumulate);
    flat_updated(&session->flat); /* as in the middle of a run: by the previous step */
    step_open(session);
    step_rehearse(session);
    step_close(session);
    count_close(session->device);
    mesh->shard->backend = mesh->replica->backend = backend;
    munmap(memory, bytes);
}

void step_script_close(struct step_script *script)
{
    free(script->event);
    *script = (struct step_script){0};
}

/* ---- the simulation ---- */

/* A started collective. */
struct queued {
    double left; /* seconds to go without concurrent operations */
    double compute_speed, send_speed;
    int unit;
};

struct simulation {
    struct step_prediction *prediction;
    struct queued *queue; /* [collectives], in order of their start */
    int started, first;   /* first: number of the first unfinished collective */
};

/* Advance the running collective by `seconds` of its work. */
static void queue_move(struct simulation *simulation, double seconds)
{
    struct queued *running = &simulation->queue[simulation->first];
    running->left -= seconds;
    if (running->left <= 1e-15)
        simulation->first++;
}

/* Run operations that take `seconds` alone, concurrently with the queue. */
static void operations_run(struct simulation *simulation, double seconds)
{
    struct step_prediction *prediction = simulation->prediction;
    double alone = seconds, passed = 0;
    while (seconds > 0 && simulation->first < simulation->started) {
        const struct queued *running = &simulation->queue[simulation->first];
        double together =
            fmin(seconds / running->compute_speed, running->left / running->send_speed);
        passed += together;
        seconds -= together * running->compute_speed;
        queue_move(simulation, together * running->send_speed);
        if (seconds < 1e-15)
            seconds = 0;
    }
    passed += seconds;
    prediction->slowed += passed - alone > 1e-12 ? passed - alone : 0; /* above rounding */
    prediction->seconds += passed;
}

void step_predict(struct step_prediction *prediction, const struct step_script *script, int units,
                  const struct machine *machine, const struct mesh_shape *mesh)
{
    struct simulation simulation = {.prediction = prediction};
    struct unit_prediction *step = &prediction->step;
    *prediction = (struct step_prediction){.units = units};
    prediction->unit = allocate((size_t)units + 1, sizeof *prediction->unit);
    simulation.queue = allocate((size_t)script->collectives + 1, sizeof *simulation.queue);
    for (const struct script_event *event = script->event; event < script->event + script->count;
         event++) {
        struct unit_prediction *part = &prediction->unit[event->unit < 0 ? units : event->unit];
        double seconds = 0;
        if (event->kind == EVENT_OPERATION) {
            if (machine != NULL)
                seconds = machine_operation_seconds(machine, &event->counted, mesh->node_ranks);
            if (isinf(seconds)) {
                const char *type = type_name(event->counted.type);
                error_set(&prediction->lacks, ERROR_USAGE,
                          "%s has no speed of matrix products in %s: measure again with "
                          "train.precision=%s, or set [compute] %s_flops",
                          machine->path, type, type, type);
                seconds = 0;
            }
            struct unit_prediction *const both[] = {part, step};
            for (int i = 0; i < 2; i++) {
                both[i]->flops[event->phase] += event->counted.flops;
                both[i]->bytes += event->counted.bytes;
                both[i]->seconds[event->phase] += seconds;
            }
            operations_run(&simulation, seconds);
        } else if (event->kind == EVENT_START && machine == NULL) {
            simulation.started++;
        } else if (event->kind == EVENT_START) {
            const struct collective *collective = &event->collective;
            const struct group_shape *shape = collective->replica ? &mesh->replica : &mesh->shard;
            const struct network *network = shape->nodes > 1 ? &machine->between : &machine->inside;
            seconds = machine_collective_seconds(machine, collective, shape);
            if (isinf(seconds)) {
                error_set(&prediction->lacks, ERROR_USAGE,
                          "%s has no speed of a network: [inside] (a node) and [between] (nodes) "
                          "need bandwidth, which `vittrain bench comm` measures",
                          machine->path);
                seconds = 0;
            }
            simulation.queue[simulation.started++] =
                (struct queued){.left = seconds,
                                .compute_speed = network->compute_speed,
                                .send_speed = network->send_speed,
                                .unit = event->unit};
            part->communication += seconds;
            step->communication += seconds;
        } else {
            /* Wait until a collective is finished, without running operations. */
            const int unit = simulation.queue[event->number].unit;
            while (simulation.first <= event->number) {
                const double left = simulation.queue[simulation.first].left;
                prediction->unit[unit < 0 ? units : unit].exposed += left;
                step->exposed += left;
                prediction->seconds += left;
                queue_move(&simulation, left);
            }
        }
    }
    free(simulation.queue);
}

void step_prediction_close(struct step_prediction *prediction)
{
    free(prediction->unit);
    *prediction = (struct step_prediction){0};
}

/* The shape of a group of `size` ranks that are `stride` apart, with node_ranks ranks per node. */
static struct group_shape group_shape(int size, int stride, int node_ranks)
{
    int inside = stride >= node_ranks ? 1 : node_ranks / stride;
    inside = inside < size ? inside : size;
    int nodes = (int)round_up_division(size, inside);
    int together = node_ranks / inside;
    return (struct group_shape){
        .inside = inside, .nodes = nodes, .groups = nodes > 1 && together > 0 ? together : 1};
}

struct mesh_shape mesh_shape(int ranks, int node_ranks, int shard)
{
    node_ranks = node_ranks < ranks ? node_ranks : ranks;
    return (struct mesh_shape){.shard = group_shape(shard, 1, node_ranks),
                               .replica = group_shape(ranks / shard, shard, node_ranks),
                               .node_ranks = node_ranks};
}
