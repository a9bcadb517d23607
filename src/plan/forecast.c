/* The simulation. While computing and communicating go on at once each may be slower than alone:
 * threads share cores, or kernels a GPU (struct network: computes, sends). */
#include "plan/forecast.h"

#include <math.h>
#include <stdlib.h>

/* A started collective. */
struct queued {
    double left; /* seconds, alone */
    double computes, sends;
    int unit;
};

struct simulation {
    struct forecast *forecast;
    const struct machine *machine;
    const struct forecast_mesh *mesh;
    struct queued *queue; /* [collectives], in their order */
    int started, first;   /* first: that is not over; the one that runs, if it was started */
};

static struct forecast_part *part_of(struct forecast *forecast, int unit)
{
    return &forecast->unit[unit < 0 ? forecast->units : unit];
}

/* The running collective does `seconds` of its work. */
static void queue_move(struct simulation *simulation, double seconds)
{
    struct queued *running = &simulation->queue[simulation->first];
    running->left -= seconds;
    if (running->left <= 1e-15)
        simulation->first++;
}

/* Computes for so long, beside what is in the queue. */
static void compute(struct simulation *simulation, double seconds)
{
    struct forecast *forecast = simulation->forecast;
    double alone = seconds, passed = 0;
    while (seconds > 0 && simulation->first < simulation->started) {
        const struct queued *running = &simulation->queue[simulation->first];
        double together = fmin(seconds / running->computes, running->left / running->sends);
        passed += together;
        seconds -= together * running->computes;
        queue_move(simulation, together * running->sends);
        if (seconds < 1e-15)
            seconds = 0;
    }
    passed += seconds;
    forecast->slowed += passed - alone;
    forecast->seconds += passed;
}

/* Nothing is computed until the collective is over. */
static void wait_for(struct simulation *simulation, int number)
{
    int unit = simulation->queue[number].unit;
    while (simulation->first <= number) {
        double left = simulation->queue[simulation->first].left;
        part_of(simulation->forecast, unit)->exposed += left;
        simulation->forecast->step.exposed += left;
        simulation->forecast->seconds += left;
        queue_move(simulation, left);
    }
}

static void start(struct simulation *simulation, const struct rehearsed *event,
                  struct forecast_part *part)
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
    simulation->queue[simulation->started++] = (struct queued){.left = seconds,
                                                               .computes = network->computes,
                                                               .sends = network->sends,
                                                               .unit = event->unit};
    part->communication += seconds;
    simulation->forecast->step.communication += seconds;
}

static void operation(struct simulation *simulation, const struct rehearsed *event,
                      struct forecast_part *part)
{
    struct forecast_part *step = &simulation->forecast->step;
    double seconds = simulation->machine == NULL
                         ? 0
                         : machine_operation_seconds(simulation->machine, &event->counted,
                                                     simulation->mesh->node_ranks);
    struct forecast_part *const both[] = {part, step};
    for (int i = 0; i < 2; i++) {
        both[i]->flops[event->phase] += event->counted.flops;
        both[i]->bytes += event->counted.bytes;
        both[i]->seconds[event->phase] += seconds;
    }
    compute(simulation, seconds);
}

/* Can all of it be told? */
static bool forecast_check(const struct step_script *script, const struct machine *machine,
                           const struct forecast_mesh *mesh, struct error *error)
{
    for (int i = 0; i < script->count; i++) {
        const struct rehearsed *event = &script->event[i];
        if (event->kind == REHEARSED_OPERATION && event->counted.flops > 0 &&
            !machine_multiplies(machine, event->counted.type))
            return error_set(error, ERROR_USAGE,
                             "%s does not know how fast products in %s are: measure again with "
                             "train.precision=%s, or set [compute] %s_flops",
                             machine->path, type_name(event->counted.type),
                             type_name(event->counted.type), type_name(event->counted.type));
        if (event->kind == REHEARSED_START &&
            !machine_connects(machine, event->collective.replica ? &mesh->replica : &mesh->shard,
                              error))
            return false;
    }
    return true;
}

bool forecast_make(struct forecast *forecast, const struct step_script *script, int units,
                   const struct machine *machine, const struct forecast_mesh *mesh,
                   struct error *error)
{
    struct simulation simulation = {.forecast = forecast, .machine = machine, .mesh = mesh};
    *forecast = (struct forecast){.units = units};
    if (machine != NULL && !forecast_check(script, machine, mesh, error))
        return false;
    forecast->unit = calloc((size_t)units + 1, sizeof *forecast->unit);
    simulation.queue = calloc((size_t)script->collectives + 1, sizeof *simulation.queue);
    ENSURE(forecast->unit != NULL && simulation.queue != NULL, "no memory for a forecast");
    for (int i = 0; i < script->count; i++) {
        const struct rehearsed *event = &script->event[i];
        struct forecast_part *part = part_of(forecast, event->unit);
        if (event->kind == REHEARSED_OPERATION)
            operation(&simulation, event, part);
        else if (event->kind == REHEARSED_START)
            start(&simulation, event, part);
        else
            wait_for(&simulation, event->number);
    }
    free(simulation.queue);
    return true;
}

void forecast_load(struct forecast *forecast, const struct machine *machine, int64_t samples)
{
    double loading = machine->images > 0 ? (double)samples / machine->images : 0;
    forecast->data = fmax(0, loading - forecast->seconds);
    forecast->seconds += forecast->data;
}

void forecast_close(struct forecast *forecast)
{
    free(forecast->unit);
    *forecast = (struct forecast){0};
}

/* `size` ranks that lie `stride` apart, of nodes of node_ranks. */
static struct group_shape group_shape(int size, int stride, int node_ranks)
{
    int inside = stride >= node_ranks ? 1 : node_ranks / stride;
    inside = inside < size ? inside : size;
    int nodes = (size + inside - 1) / inside;
    int together = node_ranks / inside;
    return (struct group_shape){
        .inside = inside, .nodes = nodes, .groups = nodes > 1 && together > 0 ? together : 1};
}

struct forecast_mesh forecast_mesh(int ranks, int node_ranks, int shard)
{
    node_ranks = node_ranks < ranks ? node_ranks : ranks;
    return (struct forecast_mesh){.shard = group_shape(shard, 1, node_ranks),
                                  .replica = group_shape(ranks / shard, shard, node_ranks),
                                  .node_ranks = node_ranks};
}
