/* Measure the network. One rank per node exchanges messages with those of other nodes in the rounds
 * of a round-robin tournament, or in some of its rounds if there are many nodes. All pairs of a
 * round run at the same time. A pair has a fixed time for round trips of a byte and for blocks in
 * each direction. */
#include <ifaddrs.h>
#include <math.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "comm/mpi_check.h"
#include "core/clock.h"
#include "doctor/doctor_network.h"

enum { TAG_TRIP = 1, TAG_BLOCK = 2, TAG_CLOCK = 3 };
enum { BLOCK = 256 << 10, IN_FLIGHT = 2 };

/* ---- interfaces */
static int64_t file_number(const char *format, const char *name)
{
    char path[128];
    long long number = 0;
    snprintf(path, sizeof path, format, name);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%lld", &number) != 1)
        number = 0;
    fclose(file);
    return number > 0 ? number : 0;
}

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
int64_t network_interfaces_read(struct network_interface interface[NETWORK_INTERFACES])
{
    char line[512];
    int64_t count = 0;
    struct ifaddrs *addresses = NULL;
    FILE *file = fopen("/proc/net/dev", "re");
    if (getifaddrs(&addresses) != 0)
        addresses = NULL;
    while (file != NULL && count < NETWORK_INTERFACES && fgets(line, sizeof line, file) != NULL) {
        struct network_interface *one = &interface[count];
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
        one->speed = file_number("/sys/class/net/%s/speed", one->name);
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
        char *value = calloc((size_t)count + 1, 1);
        ENSURE(value != NULL, "no memory for a setting of MPI");
        if (MPI_T_cvar_read(handle, value) == MPI_SUCCESS && value[0] != '\0')
            snprintf(text, size, "%s=%.90s", name, value);
        free(value);
        MPI_T_cvar_handle_free(&handle);
    }
    MPI_T_finalize();
}

/* Write "btl_tcp_if_include=eth0", preferably as given to mpirun or in the environment. */
static void setting_read(char *text, size_t size)
{
    static const char name[] = "btl_tcp_if_include";
    const char *given = getenv("OMPI_MCA_btl_tcp_if_include");
    if (given != NULL && given[0] != '\0')
        snprintf(text, size, "%s=%.90s", name, given);
    else
        setting_ask(name, text, size);
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

/* Return whether there is time for another repetition, by the clock of the leading rank. */
static bool bout_begins(MPI_Comm group, int partner, bool leads, double start)
{
    const double time = 0.5;
    char go = clock_now() < start + time;
    if (leads)
        MPI_CHECK(MPI_Send(&go, 1, MPI_CHAR, partner, TAG_TRIP, group));
    else
        MPI_CHECK(MPI_Recv(&go, 1, MPI_CHAR, partner, TAG_TRIP, group, MPI_STATUS_IGNORE));
    return go != 0;
}

/* Measure a pair several times and keep the best, because other work may disturb a measurement. */
static void meet(MPI_Comm group, int self, int partner, char *memory, struct node_network *own,
                 struct network_link *link)
{
    enum { BOUTS = 3 };
    bool leads = self < partner;
    double start = clock_now();
    *link = (struct network_link){.from = self, .to = partner, .latency = INFINITY};
    for (int bout = 0; bout < BOUTS && bout_begins(group, partner, leads, start); bout++)
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

/* ---- all pairs */
static void interfaces_count(struct node_network *own)
{
    struct network_interface now[NETWORK_INTERFACES];
    int64_t count = network_interfaces_read(now);
    for (int64_t i = 0; i < own->interfaces; i++)
        for (int64_t j = 0; j < count; j++)
            if (strcmp(own->interface[i].name, now[j].name) == 0)
                own->interface[i].moved = now[j].moved - own->interface[i].moved;
}

/* Return whether there is time for another round, by the clock of the first node. Collective. */
static bool goes_on(struct comm *leaders, double start)
{
    const double time = 2.5; /* rounds may be long on slow links */
    int64_t go = clock_now() < start + time;
    comm_broadcast(leaders, &go, 1, COMM_INT64, 0);
    return go != 0;
}

static void links_measure(struct comm *leaders, struct node_network *own)
{
    double start = clock_now();
    MPI_Comm group = *(MPI_Comm *)comm_handle(leaders);
    int rounds = network_rounds(leaders->size);
    int taken = rounds < NETWORK_ROUNDS ? rounds : NETWORK_ROUNDS;
    char *memory = calloc(IN_FLIGHT, BLOCK);
    ENSURE(memory != NULL, "no memory to measure the network");
    for (int i = 0; i < NETWORK_ROUNDS; i++)
        own->link[i].to = -1;
    own->sent = 0;
    own->interfaces = network_interfaces_read(own->interface);
    for (int i = 0; i < taken && goes_on(leaders, start); i++) {
        int partner = network_partner(leaders->size, i * rounds / taken, leaders->rank);
        if (partner >= 0)
            meet(group, leaders->rank, partner, memory, own, &own->link[i]);
    }
    interfaces_count(own);
    own->seconds = clock_now() - start;
    free(memory);
}

/* Use the fastest of several round trips. */
void network_measure_clock(struct comm *leaders, struct node_network *own)
{
    enum { TRIPS = 10 };
    MPI_Comm group = *(MPI_Comm *)comm_handle(leaders);
    own->uncertain = INFINITY;
    for (int node = 1; node < leaders->size; node++)
        for (int i = 0; i < TRIPS && (leaders->rank == 0 || leaders->rank == node); i++) {
            double first = 0;
            if (leaders->rank == 0) {
                MPI_CHECK(
                    MPI_Recv(&first, 1, MPI_DOUBLE, node, TAG_CLOCK, group, MPI_STATUS_IGNORE));
                first = clock_wall();
                MPI_CHECK(MPI_Send(&first, 1, MPI_DOUBLE, node, TAG_CLOCK, group));
                continue;
            }
            double start = clock_now(), wall = clock_wall();
            MPI_CHECK(MPI_Send(&first, 1, MPI_DOUBLE, 0, TAG_CLOCK, group));
            MPI_CHECK(MPI_Recv(&first, 1, MPI_DOUBLE, 0, TAG_CLOCK, group, MPI_STATUS_IGNORE));
            double half = (clock_now() - start) / 2;
            if (half < own->uncertain) {
                own->uncertain = half;
                own->skew = wall + half - first;
            }
        }
}

static const char **hosts_make(const struct doctor *doctor)
{
    const char **host = malloc((size_t)doctor->node_count * sizeof *host);
    ENSURE(host != NULL, "no memory for the names of %d nodes", doctor->node_count);
    for (int node = 0; node < doctor->node_count; node++)
        host[node] = doctor_host(doctor, node);
    return host;
}

/* Gather the results of all nodes on the leaders. */
static void share(struct doctor *doctor)
{
    comm_all_gather(doctor->leaders, doctor->network, sizeof *doctor->network, COMM_BYTE);
}

static struct node_network *own_of(struct doctor *doctor)
{
    int nodes = doctor->node_count;
    if (doctor->network == NULL)
        doctor->network = calloc((size_t)nodes, sizeof *doctor->network);
    ENSURE(doctor->network != NULL, "no memory for the network of %d nodes", nodes);
    return &doctor->network[doctor->leaders->rank];
}

typedef void judgement(const struct node_network *node, int nodes, const char *const *host,
                       struct doctor_row *row);

static void say(const struct doctor *doctor, struct doctor_row *row, judgement *judge)
{
    if (doctor->node_count == 1) {
        doctor_say(row, DOCTOR_PASS, NULL, "one node");
        return;
    }
    if (doctor->world->rank != 0)
        return;
    const char **host = hosts_make(doctor);
    judge(doctor->network, doctor->node_count, host, row);
    free(host);
}

void doctor_look_clock(struct doctor *doctor, struct doctor_row *row)
{
    if (doctor->node_count > 1 && doctor->leaders != NULL) {
        network_measure_clock(doctor->leaders, own_of(doctor));
        share(doctor);
    }
    say(doctor, row, network_judge_clock);
}

/* Also measures for the checks that follow. */
void doctor_look_latency(struct doctor *doctor, struct doctor_row *row)
{
    if (doctor->node_count > 1 && doctor->leaders != NULL) {
        struct node_network *own = own_of(doctor);
        setting_read(own->setting, sizeof own->setting);
        links_measure(doctor->leaders, own);
        share(doctor);
    }
    say(doctor, row, network_judge_latency);
}

/* Repeat the measurement and keep the best of both: other work on a node ends, a bad cable stays.
 */
static void measure_again(struct doctor *doctor)
{
    struct node_network *own = own_of(doctor), before = *own;
    links_measure(doctor->leaders, own);
    for (int i = 0; i < NETWORK_ROUNDS; i++) {
        struct network_link *link = &own->link[i], *old = &before.link[i];
        if (link->to < 0)
            *link = *old;
        link->rate = old->rate > link->rate ? old->rate : link->rate;
        link->latency = old->latency < link->latency ? old->latency : link->latency;
    }
    share(doctor);
}

void doctor_look_bandwidth(struct doctor *doctor, struct doctor_row *row)
{
    if (doctor->node_count > 1 && doctor->leaders != NULL) {
        const double little = 2;
        struct doctor_row first = {.verdict = DOCTOR_SKIP};
        say(doctor, &first, network_judge_bandwidth);
        int64_t again = first.verdict > DOCTOR_PASS && own_of(doctor)->seconds < little;
        comm_broadcast(doctor->leaders, &again, 1, COMM_INT64, 0);
        if (again)
            measure_again(doctor);
    }
    say(doctor, row, network_judge_bandwidth);
}

void doctor_look_interface(struct doctor *doctor, struct doctor_row *row)
{
    say(doctor, row, network_judge_interface);
}
