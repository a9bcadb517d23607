// SPDX-License-Identifier: BSD-3-Clause
#include "plan/plan.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "options/option.h"

/* ---- from speeds to seconds ---- */

/* Interpolate between measured sizes, weighted by the inverse fourth power of the distance (Shepard
 * 1968). */
static double speed_at(const struct measured *speed, const double size[3])
{
    double weights = 0, sum = 0;
    for (int i = 0; i < speed->count; i++) {
        double distance = 0; /* squared, on a logarithmic scale */
        for (int k = 0; k < 3; k++) {
            double gap = log2(fmax(speed->point[i].size[k], 1) / fmax(size[k], 1));
            distance += gap * gap;
        }
        double weight = 1 / (distance * distance + 1e-9);
        weights += weight;
        sum += weight * log(speed->point[i].value);
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

/* Time of an operation whose speed was not measured, by the roofline (Williams et al. 2009). */
static double roofline(const struct machine *machine, const struct counted *counted)
{
    double moving = counted->bytes / machine->memory_bandwidth;
    double flops = machine->flops[counted->type];
    return counted->flops > 0 && flops > 0 ? fmax(moving, counted->flops / flops) : moving;
}

double machine_operation_seconds(const struct machine *machine, const struct counted *counted,
                                 int node_ranks)
{
    const struct measured *speed = &machine->speed[counted->type][counted->operation];
    if (counted->flops > 0 && !machine_multiplies(machine, counted->type))
        return INFINITY;
    double work = counted->flops > 0 ? counted->flops : counted->bytes;
    double seconds =
        speed->count > 0 ? work / speed_at(speed, counted->size) : roofline(machine, counted);
    double gain = 1; /* speed-up if some ranks of the node are idle: linear in their number */
    if (node_ranks < machine->node_ranks)
        gain += (machine->alone - 1) *
                ((double)(machine->node_ranks - node_ranks) / (machine->node_ranks - 1));
    return machine->launch + seconds / gain;
}

double machine_network_bytes(const struct collective *collective, int members)
{
    double others = members - 1;
    return collective->action == ACTION_SUM ? 2 * collective->bytes * others / members
                                            : collective->bytes * others;
}

/* Interpolate linearly between measured sizes on a double logarithmic scale. Above the largest size
 * use its bandwidth, below the smallest its time. */
static double duration_at(const struct measured *duration, double bytes)
{
    const struct measured_point *point = duration->point;
    int last = duration->count - 1, i = 0;
    if (bytes <= point[0].size[0])
        return point[0].value;
    if (bytes >= point[last].size[0])
        return point[last].value * bytes / point[last].size[0];
    while (bytes > point[i + 1].size[0])
        i++;
    double part = log(bytes / point[i].size[0]) / log(point[i + 1].size[0] / point[i].size[0]);
    return point[i].value * pow(point[i + 1].value / point[i].value, part);
}

/* Consecutive messages: once round a ring; of an all-reduce twice, or up and down a tree. */
static double hops(const struct network *network, enum collective_action action, int members)
{
    const double ring = members - 1;
    if (action != ACTION_SUM)
        return ring;
    return 2 * (network->tree ? ceil(log2(members)) : ring);
}

/* bytes: see machine_network_bytes. */
static double network_seconds(const struct network *network, enum collective_action action,
                              int members, double bytes)
{
    const struct measured *measured =
        &network->measured[action == ACTION_ALL_TO_ALL ? ACTION_SCATTER : action];
    if (members <= 1 || bytes <= 0)
        return 0;
    if (measured->count == 0)
        return network->latency * hops(network, action, members) +
               bytes / (network->bandwidth * network->share);
    double more = hops(network, action, members) - hops(network, action, network->members);
    return duration_at(measured, bytes) + network->latency * fmax(more, 0);
}

/* Seconds by which the messages of NCCL's algorithm for gathers and scatters between nodes take
 * longer than those of rings inside and between nodes. May be negative. */
static double nccl_latency(const struct machine *machine, const struct group_shape *shape)
{
    static const double pat_rank = 2.8e-6; /* seconds; the linear part of PAT */
    const struct network *between = &machine->between;
    const int nodes = shape->nodes;
    if (shape->inside > 1) /* one ring of all ranks */
        return machine->inside.latency * (shape->inside - 1) * (nodes - 1);
    const double pat = between->latency * ceil(log2(nodes)) + pat_rank * nodes;
    return fmin(0, pat - between->latency * (nodes - 1));
}

double machine_collective_seconds(const struct machine *machine,
                                  const struct collective *collective,
                                  const struct group_shape *shape)
{
    const enum collective_action action = collective->action;
    const double bytes = collective->bytes;
    const int nodes = shape->nodes, inside = shape->inside;
    if (action == ACTION_SUM && nodes == 1)
        return network_seconds(&machine->inside, ACTION_SUM, inside,
                               machine_network_bytes(collective, inside));
    if (action == ACTION_SUM) {
        /* Reduce-scatter inside each node, all-reduce between nodes by all ranks at once,
         * all-gather inside each node. */
        const double scattered = bytes * (inside - 1) / inside;
        return network_seconds(&machine->between, ACTION_SUM, nodes,
                               machine_network_bytes(collective, nodes) * shape->groups) +
               network_seconds(&machine->inside, ACTION_SCATTER, inside, scattered) +
               network_seconds(&machine->inside, ACTION_GATHER, inside, scattered);
    }
    double node = bytes * (nodes - 1) * inside * shape->groups,
           local = bytes * (inside - 1) * nodes;
    if (action == ACTION_ALL_TO_ALL) { /* not by a hierarchy: each rank sends to all others */
        node *= inside;
        local /= nodes;
    }
    const bool nccl = machine->between.tree && nodes > 1 && action != ACTION_ALL_TO_ALL;
    return network_seconds(&machine->between, action, nodes, node) +
           network_seconds(&machine->inside, action, inside, local) +
           (nccl ? nccl_latency(machine, shape) : 0);
}

/* ---- files ---- */

static const char *const action_name[] = {"all_reduce", "reduce_scatter", "all_gather"};

/* The type of a member: char[MACHINE_TEXT], int, double, or bool (network.tree). */
enum key_kind { KEY_TEXT, KEY_WHOLE, KEY_NUMBER, KEY_SHAPE };

struct key {
    const char *name;
    enum key_kind kind;
    size_t offset;
    double least, most; /* of a number */
};

#define KEY(kind, name, member, ...)                                                               \
    {                                                                                              \
        name, KEY_##kind, offsetof(struct machine, member), __VA_ARGS__                            \
    }
#define ANY 0, 1e24
#define COUNT 1, 1e6

static const struct key keys[] = {
    KEY(TEXT, "machine.date", date, ANY),
    KEY(TEXT, "machine.host", host, ANY),
    KEY(TEXT, "machine.commit", commit, ANY),
    KEY(TEXT, "machine.device", device, ANY),
    KEY(WHOLE, "machine.node_ranks", node_ranks, COUNT),
    KEY(WHOLE, "machine.nodes", nodes, COUNT),
    KEY(WHOLE, "machine.threads", threads, COUNT),
    KEY(WHOLE, "machine.shared_memory", shared_memory, 0, 1),
    KEY(NUMBER, "machine.memory", memory, ANY),
    KEY(NUMBER, "machine.watts", watts, ANY),
    KEY(NUMBER, "machine.images", images, ANY),
    KEY(NUMBER, "machine.deviation", deviation, 0, 1),
    KEY(NUMBER, "compute.launch", launch, ANY),
    KEY(NUMBER, "compute.memory_bandwidth", memory_bandwidth, ANY),
    KEY(NUMBER, "compute.fp32_flops", flops[TYPE_FP32], ANY),
    KEY(NUMBER, "compute.bf16_flops", flops[TYPE_BF16], ANY),
    KEY(NUMBER, "compute.fp16_flops", flops[TYPE_FP16], ANY),
    KEY(NUMBER, "compute.fp32_peak", peak[TYPE_FP32], ANY),
    KEY(NUMBER, "compute.bf16_peak", peak[TYPE_BF16], ANY),
    KEY(NUMBER, "compute.fp16_peak", peak[TYPE_FP16], ANY),
    KEY(NUMBER, "compute.alone", alone, 0.1, 10),
    KEY(NUMBER, "inside.latency", inside.latency, ANY),
    KEY(NUMBER, "inside.bandwidth", inside.bandwidth, ANY),
    KEY(WHOLE, "inside.members", inside.members, COUNT),
    KEY(NUMBER, "inside.computes", inside.compute_speed, 0.01, 1),
    KEY(NUMBER, "inside.sends", inside.send_speed, 0.01, 1),
    KEY(SHAPE, "inside.shape", inside.tree, ANY),
    KEY(NUMBER, "between.latency", between.latency, ANY),
    KEY(NUMBER, "between.bandwidth", between.bandwidth, ANY),
    KEY(WHOLE, "between.members", between.members, COUNT),
    KEY(NUMBER, "between.share", between.share, 0.001, 1),
    KEY(NUMBER, "between.computes", between.compute_speed, 0.01, 1),
    KEY(NUMBER, "between.sends", between.send_speed, 0.01, 1),
    KEY(SHAPE, "between.shape", between.tree, ANY),
    KEY(NUMBER, "files.operations", files.operations, ANY),
    KEY(NUMBER, "files.latency", files.latency, ANY),
    KEY(NUMBER, "files.bandwidth", files.bandwidth, ANY),
    KEY(WHOLE, "files.stripes", files.stripes, COUNT),
};

enum { KEYS = sizeof keys / sizeof keys[0], OPERATION_SIZES = 3, COLLECTIVE_SIZES = 1 };

static bool key_set(const struct key *key, const char *where, const char *value,
                    struct machine *machine, struct error *error)
{
    void *member = (char *)machine + key->offset;
    char *end;
    if (key->kind == KEY_TEXT) {
        snprintf(member, MACHINE_TEXT, "%s", value);
        return true;
    }
    if (key->kind == KEY_SHAPE) {
        *(bool *)member = strcmp(value, "tree") == 0;
        return *(bool *)member || strcmp(value, "ring") == 0 ||
               error_set(error, ERROR_USAGE, "%sshape=%s is neither ring nor tree", where, value);
    }
    const bool whole = key->kind == KEY_WHOLE;
    const double number = strtod(value, &end);
    if (end == value || *end != '\0' || !(number >= key->least) || number > key->most ||
        (whole && number != floor(number)))
        return error_set(error, ERROR_USAGE, "%s%s=%s is not a%s number from %g to %g", where,
                         key->name, value, whole ? " whole" : "", key->least, key->most);
    if (whole)
        *(int *)member = (int)number;
    else
        *(double *)member = number;
    return true;
}

/* Add a point: `sizes` sizes and a value, as "1600x768x2304 1.1e12" or "1048576 0.0012". */
static bool point_add(struct measured *measured, int sizes, const char *where, const char *name,
                      const char *value, struct error *error)
{
    const bool increases = sizes == COLLECTIVE_SIZES;
    const int count = measured->count;
    double read[OPERATION_SIZES + 1];
    char more;
    bool good = (increases ? sscanf(value, "%lf %lf %c", &read[0], &read[1], &more)
                           : sscanf(value, "%lfx%lfx%lf %lf %c", &read[0], &read[1], &read[2],
                                    &read[3], &more)) == sizes + 1;
    for (int i = 0; good && i <= sizes; i++)
        good = read[i] > 0 && isfinite(read[i]);
    if (!good)
        return error_set(error, ERROR_USAGE, "%s%s=%s is not %s", where, name, value,
                         increases ? "bytes and seconds, as 1048576 0.0012"
                                   : "three sizes and a speed, as 1600x768x2304 1.1e12");
    if (count == MACHINE_POINTS ||
        (increases && count > 0 && read[0] <= measured->point[count - 1].size[0]))
        return error_set(error, ERROR_USAGE, "%s%s=%s: at most %d lines%s", where, name, value,
                         MACHINE_POINTS,
                         increases ? ", each with more bytes than the one before" : "");
    measured->point[count] = (struct measured_point){.value = read[sizes]};
    memcpy(measured->point[count].size, read, (size_t)sizes * sizeof *read);
    measured->count++;
    return true;
}

/* True if the name is "SECTION.KEY". */
static bool is_key(const char *name, const char *section, const char *key)
{
    const size_t length = strlen(section);
    return strncmp(name, section, length) == 0 && name[length] == '.' &&
           strcmp(name + length + 1, key) == 0;
}

static bool pair_set(void *user, const char *where, const char *name, const char *value,
                     struct error *error)
{
    struct machine *machine = user;
    struct measured *measured = NULL;
    int sizes = OPERATION_SIZES;
    for (int i = 0; i < KEYS; i++)
        if (strcmp(name, keys[i].name) == 0)
            return key_set(&keys[i], where, value, machine, error);
    for (int type = 0; type < MACHINE_TYPES; type++)
        for (int operation = 0; operation < OPERATIONS; operation++)
            if (is_key(name, type_name((enum data_type)type), operation_name[operation]))
                measured = &machine->speed[type][operation];
    for (int action = 0; measured == NULL && action < COLLECTIVE_ACTIONS; action++) {
        sizes = COLLECTIVE_SIZES;
        if (is_key(name, "inside", action_name[action]))
            measured = &machine->inside.measured[action];
        else if (is_key(name, "between", action_name[action]))
            measured = &machine->between.measured[action];
    }
    if (measured == NULL)
        return error_set(error, ERROR_USAGE, "%s%s: unknown key", where, name);
    return point_add(measured, sizes, where, name, value, error);
}

bool machine_read(struct machine *machine, const char *path, bool is_part, struct error *error)
{
    const struct network network = {.members = 2, .share = 1, .compute_speed = 1, .send_speed = 1};
    bool multiplies = false;
    *machine = (struct machine){.node_ranks = 1,
                                .nodes = 1,
                                .threads = 1,
                                .alone = 1,
                                .files = {.latency = 1e-3, .stripes = 1},
                                .inside = network,
                                .between = network};
    snprintf(machine->path, sizeof machine->path, "%s", path);
    if (is_part && access(path, F_OK) != 0)
        return true;
    FILE *file = deck_file_open(path, error);
    if (file == NULL)
        return false;
    const bool good = deck_read_pairs(file, path, pair_set, machine, error);
    fclose(file);
    if (!good || is_part)
        return good;
    for (int type = 0; type < MACHINE_TYPES; type++)
        multiplies = multiplies || machine_multiplies(machine, (enum data_type)type);
    if (machine->memory_bandwidth == 0)
        return error_set(error, ERROR_USAGE,
                         "%s: [compute] memory_bandwidth is missing; `vittrain bench device` "
                         "measures it",
                         path);
    return multiplies ||
           error_set(error, ERROR_USAGE,
                     "%s has no speed of matrix products: [compute] needs fp32_flops, bf16_flops "
                     "or fp16_flops; `vittrain bench device` measures them",
                     path);
}

static void points_write(const char *name, const struct measured *measured, int sizes, FILE *file)
{
    for (int i = 0; i < measured->count; i++) {
        fprintf(file, "%s = ", name);
        for (int k = 0; k < sizes; k++)
            fprintf(file, "%s%.0f", k > 0 ? "x" : "", measured->point[i].size[k]);
        fprintf(file, " %.4g\n", measured->point[i].value);
    }
}

static void network_write(const char *section, const struct network *network, FILE *file)
{
    fprintf(file, "\n[%s]\n", section);
    for (int action = 0; action < COLLECTIVE_ACTIONS; action++)
        points_write(action_name[action], &network->measured[action], COLLECTIVE_SIZES, file);
}

void machine_write(const struct machine *machine, FILE *file)
{
    const char *section = "";
    for (const struct key *key = keys; key < keys + KEYS; key++) {
        const void *member = (const char *)machine + key->offset;
        const size_t length = strcspn(key->name, ".") + 1;
        if (strncmp(section, key->name, length) != 0)
            fprintf(file, "\n[%.*s]\n", (int)length - 1, key->name);
        section = key->name;
        fprintf(file, "%s = ", key->name + length);
        if (key->kind == KEY_TEXT)
            fprintf(file, "%s\n", (const char *)member);
        else if (key->kind == KEY_SHAPE)
            fprintf(file, "%s\n", *(const bool *)member ? "tree" : "ring");
        else
            fprintf(file, "%.6g\n",
                    key->kind == KEY_WHOLE ? *(const int *)member : *(const double *)member);
    }
    for (int type = 0; type < MACHINE_TYPES; type++) {
        fprintf(file, "\n[%s]\n", type_name((enum data_type)type));
        for (int operation = 0; operation < OPERATIONS; operation++)
            points_write(operation_name[operation], &machine->speed[type][operation],
                         OPERATION_SIZES, file);
    }
    network_write("inside", &machine->inside, file);
    network_write("between", &machine->between, file);
}
