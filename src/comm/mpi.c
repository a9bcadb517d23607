// SPDX-License-Identifier: BSD-3-Clause
/* The backend "mpi". MPI creates the groups and transfers messages between two ranks; the
 * collectives are implemented in transport.c and run by the communication thread (comm_thread.c).
 * A process without a launcher is a group of one rank and does not call MPI. */
#include "comm/internal.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/launcher.h"
#include "base/status.h"
#include "comm/heartbeat_table.h"

static struct {
    pthread_mutex_t lock;
    struct group *first; /* list of all groups of this process, the oldest first */
    int64_t made;
    bool use_mpi;
    int rank, size;
    char (*host)[HOST_NAME]; /* [size] */
} groups = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A message failed, usually because the other rank has died. Wait first: the launcher then reports
 * that rank and ends this one. */
static _Noreturn void peer_failed(const char *call, const char *text)
{
    const struct timespec patience = {.tv_sec = 3};
    nanosleep(&patience, NULL);
    fprintf(stderr,
            "vittrain: failure: rank %d on %s can no longer reach other ranks: %.*s: %s; the "
            "cause is unknown\n",
            groups.rank, comm_host(), (int)strcspn(call, "("), call, text);
    failure_end();
}

void mpi_check(int result, const char *call, const char *file, int line)
{
    if (result == MPI_SUCCESS)
        return;
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length = 0;
    MPI_Error_string(result, text, &length);
    if (groups.size > 1)
        peer_failed(call, text);
    error_abort(file, line, "%s: %s", call, text);
}

const char *comm_host(void)
{
    static char host[HOST_NAME];
    if (host[0] == '\0' && gethostname(host, sizeof host - 1) != 0)
        strcpy(host, "unknown");
    return host;
}

const char *comm_host_of(int rank)
{
    return groups.host[rank];
}

void comm_entered(struct comm *comm, int64_t number)
{
    ENSURE(comm->backend == &comm_mpi, "heartbeats need a group of MPI");
    ((struct group *)comm)->entered = number;
}

void groups_report(struct report *report)
{
    report->groups = 0;
    pthread_mutex_lock(&groups.lock);
    for (const struct group *group = groups.first; group != NULL; group = group->next) {
        const int64_t entered = group->entered, posted = group->posted;
        if (group->communicator == MPI_COMM_NULL || group->comm.size == 1 ||
            report->groups == REPORT_GROUPS)
            continue;
        report->member[report->groups++] =
            (struct report_group){.identity = group->identity,
                                  .rank = group->comm.rank,
                                  .entered = entered > posted ? entered : posted};
    }
    pthread_mutex_unlock(&groups.lock);
}

/* Takes ownership of the communicator. MPI_COMM_NULL: a group of which only this process exists,
 * with this rank and size. */
static struct comm *group_open(MPI_Comm communicator, int rank, int size)
{
    struct group *group = allocate(1, sizeof *group);
    group->comm = (struct comm){.backend = &comm_mpi, .rank = rank, .size = size};
    group->communicator = communicator;
    group->identity = ((int64_t)groups.rank << 32) + ++groups.made;
    if (communicator != MPI_COMM_NULL) {
        MPI_CHECK(MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN));
        MPI_CHECK(MPI_Comm_rank(communicator, &group->comm.rank));
        MPI_CHECK(MPI_Comm_size(communicator, &group->comm.size));
        MPI_CHECK(MPI_Bcast(&group->identity, 1, MPI_INT64_T, 0, communicator));
    }
    pthread_mutex_lock(&groups.lock);
    struct group **link = &groups.first;
    while (*link != NULL)
        link = &(*link)->next;
    *link = group;
    pthread_mutex_unlock(&groups.lock);
    return &group->comm;
}

static void group_release_memory(struct comm *comm)
{
    struct group *group = (struct group *)comm;
    if (group->node_memory != NULL)
        munmap(group->node_memory, group->common_bytes + group->area_bytes * (size_t)comm->size);
    group->node_memory = NULL;
}

static void group_close(struct comm *comm)
{
    struct group *group = (struct group *)comm;
    pthread_mutex_lock(&groups.lock);
    struct group **link = &groups.first;
    while (*link != group)
        link = &(*link)->next;
    *link = group->next;
    pthread_mutex_unlock(&groups.lock);
    transport_close(group);
    group_release_memory(comm);
    if (group->communicator != MPI_COMM_NULL)
        MPI_CHECK(MPI_Comm_free(&group->communicator));
    free(group);
}

struct comm *comm_fake_open(int rank, int size)
{
    return group_open(MPI_COMM_NULL, rank, size);
}

static bool is_fake(const struct comm *comm)
{
    return comm->size > 1 && ((const struct group *)comm)->communicator == MPI_COMM_NULL;
}

static struct comm *group_split(struct comm *comm, int color, int key)
{
    MPI_Comm whole = ((struct group *)comm)->communicator, communicator = MPI_COMM_NULL;
    ENSURE(!is_fake(comm), "a fake group cannot be split");
    if (whole != MPI_COMM_NULL)
        MPI_CHECK(MPI_Comm_split(whole, color, key, &communicator));
    return group_open(communicator, 0, 1);
}

static struct comm *group_split_node(struct comm *comm)
{
    MPI_Comm whole = ((struct group *)comm)->communicator, communicator = MPI_COMM_NULL;
    ENSURE(!is_fake(comm), "a fake group cannot be split");
    if (whole != MPI_COMM_NULL)
        MPI_CHECK(MPI_Comm_split_type(whole, MPI_COMM_TYPE_SHARED, comm->rank, MPI_INFO_NULL,
                                      &communicator));
    return group_open(communicator, 0, 1);
}

static void *group_share_memory(struct comm *comm, size_t common, size_t each, struct error *error)
{
    struct group *group = (struct group *)comm;
    const size_t rank = (size_t)comm->rank, size = (size_t)comm->size;
    /* A rank's area is on its NUMA node. */
    const struct segment_part parts[] = {{common * rank / size, common * (rank + 1) / size},
                                         {common + each * rank, common + each * (rank + 1)}};
    ENSURE(group->node_memory == NULL, "share_memory was called twice for a group");
    group->common_bytes = common;
    group->area_bytes = each;
    if (is_fake(comm)) { /* addresses, which plans do not access */
        void *memory = mmap(NULL, common + each * size, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        ENSURE_MEMORY(memory != MAP_FAILED, "no address space for %d ranks", comm->size);
        group->node_memory = memory;
    } else if (group->window != NULL) {
        group->node_memory =
            segment_open(comm, group->identity, common + each * size, parts, error);
    } else {
        error_set(error, ERROR_MEMORY, "%s", group->note);
    }
    return group->node_memory;
}

void *comm_handle(struct comm *comm)
{
    ENSURE(comm->backend == &comm_mpi, "a group has no communicator of MPI");
    return &((struct group *)comm)->communicator;
}

/* Number the collective within its group and start or queue it. */
static struct comm_request *group_start(struct comm *comm, const struct comm_call *call)
{
    struct comm_request request = {.group = (struct group *)comm, .call = *call};
    if (comm->size == 1)
        return call->action == COMM_ALL_TO_ALL ? progress_request(&request) : NULL;
    if (is_fake(comm))
        return NULL;
    if (call->action < COMM_SEND)
        request.sequence = ++request.group->started;
    else
        ENSURE(call->peer != comm->rank, "a rank sends to itself");
    return exchange_fits(&request) ? exchange_start(&request) : progress_start(&request);
}

static void group_wait(struct comm_request *request, struct stream *stream)
{
    if (request == NULL)
        return;
    if (request->number > 0) {
        exchange_wait(request);
    } else if (request->group->comm.size == 1) {
        progress_copy(request, stream);
        progress_release(request);
    } else {
        progress_wait(request); /* buffers are in host memory, so the host waits */
    }
}

const struct comm_backend comm_mpi = {
    .start = group_start,
    .wait = group_wait,
    .split = group_split,
    .split_node = group_split_node,
    .set_transport = transport_set,
    .describe_transport = transport_describe,
    .share_memory = group_share_memory,
    .release_memory = group_release_memory,
    .close = group_close,
};

/* End all ranks after a pause. During the pause NCCL's kernels are stopped (cuda/comm_nccl.cu), and
 * the launcher reads the last output. Without it, mpirun of MPICH 4.2 lost 9 of 200 messages. */
static _Noreturn void job_abort(int exit_code)
{
    nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
    if (groups.use_mpi)
        MPI_Abort(MPI_COMM_WORLD, exit_code);
    _exit(exit_code);
}

static void alarm_handle(int number)
{
    (void)number;
    _exit(ERROR_PEER);
}

void failure_end(void)
{
    const unsigned patience = 5;
    signal(SIGALRM, alarm_handle);
    alarm(patience);
    job_abort(ERROR_PEER);
}

/* Set parameters of MPI libraries that are read in MPI_Init, and of NCCL, because later other
 * threads may call getenv(). Values set by the user have precedence. */
static void world_set_environment(void)
{
    if (launcher_size() > 0 && launcher_size() == launcher_local_size()) {
        /* Shared memory only: probing networks takes 0.2 s, two thirds of the start-up time. */
        setenv("OMPI_MCA_pml", "ob1", 0);
        /* Otherwise Open MPI 5 prints that it found no routes to the node's IPv6 addresses. */
        setenv("OMPI_MCA_reachable", "^netlink", 0);
    }
    /* A process that is not part of a job of this MPI is refused; it needs no server process. */
    setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
    /* Ranks that wait inside MPI yield the core to others. */
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    /* signals.c prints one line per fault, instead of a page per rank. */
    setenv("OMPI_MCA_opal_signal", "", 0);
    /* NCCL connects all ranks when a group is opened, does not sum in the switch, where the order
     * varies, and starts the kernels of two groups in the order of the host's calls. */
    setenv("NCCL_RUNTIME_CONNECT", "0", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
}

static void world_find_hosts(void)
{
    char host[HOST_NAME] = "";
    strcpy(host, comm_host());
    groups.host = allocate((size_t)groups.size, sizeof *groups.host);
    if (groups.use_mpi)
        MPI_CHECK(MPI_Allgather(host, HOST_NAME, MPI_CHAR, groups.host, HOST_NAME, MPI_CHAR,
                                MPI_COMM_WORLD));
    else
        strcpy(groups.host[0], host);
}

/* Start MPI. Return an error if this process is one of several, or its launcher does not report
 * their number, but MPI has only this one: the launcher belongs to another MPI library or to none,
 * or its variables were removed. */
static bool mpi_open(int *argc, char ***argv, struct error *error)
{
    /* Read before MPI_Init, which may set them. */
    const int rank = launcher_rank(), size = launcher_size();
    int threads = MPI_THREAD_MULTIPLE, ranks = 1;
    char launcher[128];
    launcher_describe(launcher, sizeof launcher);
    world_set_environment();
    /* Without a rank MPI cannot find its job. */
    if (rank >= 0 && MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &threads) != MPI_SUCCESS)
        return error_set(error, ERROR_INTERNAL, "MPI_Init_thread failed");
    if (rank >= 0)
        MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    if (threads != MPI_THREAD_MULTIPLE)
        error_set(error, ERROR_INTERNAL,
                  "this MPI library does not support MPI_THREAD_MULTIPLE; use another one");
    else if (rank < 0 || rank >= ranks || (ranks == 1 && size != 1))
        error_set(error, ERROR_USAGE,
                  "this process is one of several (%s), but MPI has only %d rank%s: use the mpirun "
                  "of the MPI that vittrain was built with and keep its environment variables, or "
                  "srun with its --mpi=TYPE (pmix for Open MPI, pmi2 for MPICH)",
                  launcher, ranks, ranks == 1 ? "" : "s");
    if (error->kind != ERROR_NONE && rank >= 0)
        MPI_Finalize();
    if (error->kind != ERROR_NONE)
        return false;
    MPI_CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &groups.rank));
    groups.size = ranks;
    return true;
}

bool comm_world_open(int *argc, char ***argv, struct comm **world, struct error *error)
{
    MPI_Comm communicator = MPI_COMM_NULL;
    status_set_phase(PHASE_START);
    groups.size = 1;
    groups.use_mpi = launcher_has_ranks();
    signals_open(groups.use_mpi);
    status_set_phase(PHASE_MPI);
    if (groups.use_mpi && !mpi_open(argc, argv, error))
        return false;
    signals_parent_release();
    error_on_abort(job_abort);
    world_find_hosts();
    error_identify(groups.rank, comm_host());
    signals_report_faults(groups.rank, comm_host());
    if (groups.use_mpi)
        MPI_CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &communicator));
    *world = group_open(communicator, 0, 1);
    status_set_phase(PHASE_COMMAND);
    if (groups.size > 1) {
        heartbeat_open(groups.rank, groups.size);
        progress_open();
    }
    return true;
}

/* Defined with AddressSanitizer: check for leaks now and not at exit. */
extern void __lsan_do_leak_check(void) __attribute__((weak));

void comm_world_close(struct comm *world)
{
    /* Heartbeats continue until all ranks have come here. */
    comm_set_timeout(0);
    comm_barrier(world);
    status_set_phase(PHASE_END);
    progress_close();
    heartbeat_close();
    world->backend->close(world);
    free(groups.host);
    groups.host = NULL;
    /* MPI_Finalize unloads modules; after that their leaks have no stack. */
    if (__lsan_do_leak_check != NULL)
        __lsan_do_leak_check();
    if (groups.use_mpi)
        MPI_CHECK(MPI_Finalize());
    error_on_abort(NULL);
}
