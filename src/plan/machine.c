// SPDX-License-Identifier: BSD-3-Clause
#include "plan/machine.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/deck.h"
#include "config/option_types.h"

/* ---- from speeds to seconds ---- */

/* Interpolate between measured sizes, weighted by the inverse fourth power of the distance (Shepard
 * 1968). */
static double speed_at(const struct speed *speed, const double size[3])
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
    const struct speed *speed = &machine->speed[counted->type][counted->operation];
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

/* Consecutive messages: once round a ring or up a tree, twice for an all-reduce. */
static double hops(const struct network *network, enum collective_action action, int members)
{
    double once = network->tree ? ceil(log2(members)) : members - 1;
    return action == ACTION_SUM ? 2 * once : once;
}

/* bytes: see machine_network_bytes. */
static double network_seconds(const struct network *network, enum collective_action action,
                              int members, double bytes)
{
    const struct duration *measured =
        &network->measured[action == ACTION_ALL_TO_ALL ? ACTION_SCATTER : action];
    if (members <= 1 || bytes <= 0)
        return 0;
    if (measured->count == 0)
        return network->latency * hops(network, action, members) +
               bytes / (network->bandwidth * network->share);
    double more = hops(network, action, members) - hops(network, action, network->members);
    return duration_at(measured, bytes) + network->latency * fmax(more, 0);
}

/* An all-reduce: reduce-scatter inside each node, all-reduce between nodes by all ranks at once,
 * all-gather inside each node. */
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
    double node = bytes * (nodes - 1) * inside * shape->groups,
           local = bytes * (inside - 1) * nodes;
    if (action == ACTION_ALL_TO_ALL) { /* not by a hierarchy: each rank sends to all others */
        node *= inside;
        local /= nodes;
    }
    return network_seconds(&machine->between, action, shape->nodes, node) +
           network_seconds(&machine->inside, action, shape->inside, local);
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
                         "%s has no speed of the network inside a node: [inside] needs "
                         "bandwidth; `vittrain bench comm` on several ranks of a node measures it",
                         machine->path);
    if (shape->nodes > 1 && !network_is_known(&machine->between))
        return error_set(error, ERROR_USAGE,
                         "%s has no speed of the network between nodes: [between] needs bandwidth, "
                         "which `vittrain bench comm` measures with one rank on each node",
                         machine->path);
    return true;
}

/* ---- files ---- */

static const char *const action_name[] = {"all_reduce", "reduce_scatter", "all_gather"};

struct number_key {
    const char *name;
    size_t offset;
    bool whole;
    double least, most;
};

#define NUMBER(key, member, ...)                                                                   \
    {                                                                                              \
        .name = key, .offset = offsetof(struct machine, member), __VA_ARGS__                       \
    }
#define ANY .least = 0, .most = 1e24
#define WHOLE .whole = true, .least = 1, .most = 1e6

/* The members of whole numbers are int, all others double. */
static const struct number_key numbers[] = {
    NUMBER("machine.node_ranks", node_ranks, WHOLE),
    NUMBER("machine.nodes", nodes, WHOLE),
    NUMBER("machine.threads", threads, WHOLE),
    NUMBER("machine.shared_memory", shared_memory, .whole = true, .least = 0, .most = 1),
    NUMBER("machine.memory", memory, ANY),
    NUMBER("machine.watts", watts, ANY),
    NUMBER("machine.images", images, ANY),
    NUMBER("compute.launch", launch, ANY),
    NUMBER("compute.memory_bandwidth", memory_bandwidth, ANY),
    NUMBER("compute.fp32_flops", flops[TYPE_FP32], ANY),
    NUMBER("compute.bf16_flops", flops[TYPE_BF16], ANY),
    NUMBER("compute.fp16_flops", flops[TYPE_FP16], ANY),
    NUMBER("compute.fp32_peak", peak[TYPE_FP32], ANY),
    NUMBER("compute.bf16_peak", peak[TYPE_BF16], ANY),
    NUMBER("compute.fp16_peak", peak[TYPE_FP16], ANY),
    NUMBER("compute.alone", alone, .least = 0.1, .most = 10),
    NUMBER("inside.latency", inside.latency, ANY),
    NUMBER("inside.bandwidth", inside.bandwidth, ANY),
    NUMBER("inside.members", inside.members, WHOLE),
    NUMBER("inside.computes", inside.compute_speed, .least = 0.01, .most = 1),
    NUMBER("inside.sends", inside.send_speed, .least = 0.01, .most = 1),
    NUMBER("between.latency", between.latency, ANY),
    NUMBER("between.bandwidth", between.bandwidth, ANY),
    NUMBER("between.members", between.members, WHOLE),
    NUMBER("between.share", between.share, .least = 0.001, .most = 1),
    NUMBER("between.computes", between.compute_speed, .least = 0.01, .most = 1),
    NUMBER("between.sends", between.send_speed, .least = 0.01, .most = 1),
};

struct text_key {
    const char *name;
    size_t offset;
};

static const struct text_key texts[] = {{"machine.date", offsetof(struct machine, date)},
                                        {"machine.host", offsetof(struct machine, host)},
                                        {"machine.commit", offsetof(struct machine, commit)},
                                        {"machine.device", offsetof(struct machine, device)}};

enum {
    NUMBERS = sizeof numbers / sizeof numbers[0],
    TEXTS = sizeof texts / sizeof texts[0],
    SPEED_NUMBERS = 4
};

/* Parse positive numbers that are separated by blanks or "x". Return how many there are, or -1. */
static int numbers_read(const char *text, double *values, int most)
{
    int count = 0;
    while (*text != '\0' && count < most) {
        char *end;
        errno = 0;
        values[count] = strtod(text, &end);
        if (end == text || errno != 0 || !(values[count] > 0) || isinf(values[count]))
            return -1;
        count++;
        text = end + strspn(end, " x");
        if (text == end && *text != '\0')
            return -1;
    }
    return *text == '\0' ? count : -1;
}

static bool number_set(const struct number_key *key, const char *where, const char *value,
                       struct machine *machine, struct error *error)
{
    char *end, *member = (char *)machine + key->offset;
    double number = strtod(value, &end);
    if (end == value || *end != '\0' || !(number >= key->least) || number > key->most ||
        (key->whole && number != floor(number)))
        return error_set(error, ERROR_USAGE, "%s%s=%s is not a%s number from %g to %g", where,
                         key->name, value, key->whole ? " whole" : "", key->least, key->most);
    if (key->whole)
        *(int *)member = (int)number;
    else
        *(double *)member = number;
    return true;
}

/* "1600x768x2304 1.1e12" */
static bool speed_set(struct speed *speed, const char *where, const char *name, const char *value,
                      struct error *error)
{
    double read[SPEED_NUMBERS];
    struct speed_point *point = &speed->point[speed->count];
    if (numbers_read(value, read, SPEED_NUMBERS) != SPEED_NUMBERS)
        return error_set(error, ERROR_USAGE,
                         "%s%s=%s is not three sizes and a speed, as 1600x768x2304 1.1e12", where,
                         name, value);
    if (speed->count == MACHINE_POINTS)
        return error_set(error, ERROR_USAGE, "%s%s occurs more than %d times", where, name,
                         MACHINE_POINTS);
    *point = (struct speed_point){.size = {read[0], read[1], read[2]}, .speed = read[3]};
    speed->count++;
    return true;
}

/* "1048576 0.0012" */
static bool duration_set(struct duration *duration, const char *where, const char *name,
                         const char *value, struct error *error)
{
    double read[2], before = duration->count > 0 ? duration->point[duration->count - 1].bytes : 0;
    if (numbers_read(value, read, 2) != 2)
        return error_set(error, ERROR_USAGE, "%s%s=%s is not bytes and seconds, as 1048576 0.0012",
                         where, name, value);
    if (duration->count == MACHINE_POINTS || read[0] <= before)
        return error_set(error, ERROR_USAGE,
                         "%s%s=%s: at most %d lines, each with more bytes than the one before",
                         where, name, value, MACHINE_POINTS);
    duration->point[duration->count++] =
        (struct duration_point){.bytes = read[0], .seconds = read[1]};
    return true;
}

/* Return one more than the index of a name, or 0. */
static int name_number(const char *text, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(text, names[i]) == 0)
            return i + 1;
    return 0;
}

/* Set a measured value: "bf16.linear_forward", "inside.all_reduce". */
static bool table_set(struct machine *machine, const char *where, const char *name,
                      const char *value, struct error *error)
{
    static const char *const networks[] = {"inside", "between"};
    char section[2 * OPTION_KEY];
    const char *key = strchr(name, '.') + 1;
    snprintf(section, sizeof section, "%.*s", (int)(key - name - 1), name);
    int network = name_number(section, networks, 2);
    int operation = name_number(key, operation_name, OPERATIONS);
    int action = name_number(key, action_name, COLLECTIVE_ACTIONS);
    for (int type = 0; type < MACHINE_TYPES; type++)
        if (strcmp(section, type_name((enum data_type)type)) == 0 && operation > 0)
            return speed_set(&machine->speed[type][operation - 1], where, name, value, error);
    if (network > 0 && action > 0)
        return duration_set(
            &(network == 1 ? &machine->inside : &machine->between)->measured[action - 1], where,
            name, value, error);
    return error_set(error, ERROR_USAGE, "%s%s: unknown key", where, name);
}

static bool pair_set(void *user, const char *where, const char *name, const char *value,
                     struct error *error)
{
    struct machine *machine = user;
    for (int i = 0; i < NUMBERS; i++)
        if (strcmp(name, numbers[i].name) == 0)
            return number_set(&numbers[i], where, value, machine, error);
    for (int i = 0; i < TEXTS; i++)
        if (strcmp(name, texts[i].name) == 0) {
            snprintf((char *)machine + texts[i].offset, MACHINE_TEXT, "%s", value);
            return true;
        }
    bool inside = strcmp(name, "inside.shape") == 0, tree = strcmp(value, "tree") == 0;
    if (inside || strcmp(name, "between.shape") == 0) {
        (inside ? &machine->inside : &machine->between)->tree = tree;
        return tree || strcmp(value, "ring") == 0 ||
               error_set(error, ERROR_USAGE, "%sshape=%s is neither ring nor tree", where, value);
    }
    return table_set(machine, where, name, value, error);
}

static bool machine_check(const struct machine *machine, struct error *error)
{
    bool multiplies = false;
    for (int type = 0; type < MACHINE_TYPES; type++)
        multiplies = multiplies || machine_multiplies(machine, (enum data_type)type);
    if (machine->memory_bandwidth == 0)
        return error_set(error, ERROR_USAGE,
                         "%s: [compute] memory_bandwidth is missing; `vittrain bench device` "
                         "measures it",
                         machine->path);
    if (!multiplies)
        return error_set(error, ERROR_USAGE,
                         "%s has no speed of matrix products: [compute] needs fp32_flops, "
                         "bf16_flops or fp16_flops; `vittrain bench device` measures them",
                         machine->path);
    return true;
}

static void machine_default(struct machine *machine, const char *name)
{
    const struct network network = {.members = 2, .share = 1, .compute_speed = 1, .send_speed = 1};
    *machine = (struct machine){.node_ranks = 1,
                                .nodes = 1,
                                .threads = 1,
                                .alone = 1,
                                .inside = network,
                                .between = network};
    snprintf(machine->path, sizeof machine->path, "%s", name);
}

/* Read the keys of a file; all others have their defaults. */
static bool pairs_read(struct machine *machine, const char *path, struct error *error)
{
    FILE *file = deck_file_open(path, error);
    if (file == NULL)
        return false;
    const bool good = deck_read_pairs(file, path, pair_set, machine, error);
    fclose(file);
    return good;
}

bool machine_read_part(struct machine *machine, const char *path, struct error *error)
{
    machine_default(machine, path);
    return access(path, F_OK) != 0 || pairs_read(machine, path, error);
}

bool machine_read(struct machine *machine, const char *path, struct error *error)
{
    machine_default(machine, path);
    return pairs_read(machine, path, error) && machine_check(machine, error);
}

static void durations_write(const struct network *network, FILE *file)
{
    fprintf(file, "shape = %s\n", network->tree ? "tree" : "ring");
    for (int action = 0; action < COLLECTIVE_ACTIONS; action++)
        for (int i = 0; i < network->measured[action].count; i++)
            fprintf(file, "%s = %.0f %.4g\n", action_name[action],
                    network->measured[action].point[i].bytes,
                    network->measured[action].point[i].seconds);
}

/* Write "[compute]" if the key is the first of its section. */
static void section_write(const char *name, char *section, FILE *file)
{
    size_t length = strcspn(name, ".");
    if (strncmp(section, name, length) == 0 && section[length] == '\0')
        return;
    snprintf(section, OPTION_KEY, "%.*s", (int)length, name);
    fprintf(file, "\n[%s]\n", section);
}

void machine_write(const struct machine *machine, FILE *file)
{
    char section[OPTION_KEY] = "";
    for (int i = 0; i < TEXTS; i++) {
        section_write(texts[i].name, section, file);
        fprintf(file, "%s = %s\n", strchr(texts[i].name, '.') + 1,
                (const char *)machine + texts[i].offset);
    }
    for (int i = 0; i < NUMBERS; i++) {
        const char *member = (const char *)machine + numbers[i].offset;
        double number = numbers[i].whole ? *(const int *)member : *(const double *)member;
        section_write(numbers[i].name, section, file);
        fprintf(file, "%s = %.6g\n", strchr(numbers[i].name, '.') + 1, number);
    }
    for (int type = 0; type < MACHINE_TYPES; type++) {
        fprintf(file, "\n[%s]\n", type_name((enum data_type)type));
        for (int operation = 0; operation < OPERATIONS; operation++) {
            const struct speed *speed = &machine->speed[type][operation];
            for (const struct speed_point *at = speed->point; at < speed->point + speed->count;
                 at++)
                fprintf(file, "%s = %.0fx%.0fx%.0f %.4g\n", operation_name[operation], at->size[0],
                        at->size[1], at->size[2], at->speed);
        }
    }
    fprintf(file, "\n[inside]\n");
    durations_write(&machine->inside, file);
    fprintf(file, "\n[between]\n");
    durations_write(&machine->between, file);
}
