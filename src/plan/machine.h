/* What a machine can do, as a file says it: speeds of products and memory, of collectives inside a
 * node and between nodes. `vittrain bench machine` measures and writes one; one of a cluster that
 * is only described is written by hand, from data sheets (input/clusters). Format:
 * docs/planning.md.
 */
#ifndef VITTRAIN_PLAN_MACHINE_H
#define VITTRAIN_PLAN_MACHINE_H

#include <stdio.h>

#include "device/count.h"
#include "plan/step_script.h"

enum { MACHINE_POINTS = 32, MACHINE_TEXT = 128, MACHINE_TYPES = TYPE_FP16 + 1 };

/* A measured speed at a size (struct counted): flops a second of products, else bytes a second. */
struct speed_point {
    double size[3], speed;
};
struct speed {
    int count;
    struct speed_point point[MACHINE_POINTS];
};

/* A measured collective: seconds for so many bytes (machine_network_bytes). In order of bytes. */
struct duration_point {
    double bytes, seconds;
};
struct duration {
    int count;
    struct duration_point point[MACHINE_POINTS];
};

/* Ranks of a node with each other; or nodes, each with all its ranks. */
struct network {
    double latency;   /* seconds of a message */
    double bandwidth; /* bytes a second: that a rank sends inside, that a node sends between */
    struct duration measured[COLLECTIVE_ACTIONS];
    int members;  /* ranks a node, or nodes, that were measured */
    double share; /* of the bandwidth between nodes that is left where all of them talk */
    bool tree;    /* latency grows with the logarithm of the members; else with their number */
    bool beside;  /* was measured: what is left of each one's speed while both go on */
    double computes, sends;
};

struct machine {
    char path[MACHINE_TEXT * 4];
    char date[MACHINE_TEXT], host[MACHINE_TEXT], commit[MACHINE_TEXT], device[MACHINE_TEXT];
    int node_ranks, nodes, threads;
    double memory;               /* bytes of a rank; 0: unknown */
    double watts;                /* of a node that trains; 0: unknown */
    double images;               /* a second that a rank's loaders make ready; 0: enough */
    double launch;               /* seconds that each operation costs besides */
    double memory_bandwidth;     /* bytes a second, reading and writing */
    double flops[MACHINE_TYPES]; /* that products reach; 0: unknown */
    double peak[MACHINE_TYPES];  /* of the data sheet; 0: unknown */
    double alone; /* speed of a rank whose node does nothing else, of 1 when all ranks compute */
    struct speed speed[MACHINE_TYPES][OPERATIONS];
    struct network inside, between;
};

/* Reads a file. A key that is unknown, a number that is none or out of range, something without
 * which nothing can be said: one line that names file, line and key. */
MUST_CHECK bool machine_read(struct machine *machine, const char *path, struct error *error);

/* The same from an open stream of text, for tests; `name` for messages. */
MUST_CHECK bool machine_read_stream(struct machine *machine, FILE *file, const char *name,
                                    struct error *error);

/* Writes what machine_read reads. */
void machine_write(const struct machine *machine, FILE *file);

/* Seconds of an operation on a rank whose node has so many ranks at work. */
double machine_operation_seconds(const struct machine *machine, const struct counted *counted,
                                 int node_ranks);

/* Does it know how fast products of this type are? */
bool machine_multiplies(const struct machine *machine, enum data_type type);

/* A group of a mesh: `nodes` nodes with `inside` of its ranks on each; `groups` such groups work
 * side by side on the same nodes. */
struct group_shape {
    int inside, nodes, groups;
};

/* Seconds of a collective. By a ring, or inside the nodes and then between them (docs/mesh.md). */
double machine_collective_seconds(const struct machine *machine,
                                  const struct collective *collective,
                                  const struct group_shape *shape);

/* What `members` send each by a ring: by which collectives are measured. */
double machine_network_bytes(const struct collective *collective, int members);

/* Does the file know what such a group needs? */
MUST_CHECK bool machine_connects(const struct machine *machine, const struct group_shape *shape,
                                 struct error *error);

#endif
