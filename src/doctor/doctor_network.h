/* What is measured of the network between nodes, and the judgement of it, which needs no network.
 */
#ifndef VITTRAIN_DOCTOR_DOCTOR_NETWORK_H
#define VITTRAIN_DOCTOR_DOCTOR_NETWORK_H

#include "doctor/doctor.h"

enum { NETWORK_ROUNDS = 8, NETWORK_INTERFACES = 12, INTERFACE_NAME = 16 };

/* One direction of a link. */
struct network_link {
    int64_t from, to; /* nodes; to is -1 where the round had no partner */
    double latency;   /* seconds one way: half of the quickest round trip */
    double rate;      /* bytes a second */
};

struct network_interface {
    char name[INTERFACE_NAME];
    int64_t speed;   /* Mbit/s, 0: not known */
    int64_t up;      /* it is up, has a carrier and an IPv4 address */
    int64_t network; /* that address's */
    int64_t moved;   /* bytes in and out while links were measured */
};

/* What a node found. */
struct node_network {
    struct network_link link[NETWORK_ROUNDS];
    struct network_interface interface[NETWORK_INTERFACES];
    int64_t interfaces;
    double seconds;    /* that its links took */
    int64_t sent;      /* bytes in and out by the measurement */
    char setting[128]; /* MPI's btl_tcp_if_include; "" none */
    double skew;       /* clock minus the first node's, seconds; the least that it can be */
    double uncertain;  /* seconds, both ways */
};

/* The partner of a node in a round of a tournament in which all meet, 0 <= round < rounds of it
 * (nodes - 1, or nodes where that is odd); -1: none. */
int network_partner(int nodes, int round, int node);
int network_rounds(int nodes);

/* Rows from what all nodes found; host: their names. */
void network_judge_latency(const struct node_network *node, int nodes, const char *const *host,
                           struct doctor_row *row);
void network_judge_bandwidth(const struct node_network *node, int nodes, const char *const *host,
                             struct doctor_row *row);
void network_judge_interface(const struct node_network *node, int nodes, const char *const *host,
                             struct doctor_row *row);
void network_judge_clock(const struct node_network *node, int nodes, const char *const *host,
                         struct doctor_row *row);

/* This node's interfaces; `moved` is all that went through so far. */
int64_t network_interfaces_read(struct network_interface interface[NETWORK_INTERFACES]);

/* Collective over leaders: the clock of each node against the first one's. Fills in skew. */
void network_measure_clock(struct comm *leaders, struct node_network *own);

#endif
