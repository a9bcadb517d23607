/* Machine files: written like decks. A number of a table comes on a line of its own, so that lines
 * stay short and files can be compared line by line. */
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "config/deck.h"
#include "config/option_types.h"
#include "plan/machine.h"

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
#define POSITIVE .least = 1e-12, .most = 1e24
#define ANY .least = 0, .most = 1e24
#define WHOLE .whole = true, .least = 1, .most = 1e6

/* Those of decimal numbers are doubles, of whole ones int. */
static const struct number_key numbers[] = {
    NUMBER("machine.node_ranks", node_ranks, WHOLE),
    NUMBER("machine.nodes", nodes, WHOLE),
    NUMBER("machine.threads", threads, WHOLE),
    NUMBER("machine.memory", memory, ANY),
    NUMBER("machine.watts", watts, ANY),
    NUMBER("machine.images", images, ANY),
    NUMBER("compute.launch", launch, ANY),
    NUMBER("compute.memory_bandwidth", memory_bandwidth, POSITIVE),
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
    NUMBER("inside.computes", inside.computes, .least = 0.01, .most = 1),
    NUMBER("inside.sends", inside.sends, .least = 0.01, .most = 1),
    NUMBER("between.latency", between.latency, ANY),
    NUMBER("between.bandwidth", between.bandwidth, ANY),
    NUMBER("between.members", between.members, WHOLE),
    NUMBER("between.share", between.share, .least = 0.001, .most = 1),
    NUMBER("between.computes", between.computes, .least = 0.01, .most = 1),
    NUMBER("between.sends", between.sends, .least = 0.01, .most = 1),
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

/* Decimal numbers with something between them that is none; how many, or -1. */
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
    char *end, *place = (char *)machine + key->offset;
    double number = strtod(value, &end);
    if (end == value || *end != '\0' || !(number >= key->least) || number > key->most ||
        (key->whole && number != floor(number)))
        return error_set(error, ERROR_USAGE, "%s%s=%s is not a%s number from %g to %g", where,
                         key->name, value, key->whole ? " whole" : "", key->least, key->most);
    if (key->whole)
        *(int *)place = (int)number;
    else
        *(double *)place = number;
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
        return error_set(error, ERROR_USAGE, "%s%s comes more than %d times", where, name,
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

/* 0: the text is none of the names. */
static int name_number(const char *text, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(text, names[i]) == 0)
            return i + 1;
    return 0;
}

/* One more than the number of the type of this name; 0: there is none. */
static int type_number(const char *text)
{
    for (int type = 0; type < MACHINE_TYPES; type++)
        if (strcmp(text, type_name((enum data_type)type)) == 0)
            return type + 1;
    return 0;
}

/* Tables: "bf16.linear_forward", "inside.all_reduce". */
static bool table_set(struct machine *machine, const char *where, const char *name,
                      const char *value, struct error *error)
{
    static const char *const networks[] = {"inside", "between"};
    char section[2 * OPTION_KEY];
    const char *key = strchr(name, '.') + 1;
    snprintf(section, sizeof section, "%.*s", (int)(key - name - 1), name);
    int type = type_number(section), network = name_number(section, networks, 2);
    int operation = name_number(key, operation_name, OPERATIONS);
    int action = name_number(key, action_name, COLLECTIVE_ACTIONS);
    if (type > 0 && operation > 0)
        return speed_set(&machine->speed[type - 1][operation - 1], where, name, value, error);
    if (network > 0 && action > 0)
        return duration_set(
            &(network == 1 ? &machine->inside : &machine->between)->measured[action - 1], where,
            name, value, error);
    return error_set(error, ERROR_USAGE, "%s%s: machine files have no such key", where, name);
}

static bool tree_set(struct network *network, const char *where, const char *value,
                     struct error *error)
{
    network->tree = strcmp(value, "tree") == 0;
    if (!network->tree && strcmp(value, "ring") != 0)
        return error_set(error, ERROR_USAGE, "%sshape=%s is neither ring nor tree", where, value);
    return true;
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
    if (strcmp(name, "inside.shape") == 0)
        return tree_set(&machine->inside, where, value, error);
    if (strcmp(name, "between.shape") == 0)
        return tree_set(&machine->between, where, value, error);
    return table_set(machine, where, name, value, error);
}

static bool machine_check(const struct machine *machine, struct error *error)
{
    bool multiplies = false;
    for (int type = 0; type < MACHINE_TYPES; type++)
        multiplies = multiplies || machine_multiplies(machine, (enum data_type)type);
    if (machine->memory_bandwidth == 0)
        return error_set(error, ERROR_USAGE, "%s: [compute] memory_bandwidth is missing",
                         machine->path);
    if (!multiplies)
        return error_set(error, ERROR_USAGE,
                         "%s: nothing is said about products: [compute] needs fp32_flops, "
                         "bf16_flops or fp16_flops, or bench machine measures them",
                         machine->path);
    return true;
}

bool machine_read_stream(struct machine *machine, FILE *file, const char *name, struct error *error)
{
    const struct network network = {.members = 2, .share = 1, .computes = 1, .sends = 1};
    *machine = (struct machine){.node_ranks = 1,
                                .nodes = 1,
                                .threads = 1,
                                .alone = 1,
                                .inside = network,
                                .between = network};
    snprintf(machine->path, sizeof machine->path, "%s", name);
    return deck_read_pairs(file, name, pair_set, machine, error) && machine_check(machine, error);
}

bool machine_read(struct machine *machine, const char *path, struct error *error)
{
    FILE *file = deck_file_open(path, error);
    if (file == NULL)
        return false;
    bool good = machine_read_stream(machine, file, path, error);
    fclose(file);
    return good;
}

static void speeds_write(const struct machine *machine, int type, FILE *file)
{
    for (int operation = 0; operation < OPERATIONS; operation++) {
        const struct speed *speed = &machine->speed[type][operation];
        for (int i = 0; i < speed->count; i++)
            fprintf(file, "%s = %.0fx%.0fx%.0f %.4g\n", operation_name[operation],
                    speed->point[i].size[0], speed->point[i].size[1], speed->point[i].size[2],
                    speed->point[i].speed);
    }
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

/* "[compute]" where another section begins. */
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
        const char *place = (const char *)machine + numbers[i].offset;
        double number = numbers[i].whole ? *(const int *)place : *(const double *)place;
        section_write(numbers[i].name, section, file);
        fprintf(file, "%s = %.6g\n", strchr(numbers[i].name, '.') + 1, number);
    }
    for (int type = 0; type < MACHINE_TYPES; type++) {
        fprintf(file, "\n[%s]\n", type_name((enum data_type)type));
        speeds_write(machine, type, file);
    }
    fprintf(file, "\n[inside]\n");
    durations_write(&machine->inside, file);
    fprintf(file, "\n[between]\n");
    durations_write(&machine->between, file);
}
