// SPDX-License-Identifier: BSD-3-Clause
/* Collectives by NCCL. */
#include "collective.h"

#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

struct collective {
    ncclComm_t comm;
    void *registered; /* handle of the registered buffer, or NULL */
    int rank, size, device;
};

/* Return NULL on success. */
static const char *failure(ncclResult_t result, ncclComm_t comm)
{
    static char text[1024];
    if (result == ncclSuccess)
        return NULL;
    const char *more = ncclGetLastError(comm);
    snprintf(text, sizeof text, "NCCL: %s%s%.800s", ncclGetErrorString(result),
             more != NULL && more[0] != '\0' ? ": " : "", more != NULL ? more : "");
    return text;
}

int collective_version(void)
{
    int version = 0;
    const char *failed = failure(ncclGetVersion(&version), NULL);
    ENSURE(failed == NULL, "cannot query the version of NCCL: %s", failed);
    return version;
}

void collective_library(char *text, size_t size)
{
    const int version = collective_version();
    snprintf(text, size, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

/* With NCCL_COMM_ID, rank 0 uses one root only, whatever the other ranks use. */
bool collective_has_roots(void)
{
    return NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0) && getenv("NCCL_COMM_ID") == NULL;
}

const char *collective_id(void *id)
{
    static_assert(sizeof(ncclUniqueId) == COLLECTIVE_ID_BYTES, "NCCL's id has another size");
    return failure(ncclGetUniqueId((ncclUniqueId *)id), NULL);
}

/* The communicator is blocking, because calls on a non-blocking one start a thread each; the caller
 * supervises the time (comm_nccl.cu). With NCCL_RUNTIME_CONNECT=0 (src/comm/mpi.c) all connections
 * except those of all-to-alls are made here instead of in the first collectives, which would block
 * there. */
const char *collective_open(const void *ids, int roots, int rank, int size,
                            struct collective **opened)
{
    struct collective *collective = (struct collective *)calloc(1, sizeof *collective);
    ENSURE_MEMORY(collective != NULL, "no memory for a group of GPUs");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    ncclUniqueId *id = (ncclUniqueId *)ids;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
    const ncclResult_t result =
        ncclCommInitRankScalable(&collective->comm, size, rank, roots, id, &config);
#else
    const ncclResult_t result = ncclCommInitRankConfig(&collective->comm, size, *id, rank, &config);
#endif
    const char *failed = failure(result, NULL);
    collective->rank = rank;
    collective->size = size;
    CUDA_CHECK(cudaGetDevice(&collective->device));
    if (failed != NULL)
        free(collective);
    else
        *opened = collective;
    return failed;
}

void collective_close(struct collective *collective)
{
    const char *failed;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
    if (collective->registered != NULL) {
        failed = failure(ncclCommDeregister(collective->comm, collective->registered), NULL);
        ENSURE(failed == NULL, "cannot deregister memory of a group of GPUs: %s", failed);
    }
#endif
    failed = failure(ncclCommDestroy(collective->comm), NULL);
    ENSURE(failed == NULL, "cannot close a group of GPUs: %s", failed);
    free(collective);
}

/* Within one group, NCCL sets the abort flags of all communicators before it waits for any kernel.
 * Separate calls would wait for the kernels of the second communicator in the first abort. The
 * process ends anyway, so results are ignored. */
void collective_abort(struct collective *const *collectives, int count)
{
    (void)cudaSetDevice(collectives[0]->device); /* otherwise NCCL creates a context on device 0 */
    (void)ncclGroupStart();
    for (int i = 0; i < count; i++)
        (void)ncclCommAbort(collectives[i]->comm);
    (void)ncclGroupEnd();
}

const char *collective_error(struct collective *collective)
{
    ncclResult_t met = ncclSuccess;
    ncclResult_t result = ncclCommGetAsyncError(collective->comm, &met);
    if (result != ncclSuccess)
        return failure(result, collective->comm);
    return met == ncclInProgress ? NULL : failure(met, collective->comm);
}

/* An optimisation only: failure has no effect on results. */
void collective_use_memory(struct collective *collective, void *memory, size_t bytes)
{
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
    if (ncclCommRegister(collective->comm, memory, bytes, &collective->registered) != ncclSuccess)
        collective->registered = NULL;
#else
    (void)collective, (void)memory, (void)bytes;
#endif
}

/* One message per block of a partial value. Messages between two ranks are received in the order in
 * which they are sent. */
static ncclResult_t all_to_all(const struct collective *collective, const struct comm_call *call,
                               ncclDataType_t type, cudaStream_t stream)
{
    const int64_t width = comm_type_size(call->type);
    const size_t count = (size_t)call->count;
    unsigned char *received = (unsigned char *)call->received;
    ncclResult_t result = ncclGroupStart();
    if (result != ncclSuccess)
        return result;
    for (int rank = 0; rank < collective->size; rank++) {
        const unsigned char *sent =
            (const unsigned char *)call->buffer + rank * call->count * width;
        for (int i = 0; i < call->parts[collective->rank] && result == ncclSuccess; i++)
            result = ncclSend(sent + i * call->stride * width, count, type, rank, collective->comm,
                              stream);
        for (int i = 0; i < call->parts[rank] && result == ncclSuccess; i++) {
            result = ncclRecv(received, count, type, rank, collective->comm, stream);
            received += call->count * width;
        }
    }
    const ncclResult_t ended = ncclGroupEnd();
    return result != ncclSuccess ? result : ended;
}

const char *collective_run(struct collective *collective, const struct comm_call *call,
                           cudaStream_t stream)
{
    static const ncclDataType_t types[] = {ncclUint8,   ncclInt64,    ncclFloat32,
                                           ncclFloat64, ncclBfloat16, ncclFloat16};
    static const ncclRedOp_t operations[] = {ncclSum, ncclMin, ncclMax};
    const ncclDataType_t type = types[call->type];
    const ncclRedOp_t operation = operations[call->operation];
    const size_t count = (size_t)call->count;
    unsigned char *buffer = (unsigned char *)call->buffer;
    unsigned char *own = buffer + collective->rank * call->count * comm_type_size(call->type);
    ncclResult_t result = ncclInvalidArgument;
    switch (call->action) {
    case COMM_ALL_REDUCE:
        result = ncclAllReduce(buffer, buffer, count, type, operation, collective->comm, stream);
        break;
    case COMM_REDUCE_SCATTER:
        result = ncclReduceScatter(buffer, own, count, type, operation, collective->comm, stream);
        break;
    case COMM_ALL_GATHER:
        result = ncclAllGather(own, buffer, count, type, collective->comm, stream);
        break;
    case COMM_BROADCAST:
        result = ncclBroadcast(buffer, buffer, count, type, call->peer, collective->comm, stream);
        break;
    case COMM_ALL_TO_ALL:
        result = all_to_all(collective, call, type, stream);
        break;
    case COMM_SEND:
    case COMM_RECEIVE:
        break;
    }
    return failure(result, collective->comm);
}
