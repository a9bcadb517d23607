// SPDX-License-Identifier: BSD-3-Clause
/* Check of the GPUs: their assignment to ranks, driver and libraries, and direct access between the
 * GPUs of a node. */
#include <stdlib.h>
#include <string.h>

#include "config/options.h"
#include "device/device.h"
#include "tools/doctor/doctor.h"

/* Facts about the GPU of a rank, sent as bytes. */
struct gpu_facts {
    struct device_limits limits;
    struct device_survey survey;
    int64_t has;
    char why[256]; /* reason for having none */
};

static void gpu_read(const struct doctor *doctor, struct gpu_facts *facts)
{
    struct error error = {0};
    memset(facts, 0, sizeof *facts);
    const struct device_backend *cuda = device_find("cuda", &error);
    struct device *device = cuda == NULL ? NULL : cuda->open(doctor->node->rank, 1, &error);
    if (device == NULL) {
        snprintf(facts->why, sizeof facts->why, "%.255s", error.text);
        return;
    }
    facts->has = 1;
    cuda->limits(device, &facts->limits);
    if (cuda->survey != NULL)
        cuda->survey(device, &facts->survey);
    cuda->close(device);
}

static void judge_one(const struct doctor *doctor, const struct gpu_facts *gpu, int rank,
                      struct doctor_row *row)
{
    const char *host = doctor->facts[rank].host;
    const struct device_limits *limits = &gpu[rank].limits, *first = &gpu[0].limits;
    int here = 0, same = 0;
    if (gpu[0].has && strcmp(gpu[rank].survey.software, gpu[0].survey.software) != 0)
        doctor_set(row, DOCTOR_FAIL, "install the same driver and libraries on all nodes",
                   "rank %d on %s has %s, rank 0 %s", rank, host, gpu[rank].survey.software,
                   gpu[0].survey.software);
    if (gpu[0].has && strcmp(limits->instructions, first->instructions) != 0)
        doctor_set(row, DOCTOR_FAIL, "use nodes with the same GPUs",
                   "rank %d on %s has %s (%s), rank 0 %s (%s)", rank, host, limits->name,
                   limits->instructions, first->name, first->instructions);
    for (int other = 0; other < doctor->world->size; other++) {
        bool neighbour = doctor->facts[other].node == doctor->facts[rank].node;
        here += neighbour;
        same += neighbour && gpu[other].has &&
                strcmp(gpu[other].limits.identity, limits->identity) == 0;
    }
    if (same > 1 && !doctor->options->cuda.share)
        doctor_set(row, DOCTOR_FAIL,
                   "start one rank per GPU, check CUDA_VISIBLE_DEVICES, or "
                   "set cuda.share=yes",
                   "%d ranks on %s have the same GPU (%s)", same, host, limits->identity);
    if (gpu[rank].survey.visible > here)
        doctor_set(row, DOCTOR_WARN, "start one rank per GPU", "%s has %d GPUs for %d rank%s", host,
                   gpu[rank].survey.visible, here, here == 1 ? "" : "s");
    if (gpu[rank].survey.unreached > 0)
        doctor_set(row, DOCTOR_WARN,
                   "check `nvidia-smi topo -m`, IOMMU and ACS settings (NCCL's guide, \"PCI access "
                   "control\"): transfers are staged through the host",
                   "%s: GPUs have no direct access to each other", host);
}

static void gpus_check(const struct doctor *doctor, const struct gpu_facts *gpu,
                       struct doctor_row *row)
{
    int ranks = doctor->world->size, count = 0, without = -1;
    for (int rank = 0; rank < ranks; rank++) {
        count += gpu[rank].has != 0;
        without = gpu[rank].has || without >= 0 ? without : rank;
    }
    if (count == 0) {
        bool wanted = doctor->options->run.backend == BACKEND_CUDA;
        doctor_set(row, wanted ? DOCTOR_FAIL : DOCTOR_PASS, NULL, "no rank has a GPU: %s",
                   gpu[0].why);
        return;
    }
    if (without >= 0)
        doctor_set(row, DOCTOR_FAIL, "use only nodes with GPUs, or set run.backend=cpu",
                   "%d of %d ranks have a GPU; rank %d on %s has none: %s", count, ranks, without,
                   doctor->facts[without].host, gpu[without].why);
    for (int rank = 0; rank < ranks; rank++)
        if (gpu[rank].has)
            judge_one(doctor, gpu, rank, row);
    doctor_set(row, DOCTOR_PASS, NULL, "each rank has a GPU: %s; %s", gpu[0].limits.name,
               gpu[0].survey.software);
}

void doctor_check_gpus(struct doctor *doctor, struct doctor_row *row)
{
    if (doctor->options->run.backend == BACKEND_CPU) {
        doctor_set(row, DOCTOR_PASS, NULL, "not used: run.backend=cpu");
        return;
    }
    struct comm *world = doctor->world;
    struct gpu_facts *gpu = allocate((size_t)world->size, sizeof *gpu);
    gpu_read(doctor, &gpu[world->rank]);
    comm_all_gather(world, gpu, sizeof *gpu, COMM_BYTE);
    gpus_check(doctor, gpu, row);
    free(gpu);
}
