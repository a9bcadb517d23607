// SPDX-License-Identifier: BSD-3-Clause
/* Facts about each rank, from the kernel and the launcher's environment. */
#define _GNU_SOURCE /* sched_getaffinity */
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/available.h"
#include "core/folder.h"
#include "tools/doctor/doctor.h"
#include "train/hardware.h"

static void limits_read(struct doctor_facts *facts)
{
    static const int resources[DOCTOR_LIMITS] = {[DOCTOR_LIMIT_FILES] = RLIMIT_NOFILE,
                                                 [DOCTOR_LIMIT_PROCESSES] = RLIMIT_NPROC,
                                                 [DOCTOR_LIMIT_FILE_SIZE] = RLIMIT_FSIZE,
                                                 [DOCTOR_LIMIT_LOCKED] = RLIMIT_MEMLOCK,
                                                 [DOCTOR_LIMIT_MEMORY] = RLIMIT_AS};
    for (int i = 0; i < DOCTOR_LIMITS; i++) {
        struct rlimit limit;
        bool bounded = getrlimit((__rlimit_resource_t)resources[i], &limit) == 0 &&
                       limit.rlim_cur != RLIM_INFINITY;
        facts->limit[i] = bounded ? (uint64_t)limit.rlim_cur : UINT64_MAX;
    }
}

static void facts_read(struct doctor *doctor, struct doctor_facts *facts)
{
    struct statvfs system;
    cpu_set_t allowed;
    /* Slots of mpirun on all nodes, or tasks of Slurm. */
    const char *slots = getenv("OMPI_UNIVERSE_SIZE");
    if (slots == NULL)
        slots = getenv("SLURM_NTASKS");
    memset(facts, 0, sizeof *facts);
    snprintf(facts->host, sizeof facts->host, "%.*s", DOCTOR_HOST - 1, comm_host());
    facts->node = doctor->node_index;
    facts->threads = hardware_threads(doctor->options, doctor->node);
    facts->slots = slots != NULL ? atoll(slots) : 0;
    facts->online = sysconf(_SC_NPROCESSORS_ONLN);
    facts->quota = cores_quota("");
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        CPU_ZERO(&allowed);
    for (size_t core = 0; core < DOCTOR_CORES && core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &allowed))
            facts->cores[core / 64] |= UINT64_C(1) << (core % 64);
    DIR *adapters = NULL;
    while (folder_next(&adapters, "/sys/class/infiniband") != NULL)
        facts->infiniband++;
    limits_read(facts);
    if (statvfs("/dev/shm", &system) == 0) {
        facts->shared_bytes = (uint64_t)system.f_blocks * system.f_frsize;
        facts->shared_free = (uint64_t)system.f_bavail * system.f_frsize;
    }
}

void doctor_open_groups(struct doctor *doctor)
{
    struct comm *world = doctor->world;
    doctor->owns_node = doctor->node == NULL;
    if (doctor->owns_node) {
        doctor->node_count = comm_node_count(world, &doctor->node_index);
        doctor->node = comm_split_node(world);
    }
    bool leads = doctor->node->rank == 0;
    struct comm *group = world->backend->split(world, leads ? 0 : 1, world->rank);
    if (leads)
        doctor->leaders = group;
    else
        group->backend->close(group);
}

void doctor_gather_facts(struct doctor *doctor)
{
    struct comm *world = doctor->world;
    doctor->facts = allocate((size_t)world->size, sizeof *doctor->facts);
    doctor->first_rank = allocate((size_t)doctor->node_count, sizeof *doctor->first_rank);
    facts_read(doctor, &doctor->facts[world->rank]);
    comm_all_gather(world, doctor->facts, sizeof *doctor->facts, COMM_BYTE);
    for (int rank = world->size - 1; rank >= 0; rank--)
        doctor->first_rank[doctor->facts[rank].node] = rank;
}

void doctor_free_facts(struct doctor *doctor)
{
    free(doctor->facts);
    free(doctor->first_rank);
    if (doctor->leaders != NULL)
        doctor->leaders->backend->close(doctor->leaders);
    if (doctor->owns_node)
        doctor->node->backend->close(doctor->node);
}

const char *doctor_host(const struct doctor *doctor, int node)
{
    return doctor->facts[doctor->first_rank[node]].host;
}

void doctor_set_of(struct doctor *doctor, struct comm *group, struct doctor_row *row, bool found,
                   enum doctor_verdict verdict, const char *advice, const char *format, ...)
{
    enum { SIZE = 384, MOST = 3 };
    int count = 0;
    int64_t any = found;
    comm_all_reduce(group, &any, 1, COMM_INT64, COMM_MAX);
    if (any == 0)
        return;
    char(*texts)[SIZE] = allocate((size_t)group->size, SIZE), *own = texts[group->rank];
    if (found) {
        va_list arguments;
        va_start(arguments, format);
        int used = group == doctor->world
                       ? snprintf(own, SIZE, "rank %d on %s: ", group->rank, comm_host())
                       : snprintf(own, SIZE, "%s: ", comm_host());
        vsnprintf(own + used, SIZE - (size_t)used, format, arguments);
        va_end(arguments);
    }
    comm_all_gather(group, texts, SIZE, COMM_BYTE);
    for (int i = 0; i < group->size; i++)
        if (texts[i][0] != '\0' && ++count <= MOST)
            doctor_set(row, verdict, advice, "%s", texts[i]);
    if (count > MOST)
        doctor_set(row, verdict, NULL, "and %d more", count - MOST);
    free(texts);
}
