// SPDX-License-Identifier: BSD-3-Clause
/* The checks of `vittrain doctor`: each compares the gathered facts and fills in a row, on rank 0
 * only. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/base.h"
#include "commands/app.h"
#include "commands/doctor.h"
#include "data/dataset.h"
#include "options/options.h"

void doctor_set(struct doctor_row *row, enum doctor_verdict verdict, const char *format, ...)
{
    char text[DOCTOR_TEXT];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (verdict < row->verdict)
        return;
    if (verdict > row->verdict)
        *row = (struct doctor_row){.verdict = verdict};
    if (strstr(row->found, text) != NULL || row->findings++ >= DOCTOR_FINDINGS)
        return;
    const size_t used = strlen(row->found);
    snprintf(row->found + used, sizeof row->found - used, "%s%s", used > 0 ? "; " : "", text);
}

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

/* For the facts of each node's first rank, which those of its other ranks follow. */
#define FOR_EACH_NODE(first)                                                                       \
    for (const struct doctor_facts *first = doctor->facts; first < doctor->facts + doctor->ranks;  \
         first += first->node_ranks)

/* ---- ranks and CPUs */

static void check_ranks(const struct doctor *doctor, struct doctor_row *row)
{
    const struct doctor_facts *root = doctor->facts;
    int64_t least = doctor->ranks, most = 0;
    FOR_EACH_NODE(first)
    {
        least = smaller(least, first->node_ranks);
        most = larger(most, first->node_ranks);
        for (const struct doctor_facts *other = root; other < first; other += other->node_ranks)
            if (strcmp(first->host, other->host) == 0)
                doctor_set(row, DOCTOR_WARN, "two nodes are called %s", first->host);
    }
    if (least < most)
        doctor_set(row, DOCTOR_WARN,
                   "%lld to %lld ranks per node: nodes with more ranks slow down the others",
                   (long long)least, (long long)most);
    if (root->slots > 0 && root->slots < doctor->ranks)
        doctor_set(row, DOCTOR_WARN, "%d ranks in %lld slots", doctor->ranks,
                   (long long)root->slots);
    doctor_set(row, DOCTOR_PASS, "%d rank%s on %d node%s (%s%s), %lld on each", doctor->ranks,
               plural(doctor->ranks), doctor->nodes, plural(doctor->nodes), root->host,
               doctor->nodes > 1 ? ", ..." : "", (long long)most);
}

/* Ranks that share a set of CPUs. */
struct crowd {
    int ranks, threads, cores;
};

/* Count the ranks and threads of a node that are confined to the set. */
static struct crowd crowd_of(const struct doctor_facts *first, const uint64_t *set)
{
    struct crowd crowd = {0};
    for (int word = 0; word < DOCTOR_CORE_WORDS; word++)
        crowd.cores += __builtin_popcountll(set[word]);
    for (const struct doctor_facts *rank = first; rank < first + first->node_ranks; rank++) {
        bool is_inside = true;
        for (int word = 0; word < DOCTOR_CORE_WORDS; word++)
            is_inside = is_inside && (rank->cores[word] & ~set[word]) == 0;
        crowd.ranks += is_inside;
        crowd.threads += is_inside ? (int)rank->threads : 0;
    }
    return crowd;
}

static void check_cores(const struct doctor *doctor, struct doctor_row *row)
{
    int64_t least = INT64_MAX, most = 0;
    FOR_EACH_NODE(first)
    {
        uint64_t set[DOCTOR_CORE_WORDS] = {0};
        for (int rank = 0; rank < first->node_ranks; rank++)
            for (int word = 0; word < DOCTOR_CORE_WORDS; word++)
                set[word] |= first[rank].cores[word];
        const struct crowd all = crowd_of(first, set);
        least = smaller(least, first->online);
        most = larger(most, first->online);
        if (all.threads > all.cores)
            doctor_set(row, DOCTOR_WARN, "%s: %d rank%s with %lld thread%s each on %d CPU%s",
                       first->host, all.ranks, plural(all.ranks), (long long)first->threads,
                       plural(first->threads), all.cores, plural(all.cores));
        else if (first->quota > 0 && all.threads > first->quota + 0.5)
            doctor_set(row, DOCTOR_WARN,
                       "%s: %d threads, but the control group has a quota of %.4g CPUs",
                       first->host, all.threads, first->quota);
        else
            doctor_set(row, DOCTOR_PASS, "%d thread%s on %d CPU%s per node", all.threads,
                       plural(all.threads), all.cores, plural(all.cores));
    }
    if (least < most)
        doctor_set(row, DOCTOR_WARN,
                   "nodes have %lld to %lld CPUs: the smallest slows down the others",
                   (long long)least, (long long)most);
}

/* Warn of the most crowded affinity mask of each node that is smaller than the machine. */
static void check_binding(const struct doctor *doctor, struct doctor_row *row)
{
    int bound = 0;
    FOR_EACH_NODE(first)
    {
        struct crowd worst = {.cores = 1};
        for (const struct doctor_facts *rank = first; rank < first + first->node_ranks; rank++) {
            const struct crowd crowd = crowd_of(first, rank->cores);
            if (crowd.cores >= rank->online)
                continue;
            bound++;
            if (crowd.cores > 0 &&
                (int64_t)crowd.threads * worst.cores > (int64_t)worst.threads * crowd.cores)
                worst = crowd;
        }
        if (worst.threads > worst.cores)
            doctor_set(row, DOCTOR_WARN,
                       "%s: %d rank%s with %d threads in total %s bound to %d of %lld CPUs",
                       first->host, worst.ranks, plural(worst.ranks), worst.threads,
                       worst.ranks == 1 ? "is" : "are", worst.cores, (long long)first->online);
    }
    doctor_set(row, DOCTOR_PASS, "%d of %d ranks are bound", bound, doctor->ranks);
}

/* ---- GPUs */

static void check_gpu(const struct doctor *doctor, const struct doctor_facts *first,
                      const struct doctor_facts *rank, struct doctor_row *row)
{
    const struct doctor_facts *root = doctor->facts;
    int same = 0; /* ranks of the node with this GPU */
    if (rank->no_gpu[0] != '\0') {
        doctor_set(row, DOCTOR_FAIL, "rank %lld on %s has no GPU: %s", (long long)rank->rank,
                   rank->host, rank->no_gpu);
        return;
    }
    for (int other = 0; other < first->node_ranks; other++)
        same += first[other].no_gpu[0] == '\0' &&
                strcmp(first[other].gpu.identity, rank->gpu.identity) == 0;
    if (root->no_gpu[0] == '\0' && (strcmp(rank->survey.software, root->survey.software) != 0 ||
                                    strcmp(rank->gpu.instructions, root->gpu.instructions) != 0))
        doctor_set(row, DOCTOR_FAIL, "rank %lld on %s has %s (%s, %s), rank 0 %s (%s, %s)",
                   (long long)rank->rank, rank->host, rank->gpu.name, rank->gpu.instructions,
                   rank->survey.software, root->gpu.name, root->gpu.instructions,
                   root->survey.software);
    if (same > 1 && !doctor->options->cuda.share)
        doctor_set(row, DOCTOR_FAIL, "%d ranks on %s have the same GPU (%s)", same, rank->host,
                   rank->gpu.identity);
    if (rank->survey.visible > first->node_ranks)
        doctor_set(row, DOCTOR_WARN, "%s has %d GPUs for %lld rank%s", rank->host,
                   rank->survey.visible, (long long)first->node_ranks, plural(first->node_ranks));
    if (rank->survey.unreached > 0)
        doctor_set(row, DOCTOR_WARN, "%s: GPUs have no direct access to each other", rank->host);
}

static void check_gpus(const struct doctor *doctor, struct doctor_row *row)
{
    const bool wanted = doctor->options->run.backend == BACKEND_CUDA;
    int found = 0;
    for (int rank = 0; rank < doctor->ranks; rank++)
        found += doctor->facts[rank].gpu.name[0] != '\0';
    if (found == 0) {
        doctor_set(row, wanted ? DOCTOR_FAIL : DOCTOR_PASS, "no rank has a GPU: %s",
                   doctor->options->run.backend == BACKEND_CPU ? "run.backend=cpu"
                                                               : doctor->facts->no_gpu);
        return;
    }
    FOR_EACH_NODE(first)
    for (const struct doctor_facts *rank = first; rank < first + first->node_ranks; rank++)
        check_gpu(doctor, first, rank, row);
    doctor_set(row, DOCTOR_PASS, "each rank has a GPU: %s; %s", doctor->facts->gpu.name,
               doctor->facts->survey.software);
}

/* ---- limits and memory */

static void check_limits(const struct doctor *doctor, struct doctor_row *row)
{
    /* Two per other rank (a socket, a shared-memory file), and those of libraries. */
    const uint64_t files = 256 + 2 * (uint64_t)doctor->ranks;
    for (const struct doctor_facts *rank = doctor->facts; rank < doctor->facts + doctor->ranks;
         rank++) {
        if (rank->files < files)
            doctor_set(row, DOCTOR_WARN, "rank %lld on %s: the limit of open files is %llu",
                       (long long)rank->rank, rank->host, (unsigned long long)rank->files);
        if (rank->infiniband > 0 && rank->locked < UINT64_MAX)
            doctor_set(row, DOCTOR_WARN,
                       "rank %lld on %s: the limit of locked memory is %llu bytes, and there is "
                       "InfiniBand",
                       (long long)rank->rank, rank->host, (unsigned long long)rank->locked);
    }
    doctor_set(row, DOCTOR_PASS, "no limit is too low");
}

/* Space for the shared-memory transport. MPI has already allocated its own. */
static void check_shared_memory(const struct doctor *doctor, struct doctor_row *row)
{
    double least = INFINITY;
    FOR_EACH_NODE(first)
    {
        const int ranks = (int)first->node_ranks;
        const double need = ranks > 1 ? (double)comm_shared_bytes(ranks) : 0;
        const double has = (double)first->shared_free;
        least = fmin(least, has);
        if (has < 2 * need)
            doctor_set(row, has < need ? DOCTOR_FAIL : DOCTOR_WARN,
                       "%s: %.1f of /dev/shm's %.0f MiB are free, its %d ranks need %.1f MiB",
                       first->host, has / (1 << 20), (double)first->shared_bytes / (1 << 20), ranks,
                       need / (1 << 20));
        if (first->left[0] != '\0')
            doctor_set(row, DOCTOR_PASS, "%s: checkpoints of killed runs: %s", first->host,
                       first->left);
    }
    doctor_set(row, DOCTOR_PASS, "at least %.0f MiB free in /dev/shm on each node",
               least / (1 << 20));
}

/* ---- folders and data */

static void check_folder(const struct doctor *doctor, struct doctor_row *row)
{
    FOR_EACH_NODE(first)
    {
        if (first->folder_why[0] != '\0')
            doctor_set(row, DOCTOR_FAIL, "%s: %s", first->host, first->folder_why);
        else if (!first->shares_folder)
            doctor_set(row, DOCTOR_WARN, "%s: %.200s is not shared with the first node",
                       first->host, first->folder);
        else if (!first->locks_folder)
            doctor_set(row, DOCTOR_WARN, "%s: locks do not work in %.200s", first->host,
                       first->folder);
    }
    doctor_set(row, DOCTOR_PASS, "%.200s: writing, renaming and locking work%s",
               doctor->facts->folder, doctor->nodes > 1 ? ", shared by all nodes" : "");
}

static void check_space(const struct doctor *doctor, struct doctor_row *row)
{
    /* The kept checkpoints, the best one, and the one being written. */
    const int64_t count = doctor->options->checkpoint.keep + 2;
    const double one = (double)doctor->checkpoint, all = one * (double)count, spare = 1 << 20;
    const double has = (double)doctor->facts->free;
    doctor_set(row,
               has < one + spare   ? DOCTOR_FAIL
               : has < all + spare ? DOCTOR_WARN
                                   : DOCTOR_PASS,
               "%.4g GB free for %.200s; %lld checkpoints of %.2f MB take %.4g GB", has / 1e9,
               doctor->facts->folder, (long long)count, one / 1e6, ceil(all / 1e6) / 1e3);
}

static void check_data(const struct doctor *doctor, struct doctor_row *row)
{
    const struct doctor_data *root = &doctor->facts->data;
    const char *path = doctor->options->data.root;
    FOR_EACH_NODE(first)
    {
        const struct doctor_data *data = &first->data;
        int64_t same = 0;
        if (data->why[0] != '\0')
            doctor_set(row, DOCTOR_FAIL, "%s: %s", first->host, data->why);
        else if (data->cut)
            doctor_set(row, DOCTOR_WARN, "%s: too many files or too slow a disk to compare all",
                       first->host);
        if (data->why[0] != '\0' || root->why[0] != '\0' || data->cut || root->cut)
            continue;
        while (same < data->samples && data->sum[same] == root->sum[same])
            same++;
        if (data->files != root->files || data->bytes != root->bytes || data->names != root->names)
            doctor_set(row, DOCTOR_FAIL,
                       "%s: names or sizes differ: %lld files with %lld bytes; the first node has "
                       "%lld with %lld",
                       first->host, (long long)data->files, (long long)data->bytes,
                       (long long)root->files, (long long)root->bytes);
        else if (same < data->samples)
            doctor_set(row, DOCTOR_FAIL, "%s: %.200s differs from the file on the first node",
                       first->host, doctor->sample[same]);
    }
    if (strcmp(doctor->options->data.format, "synthetic") == 0) {
        doctor_set(row, DOCTOR_PASS, "synthetic data: no files");
        return;
    }
    doctor_set(row, DOCTOR_PASS, "%.200s: %lld file%s, %.4g MB%s; %lld of them compared by content",
               path[0] != '\0' ? path : dataset_sample_directory(), (long long)root->files,
               plural(root->files), (double)root->bytes / 1e6,
               doctor->nodes > 1 ? ", equal on all nodes" : "", (long long)root->samples);
}

const struct doctor_check doctor_checks[DOCTOR_CHECKS] = {
    {"ranks", check_ranks,
     "give each node a unique host name and the same slots in the host file (--ntasks-per-node "
     "under Slurm), and start at most one rank per slot"},
    [DOCTOR_CORES_ROW] = {"cores", check_cores,
                          "start fewer ranks per node, reduce run.threads, or give the container "
                          "or job more CPUs; use nodes of the same type"},
    [DOCTOR_BINDING_ROW] = {"binding", check_binding,
                            "bind each rank to separate CPUs: mpirun --map-by slot:PE=THREADS "
                            "--bind-to core, or srun --cpu-bind=cores --cpus-per-task=THREADS; or "
                            "disable binding: --bind-to none"},
    {"gpus", check_gpus,
     "start one rank per GPU (CUDA_VISIBLE_DEVICES, cuda.share=yes) on nodes with the same GPUs, "
     "driver and libraries, or set run.backend=cpu; without direct access, check `nvidia-smi topo "
     "-m`, IOMMU and ACS settings"},
    {"limits", check_limits,
     "raise it: ulimit -n 4096, ulimit -l unlimited (LimitNOFILE and LimitMEMLOCK of sshd or "
     "slurmd, /etc/security/limits.conf)"},
    {"shared memory", check_shared_memory,
     "remove files of dead jobs from /dev/shm (/dev/shm/*_segment.*), or make it larger: mount -o "
     "remount,size=1g /dev/shm; docker run --shm-size=1g"},
    {"run folder", check_folder,
     "set run.dir to a folder that all nodes share and can write, on a file system with locks; "
     "without one, the first node writes all checkpoints"},
    [DOCTOR_SPACE_ROW] = {"space", check_space,
                          "free some space, reduce checkpoint.keep, or choose another run.dir"},
    {"data", check_data,
     "copy the data set to all nodes again (tools/fetch.sh), or set data.root; write many small "
     "images into tar shards (docs/data.md)"},
};
