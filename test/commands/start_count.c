// SPDX-License-Identifier: BSD-3-Clause
/* vittrain with counters, for test_start.sh and `benchmarks/start.sh ranks`. It counts the messages
 * of each collective. At the end each rank writes the file $START_COUNT/rank.RANK. Its rows have
 * tabs between the cells:
 *
 *   KIND, NAME, SENT, RECEIVED, SENT_BYTES, ADDRESSES: a collective, with the addresses of its
 *     callers. KIND: "collective" before the first step, "step" in a step, "later" between steps
 *   total, NAME, VALUE: up to the first update; renames and syncs of files: up to the end
 *
 * Of MPI's own collectives, only the call is counted, not the messages. $START_NODE_RANKS: number
 * of consecutive ranks that count as one node with its own host name. $START_NODES: number of nodes
 * over which ranks are distributed one by one. The program is linked with --wrap for each function
 * __wrap_*. */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <execinfo.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/launcher.h"
#include "base/sensors.h"
#include "base/status.h"
#include "comm/internal.h"

enum { CALLERS = 10, RECORDS = 4096 };

struct record {
    char name[32];
    int64_t sent, received, sent_bytes;
    int callers;
    const char *kind;
    void *caller[CALLERS];
};

struct moment {
    double wall, processor; /* seconds */
};

static struct {
    pthread_mutex_t lock;
    struct record record[RECORDS];
    int queued, begun;  /* requests, which run in the order in which they are queued */
    int order[RECORDS]; /* index of the record of each request */
    int records;
    int renames, syncs; /* of files and folders */
    int rank;
    const char *kind;             /* of the next record */
    struct moment entered, ready; /* when MPI_Init is called and returns */
    struct moment updated;        /* the first update */
    double resident, updated_at;
} count = {.lock = PTHREAD_MUTEX_INITIALIZER, .kind = "collective"};

static _Thread_local struct record *current;
static _Thread_local bool in_heartbeat;

static struct moment moment_now(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (struct moment){clock_now(),
                           (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                               1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec)};
}

/* ---- records */

static void record_add(const char *name)
{
    ENSURE(count.records < RECORDS, "too many collectives to count");
    struct record *record = &count.record[count.records++];
    snprintf(record->name, sizeof record->name, "%s", name);
    record->kind = count.kind;
    record->callers = backtrace(record->caller, CALLERS);
}

static void record_write(FILE *file, const struct record *record)
{
    fprintf(file, "%s\t%s\t%lld\t%lld\t%lld\t", record->kind, record->name, (long long)record->sent,
            (long long)record->received, (long long)record->sent_bytes);
    for (int i = 0; i < record->callers; i++) {
        Dl_info where;
        if (dladdr(record->caller[i], &where) != 0)
            fprintf(file, "%s%#tx", i > 0 ? " " : "",
                    (char *)record->caller[i] - (char *)where.dli_fbase - 1);
    }
    fputc('\n', file);
}

static void table_write(void)
{
    char path[4096];
    const char *folder = getenv("START_COUNT");
    if (folder == NULL)
        return;
    const struct moment now = count.updated, *entered = &count.entered, *ready = &count.ready;
    const struct {
        const char *name;
        double value;
    } totals[] = {{"MPI_Init seconds", ready->wall - entered->wall},
                  {"MPI_Init processor seconds", ready->processor - entered->processor},
                  {"before MPI_Init processor seconds", entered->processor},
                  {"MPI_Init to update seconds", now.wall - ready->wall},
                  {"MPI_Init to update processor seconds", now.processor - ready->processor},
                  {"resident bytes", count.resident},
                  {"renames", count.renames},
                  {"syncs", count.syncs},
                  {"update at", count.updated_at}};
    snprintf(path, sizeof path, "%s/rank.%d", folder, count.rank);
    FILE *file = fopen(path, "w");
    ENSURE(file != NULL, "cannot write %s", path);
    for (int i = 0; i < count.records; i++)
        record_write(file, &count.record[i]);
    for (size_t i = 0; i < sizeof totals / sizeof totals[0]; i++)
        fprintf(file, "total\t%s\t%.6f\n", totals[i].name, totals[i].value);
    ENSURE(fclose(file) == 0, "cannot write %s", path);
}

/* ---- functions of the program */

struct comm_request *__real_progress_start(const struct comm_request *request);
struct comm_request *__wrap_progress_start(const struct comm_request *request);
void __real_transport_run(const struct comm_request *request, unsigned char *scratch);
void __wrap_transport_run(const struct comm_request *request, unsigned char *scratch);
void __real_heartbeat_turn(const struct comm_request *request, double waited, double now);
void __wrap_heartbeat_turn(const struct comm_request *request, double waited, double now);
void __real_status_set_phase(int phase);
void __wrap_status_set_phase(int phase);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __real_fsync(int descriptor);
int __wrap_fsync(int descriptor);

/* Only the main thread starts collectives. */
struct comm_request *__wrap_progress_start(const struct comm_request *request)
{
    static const char *const action[] = {"all-reduce", "reduce-scatter", "all-gather",
                                         "broadcast",  "send",           "receive"};
    pthread_mutex_lock(&count.lock);
    count.order[count.queued++ % RECORDS] = count.records;
    record_add(action[request->call.action]);
    pthread_mutex_unlock(&count.lock);
    return __real_progress_start(request);
}

void __wrap_transport_run(const struct comm_request *request, unsigned char *scratch)
{
    pthread_mutex_lock(&count.lock);
    current = &count.record[count.order[count.begun++ % RECORDS]];
    pthread_mutex_unlock(&count.lock);
    __real_transport_run(request, scratch);
    current = NULL;
}

void __wrap_heartbeat_turn(const struct comm_request *request, double waited, double now)
{
    in_heartbeat = true;
    __real_heartbeat_turn(request, waited, now);
    in_heartbeat = false;
}

void __wrap_status_set_phase(int phase)
{
    if (phase == PHASE_UPDATE && count.updated_at == 0) {
        count.updated = moment_now();
        count.resident = (double)process_memory("VmRSS:");
        count.updated_at = clock_wall();
    }
    if (phase >= PHASE_FORWARD && phase <= PHASE_UPDATE)
        count.kind = "step";
    else if (count.updated_at > 0)
        count.kind = "later";
    if (phase == PHASE_END)
        table_write();
    __real_status_set_phase(phase);
}

int __wrap_rename(const char *from, const char *to)
{
    count.renames++;
    return __real_rename(from, to);
}

int __wrap_fsync(int descriptor)
{
    count.syncs++;
    return __real_fsync(descriptor);
}

int __wrap_gethostname(char *name, size_t size);
int __real_gethostname(char *name, size_t size);

static int node_of_rank(int rank)
{
    const char *ranks = getenv("START_NODE_RANKS"), *nodes = getenv("START_NODES");
    return ranks != NULL ? rank / atoi(ranks) : nodes != NULL ? rank % atoi(nodes) : -1;
}

int __wrap_gethostname(char *name, size_t size)
{
    const int rank = launcher_rank();
    const int node = node_of_rank(rank > 0 ? rank : 0);
    if (node < 0)
        return __real_gethostname(name, size);
    snprintf(name, size, "node%d", node);
    return 0;
}

/* ---- functions of MPI */

static void message_sent(int bytes, MPI_Datatype type)
{
    int width = 0;
    if (current == NULL || in_heartbeat)
        return;
    PMPI_Type_size(type, &width);
    current->sent++;
    current->sent_bytes += (int64_t)bytes * width;
}

static void message_received(void)
{
    if (current != NULL && !in_heartbeat)
        current->received++;
}

int MPI_Isend(const void *buffer, int elements, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    message_sent(elements, type);
    return PMPI_Isend(buffer, elements, type, to, tag, comm, request);
}

int MPI_Irecv(void *buffer, int elements, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    message_received();
    return PMPI_Irecv(buffer, elements, type, from, tag, comm, request);
}

/* Count a call of MPI that sends messages internally. */
static void call_count(const char *name)
{
    pthread_mutex_lock(&count.lock);
    record_add(name);
    pthread_mutex_unlock(&count.lock);
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *made)
{
    call_count("MPI_Comm_split");
    return PMPI_Comm_split(comm, color, key, made);
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *made)
{
    const int node = node_of_rank(count.rank);
    call_count("MPI_Comm_split_type");
    return node >= 0 ? PMPI_Comm_split(comm, node, key, made)
                     : PMPI_Comm_split_type(comm, type, key, info, made);
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *made)
{
    call_count("MPI_Comm_dup");
    return PMPI_Comm_dup(comm, made);
}

int MPI_Bcast(void *buffer, int elements, MPI_Datatype type, int root, MPI_Comm comm)
{
    call_count("MPI_Bcast");
    return PMPI_Bcast(buffer, elements, type, root, comm);
}

int MPI_Allgather(const void *data, int elements, MPI_Datatype type, void *all, int each,
                  MPI_Datatype of, MPI_Comm comm)
{
    call_count("MPI_Allgather");
    return PMPI_Allgather(data, elements, type, all, each, of, comm);
}

int MPI_Send(const void *data, int elements, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
    if (!in_heartbeat)
        call_count("MPI_Send");
    return PMPI_Send(data, elements, type, to, tag, comm);
}

int MPI_Init_thread(int *argc, char ***argv, int wanted, int *provided)
{
    count.entered = moment_now();
    const int result = PMPI_Init_thread(argc, argv, wanted, provided);
    count.ready = moment_now();
    PMPI_Comm_rank(MPI_COMM_WORLD, &count.rank);
    return result;
}
