/* From speeds to seconds. */
#include "plan/machine.h"

#include <math.h>

/* How near a measured product is to another: squares of the distances of the sizes' logarithms. */
static double distance(const double one[3], const double other[3])
{
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        double gap = log2(fmax(one[i], 1) / fmax(other[i], 1));
        sum += gap * gap;
    }
    return sum;
}

/* Between what was measured, the near ones count most (Shepard 1968, with the fourth power of the
 * distance); a size that was measured has its own speed. */
static double speed_at(const struct speed *speed, const double size[3])
{
    double weights = 0, sum = 0;
    for (int i = 0; i < speed->count; i++) {
        double gap = distance(speed->point[i].size, size);
        double weight = 1 / (gap * gap + 1e-9);
        weights += weight;
        sum += weight * log(speed->point[i].speed);
    }
    return exp(sum / weights);
}

bool machine_multiplies(const struct machine *machine, enum data_type type)
{
    return machine->flops[type] > 0 ||
           machine->speed[type][OPERATION_linear_forward].count +
                   machine->speed[type][OPERATION_convolution_forward].count >
               0;
}

/* Where a speed was not measured: the roofline (Williams et al. 2009). */
static double roofline(const struct machine *machine, const struct counted *counted)
{
    double moving = counted->bytes / machine->memory_bandwidth;
    double flops = machine->flops[counted->type];
    return counted->flops > 0 && flops > 0 ? fmax(moving, counted->flops / flops) : moving;
}

/* What a rank gains where others of its node rest: as much less as more of them work. */
static double gain(const struct machine *machine, int node_ranks)
{
    if (machine->node_ranks <= 1 || node_ranks >= machine->node_ranks)
        return 1;
    double resting = (double)(machine->node_ranks - node_ranks) / (machine->node_ranks - 1);
    return 1 + (machine->alone - 1) * resting;
}

double machine_operation_seconds(const struct machine *machine, const struct counted *counted,
                                 int node_ranks)
{
    const struct speed *speed = &machine->speed[counted->type][counted->operation];
    double work = counted->flops > 0 ? counted->flops : counted->bytes;
    double seconds =
        speed->count > 0 ? work / speed_at(speed, counted->size) : roofline(machine, counted);
    return machine->launch + seconds / gain(machine, node_ranks);
}

double machine_network_bytes(const struct collective *collective, int members)
{
    double others = members - 1;
    return collective->action == ACTION_SUM ? 2 * collective->bytes * others / members
                                            : collective->bytes * others;
}

/* Between two measured sizes straight on a double logarithmic scale; above the largest at its
 * bandwidth, below the smallest as long as that. */
static double duration_at(const struct duration *duration, double bytes)
{
    const struct duration_point *point = duration->point;
    int last = duration->count - 1, i = 0;
    if (bytes <= point[0].bytes)
        return point[0].seconds;
    if (bytes >= point[last].bytes)
        return point[last].seconds * bytes / point[last].bytes;
    while (bytes > point[i + 1].bytes)
        i++;
    double part = log(bytes / point[i].bytes) / log(point[i + 1].bytes / point[i].bytes);
    return point[i].seconds * pow(point[i + 1].seconds / point[i].seconds, part);
}

/* Messages one after the other: one a member round a ring, twice for sums; or up and down a tree.
 */
static double hops(const struct network *network, enum collective_action action, int members)
{
    double once = network->tree ? ceil(log2(members)) : members - 1;
    return action == ACTION_SUM ? 2 * once : once;
}

/* `bytes`: what a member sends, as machine_network_bytes has it. */
static double network_seconds(const struct network *network, enum collective_action action,
                              int members, double bytes)
{
    const struct duration *measured = &network->measured[action];
    if (members <= 1 || bytes <= 0)
        return 0;
    if (measured->count == 0)
        return network->latency * hops(network, action, members) +
               bytes / (network->bandwidth * network->share);
    double more = hops(network, action, members) - hops(network, action, network->members);
    return duration_at(measured, bytes) + network->latency * fmax(more, 0);
}

/* A sum over nodes: scattered inside, summed between by all ranks of a node at once, gathered
 * inside. */
static double sum_seconds(const struct machine *machine, double bytes,
                          const struct group_shape *shape)
{
    int inside = shape->inside;
    const struct collective part = {.action = ACTION_SUM, .bytes = bytes};
    double node = machine_network_bytes(&part, shape->nodes) * shape->groups;
    double between = network_seconds(&machine->between, ACTION_SUM, shape->nodes, node);
    if (shape->nodes == 1)
        return network_seconds(&machine->inside, ACTION_SUM, inside,
                               machine_network_bytes(&part, inside));
    double scattered = bytes * (inside - 1) / inside;
    return between + network_seconds(&machine->inside, ACTION_SCATTER, inside, scattered) +
           network_seconds(&machine->inside, ACTION_GATHER, inside, scattered);
}

double machine_collective_seconds(const struct machine *machine,
                                  const struct collective *collective,
                                  const struct group_shape *shape)
{
    enum collective_action action = collective->action;
    double bytes = collective->bytes, nodes = shape->nodes, inside = shape->inside;
    if (action == ACTION_SUM)
        return sum_seconds(machine, bytes, shape);
    double node = bytes * (nodes - 1) * inside * shape->groups;
    return network_seconds(&machine->between, action, shape->nodes, node) +
           network_seconds(&machine->inside, action, shape->inside, bytes * (inside - 1) * nodes);
}

static bool network_is_known(const struct network *network)
{
    int measured = 0;
    for (int action = 0; action < COLLECTIVE_ACTIONS; action++)
        measured += network->measured[action].count > 0;
    return measured == COLLECTIVE_ACTIONS || network->bandwidth > 0;
}

bool machine_connects(const struct machine *machine, const struct group_shape *shape,
                      struct error *error)
{
    if (shape->inside > 1 && !network_is_known(&machine->inside))
        return error_set(error, ERROR_USAGE,
                         "%s does not know how ranks of a node reach each other: [inside] needs "
                         "bandwidth, or run `vittrain bench machine` on several ranks of a node",
                         machine->path);
    if (shape->nodes > 1 && !network_is_known(&machine->between))
        return error_set(error, ERROR_USAGE,
                         "%s does not know how nodes reach each other: [between] needs bandwidth, "
                         "or run `vittrain bench machine` on several nodes",
                         machine->path);
    return true;
}
