/* Evaluate the measurements between nodes: slow links, nodes with only slow links, the interface in
 * use, wrong clocks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "doctor/doctor_network.h"

/* Thresholds for a warning and a failure, relative to other links (a cable may have negotiated 1
 * instead of 10 Gbit/s) and relative to the interface's nominal speed. The latter are lower,
 * because one TCP stream or ranks that share cores may not saturate a fast interface. */
static const double slow_share = 0.5, broken_share = 0.1;
static const double nominal_slow_share = 1. / 8, nominal_broken_share = 1. / 50;

/* ---- the tournament */
int network_rounds(int nodes)
{
    return nodes < 2 ? 0 : nodes % 2 == 0 ? nodes - 1 : nodes;
}

/* Circle method: of an even number of nodes the last one is fixed; among the n others, i and j meet
 * in round (i + j) mod n. */
int network_partner(int nodes, int round, int node)
{
    int even = nodes + nodes % 2, others = even - 1, partner;
    if (node == even - 1) {
        partner = round * (even / 2) % others;
    } else {
        partner = ((round - node) % others + others) % others;
        partner = partner == node ? even - 1 : partner;
    }
    return partner < nodes ? partner : -1;
}

/* ---- links */
static int compare_numbers(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Sort the values and return the upper median. */
static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare_numbers);
    return count > 0 ? values[count / 2] : 0;
}

static bool link_is(const struct network_link *link)
{
    return link->to >= 0 && link->rate > 0;
}

/* Return the best rate of the links to or from a node; 0: none was measured. */
static double best_rate(const struct node_network *node, int nodes, int which)
{
    double best = 0;
    for (int i = 0; i < nodes; i++)
        for (int round = 0; round < NETWORK_ROUNDS; round++) {
            const struct network_link *link = &node[i].link[round];
            if (link_is(link) && (link->from == which || link->to == which))
                best = link->rate > best ? link->rate : best;
        }
    return best;
}

/* Return the typical rate of a link: the median over the nodes of their best rate. */
static double usual_rate(const struct node_network *node, int nodes, double *best)
{
    double *sorted = malloc((size_t)nodes * sizeof *sorted);
    ENSURE(sorted != NULL, "no memory to judge %d nodes", nodes);
    for (int i = 0; i < nodes; i++)
        sorted[i] = best[i] = best_rate(node, nodes, i);
    double usual = median(sorted, nodes);
    free(sorted);
    return usual;
}

static enum doctor_verdict verdict_of(double rate, double usual)
{
    return rate < broken_share * usual ? DOCTOR_FAIL
           : rate < slow_share * usual ? DOCTOR_WARN
                                       : DOCTOR_PASS;
}

static const char slow_advice[] =
    "check cable, port and negotiated speed (ethtool), errors (ip -s link) and other traffic; or "
    "exclude the node";

static void judge_nodes(const struct node_network *node, int nodes, const char *const *host,
                        const double *best, double usual, struct doctor_row *row)
{
    (void)node;
    for (int i = 0; i < nodes; i++)
        if (best[i] > 0 && verdict_of(best[i], usual) > DOCTOR_PASS)
            doctor_say(row, verdict_of(best[i], usual), slow_advice,
                       "all links of node %s are slow: %.4g MB/s at best, %.4g on other nodes",
                       host[i], best[i] / 1e6, usual / 1e6);
}

static void judge_links(const struct node_network *node, int nodes, const char *const *host,
                        const double *best, double usual, struct doctor_row *row)
{
    for (int i = 0; i < nodes; i++)
        for (int round = 0; round < NETWORK_ROUNDS; round++) {
            const struct network_link *link = &node[i].link[round];
            if (!link_is(link) || verdict_of(link->rate, usual) == DOCTOR_PASS ||
                verdict_of(best[link->from], usual) > DOCTOR_PASS ||
                verdict_of(best[link->to], usual) > DOCTOR_PASS)
                continue;
            doctor_say(row, verdict_of(link->rate, usual), slow_advice,
                       "the link from %s to %s is slow: %.4g MB/s, %.4g on other links",
                       host[link->from], host[link->to], link->rate / 1e6, usual / 1e6);
        }
}

/* Return the interface with the most traffic, or NULL if none carried the measurement: InfiniBand,
 * or counters that are not visible. */
static const struct network_interface *interface_used(const struct node_network *node)
{
    const struct network_interface *used = NULL;
    for (int i = 0; i < node->interfaces; i++)
        if (node->interface[i].moved > node->sent / 2 &&
            (used == NULL || node->interface[i].moved > used->moved))
            used = &node->interface[i];
    return used;
}

/* Compare with the nominal speed of the interfaces. */
static void judge_nominal(const struct node_network *node, int nodes, const char *const *host,
                          const double *best, struct doctor_row *row)
{
    for (int i = 0; i < nodes; i++) {
        const struct network_interface *used = interface_used(&node[i]);
        double nominal = used != NULL ? (double)used->speed * 1e6 / 8 : 0;
        if (nominal <= 0 || best[i] <= 0 || best[i] >= nominal_slow_share * nominal)
            continue;
        doctor_say(row, best[i] < nominal_broken_share * nominal ? DOCTOR_FAIL : DOCTOR_WARN,
                   slow_advice, "node %s reaches only %.4g MB/s over %s with %lld Mbit/s", host[i],
                   best[i] / 1e6, used->name, (long long)used->speed);
    }
}

void network_judge_bandwidth(const struct node_network *node, int nodes, const char *const *host,
                             struct doctor_row *row)
{
    double least = INFINITY;
    double *best = malloc((size_t)nodes * sizeof *best);
    ENSURE(best != NULL, "no memory to judge %d nodes", nodes);
    double usual = usual_rate(node, nodes, best);
    judge_nodes(node, nodes, host, best, usual, row);
    judge_links(node, nodes, host, best, usual, row);
    judge_nominal(node, nodes, host, best, row);
    for (int i = 0; i < nodes; i++)
        for (int round = 0; round < NETWORK_ROUNDS; round++)
            if (link_is(&node[i].link[round]) && node[i].link[round].rate < least)
                least = node[i].link[round].rate;
    doctor_say(row, DOCTOR_PASS, NULL, "typically %.4g MB/s between two nodes, minimum %.4g",
               usual / 1e6, isfinite(least) ? least / 1e6 : 0);
    free(best);
}

void network_judge_latency(const struct node_network *node, int nodes, const char *const *host,
                           struct doctor_row *row)
{
    const double much = 1e-3, many_times = 10, little = 200e-6;
    const struct network_link *worst = NULL;
    int count = 0;
    double *all = malloc((size_t)nodes * NETWORK_ROUNDS * sizeof *all);
    ENSURE(all != NULL, "no memory to judge %d nodes", nodes);
    for (int i = 0; i < nodes; i++)
        for (int round = 0; round < NETWORK_ROUNDS; round++) {
            const struct network_link *link = &node[i].link[round];
            if (!link_is(link))
                continue;
            all[count++] = link->latency;
            worst = worst == NULL || link->latency > worst->latency ? link : worst;
        }
    double usual = median(all, count);
    free(all);
    if (worst == NULL)
        return;
    if (worst->latency > much || (worst->latency > many_times * usual && worst->latency > little))
        doctor_say(row, DOCTOR_WARN,
                   "use nodes on one switch, without a router, tunnel or wide-area network between "
                   "them",
                   "%.0f us from %s to %s, typically %.0f us", worst->latency * 1e6,
                   host[worst->from], host[worst->to], usual * 1e6);
    doctor_say(row, DOCTOR_PASS, NULL, "typically %.0f us between two nodes, maximum %.0f us",
               usual * 1e6, worst->latency * 1e6);
}

/* ---- interfaces */
static const struct network_interface *interface_find(const struct node_network *node,
                                                      const char *name)
{
    for (int i = 0; i < node->interfaces; i++)
        if (strcmp(node->interface[i].name, name) == 0)
            return &node->interface[i];
    return NULL;
}

/* Return the fastest interface that all nodes have if it is faster than the one in use, or NULL. */
static const struct network_interface *interface_faster(const struct node_network *node, int nodes,
                                                        const struct network_interface *used)
{
    const struct network_interface *faster = NULL;
    for (int i = 0; i < node->interfaces; i++) {
        const struct network_interface *other = &node->interface[i];
        bool everywhere = other->speed > used->speed && other->up;
        for (int n = 1; everywhere && n < nodes; n++) {
            const struct network_interface *there = interface_find(&node[n], other->name);
            everywhere = there != NULL && there->up && there->speed > used->speed;
        }
        if (everywhere && (faster == NULL || other->speed > faster->speed))
            faster = other;
    }
    return faster;
}

static const char take_advice[] =
    "set the same one on all nodes: OMPI_MCA_btl_tcp_if_include=NAME (and oob_tcp_if_include; "
    "NCCL_SOCKET_IFNAME for GPUs)";

static void judge_settings(const struct node_network *node, int nodes, const char *const *host,
                           struct doctor_row *row)
{
    for (int i = 1; i < nodes; i++)
        if (strcmp(node[i].setting, node[0].setting) != 0)
            doctor_say(
                row, DOCTOR_WARN, take_advice, "MPI has %s on %s, but %s on %s",
                node[i].setting[0] != '\0' ? node[i].setting : "no interface setting", host[i],
                node[0].setting[0] != '\0' ? node[0].setting : "no interface setting", host[0]);
}

void network_judge_interface(const struct node_network *node, int nodes, const char *const *host,
                             struct doctor_row *row)
{
    const struct network_interface *first = interface_used(&node[0]);
    char speed[48] = ", speed unknown";
    judge_settings(node, nodes, host, row);
    for (int i = 1; i < nodes; i++) {
        const struct network_interface *used = interface_used(&node[i]);
        /* Interfaces of the same network may have different names. */
        if (first != NULL && used != NULL && strcmp(first->name, used->name) != 0 &&
            first->network != used->network)
            doctor_say(row, DOCTOR_WARN, take_advice, "messages use %s on %s, but %s on %s",
                       used->name, host[i], first->name, host[0]);
    }
    if (first == NULL) {
        doctor_say(row, DOCTOR_PASS, NULL,
                   "no kernel interface counted the messages (InfiniBand?)");
        return;
    }
    if (first->speed > 0)
        snprintf(speed, sizeof speed, " with %lld Mbit/s", (long long)first->speed);
    const struct network_interface *faster = interface_faster(node, nodes, first);
    if (faster != NULL)
        doctor_say(row, DOCTOR_WARN, take_advice,
                   "messages use %s%s, but all nodes have %s with %lld Mbit/s", first->name, speed,
                   faster->name, (long long)faster->speed);
    doctor_say(row, DOCTOR_PASS, NULL, "messages use %s%s%s%s", first->name, speed,
               node[0].setting[0] != '\0' ? "; " : "", node[0].setting);
}

/* ---- clocks */
void network_judge_clock(const struct node_network *node, int nodes, const char *const *host,
                         struct doctor_row *row)
{
    /* Above 1 s, log lines and dates of runs are out of order. Slurm's munge rejects credentials
     * older than 300 s, object stores requests that are 900 s off. */
    const double warn = 1, fail = 300;
    static const char advice[] = "synchronize the clocks with chrony or ntpd (chronyc makestep)";
    double most = 0;
    for (int i = 1; i < nodes; i++) {
        double skew = fabs(node[i].skew);
        most = skew > most ? skew : most;
        if (skew > warn)
            doctor_say(row, skew > fail ? DOCTOR_FAIL : DOCTOR_WARN, advice,
                       "the clock of %s is %.3f s %s that of %s", host[i], skew,
                       node[i].skew > 0 ? "ahead of" : "behind", host[0]);
    }
    doctor_say(row, DOCTOR_PASS, NULL, "the clocks of the nodes agree to %.1f ms", most * 1e3);
}
