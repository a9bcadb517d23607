// SPDX-License-Identifier: BSD-3-Clause
/* Measure and evaluate the network between nodes. One rank per node exchanges messages with those
 * of other nodes in the rounds of a round-robin tournament, or in some of its rounds if there are
 * many nodes. All pairs of a round run at the same time. A pair has a fixed time for round trips of
 * a byte and for blocks in each direction. */
#include <ifaddrs.h>
#include <math.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "comm/mpi_check.h"
#include "core/clock.h"
#include "core/median.h"
#include "core/text_file.h"
#include "tools/doctor/doctor.h"

enum { TAG_TRIP = 1, TAG_BLOCK = 2, TAG_CLOCK = 3, CLOCK_TRIPS = 10 };
enum { BLOCK = 256 << 10, IN_FLIGHT = 2 };

/* ---- interfaces */
/* Read the state and the IPv4 network of an interface. */
static void address_read(const struct ifaddrs *addresses, struct network_interface *interface)
{
    for (; addresses != NULL; addresses = addresses->ifa_next) {
        struct sockaddr_in address, mask;
        if (strcmp(addresses->ifa_name, interface->name) != 0 || addresses->ifa_addr == NULL ||
            addresses->ifa_netmask == NULL || addresses->ifa_addr->sa_family != AF_INET)
            continue;
        memcpy(&address, addresses->ifa_addr, sizeof address);
        memcpy(&mask, addresses->ifa_netmask, sizeof mask);
        interface->network = ntohl(address.sin_addr.s_addr & mask.sin_addr.s_addr);
        interface->up = (addresses->ifa_flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING);
        return;
    }
}

/* Parse lines "  eth0: BYTES PACKETS and six more, BYTES ..." of /proc/net/dev. Unlike /sys, it
 * shows the network namespace of this process. */
static int64_t interfaces_read(struct network_interface interface[NETWORK_INTERFACES])
{
    char line[512];
    int64_t count = 0;
    struct ifaddrs *addresses = NULL;
    FILE *file = fopen("/proc/net/dev", "re");
    if (getifaddrs(&addresses) != 0)
        addresses = NULL;
    while (file != NULL && count < NETWORK_INTERFACES && fgets(line, sizeof line, file) != NULL) {
        struct network_interface *one = &interface[count];
        char path[128];
        unsigned long long speed;
        long long in, out;
        char *colon = strchr(line, ':');
        if (colon == NULL ||
            sscanf(colon + 1, "%lld %*d %*d %*d %*d %*d %*d %*d %lld", &in, &out) != 2)
            continue;
        *colon = '\0';
        *one = (struct network_interface){.moved = in + out};
        snprintf(one->name, sizeof one->name, "%.*s", INTERFACE_NAME - 1, line + strspn(line, " "));
        if (strcmp(one->name, "lo") == 0)
            continue;
        address_read(addresses, one);
        snprintf(path, sizeof path, "/sys/class/net/%s/speed", one->name);
        if (text_file_number(path, "", &speed) && speed <= INT32_MAX) /* -1: no carrier */
            one->speed = (int64_t)speed;
        count++;
    }
    if (file != NULL)
        fclose(file);
    if (addresses != NULL)
        freeifaddrs(addresses);
    return count;
}

/* Read a control variable of MPI, which may be set in a file. The library replaces "10.1.0.0/16" by
 * interface names. */
static void setting_ask(const char *name, char *text, size_t size)
{
    int index, count = 0, threads;
    MPI_T_cvar_handle handle;
    if (MPI_T_init_thread(MPI_THREAD_SINGLE, &threads) != MPI_SUCCESS)
        return;
    if (MPI_T_cvar_get_index(name, &index) == MPI_SUCCESS &&
        MPI_T_cvar_handle_alloc(index, NULL, &handle, &count) == MPI_SUCCESS) {
        char *value = allocate((size_t)count + 1, 1);
        if (MPI_T_cvar_read(handle, value) == MPI_SUCCESS && value[0] != '\0')
            snprintf(text, size, "%s=%.90s", name, value);
        free(value);
        MPI_T_cvar_handle_free(&handle);
    }
    MPI_T_finalize();
}

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

/* ---- one pair of nodes */
static double trip_measure(MPI_Comm group, int partner, bool leads)
{
    enum { TRIPS = 30 };
    const double most = 0.02;
    double least = INFINITY, begin = clock_now();
    char last = 0;
    for (int i = 0; !last; i++) {
        double start = clock_now();
        if (leads) {
            last = i + 1 == TRIPS || start > begin + most;
            MPI_CHECK(MPI_Send(&last, 1, MPI_CHAR, partner, TAG_TRIP, group));
            MPI_CHECK(MPI_Recv(&last, 1, MPI_CHAR, partner, TAG_TRIP, group, MPI_STATUS_IGNORE));
        } else {
            MPI_CHECK(MPI_Recv(&last, 1, MPI_CHAR, partner, TAG_TRIP, group, MPI_STATUS_IGNORE));
            MPI_CHECK(MPI_Send(&last, 1, MPI_CHAR, partner, TAG_TRIP, group));
        }
        double seconds = clock_now() - start;
        least = seconds < least ? seconds : least;
    }
    return least / 2;
}

/* Send blocks for a fixed time, several in flight. The first byte of the last block is 1; the
 * receiver acknowledges it. Return bytes per second. */
static double blocks_send(MPI_Comm group, int partner, char *memory, int64_t *moved)
{
    const double time = 0.06;
    MPI_Request request[IN_FLIGHT];
    char answer;
    int64_t blocks = 0;
    bool last = false;
    double start = clock_now();
    for (int i = 0; i < IN_FLIGHT; i++)
        request[i] = MPI_REQUEST_NULL;
    for (; !last; blocks++) {
        char *block = memory + (size_t)(blocks % IN_FLIGHT) * BLOCK;
        MPI_CHECK(MPI_Wait(&request[blocks % IN_FLIGHT], MPI_STATUS_IGNORE));
        last = clock_now() > start + time;
        block[0] = last;
        MPI_CHECK(MPI_Isend(block, BLOCK, MPI_CHAR, partner, TAG_BLOCK, group,
                            &request[blocks % IN_FLIGHT]));
    }
    MPI_CHECK(MPI_Waitall(IN_FLIGHT, request, MPI_STATUSES_IGNORE));
    MPI_CHECK(MPI_Recv(&answer, 1, MPI_CHAR, partner, TAG_BLOCK, group, MPI_STATUS_IGNORE));
    *moved += blocks * BLOCK;
    return (double)(blocks * BLOCK) / (clock_now() - start);
}

static void blocks_receive(MPI_Comm group, int partner, char *memory, int64_t *moved)
{
    MPI_Request request[IN_FLIGHT];
    for (int i = 0; i < IN_FLIGHT; i++)
        MPI_CHECK(MPI_Irecv(memory + (size_t)i * BLOCK, BLOCK, MPI_CHAR, partner, TAG_BLOCK, group,
                            &request[i]));
    for (int64_t blocks = 0;; blocks++) {
        char *block = memory + (size_t)(blocks % IN_FLIGHT) * BLOCK;
        MPI_CHECK(MPI_Wait(&request[blocks % IN_FLIGHT], MPI_STATUS_IGNORE));
        *moved += BLOCK;
        if (block[0])
            break;
        MPI_CHECK(MPI_Irecv(block, BLOCK, MPI_CHAR, partner, TAG_BLOCK, group,
                            &request[blocks % IN_FLIGHT]));
    }
    for (int i = 0; i < IN_FLIGHT; i++)
        if (request[i] != MPI_REQUEST_NULL) {
            MPI_CHECK(MPI_Cancel(&request[i]));
            MPI_CHECK(MPI_Wait(&request[i], MPI_STATUS_IGNORE));
        }
    char answer = 0;
    MPI_CHECK(MPI_Send(&answer, 1, MPI_CHAR, partner, TAG_BLOCK, group));
}

/* Measure a pair several times and keep the best, because other work may disturb a measurement. */
static void pair_measure(MPI_Comm group, int self, int partner, char *memory,
                         struct node_network *own, struct network_link *link)
{
    enum { BOUTS = 3 };
    const double time = 2;
    const bool leads = self < partner;
    double start = clock_now();
    *link = (struct network_link){.from = self, .to = partner, .latency = INFINITY};
    for (int bout = 0; bout < BOUTS; bout++) {
        char more = clock_now() < start + time; /* the leading rank decides */
        if (leads)
            MPI_CHECK(MPI_Send(&more, 1, MPI_CHAR, partner, TAG_TRIP, group));
        else
            MPI_CHECK(MPI_Recv(&more, 1, MPI_CHAR, partner, TAG_TRIP, group, MPI_STATUS_IGNORE));
        if (!more)
            break;
        for (int turn = 0; turn < 2; turn++) {
            double latency = trip_measure(group, partner, leads), rate = 0;
            if (leads == (turn == 0))
                rate = blocks_send(group, partner, memory, &own->sent);
            else
                blocks_receive(group, partner, memory, &own->sent);
            link->latency = latency < link->latency ? latency : link->latency;
            link->rate = rate > link->rate ? rate : link->rate;
        }
    }
}

/* ---- all pairs */
/* Return the seconds that this process has waited for a CPU, 0 if unknown. The first two numbers of
 * /proc/self/schedstat are its times on a CPU and in the run queue in nanoseconds. */
static double queue_seconds(void)
{
    long long queue = 0;
    FILE *file = fopen("/proc/self/schedstat", "re");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%*d %lld", &queue) != 1)
        queue = 0;
    fclose(file);
    return (double)queue * 1e-9;
}

static void links_measure(struct comm *leaders, struct node_network *own)
{
    const double time = 2.5; /* rounds may be long on slow links */
    double start = clock_now(), queue = queue_seconds();
    struct network_interface after[NETWORK_INTERFACES];
    MPI_Comm group = *(MPI_Comm *)comm_handle(leaders);
    int rounds = network_rounds(leaders->size);
    int taken = rounds < NETWORK_ROUNDS ? rounds : NETWORK_ROUNDS;
    char *memory = allocate(IN_FLIGHT, BLOCK);
    for (int i = 0; i < NETWORK_ROUNDS; i++)
        own->link[i].to = -1;
    own->sent = 0;
    own->interfaces = interfaces_read(own->interface);
    for (int i = 0; i < taken; i++) {
        int64_t more = clock_now() < start + time; /* the first node decides */
        comm_broadcast(leaders, &more, 1, COMM_INT64, 0);
        if (!more)
            break;
        int partner = network_partner(leaders->size, i * rounds / taken, leaders->rank);
        if (partner >= 0)
            pair_measure(group, leaders->rank, partner, memory, own, &own->link[i]);
    }
    int64_t count = interfaces_read(after);
    for (int64_t i = 0; i < own->interfaces; i++)
        for (int64_t j = 0; j < count; j++)
            if (strcmp(own->interface[i].name, after[j].name) == 0)
                own->interface[i].moved = after[j].moved - own->interface[i].moved;
    own->seconds = clock_now() - start;
    own->busy = (queue_seconds() - queue) / own->seconds;
    free(memory);
}

/* Request the time of node 0 from node `from` several times; the skew of this node's clock is that
 * of the fastest round trip. */
static void clock_ask(MPI_Comm group, int from, struct node_network *own)
{
    own->uncertain = INFINITY;
    for (int i = 0; i < CLOCK_TRIPS; i++) {
        double time = 0, start = clock_now(), wall = clock_wall();
        MPI_CHECK(MPI_Send(&time, 1, MPI_DOUBLE, from, TAG_CLOCK, group));
        MPI_CHECK(MPI_Recv(&time, 1, MPI_DOUBLE, from, TAG_CLOCK, group, MPI_STATUS_IGNORE));
        double half = (clock_now() - start) / 2;
        if (half < own->uncertain) {
            own->uncertain = half;
            own->skew = wall + half - time;
        }
    }
}

/* Send the time of node 0 to node `to` in reply to each request. */
static void clock_answer(MPI_Comm group, int to, const struct node_network *own)
{
    for (int i = 0; i < CLOCK_TRIPS; i++) {
        double time;
        MPI_CHECK(MPI_Recv(&time, 1, MPI_DOUBLE, to, TAG_CLOCK, group, MPI_STATUS_IGNORE));
        time = clock_wall() - own->skew;
        MPI_CHECK(MPI_Send(&time, 1, MPI_DOUBLE, to, TAG_CLOCK, group));
    }
}

/* Compare the clock with that of node 0 along a binomial tree, in log2(nodes) steps. */
static void clock_measure(struct comm *leaders, struct node_network *own)
{
    MPI_Comm group = *(MPI_Comm *)comm_handle(leaders);
    int distance = 1;
    own->skew = 0;
    while (distance < leaders->size && !(leaders->rank & distance))
        distance *= 2;
    if (leaders->rank != 0)
        clock_ask(group, leaders->rank - distance, own);
    for (distance /= 2; distance > 0; distance /= 2)
        if (leaders->rank + distance < leaders->size)
            clock_answer(group, leaders->rank + distance, own);
}

/* ---- evaluation of links */
/* Thresholds for a warning and a failure, relative to other links (a cable may have negotiated 1
 * instead of 10 Gbit/s) and relative to the interface's nominal speed. The latter are lower,
 * because one TCP stream or ranks that share cores may not saturate a fast interface. */
static const double slow_share = 0.5, broken_share = 0.1;
static const double nominal_slow_share = 1. / 8, nominal_broken_share = 1. / 50;

/* Return the next measured link and advance *at, which is 0 at first; NULL at the end. */
static const struct network_link *link_next(const struct node_network *node, int nodes, int *at)
{
    while (*at < nodes * NETWORK_ROUNDS) {
        const struct network_link *link = &node[*at / NETWORK_ROUNDS].link[*at % NETWORK_ROUNDS];
        ++*at;
        if (link->to >= 0 && link->rate > 0)
            return link;
    }
    return NULL;
}

static enum doctor_verdict verdict_of(double rate, double usual)
{
    return rate < broken_share * usual ? DOCTOR_FAIL
           : rate < slow_share * usual ? DOCTOR_WARN
                                       : DOCTOR_PASS;
}

static const char slow_advice[] = "check cable, port and negotiated speed (ethtool), errors (ip -s "
                                  "link), other traffic and other "
                                  "processes; or exclude the node";

/* Return the verdict on a link. A failure becomes a warning if other processes used the CPUs of one
 * of its nodes, because they may have slowed the measurement. */
static enum doctor_verdict judge_link(const struct node_network *node,
                                      const struct network_link *link, double usual)
{
    const double much = 0.2;
    enum doctor_verdict verdict = verdict_of(link->rate, usual);
    bool busy = node[link->from].busy > much || node[link->to].busy > much;
    return verdict == DOCTOR_FAIL && busy ? DOCTOR_WARN : verdict;
}

static void judge_links(const struct node_network *node, int nodes, const double *best,
                        double usual, struct doctor_row *row)
{
    int at = 0;
    for (const struct network_link *link; (link = link_next(node, nodes, &at)) != NULL;) {
        if (verdict_of(link->rate, usual) == DOCTOR_PASS ||
            verdict_of(best[link->from], usual) > DOCTOR_PASS ||
            verdict_of(best[link->to], usual) > DOCTOR_PASS)
            continue;
        doctor_set(row, judge_link(node, link, usual), slow_advice,
                   "the link from %s to %s is slow: %.4g MB/s, %.4g on other links",
                   node[link->from].host, node[link->to].host, link->rate / 1e6, usual / 1e6);
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
static void judge_nominal(const struct node_network *node, int nodes, const double *best,
                          struct doctor_row *row)
{
    for (int i = 0; i < nodes; i++) {
        const struct network_interface *used = interface_used(&node[i]);
        double nominal = used != NULL ? (double)used->speed * 1e6 / 8 : 0;
        if (nominal <= 0 || best[i] <= 0 || best[i] >= nominal_slow_share * nominal)
            continue;
        doctor_set(row, best[i] < nominal_broken_share * nominal ? DOCTOR_FAIL : DOCTOR_WARN,
                   slow_advice, "node %s reaches only %.4g MB/s over %s with %lld Mbit/s",
                   node[i].host, best[i] / 1e6, used->name, (long long)used->speed);
    }
}

void network_judge_bandwidth(const struct node_network *node, int nodes, struct doctor_row *row)
{
    double least = INFINITY;
    int at = 0;
    double *best = allocate((size_t)nodes * 2, sizeof *best), *sorted = best + nodes;
    for (const struct network_link *link; (link = link_next(node, nodes, &at)) != NULL;) {
        best[link->from] = fmax(best[link->from], link->rate);
        best[link->to] = fmax(best[link->to], link->rate);
        least = fmin(least, link->rate);
    }
    /* The typical rate of a link is the median over the nodes of their best rate. */
    memcpy(sorted, best, (size_t)nodes * sizeof *best);
    double usual = values_median(sorted, nodes);
    for (int i = 0; i < nodes; i++)
        if (best[i] > 0 && verdict_of(best[i], usual) > DOCTOR_PASS)
            doctor_set(row, verdict_of(best[i], usual), slow_advice,
                       "all links of node %s are slow: %.4g MB/s at best, %.4g on other nodes",
                       node[i].host, best[i] / 1e6, usual / 1e6);
    judge_links(node, nodes, best, usual, row);
    judge_nominal(node, nodes, best, row);
    doctor_set(row, DOCTOR_PASS, NULL, "typically %.4g MB/s between two nodes, minimum %.4g",
               usual / 1e6, isfinite(least) ? least / 1e6 : 0);
    free(best);
}

void network_judge_latency(const struct node_network *node, int nodes, struct doctor_row *row)
{
    const double much = 1e-3, many_times = 10, little = 200e-6;
    const struct network_link *worst = NULL;
    int count = 0, at = 0;
    double *all = allocate(1, (size_t)nodes * NETWORK_ROUNDS * sizeof *all);
    for (const struct network_link *link; (link = link_next(node, nodes, &at)) != NULL;) {
        all[count++] = link->latency;
        worst = worst == NULL || link->latency > worst->latency ? link : worst;
    }
    double usual = values_median(all, count);
    free(all);
    if (worst == NULL)
        return;
    if (worst->latency > much || (worst->latency > many_times * usual && worst->latency > little))
        doctor_set(row, DOCTOR_WARN,
                   "use nodes on one switch, without a router, tunnel or wide-area network between "
                   "them",
                   "%.0f us from %s to %s, typically %.0f us", worst->latency * 1e6,
                   node[worst->from].host, node[worst->to].host, usual * 1e6);
    doctor_set(row, DOCTOR_PASS, NULL, "typically %.0f us between two nodes, maximum %.0f us",
               usual * 1e6, worst->latency * 1e6);
}

/* ---- evaluation of interfaces */
/* Return the fastest interface that all nodes have if it is faster than the one in use, or NULL. */
static const struct network_interface *interface_faster(const struct node_network *node, int nodes,
                                                        const struct network_interface *used)
{
    const struct network_interface *faster = NULL;
    for (int i = 0; i < node->interfaces; i++) {
        const struct network_interface *other = &node->interface[i];
        bool everywhere = other->speed > used->speed && other->up;
        for (int n = 1; everywhere && n < nodes; n++) {
            everywhere = false;
            for (int j = 0; j < node[n].interfaces; j++) {
                const struct network_interface *there = &node[n].interface[j];
                if (strcmp(there->name, other->name) == 0)
                    everywhere = there->up && there->speed > used->speed;
            }
        }
        if (everywhere && (faster == NULL || other->speed > faster->speed))
            faster = other;
    }
    return faster;
}

static const char take_advice[] =
    "set the same one on all nodes: OMPI_MCA_btl_tcp_if_include=NAME (and oob_tcp_if_include; "
    "NCCL_SOCKET_IFNAME for GPUs)";

void network_judge_interface(const struct node_network *node, int nodes, struct doctor_row *row)
{
    const struct network_interface *first = interface_used(&node[0]);
    char speed[48] = ", speed unknown";
    for (int i = 1; i < nodes; i++)
        if (strcmp(node[i].setting, node[0].setting) != 0)
            doctor_set(row, DOCTOR_WARN, take_advice, "MPI has %s on %s, but %s on %s",
                       node[i].setting[0] != '\0' ? node[i].setting : "no interface setting",
                       node[i].host,
                       node[0].setting[0] != '\0' ? node[0].setting : "no interface setting",
                       node[0].host);
    for (int i = 1; i < nodes; i++) {
        const struct network_interface *used = interface_used(&node[i]);
        /* Interfaces of the same network may have different names. */
        if (first != NULL && used != NULL && strcmp(first->name, used->name) != 0 &&
            first->network != used->network)
            doctor_set(row, DOCTOR_WARN, take_advice, "messages use %s on %s, but %s on %s",
                       used->name, node[i].host, first->name, node[0].host);
    }
    if (first == NULL) {
        doctor_set(row, DOCTOR_PASS, NULL,
                   "no kernel interface counted the messages (InfiniBand?)");
        return;
    }
    if (first->speed > 0)
        snprintf(speed, sizeof speed, " with %lld Mbit/s", (long long)first->speed);
    const struct network_interface *faster = interface_faster(node, nodes, first);
    if (faster != NULL)
        doctor_set(row, DOCTOR_WARN, take_advice,
                   "messages use %s%s, but all nodes have %s with %lld Mbit/s", first->name, speed,
                   faster->name, (long long)faster->speed);
    doctor_set(row, DOCTOR_PASS, NULL, "messages use %s%s%s%s", first->name, speed,
               node[0].setting[0] != '\0' ? "; " : "", node[0].setting);
}

/* ---- evaluation of clocks */
/* Above 1 s, log lines and dates of runs are out of order. Slurm's munge rejects credentials older
 * than 300 s, object stores requests that are 900 s off. */
static const double clock_warn = 1, clock_fail = 300;
static const char clock_advice[] = "synchronize the clocks with chrony or ntpd (chronyc makestep)";

void network_judge_clock(const struct node_network *node, int nodes, struct doctor_row *row)
{
    double most = 0;
    for (int i = 1; i < nodes; i++) {
        double skew = fabs(node[i].skew);
        most = skew > most ? skew : most;
        if (skew > clock_warn)
            doctor_set(row, skew > clock_fail ? DOCTOR_FAIL : DOCTOR_WARN, clock_advice,
                       "the clock of %s is %.3f s %s that of %s", node[i].host, skew,
                       node[i].skew > 0 ? "ahead of" : "behind", node[0].host);
    }
    doctor_set(row, DOCTOR_PASS, NULL, "the clocks of the nodes agree to %.1f ms", most * 1e3);
}

/* ---- checks */
/* Gather the results of all nodes on the leaders. */
static void network_gather(struct doctor *doctor)
{
    comm_all_gather(doctor->leaders, doctor->network, sizeof *doctor->network, COMM_BYTE);
}

static struct node_network *own_of(struct doctor *doctor)
{
    int nodes = doctor->node_count;
    if (doctor->network == NULL)
        doctor->network = allocate((size_t)nodes, sizeof *doctor->network);
    struct node_network *own = &doctor->network[doctor->leaders->rank];
    snprintf(own->host, sizeof own->host, "%s", comm_host());
    return own;
}

static void network_report(const struct doctor *doctor, struct doctor_row *row,
                           network_judge *judge)
{
    if (doctor->node_count == 1)
        doctor_set(row, DOCTOR_PASS, NULL, "one node");
    else if (doctor->world->rank == 0)
        judge(doctor->network, doctor->node_count, row);
}

void doctor_check_clock(struct doctor *doctor, struct doctor_row *row)
{
    if (doctor->node_count > 1 && doctor->leaders != NULL) {
        clock_measure(doctor->leaders, own_of(doctor));
        network_gather(doctor);
    }
    network_report(doctor, row, network_judge_clock);
}

void doctor_check_own_clock(struct doctor *doctor, struct doctor_row *row)
{
    struct node_network own = {.skew = 0};
    if (doctor->leaders == NULL)
        return;
    clock_measure(doctor->leaders, &own);
    doctor_set_of(doctor, doctor->leaders, row, fabs(own.skew) > clock_warn, DOCTOR_WARN,
                  clock_advice, "the clock is %.3f s %s that of the first node", fabs(own.skew),
                  own.skew > 0 ? "ahead of" : "behind");
}

/* Also measures for the checks that follow. */
void doctor_check_latency(struct doctor *doctor, struct doctor_row *row)
{
    if (doctor->node_count > 1 && doctor->leaders != NULL) {
        struct node_network *own = own_of(doctor);
        const char *given = getenv("OMPI_MCA_btl_tcp_if_include"); /* by mpirun's option, too */
        if (given != NULL && given[0] != '\0')
            snprintf(own->setting, sizeof own->setting, "btl_tcp_if_include=%.90s", given);
        else
            setting_ask("btl_tcp_if_include", own->setting, sizeof own->setting);
        links_measure(doctor->leaders, own);
        network_gather(doctor);
    }
    network_report(doctor, row, network_judge_latency);
}

void doctor_check_bandwidth(struct doctor *doctor, struct doctor_row *row)
{
    if (doctor->node_count > 1 && doctor->leaders != NULL) {
        const double little = 2;
        struct doctor_row first = {.verdict = DOCTOR_SKIP};
        network_report(doctor, &first, network_judge_bandwidth);
        int64_t again = first.verdict > DOCTOR_PASS && own_of(doctor)->seconds < little;
        comm_broadcast(doctor->leaders, &again, 1, COMM_INT64, 0);
        if (again) {
            /* Keep the best of both: other work on a node ends, a bad cable stays. */
            struct node_network *own = own_of(doctor), before = *own;
            links_measure(doctor->leaders, own);
            for (int i = 0; i < NETWORK_ROUNDS; i++) {
                struct network_link *link = &own->link[i], *old = &before.link[i];
                if (link->to < 0)
                    *link = *old;
                link->rate = fmax(link->rate, old->rate);
                link->latency = fmin(link->latency, old->latency);
            }
            network_gather(doctor);
        }
    }
    network_report(doctor, row, network_judge_bandwidth);
}

void doctor_check_interface(struct doctor *doctor, struct doctor_row *row)
{
    network_report(doctor, row, network_judge_interface);
}
