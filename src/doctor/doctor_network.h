/* Measurements of the network between nodes, and their evaluation. */
#ifndef VITTRAIN_DOCTOR_DOCTOR_NETWORK_H
#define VITTRAIN_DOCTOR_DOCTOR_NETWORK_H

#include "doctor/doctor.h"

enum { NETWORK_ROUNDS = 8, NETWORK_INTERFACES = 12, INTERFACE_NAME = 16 };

/* One direction of a link. */
struct network_link {
    int64_t from, to; /* nodes; to=-1: no partner in this round */
    double latency;   /* seconds: half of the fastest round trip */
    double rate;      /* bytes per second */
};

struct network_interface {
    char name[INTERFACE_NAME];
    int64_t speed;   /* Mbit/s; 0: unknown */
    int64_t up;      /* it is up, has a carrier and an IPv4 address */
    int64_t network; /* IPv4 network of the address */
    int64_t moved;   /* bytes received and sent during the measurement */
};

/* Results of a node. */
struct node_network {
    char host[DOCTOR_HOST];
    struct network_link link[NETWORK_ROUNDS];
    struct network_interface interface[NETWORK_INTERFACES];
    int64_t interfaces;
    double seconds;    /* duration of the measurement */
    int64_t sent;      /* bytes received and sent by the measurement */
    char setting[128]; /* MPI's btl_tcp_if_include; "" none */
    double skew;       /* clock minus that of the first node, in seconds */
    double uncertain;  /* half of the round trip, in seconds */
};

/* Return the partner of a node in a round of a round-robin tournament, or -1. There are
 * network_rounds(nodes) rounds: nodes - 1, or `nodes` if that is odd. */
int network_partner(int nodes, int round, int node);
int network_rounds(int nodes);

/* Evaluate the results of all nodes. */
typedef void network_judge(const struct node_network *node, int nodes, struct doctor_row *row);
network_judge network_judge_latency, network_judge_bandwidth, network_judge_interface,
    network_judge_clock;

#endif
