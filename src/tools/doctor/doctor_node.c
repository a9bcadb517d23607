// SPDX-License-Identifier: BSD-3-Clause
/* Checks of the nodes from the ranks' facts: placement of ranks, cores, binding, process limits,
 * shared memory. */
#include <string.h>

#include "checkpoint/memory_checkpoint.h"
#include "comm/comm.h"
#include "tools/doctor/doctor.h"

/* ---- sets of CPUs */
int doctor_core_count(const uint64_t set[DOCTOR_CORE_WORDS])
{
    int count = 0;
    for (int word = 0; word < DOCTOR_CORE_WORDS; word++)
        count += __builtin_popcountll(set[word]);
    return count;
}

static bool set_contains(const uint64_t *set, const uint64_t *part)
{
    for (int word = 0; word < DOCTOR_CORE_WORDS; word++)
        if ((part[word] & ~set[word]) != 0)
            return false;
    return true;
}

static bool sets_overlap(const uint64_t *one, const uint64_t *other)
{
    for (int word = 0; word < DOCTOR_CORE_WORDS; word++)
        if ((one[word] & other[word]) != 0)
            return true;
    return false;
}

static void set_add(uint64_t *set, const uint64_t *more)
{
    for (int word = 0; word < DOCTOR_CORE_WORDS; word++)
        set[word] |= more[word];
}

void doctor_cores_text(const uint64_t set[DOCTOR_CORE_WORDS], char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int core = 0; core < DOCTOR_CORES && used < size; core++) {
        int first = core;
        if ((set[core / 64] >> (core % 64) & 1) == 0)
            continue;
        while (core + 1 < DOCTOR_CORES && (set[(core + 1) / 64] >> ((core + 1) % 64) & 1) != 0)
            core++;
        used += (size_t)snprintf(text + used, size - used, "%s%d", used > 0 ? "," : "", first);
        if (core > first && used < size)
            used += (size_t)snprintf(text + used, size - used, "-%d", core);
    }
}

/* Count the ranks and threads of a node that are confined to the set. */
static struct doctor_crowd crowd_of(const struct doctor_facts *facts, int ranks, int64_t node,
                                    const uint64_t *set)
{
    struct doctor_crowd crowd = {.cores = doctor_core_count(set)};
    memcpy(crowd.set, set, sizeof crowd.set);
    for (int rank = 0; rank < ranks; rank++)
        if (facts[rank].node == node && set_contains(set, facts[rank].cores)) {
            crowd.ranks++;
            crowd.threads += (int)facts[rank].threads;
        }
    return crowd;
}

struct doctor_crowd doctor_find_crowd(const struct doctor_facts *facts, int ranks, int64_t node,
                                      bool narrow)
{
    struct doctor_crowd worst = {.cores = 1};
    uint64_t all[DOCTOR_CORE_WORDS] = {0}, set[DOCTOR_CORE_WORDS];
    for (int rank = 0; rank < ranks; rank++)
        if (facts[rank].node == node)
            set_add(all, facts[rank].cores);
    if (!narrow)
        return crowd_of(facts, ranks, node, all);
    for (int rank = 0; rank < ranks; rank++)
        for (int wide = 0; facts[rank].node == node && wide < 2; wide++) {
            memcpy(set, facts[rank].cores, sizeof set);
            /* Add the CPUs of all ranks that overlap it, transitively. */
            for (int other = 0; wide && other < ranks; other++)
                if (facts[other].node == node && sets_overlap(set, facts[other].cores) &&
                    !set_contains(set, facts[other].cores)) {
                    set_add(set, facts[other].cores);
                    other = -1; /* start again with the larger set */
                }
            /* The set is the whole machine. */
            if (set_contains(set, all) && doctor_core_count(all) >= facts[rank].online)
                continue;
            struct doctor_crowd crowd = crowd_of(facts, ranks, node, set);
            if (crowd.cores > 0 &&
                (int64_t)crowd.threads * worst.cores > (int64_t)worst.threads * crowd.cores)
                worst = crowd;
        }
    return worst;
}

/* ---- rows */
static int node_ranks(const struct doctor *doctor, int node)
{
    int ranks = 0;
    for (int rank = 0; rank < doctor->world->size; rank++)
        ranks += doctor->facts[rank].node == node;
    return ranks;
}

static const char *plural(int count)
{
    return count == 1 ? "" : "s";
}

void doctor_check_ranks(struct doctor *doctor, struct doctor_row *row)
{
    int ranks = doctor->world->size, nodes = doctor->node_count;
    int least = ranks, most = 0;
    int64_t slots = doctor->facts[0].slots;
    for (int node = 0; node < nodes; node++) {
        int here = node_ranks(doctor, node);
        least = here < least ? here : least;
        most = here > most ? here : most;
        for (int other = 0; other < node; other++)
            if (strcmp(doctor_host(doctor, node), doctor_host(doctor, other)) == 0)
                doctor_set(row, DOCTOR_WARN, "give each node a unique host name",
                           "two nodes are called %s", doctor_host(doctor, node));
    }
    if (least < most)
        doctor_set(row, DOCTOR_WARN,
                   "give each node the same slots in the host file (--ntasks-per-node under Slurm)",
                   "%d to %d ranks per node: nodes with more ranks slow down the others", least,
                   most);
    if (slots > 0 && slots < ranks)
        doctor_set(row, DOCTOR_WARN, "start at most one rank per slot, or correct the host file",
                   "%d ranks in %lld slots", ranks, (long long)slots);
    char slots_text[48] = "";
    if (slots > 0)
        snprintf(slots_text, sizeof slots_text, ", %lld slot%s", (long long)slots,
                 plural((int)slots));
    doctor_set(row, DOCTOR_PASS, NULL, "%d rank%s on %d node%s (%s%s), %d on each%s", ranks,
               plural(ranks), nodes, plural(nodes), doctor_host(doctor, 0),
               nodes > 1 ? ", ..." : "", most, slots_text);
}

void doctor_compare_cpus(struct doctor_row *row, int64_t least, int64_t most)
{
    if (least < most)
        doctor_set(row, DOCTOR_WARN, "use nodes of the same type",
                   "nodes have %lld to %lld CPUs: the smallest slows down the others",
                   (long long)least, (long long)most);
}

void doctor_check_cores(struct doctor *doctor, struct doctor_row *row)
{
    static const char advice[] = "start fewer ranks per node, or reduce run.threads";
    int64_t least = INT64_MAX, most = 0;
    for (int node = 0; node < doctor->node_count; node++) {
        struct doctor_crowd all =
            doctor_find_crowd(doctor->facts, doctor->world->size, node, false);
        const struct doctor_facts *first = &doctor->facts[doctor->first_rank[node]];
        const char *host = doctor_host(doctor, node);
        least = first->online < least ? first->online : least;
        most = first->online > most ? first->online : most;
        if (all.threads > all.cores)
            doctor_set(row, DOCTOR_WARN, advice,
                       "%s: %d rank%s with %lld thread%s each on %d CPU%s", host, all.ranks,
                       plural(all.ranks), (long long)first->threads, plural((int)first->threads),
                       all.cores, plural(all.cores));
        else if (first->quota > 0 && all.threads > first->quota + 0.5)
            doctor_set(row, DOCTOR_WARN,
                       "start fewer ranks per node, or give the container or job more CPUs",
                       "%s: %d threads, but the control group has a quota of %.4g CPUs", host,
                       all.threads, first->quota);
        else
            doctor_set(row, DOCTOR_PASS, NULL, "%d thread%s on %d CPU%s per node", all.threads,
                       plural(all.threads), all.cores, plural(all.cores));
    }
    doctor_compare_cpus(row, least, most);
}

void doctor_check_binding(struct doctor *doctor, struct doctor_row *row)
{
    static const char advice[] =
        "bind each rank to separate CPUs: mpirun --map-by slot:PE=THREADS --bind-to core, or "
        "srun --cpu-bind=cores --cpus-per-task=THREADS; or disable binding: --bind-to none";
    int bound = 0;
    for (int rank = 0; rank < doctor->world->size; rank++)
        bound += doctor_core_count(doctor->facts[rank].cores) < doctor->facts[rank].online;
    for (int node = 0; node < doctor->node_count; node++) {
        char cores[128];
        struct doctor_crowd crowd =
            doctor_find_crowd(doctor->facts, doctor->world->size, node, true);
        doctor_cores_text(crowd.set, cores, sizeof cores);
        if (crowd.threads > crowd.cores)
            doctor_set(row, DOCTOR_WARN, advice,
                       "%s: %d rank%s with %d threads in total %s bound to CPU%s %s of %lld",
                       doctor_host(doctor, node), crowd.ranks, plural(crowd.ranks), crowd.threads,
                       crowd.ranks == 1 ? "is" : "are", plural(crowd.cores), cores,
                       (long long)doctor->facts[doctor->first_rank[node]].online);
    }
    if (bound == 0)
        doctor_set(row, DOCTOR_PASS, NULL, "no rank is bound");
    else
        doctor_set(row, DOCTOR_PASS, NULL, "%d of %d ranks are bound, with enough CPUs", bound,
                   doctor->world->size);
}

/* ---- limits of a process */
void doctor_check_limits(struct doctor *doctor, struct doctor_row *row)
{
    static const struct {
        const char *name, *advice;
        int shift; /* to the printed unit */
    } rules[DOCTOR_LIMITS] = {
        [DOCTOR_LIMIT_FILES] = {"open files",
                                "raise the hard limit to 4096 or more (LimitNOFILE of "
                                "sshd or slurmd, /etc/security/limits.conf)",
                                0},
        [DOCTOR_LIMIT_PROCESSES] = {"processes and threads of the user", "raise it: ulimit -u", 0},
        [DOCTOR_LIMIT_FILE_SIZE] = {"size of a file",
                                    "remove it, as checkpoints may be larger: ulimit -f unlimited",
                                    0},
        [DOCTOR_LIMIT_LOCKED] = {"locked memory, in KiB",
                                 "InfiniBand needs ulimit -l unlimited (LimitMEMLOCK of sshd or "
                                 "slurmd)",
                                 10},
        [DOCTOR_LIMIT_MEMORY] = {"address space, in KiB", "remove it: ulimit -v unlimited", 10},
    };
    uint64_t files = UINT64_MAX;
    for (int limit = 0; limit < DOCTOR_LIMITS; limit++)
        for (int rank = 0; rank < doctor->world->size; rank++) {
            const struct doctor_facts *facts = &doctor->facts[rank];
            const uint64_t ranks = (uint64_t)node_ranks(doctor, (int)facts->node);
            const uint64_t needed[DOCTOR_LIMITS] = {
                /* Two per other rank (a socket, a shared-memory file), and those of libraries. */
                [DOCTOR_LIMIT_FILES] = 256 + 2 * (uint64_t)doctor->world->size,
                /* Threads for computing, loading and MPI; other processes of the user. */
                [DOCTOR_LIMIT_PROCESSES] = 256 + ranks * (16 + (uint64_t)facts->threads),
                [DOCTOR_LIMIT_FILE_SIZE] = UINT64_MAX,
                [DOCTOR_LIMIT_LOCKED] = facts->infiniband > 0 ? UINT64_MAX : 0,
                [DOCTOR_LIMIT_MEMORY] = UINT64_MAX};
            if (limit == DOCTOR_LIMIT_FILES && facts->limit[limit] < files)
                files = facts->limit[limit];
            if (facts->limit[limit] < needed[limit]) {
                doctor_set(row, DOCTOR_WARN, rules[limit].advice,
                           "rank %d on %s: the limit of %s is %llu", rank, facts->host,
                           rules[limit].name,
                           (unsigned long long)(facts->limit[limit] >> rules[limit].shift));
                break;
            }
        }
    if (files == UINT64_MAX)
        doctor_set(row, DOCTOR_PASS, NULL, "no limit is too low");
    else
        doctor_set(row, DOCTOR_PASS, NULL, "no limit is too low (%llu open files)",
                   (unsigned long long)files);
}

/* Space for the shared-memory transport. MPI has already allocated its own. */
void doctor_check_shared_memory(struct doctor *doctor, struct doctor_row *row)
{
    static const char advice[] =
        "remove files of dead jobs from /dev/shm (/dev/shm/*_segment.*), or make it "
        "larger: mount -o remount,size=1g /dev/shm; docker run --shm-size=1g";
    char left[DOCTOR_TEXT / 2];
    uint64_t least = UINT64_MAX;
    for (int node = 0; node < doctor->node_count; node++) {
        const struct doctor_facts *facts = &doctor->facts[doctor->first_rank[node]];
        int ranks = node_ranks(doctor, node);
        uint64_t need = ranks > 1 ? comm_shared_bytes(ranks) : 0;
        enum doctor_verdict verdict = facts->shared_free < need       ? DOCTOR_FAIL
                                      : facts->shared_free < 2 * need ? DOCTOR_WARN
                                                                      : DOCTOR_PASS;
        least = facts->shared_free < least ? facts->shared_free : least;
        if (verdict > DOCTOR_PASS)
            doctor_set(row, verdict, advice,
                       "%s: %.1f of /dev/shm's %.0f MiB are free, but its %d ranks need %.1f MiB",
                       facts->host, (double)facts->shared_free / (1 << 20),
                       (double)facts->shared_bytes / (1 << 20), ranks, (double)need / (1 << 20));
    }
    doctor_set(row, DOCTOR_PASS, NULL, "at least %.0f MiB free in /dev/shm on each node",
               (double)least / (1 << 20));
    memory_folders_list(left, sizeof left);
    if (doctor->leaders != NULL)
        doctor_set_of(doctor, doctor->leaders, row, left[0] != '\0', DOCTOR_PASS,
                      "start the killed runs again, or remove their folders",
                      "checkpoints of killed runs: %s", left);
}
