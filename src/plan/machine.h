// SPDX-License-Identifier: BSD-3-Clause
/* Speeds of a machine, read from a file: matrix products, memory, collectives inside a node and
 * between nodes. `vittrain bench device` and `bench comm` measure them; the file of a cluster that
 * is not available is written by hand from data sheets (input/clusters). Format: docs/planning.md.
 */
#ifndef VITTRAIN_PLAN_MACHINE_H
#define VITTRAIN_PLAN_MACHINE_H

#include <stdio.h>

#include "device/count.h"
#include "plan/step_script.h"

enum { MACHINE_POINTS = 32, MACHINE_TEXT = 128, MACHINE_TYPES = TYPE_FP16 + 1 };

/* Measured speeds of an operation by size (struct counted): FLOP/s of matrix products, else
 * bytes/s.
 */
struct speed_point {
    double size[3], speed;
};
struct speed {
    int count;
    struct speed_point point[MACHINE_POINTS];
};

/* Measured times of a collective by machine_network_bytes, in increasing order. */
struct duration_point {
    double bytes, seconds;
};
struct duration {
    int count;
    struct duration_point point[MACHINE_POINTS];
};

/* The network between the ranks of a node, or between nodes that use all their ranks. */
struct network {
    double latency;   /* seconds per message */
    double bandwidth; /* bytes/s: sent by a rank inside a node, by a node between nodes */
    struct duration measured[COLLECTIVE_ACTIONS];
    int members;  /* ranks or nodes during the measurement */
    double share; /* of the bandwidth that is left if all nodes communicate */
    bool tree;    /* latency grows with the logarithm of the members; else linearly */
    /* Relative speed, 0 to 1, of operations and of communication while they overlap. */
    double compute_speed, send_speed;
};

struct machine {
    char path[MACHINE_TEXT * 4];
    char date[MACHINE_TEXT], host[MACHINE_TEXT], commit[MACHINE_TEXT], device[MACHINE_TEXT];
    int node_ranks, nodes, threads;
    int shared_memory;       /* 1: the ranks of a node share weights and gradients, as on CPUs */
    double memory;           /* bytes per rank; 0: unknown */
    double watts;            /* of a node in training; 0: unknown */
    double images;           /* images/s that a rank's loaders prepare; 0: enough */
    double launch;           /* seconds of overhead per operation */
    double memory_bandwidth; /* bytes/s, reads and writes */
    double flops[MACHINE_TYPES]; /* FLOP/s that matrix products reach; 0: unknown */
    double peak[MACHINE_TYPES];  /* FLOP/s of the data sheet; 0: unknown */
    double alone; /* speed of a rank on an otherwise idle node, relative to a fully used node */
    struct speed speed[MACHINE_TYPES][OPERATIONS];
    struct network inside, between;
};

/* Read a file. An unknown key, an invalid number or a missing speed is an error of one line that
 * names the file, the line and the key. */
MUST_CHECK bool machine_read(struct machine *machine, const char *path, struct error *error);

/* As machine_read, but speeds may be missing, and the file, too. */
MUST_CHECK bool machine_read_part(struct machine *machine, const char *path, struct error *error);

/* Write a file that machine_read_part reads. */
void machine_write(const struct machine *machine, FILE *file);

/* Return the seconds of an operation on a rank if node_ranks ranks of its node work. */
double machine_operation_seconds(const struct machine *machine, const struct counted *counted,
                                 int node_ranks);

/* True if the speed of matrix products in this type is known. */
bool machine_multiplies(const struct machine *machine, enum data_type type);

/* A group of a mesh: `inside` ranks on each of `nodes` nodes. `groups` such groups use the same
 * nodes at the same time. */
struct group_shape {
    int inside, nodes, groups;
};

/* Return the seconds of a collective: a ring on one node, or a hierarchy of nodes (docs/mesh.md);
 * an all-to-all sends each block directly to its rank. */
double machine_collective_seconds(const struct machine *machine,
                                  const struct collective *collective,
                                  const struct group_shape *shape);

/* Return the bytes that `members` members of a ring send each; keys the measured times. */
double machine_network_bytes(const struct collective *collective, int members);

/* Check that the speeds of the networks that a group needs are known. */
MUST_CHECK bool machine_connects(const struct machine *machine, const struct group_shape *shape,
                                 struct error *error);

#endif
