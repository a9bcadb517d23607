// SPDX-License-Identifier: BSD-3-Clause
/* The simulation. Operations and collectives slow each other down, since they share cores or a GPU
 * (struct network: compute_speed, send_speed). */
#include "plan/plan.h"

#include <math.h>
#include <stdlib.h>

/* A started collective. */
struct queued {
    double left; /* seconds to go without concurrent operations */
    double compute_speed, send_speed;
    int unit;
};

struct simulation {
    struct step_prediction *prediction;
    const struct machine *machine;
    const struct mesh_shape *mesh;
    struct queued *queue; /* [collectives], in order of their start */
    int started, first;   /* first: number of the first unfinished collective */
};

static struct unit_prediction *part_of(struct step_prediction *prediction, int unit)
{
    return &prediction->unit[unit < 0 ? prediction->units : unit];
}

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

/* Wait until a collective is finished, without running operations. */
static void wait_for(struct simulation *simulation, int number)
{
    int unit = simulation->queue[number].unit;
    while (simulation->first <= number) {
        double left = simulation->queue[simulation->first].left;
        part_of(simulation->prediction, unit)->exposed += left;
        simulation->prediction->step.exposed += left;
        simulation->prediction->seconds += left;
        queue_move(simulation, left);
    }
}

static void collective_start(struct simulation *simulation, const struct script_event *event,
                             struct unit_prediction *part)
{
    const struct machine *machine = simulation->machine;
    const struct group_shape *shape =
        event->collective.replica ? &simulation->mesh->replica : &simulation->mesh->shard;
    if (machine == NULL) {
        simulation->started++;
        return;
    }
    const struct network *network = shape->nodes > 1 ? &machine->between : &machine->inside;
    double seconds = machine_collective_seconds(machine, &event->collective, shape);
    simulation->queue[simulation->started++] =
        (struct queued){.left = seconds,
                        .compute_speed = network->compute_speed,
                        .send_speed = network->send_speed,
                        .unit = event->unit};
    part->communication += seconds;
    simulation->prediction->step.communication += seconds;
}

static void operation_run(struct simulation *simulation, const struct script_event *event,
                          struct unit_prediction *part)
{
    struct unit_prediction *step = &simulation->prediction->step;
    double seconds = simulation->machine == NULL
                         ? 0
                         : machine_operation_seconds(simulation->machine, &event->counted,
                                                     simulation->mesh->node_ranks);
    struct unit_prediction *const both[] = {part, step};
    for (int i = 0; i < 2; i++) {
        both[i]->flops[event->phase] += event->counted.flops;
        both[i]->bytes += event->counted.bytes;
        both[i]->seconds[event->phase] += seconds;
    }
    operations_run(simulation, seconds);
}

/* Check that the machine has all speeds that the script needs. */
static bool speeds_check(const struct step_script *script, const struct machine *machine,
                         const struct mesh_shape *mesh, struct error *error)
{
    for (int i = 0; i < script->count; i++) {
        const struct script_event *event = &script->event[i];
        if (event->kind == EVENT_OPERATION && event->counted.flops > 0 &&
            !machine_multiplies(machine, event->counted.type))
            return error_set(error, ERROR_USAGE,
                             "%s has no speed of matrix products in %s: measure again with "
                             "train.precision=%s, or set [compute] %s_flops",
                             machine->path, type_name(event->counted.type),
                             type_name(event->counted.type), type_name(event->counted.type));
        if (event->kind == EVENT_START &&
            !machine_connects(machine, event->collective.replica ? &mesh->replica : &mesh->shard,
                              error))
            return false;
    }
    return true;
}

bool step_predict(struct step_prediction *prediction, const struct step_script *script, int units,
                  const struct machine *machine, const struct mesh_shape *mesh, struct error *error)
{
    struct simulation simulation = {.prediction = prediction, .machine = machine, .mesh = mesh};
    *prediction = (struct step_prediction){.units = units};
    if (machine != NULL && !speeds_check(script, machine, mesh, error))
        return false;
    prediction->unit = allocate((size_t)units + 1, sizeof *prediction->unit);
    simulation.queue = allocate((size_t)script->collectives + 1, sizeof *simulation.queue);
    for (int i = 0; i < script->count; i++) {
        const struct script_event *event = &script->event[i];
        struct unit_prediction *part = part_of(prediction, event->unit);
        if (event->kind == EVENT_OPERATION)
            operation_run(&simulation, event, part);
        else if (event->kind == EVENT_START)
            collective_start(&simulation, event, part);
        else
            wait_for(&simulation, event->number);
    }
    free(simulation.queue);
    return true;
}

void step_prediction_add_loading(struct step_prediction *prediction, const struct machine *machine,
                                 int64_t samples)
{
    double loading = machine->images > 0 ? (double)samples / machine->images : 0;
    prediction->data = fmax(0, loading - prediction->seconds);
    prediction->seconds += prediction->data;
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
    int nodes = (size + inside - 1) / inside;
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
