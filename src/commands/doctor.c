// SPDX-License-Identifier: BSD-3-Clause
/* The command `doctor` checks a cluster before a run: the ranks gather their facts from the kernel,
 * the launcher's environment, the run folder and the data set, then rank 0 prints a row for each
 * check. If a node does not respond, the heartbeat (comm/heartbeat.c) names it and ends the job. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "commands/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "arrays/path.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/launcher.h"
#include "base/log.h"
#include "base/sensors.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/memory_checkpoint.h"
#include "commands/app.h"
#include "data/listing.h"
#include "data/split.h"
#include "options/options.h"
#include "train/hardware.h"
#include "train/session.h"

/* ---- facts of a rank */

/* Return a limit of this process; UINT64_MAX: none. */
static uint64_t limit_read(__rlimit_resource_t resource)
{
    struct rlimit limit;
    const bool bounded = getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return bounded ? (uint64_t)limit.rlim_cur : UINT64_MAX;
}

/* Read facts of GPU `number` of the node, which is opened and closed. */
static void gpu_read(struct doctor_facts *facts, const struct options *options, int number)
{
    struct error error = {0};
    if (options->run.backend == BACKEND_CPU)
        return;
    const struct device_backend *cuda = device_find("cuda", &error);
    struct device *device = cuda == NULL ? NULL : cuda->open(number, 1, &error);
    snprintf(facts->no_gpu, sizeof facts->no_gpu, "%.255s", error.text);
    if (device == NULL)
        return;
    cuda->limits(device, &facts->gpu);
    if (cuda->survey != NULL)
        cuda->survey(device, &facts->survey);
    cuda->close(device);
}

/* Read the facts of this rank without its GPU. */
static void rank_read(struct doctor_facts *facts, const struct options *options, struct comm *node)
{
    cpu_set_t allowed;
    DIR *adapters = NULL;
    /* Slots of mpirun on all nodes, or tasks of Slurm. */
    const char *slots = getenv("OMPI_UNIVERSE_SIZE");
    if (slots == NULL)
        slots = getenv("SLURM_NTASKS");
    snprintf(facts->host, sizeof facts->host, "%.*s", DOCTOR_HOST - 1, comm_host());
    facts->threads = hardware_threads(options, node);
    facts->slots = slots != NULL ? atoll(slots) : 0;
    facts->online = sysconf(_SC_NPROCESSORS_ONLN);
    facts->quota = cores_quota("");
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        CPU_ZERO(&allowed);
    for (size_t core = 0; core < DOCTOR_CORES && core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &allowed))
            facts->cores[core / 64] |= UINT64_C(1) << (core % 64);
    while (folder_next(&adapters, "/sys/class/infiniband") != NULL)
        facts->infiniband++;
    facts->files = limit_read(RLIMIT_NOFILE);
    facts->locked = limit_read(RLIMIT_MEMLOCK);
}

/* ---- the run folder and its disk */

void doctor_read_space(struct doctor_facts *facts, const struct options *options)
{
    struct stat status;
    struct statvfs system;
    char *folder = facts->folder;
    snprintf(folder, sizeof facts->folder, "%s",
             options->run.dir[0] != '\0' ? options->run.dir : "runs");
    while (stat(folder, &status) != 0 && strcmp(folder, ".") != 0 && strcmp(folder, "/") != 0) {
        char *slash = strrchr(folder, '/');
        if (slash == NULL)
            strcpy(folder, ".");
        else
            slash[slash == folder] = '\0';
    }
    if (statvfs(folder, &system) != 0 || !S_ISDIR(status.st_mode)) {
        snprintf(facts->folder_why, sizeof facts->folder_why, "%.200s is not a folder", folder);
        return;
    }
    facts->free = (uint64_t)system.f_bavail * system.f_frsize;
}

void doctor_try_folder(struct doctor_facts *facts, struct comm *world, bool of_node)
{
    char token[40];
    struct error error = {0};
    int lock = -1;
    snprintf(token, sizeof token, "%.0f-%ld", 1e6 * clock_wall(), (long)getpid());
    comm_broadcast(world, token, sizeof token, COMM_BYTE, 0);
    OWNED char *first = allocate_text("%s/.doctor-%s-0", facts->folder, token);
    OWNED char *path = allocate_text("%s/.doctor-%s-%d", facts->folder, token, world->rank);
    const bool tries = of_node && facts->folder_why[0] == '\0';
    /* Twice: the second file replaces the first. */
    if (tries && atomic_file_write(path, token, &error))
        error_defer(atomic_file_write(path, token, &error));
    if (tries)
        snprintf(facts->folder_why, sizeof facts->folder_why, "%.255s", error.text);
    if (tries && world->rank == 0) {
        lock = open(path, O_RDWR | O_CLOEXEC);
        facts->locks_folder = lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0;
    }
    comm_barrier(world);
    if (tries) {
        OWNED char *text = text_file_read(first, NULL);
        facts->shares_folder = text != NULL && strcmp(text, token) == 0;
    }
    if (tries && facts->shares_folder && world->rank > 0) {
        lock = open(first, O_RDWR | O_CLOEXEC);
        facts->locks_folder = lock < 0 || flock(lock, LOCK_EX | LOCK_NB) != 0;
    }
    comm_barrier(world);
    if (lock >= 0)
        close(lock);
    if (tries)
        unlink(path);
}

/* ---- the data set */

/* A walk through the data set of this node. */
struct scan {
    struct doctor_data *data;
    char (*path)[OPTION_TEXT];      /* [samples] */
    uint64_t order[DOCTOR_SAMPLES]; /* hash of the file's name; ascending */
    size_t root_length;
    double end;
};

/* Hash a name below the root and a size. The sum of hashes is independent of the order. */
static uint64_t name_hash(const char *name, uint64_t size)
{
    uint64_t value = UINT64_C(0xcbf29ce484222325) ^ size; /* FNV-1a, then mixed */
    for (; *name != '\0'; name++)
        value = (value ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    value = (value ^ value >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return value ^ value >> 32;
}

static bool is_late(const struct scan *scan)
{
    scan->data->cut = scan->data->cut || clock_now() > scan->end;
    return scan->data->cut;
}

/* Add a file, or the files of a folder whose names do not begin with a dot. The files with the
 * lowest hashes are kept, sorted. */
static bool path_add(struct scan *scan, const char *path, int depth)
{
    enum { DEEPEST = 16 };
    struct stat status;
    DIR *entries = NULL;
    if (stat(path, &status) != 0)
        return false;
    if (S_ISREG(status.st_mode)) {
        const char *name = path + scan->root_length;
        const uint64_t order = name_hash(name, 0);
        int64_t place = smaller(scan->data->samples, DOCTOR_SAMPLES - 1);
        scan->data->files++;
        scan->data->bytes += status.st_size;
        scan->data->names += name_hash(name, (uint64_t)status.st_size);
        if (scan->data->samples == DOCTOR_SAMPLES && order >= scan->order[place])
            return true;
        scan->data->samples = place + 1;
        for (; place > 0 && scan->order[place - 1] > order; place--) {
            scan->order[place] = scan->order[place - 1];
            memcpy(scan->path[place], scan->path[place - 1], sizeof scan->path[place]);
        }
        scan->order[place] = order;
        snprintf(scan->path[place], sizeof scan->path[place], "%s", path);
    }
    if (!S_ISDIR(status.st_mode) || depth >= DEEPEST)
        return true;
    if (access(path, R_OK | X_OK) != 0 && scan->data->why[0] == '\0')
        snprintf(scan->data->why, sizeof scan->data->why, "%.200s: %s", path, strerror(errno));
    for (const char *name; (name = folder_next(&entries, path)) != NULL;) {
        char child[PATH_MAX];
        if (name[0] != '.' && snprintf(child, sizeof child, "%s/%s", path, name) < PATH_MAX)
            path_add(scan, child, depth + 1);
        if (is_late(scan)) {
            closedir(entries);
            break;
        }
    }
    return true;
}

/* Return the checksum of a small file, or of evenly spaced pieces of a large one. */
static uint32_t sample_sum(const char *path)
{
    enum { PIECE = 64 << 10, PIECES = 16 };
    unsigned char *piece = allocate(1, PIECE);
    struct stat status;
    uint32_t crc = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0 && fstat(file, &status) == 0)
        for (int64_t i = 0; i < PIECES; i++) {
            int64_t last = status.st_size > PIECE ? status.st_size - PIECE : 0;
            int64_t offset =
                status.st_size <= (int64_t)PIECE * PIECES ? i * PIECE : last * i / (PIECES - 1);
            ssize_t got = pread(file, piece, PIECE, (off_t)offset);
            if (got > 0)
                crc = crc32c_update(crc, piece, (size_t)got);
        }
    if (file >= 0)
        close(file);
    free(piece);
    return crc;
}

void doctor_read_data(struct doctor *doctor, struct doctor_data *data, double seconds)
{
    const char *format = doctor->options->data.format, *root = doctor->options->data.root;
    struct scan scan = {.data = data, .path = doctor->sample, .end = clock_now() + seconds};
    struct split_files files = {0};
    struct error error = {0};
    const bool shards = strcmp(format, "webdataset") == 0;
    memset(data, 0, sizeof *data);
    root = root[0] != '\0' ? root : dataset_sample_directory();
    if (shards || strcmp(format, "arrays") == 0) {
        /* Names are compared with their folders, which may be those of splits. */
        error_defer(shards ? split_files_find(root, &split_files_shards, &files, NULL, &error)
                           : array_path_find(root, &files, NULL, &error));
        for (int64_t i = 0; error.kind == ERROR_NONE && i < files.count && !is_late(&scan); i++)
            if (!path_add(&scan, files.path[i], 0))
                durable_unreadable(&error, ERROR_DATA, files.path[i], errno);
        split_files_free(&files);
    } else if (data_root_check(root, "set data.root", &error)) {
        scan.root_length = strlen(root);
        path_add(&scan, root, 0);
    }
    if (error.kind == ERROR_NONE && data->files == 0 && data->cut == 0)
        error_set(&error, ERROR_DATA, "%s: the folder has no files", root);
    for (int64_t i = 0; i < data->samples && !is_late(&scan); i++)
        data->sum[i] = sample_sum(scan.path[i]);
    snprintf(data->why, sizeof data->why, "%.255s", error.text);
}

/* ---- output */

static int row_count(const struct doctor_row *rows, enum doctor_verdict verdict)
{
    int found = 0;
    for (int i = 0; i < DOCTOR_CHECKS; i++)
        found += rows[i].verdict == verdict;
    return found;
}

static void table_print(const struct doctor *doctor, const struct doctor_row *rows, double seconds)
{
    static const char *const verdict_name[] = {"pass", "warn", "fail"};
    for (int i = 0; i < DOCTOR_CHECKS; i++) {
        const struct doctor_row *row = &rows[i];
        printf("%s  %-13s %s", verdict_name[row->verdict], doctor_checks[i].name, row->found);
        if (row->findings > DOCTOR_FINDINGS)
            printf("; and %d more", row->findings - DOCTOR_FINDINGS);
        printf("\n");
        if (row->verdict > DOCTOR_PASS)
            printf("%20s-> %s\n", "", doctor_checks[i].advice);
    }
    printf("%d rank%s on %d node%s, %.1f s: %d pass, %d warn, %d fail\n", doctor->ranks,
           doctor->ranks == 1 ? "" : "s", doctor->nodes, doctor->nodes == 1 ? "" : "s", seconds,
           row_count(rows, DOCTOR_PASS), row_count(rows, DOCTOR_WARN),
           row_count(rows, DOCTOR_FAIL));
}

/* ---- the gathering of facts */

static int facts_compare(const void *left, const void *right)
{
    const struct doctor_facts *a = left, *b = right;
    return a->node != b->node ? (a->node > b->node) - (a->node < b->node)
                              : (a->rank > b->rank) - (a->rank < b->rank);
}

/* Read the facts of this rank and set doctor->facts, on rank 0 to those of all ranks. Collective.
 */
static void facts_gather(struct doctor *doctor, struct comm *world)
{
    const double data_seconds = 2.5; /* for the files of a node */
    struct statvfs memory;
    int *node_of = allocate((size_t)world->size, sizeof *node_of);
    struct comm *node = comm_split_nodes(world, node_of, &doctor->nodes);
    struct doctor_facts *own = allocate(world->rank == 0 ? (size_t)world->size : 1, sizeof *own);
    own->rank = world->rank;
    own->node = node_of[world->rank];
    own->node_ranks = node->size;
    rank_read(own, doctor->options, node);
    gpu_read(own, doctor->options, node->rank);
    status_set_phase(PHASE_FOLDER);
    if (node->rank == 0) {
        if (statvfs("/dev/shm", &memory) == 0) {
            own->shared_bytes = (uint64_t)memory.f_blocks * memory.f_frsize;
            own->shared_free = (uint64_t)memory.f_bavail * memory.f_frsize;
        }
        memory_folders_list(own->left, sizeof own->left);
        doctor_read_space(own, doctor->options);
    }
    doctor_try_folder(own, world, node->rank == 0);
    status_set_phase(PHASE_DATA_OPEN);
    if (node->rank == 0 && strcmp(doctor->options->data.format, "synthetic") != 0)
        doctor_read_data(doctor, &own->data, data_seconds);
    status_set_phase(PHASE_COMMAND);
    if (world->rank != 0)
        comm_send(world, own, sizeof *own, 0);
    for (int rank = 1; world->rank == 0 && rank < world->size; rank++)
        comm_receive(world, &own[rank], sizeof *own, rank);
    if (world->rank == 0)
        qsort(own, (size_t)world->size, sizeof *own, facts_compare);
    doctor->facts = own;
    node->backend->close(node);
    free(node_of);
}

static size_t checkpoint_bytes(const struct flat_model *flat)
{
    size_t elements = 0;
    for (int i = 0; i < flat->count; i++)
        elements += (size_t)flat->buffers[i].unit->count;
    return elements * sizeof(float) * (size_t)(1 + flat->moments + flat->averaged);
}

/* ---- the command */

/* Seconds for a collective. */
static const double patience = 10;

static void alarm_handle(int number)
{
    static const char text[] =
        "vittrain: failure: doctor: MPI has not started within 20 s: check that all nodes are up "
        "and reach each other over MPI's interface (OMPI_MCA_btl_tcp_if_include)\n";
    (void)number;
    _exit(write(STDERR_FILENO, text, sizeof text - 1) > 0 ? ERROR_PEER : ERROR_INTERNAL);
}

/* MPI waits forever for a node that it cannot reach. Rank 0 reports it; ranks that are still there
 * later report it, too. */
static void doctor_prepare(void)
{
    comm_set_timeout(patience);
    signal(SIGALRM, alarm_handle);
    alarm(launcher_rank() > 0 ? 24 : 20);
}

static void doctor_run(const struct options *options, const struct command_line *line,
                       struct comm *world, struct error *error)
{
    static struct doctor doctor;
    static struct session session;
    static struct options on_cpu;
    struct doctor_row rows[DOCTOR_CHECKS] = {{0}};
    struct error unknown = {0};
    char failed[256] = "";
    const double start = clock_now(), limit = options->mesh.timeout;
    alarm(0);
    comm_set_timeout(limit > 0 ? fmin(limit, patience) : patience);
    log_open(world->rank, LOG_QUIET); /* print the table only */
    if (line->operand_count > 0) {
        error_set(error, ERROR_USAGE, "doctor takes decks and section.key=value, not \"%s\"",
                  line->operand[0]);
        return;
    }
    doctor = (struct doctor){.options = options, .ranks = world->size};
    facts_gather(&doctor, world);
    if (world->rank == 0) {
        on_cpu = *options;
        on_cpu.run.backend = BACKEND_CPU;
        on_cpu.run.threads = 1;
        /* It may not be possible: the data set may set the number of classes. */
        if (session_imagine(&session, &on_cpu, 1, 1, true, &unknown)) {
            doctor.checkpoint = checkpoint_bytes(&session.flat);
            session_close(&session);
        }
        for (int i = 0; i < DOCTOR_CHECKS; i++) {
            doctor_checks[i].run(&doctor, &rows[i]);
            if (rows[i].verdict == DOCTOR_FAIL)
                snprintf(failed + strlen(failed), sizeof failed - strlen(failed), "%s%s",
                         failed[0] != '\0' ? ", " : "", doctor_checks[i].name);
        }
        table_print(&doctor, rows, clock_now() - start);
        if (app_output_arrived(error) && failed[0] != '\0')
            error_set(error, ERROR_UNFIT, "doctor: %d of %d checks failed: %s",
                      row_count(rows, DOCTOR_FAIL), DOCTOR_CHECKS, failed);
    }
    free(doctor.facts);
    error_defer(comm_share_error(world, error));
}

/* ---- the fast checks at the start of `train`, which only warn */

void doctor_start(const struct session *session)
{
    static const enum doctor_check_name fast[] = {DOCTOR_CORES_ROW, DOCTOR_BINDING_ROW,
                                                  DOCTOR_SPACE_ROW};
    const struct mesh *mesh = &session->mesh;
    struct comm *node = mesh->node;
    struct doctor_facts *facts = allocate((size_t)node->size, sizeof *facts);
    static struct doctor here; /* the ranks of this node */
    char text[256];
    here = (struct doctor){.options = &session->options,
                           .ranks = node->size,
                           .nodes = 1,
                           .facts = facts,
                           .checkpoint = checkpoint_bytes(&session->flat)};
    facts[node->rank].node_ranks = node->size;
    rank_read(&facts[node->rank], &session->options, node);
    if (mesh->world->rank == 0)
        doctor_read_space(facts, &session->options);
    comm_all_gather(node, facts, sizeof *facts, COMM_BYTE);
    for (size_t i = 0; i < sizeof fast / sizeof fast[0]; i++) {
        struct doctor_row row = {0};
        if (fast[i] == DOCTOR_SPACE_ROW ? mesh->world->rank == 0 : node->rank == 0)
            doctor_checks[fast[i]].run(&here, &row);
        /* Log the warning of the lowest rank that has one. */
        int64_t warned = row.verdict > DOCTOR_PASS ? mesh->world->rank : INT64_MAX;
        comm_all_reduce(mesh->world, &warned, 1, COMM_INT64, COMM_MIN);
        if (warned == INT64_MAX)
            continue;
        comm_broadcast(mesh->world, &row, sizeof row, COMM_BYTE, (int)warned);
        log_warn("doctor: %s: %s: %s", doctor_checks[fast[i]].name, row.found,
                 doctor_checks[fast[i]].advice);
    }
    /* The shared memory is allocated already: check whether that worked, not the free space. */
    mesh_describe_transport(mesh, text, sizeof text);
    if (strstr(text, "/dev/shm") != NULL)
        log_warn("doctor: shared memory: ranks of a node use messages instead of it: %s: remove "
                 "files from /dev/shm or make it larger: mount -o remount,size=1g /dev/shm",
                 text);
    free(facts);
}

const struct command command_doctor = {
    .name = "doctor",
    .synopsis = "doctor [DECK.ini ...] [section.key=value ...]",
    .summary = "check whether the cluster is fit for a run",
    .detail =
        "Start it like the run: with mpirun, srun or alone, and with its deck. Within 10 seconds "
        "it checks the placement of ranks on nodes, cores and GPUs; limits and shared memory; that "
        "the run folder is shared, writable and has enough space; that the data set exists and is "
        "equal on all nodes. It prints one row per check: pass, warn or fail, the findings, and "
        "what to do. The exit code is 0 if no check fails. `bench comm` measures the network.",
    .run = doctor_run,
    .prepare = doctor_prepare};
