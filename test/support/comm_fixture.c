// SPDX-License-Identifier: BSD-3-Clause
/* Values for tests of collectives, and MPI's results with them. */
#include "comm_fixture.h"

#include "base/random.h"
#include "test.h"

const struct comm_test_type comm_types[COMM_TYPES] = {
    {COMM_BYTE, 1, MPI_UINT8_T}, {COMM_INT64, 8, MPI_INT64_T}, {COMM_FP32, 4, MPI_FLOAT},
    {COMM_FP64, 8, MPI_DOUBLE},  {COMM_BF16, 2, MPI_FLOAT},    {COMM_FP16, 2, MPI_FLOAT},
};

const struct comm_test_operation comm_operations[COMM_OPERATIONS] = {
    {COMM_SUM, MPI_SUM}, {COMM_MIN, MPI_MIN}, {COMM_MAX, MPI_MAX}};

int all_wrong(int64_t wrong)
{
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    return (int)wrong;
}

/* A value in -8..8 that depends on rank, index and salt. Exact in every type. */
static int small_value(int rank, int64_t i, unsigned salt)
{
    uint32_t hash = (uint32_t)rank * 0x9e3779b9u + (uint32_t)i * 0x85ebca6bu + salt * 0xc2b2ae35u;
    hash = (hash ^ hash >> 15) * 0x2c1b3c6du;
    return (int)((hash ^ hash >> 13) % 17) - 8;
}

static void element_set(enum comm_type type, void *buffer, int64_t i, int value)
{
    switch (type) {
    case COMM_BYTE:
        /* At most 255: some builds of Open MPI saturate there instead of wrapping. */
        ((uint8_t *)buffer)[i] = (uint8_t)(value + 8);
        break;
    case COMM_INT64:
        ((int64_t *)buffer)[i] = value * ((int64_t)1 << 40);
        break;
    case COMM_FP32:
        ((float *)buffer)[i] = (float)value;
        break;
    case COMM_FP64:
        ((double *)buffer)[i] = value;
        break;
    case COMM_BF16:
        ((uint16_t *)buffer)[i] = to_bf16((float)value);
        break;
    case COMM_FP16:
        ((uint16_t *)buffer)[i] = to_fp16(value);
        break;
    }
}

void *buffer_open(enum comm_type type, int64_t count, int rank, unsigned salt)
{
    void *buffer = allocate((size_t)count, sizeof(double));
    for (int64_t i = 0; i < count; i++)
        element_set(type, buffer, i, small_value(rank, i, salt));
    return buffer;
}

float *noise_open(int rank, int64_t count)
{
    float *noise = allocate((size_t)count, sizeof *noise);
    for (int64_t i = 0; i < count; i++) {
        struct random_block block =
            random_block_at(3, RANDOM_SYNTHETIC, 0, 0, (uint32_t)rank, (uint32_t)i);
        noise[i] = ldexpf(random_uniform(block.word[0]) - 0.5f, (int)(block.word[1] % 24));
    }
    return noise;
}

bool differs_from_root(const float *values, int64_t count)
{
    const size_t bytes = (size_t)count * sizeof *values;
    OWNED float *root = allocate((size_t)count, sizeof *root);
    memcpy(root, values, bytes);
    MPI_Bcast(root, (int)count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    return memcmp(values, root, bytes) != 0;
}

void reference_reduce(int type, void *buffer, int64_t count, MPI_Op operation, MPI_Comm comm)
{
    bool bf16 = comm_types[type].type == COMM_BF16;
    if (!bf16 && comm_types[type].type != COMM_FP16) {
        MPI_Allreduce(MPI_IN_PLACE, buffer, (int)count, comm_types[type].mpi, operation, comm);
        return;
    }
    OWNED float *wide = allocate((size_t)count, sizeof *wide);
    for (int64_t i = 0; i < count; i++)
        wide[i] =
            bf16 ? from_bf16(((uint16_t *)buffer)[i]) : (float)from_fp16(((uint16_t *)buffer)[i]);
    MPI_Allreduce(MPI_IN_PLACE, wide, (int)count, MPI_FLOAT, operation, comm);
    for (int64_t i = 0; i < count; i++)
        ((uint16_t *)buffer)[i] = bf16 ? to_bf16(wide[i]) : to_fp16((double)wide[i]);
}
