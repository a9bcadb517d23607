// SPDX-License-Identifier: BSD-3-Clause
/* Collectives of `bench machine`: between the ranks of a node, and between nodes with all their
 * ranks at once, in the groups of a mesh; and how much computing and communicating slow each other
 * down. */
#include <math.h>
#include <stdio.h>

#include "config/options.h"
#include "core/clock.h"
#include "mesh/mesh.h"
#include "tools/bench/bench_machine.h"

/* A network to measure. */
struct link {
    const char *name;
    struct comm *group;
    struct network *network;
    int side_by_side; /* groups that share the node's link */
};

static struct comm_request *collective_start(struct machine_bench *self, struct comm *group,
                                             const struct collective *collective)
{
    return bench_collective_start(group, (enum bench_collective)collective->action, self->pre,
                                  (int64_t)(collective->bytes / sizeof(float)));
}

static double collectives_time(struct machine_bench *self, const struct link *link,
                               const struct collective *collective, int times)
{
    comm_barrier(self->world);
    double begin = clock_now();
    for (int i = 0; i < times; i++)
        link->group->backend->wait(collective_start(self, link->group, collective), self->stream);
    self->device->backend->stream_synchronize(self->stream);
    return (clock_now() - begin) / times;
}

/* Collective. The mean over rounds of about 20 ms and over ranks. */
static double collective_seconds(struct machine_bench *self, const struct link *link,
                                 const struct collective *collective)
{
    enum { ROUNDS = 7 };
    double rounds[ROUNDS];
    double once = collectives_time(self, link, collective, 1);
    comm_all_reduce(self->world, &once, 1, COMM_FP64, COMM_MAX);
    bool quick = self->bench->options->bench.quick;
    int times = quick ? 1 : (int)fmax(1, fmin(200, 20e-3 / once)), count = quick ? 1 : ROUNDS;
    for (int i = 0; i < count; i++)
        rounds[i] = collectives_time(self, link, collective, times);
    return machine_mean(self->world, machine_typical(rounds, count));
}

/* Sizes are the bytes of all ranks' blocks together. */
static void durations_measure(struct machine_bench *self, const struct link *link,
                              struct error *error)
{
    static const double wholes[] = {64, 16384, 262144, 2097152, 8388608, 25165824};
    double size = link->group->size;
    size_t sizes = self->bench->options->bench.quick ? 4 : sizeof wholes / sizeof wholes[0];
    for (int action = 0; action < COLLECTIVE_ACTIONS; action++)
        for (size_t i = 0; i < sizes; i++) {
            struct duration *duration = &link->network->measured[action];
            double block = 4 * ceil(wholes[i] / 4 / size);
            const struct collective collective = {.action = (enum collective_action)action,
                                                  .bytes =
                                                      action == ACTION_SUM ? wholes[i] : block};
            double seconds = collective_seconds(self, link, &collective);
            double bytes =
                machine_network_bytes(&collective, link->group->size) * link->side_by_side;
            duration->point[duration->count++] =
                (struct duration_point){.bytes = bytes, .seconds = seconds};
            char work[64], text[64];
            snprintf(work, sizeof work, "%s %s", link->name, bench_collective_name[action]);
            snprintf(text, sizeof text, "%.0f bytes", bytes);
            if (self->world->rank == 0)
                printf("%-22s %-5s %-18s %12.2f us %10.3f GB/s\n", work, "", text, 1e6 * seconds,
                       1e-9 * bytes / seconds);
            machine_row(self, work, text, TYPE_FP32, seconds, error);
        }
}

/* Seconds of some matrix products. */
static double products_time(struct machine_bench *self, int times)
{
    static const int64_t size[] = {1600, 768, 768};
    double begin = clock_now();
    for (int i = 0; i < times; i++)
        trial_linear_forward(self, size);
    self->device->backend->stream_synchronize(self->stream);
    return clock_now() - begin;
}

/* Measure the speed of computing and of communicating while both run, relative to either alone.
 * The products outlast the communication: the part that was not computed after it was computed
 * during it. */
static void overlap_measure(struct machine_bench *self, const struct link *link)
{
    enum { SUMS = 8 };
    const struct collective sum = {.action = ACTION_SUM, .bytes = 8388608};
    const struct comm_backend *backend = link->group->backend;
    struct comm_request *request[SUMS];
    double busy_before, busy_after, exposed;
    double sending = SUMS * collective_seconds(self, link, &sum), product = 1e9;
    for (int i = 0; i < 5; i++) {
        comm_barrier(self->world);
        product = fmin(product, machine_mean(self->world, products_time(self, 4) / 4));
    }
    int times = (int)ceil(1.5 * sending / product);
    comm_barrier(self->world);
    double computing = products_time(self, times);
    backend->times(link->group, &busy_before, &exposed);
    comm_barrier(self->world);
    backend->times(link->group, &busy_before, &exposed);
    for (int i = 0; i < SUMS; i++)
        request[i] = collective_start(self, link->group, &sum);
    double passed = products_time(self, times);
    for (int i = 0; i < SUMS; i++)
        backend->wait(request[i], self->stream);
    self->device->backend->stream_synchronize(self->stream);
    backend->times(link->group, &busy_after, &exposed);
    double busy = busy_after - busy_before, together = fmin(busy, passed);
    if (busy <= 0)
        return;
    double done = computing - (passed - together); /* seconds of products during communication */
    link->network->send_speed = fmax(0.01, machine_mean(self->world, fmin(1, sending / busy)));
    link->network->compute_speed = fmax(0.01, machine_mean(self->world, fmin(1, done / together)));
    if (self->world->rank == 0)
        printf("%-22s %-5s both at once: computing at %.2f of its speed, communication at "
               "%.2f\n",
               link->name, "", link->network->compute_speed, link->network->send_speed);
}

static void link_measure(struct machine_bench *self, const struct link *link, struct error *error)
{
    struct network *network = link->network;
    const struct duration *sums = &network->measured[ACTION_SUM];
    if (link->group->size == 1)
        return;
    self->type = self->limits.multiplies_bf16 ? TYPE_BF16 : TYPE_FP32;
    durations_measure(self, link, error);
    const struct duration_point *most = &sums->point[sums->count - 1];
    network->members = link->group->size;
    network->latency = sums->point[0].seconds / (2 * (network->members - 1)); /* twice the ring */
    network->bandwidth = most->bytes / most->seconds;
    overlap_measure(self, link);
}

/* In the groups of a mesh: a shard group is the ranks of a node, a replica group the ranks with the
 * same index on all nodes. */
void machine_networks_measure(struct machine_bench *self, struct error *error)
{
    struct mesh mesh;
    enum transport_choice transport = (enum transport_choice)self->bench->options->mesh.transport;
    int64_t ranks[2] = {self->node->size, -self->node->size};
    comm_all_reduce(self->world, ranks, 2, COMM_INT64, COMM_MAX);
    if (ranks[0] != -ranks[1]) {
        error_set(error, ERROR_USAGE,
                  "bench machine: nodes have %lld to %lld ranks: start the same number on each",
                  (long long)-ranks[1], (long long)ranks[0]);
        return;
    }
    mesh_split(&mesh, self->world, self->node->size);
    mesh.shard->backend->set_transport(mesh.shard, transport, error);
    mesh.replica->backend->set_transport(mesh.replica, transport, error);
    if (comm_agree(self->world, error) && mesh_use_device(&mesh, self->device, error)) {
        const struct link links[] = {
            {"inside", mesh.shard_data, &self->machine.inside, 1},
            {"between", mesh.replica_data, &self->machine.between, self->node->size}};
        self->device->backend->zero(self->stream, self->pre, TRIAL_BYTES);
        self->device->backend->stream_synchronize(self->stream);
        for (int i = 0; i < 2; i++)
            link_measure(self, &links[i], error);
    }
    mesh_close(&mesh);
}
