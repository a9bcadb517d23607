// SPDX-License-Identifier: BSD-3-Clause
/* Facts about each rank and its node: from the kernel, the launcher's environment, the run folder
 * and the data set. */
#define _GNU_SOURCE /* sched_getaffinity */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "checkpoint/memory_checkpoint.h"
#include "config/options.h"
#include "core/base.h"
#include "core/clock.h"
#include "core/file.h"
#include "core/sensors.h"
#include "data/array_path.h"
#include "data/listing.h"
#include "data/split.h"
#include "tools/doctor/doctor.h"
#include "train/hardware.h"

/* ---- the rank */

/* Return a limit of this process; UINT64_MAX: none. */
static uint64_t limit_read(__rlimit_resource_t resource)
{
    struct rlimit limit;
    const bool bounded = getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return bounded ? (uint64_t)limit.rlim_cur : UINT64_MAX;
}

void doctor_read_gpu(struct doctor_facts *facts, const struct options *options, int number)
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

void doctor_read_rank(struct doctor_facts *facts, const struct options *options, struct comm *node)
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
    char token[24];
    struct error error = {0};
    uint64_t random = 0;
    int lock = -1;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        random = (uint64_t)getpid();
    comm_broadcast(world, &random, sizeof random, COMM_BYTE, 0);
    snprintf(token, sizeof token, "%016llx", (unsigned long long)random);
    OWNED char *first = allocate_text("%s/.doctor-%s-0", facts->folder, token);
    OWNED char *path = allocate_text("%s/.doctor-%s-%d", facts->folder, token, world->rank);
    OWNED char *part = allocate_text("%s/.doctor-%s-%d.part", facts->folder, token, world->rank);
    const bool tries = of_node && facts->folder_why[0] == '\0';
    /* Twice: the second file replaces the first. */
    for (int i = 0; tries && i < 2 && error.kind == ERROR_NONE; i++) {
        const int file = durable_create(part, &error);
        if (file < 0)
            break;
        if (durable_write(file, part, token, strlen(token), 0, &error)) {
            error_defer(durable_commit(file, part, path, &error));
        } else {
            close(file);
            unlink(part);
        }
    }
    if (tries)
        snprintf(facts->folder_why, sizeof facts->folder_why, "%.255s", error.text);
    if (tries && world->rank == 0) {
        lock = open(path, O_RDWR | O_CLOEXEC);
        facts->locks_folder = lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0;
    }
    comm_barrier(world);
    if (tries) {
        char *text = text_file_read(first, NULL);
        facts->shares_folder = text != NULL && strcmp(text, token) == 0;
        free(text);
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

/* Keep the files with the lowest hashes, sorted. */
static void sample_keep(struct scan *scan, uint64_t order, const char *path)
{
    int64_t place = scan->data->samples;
    if (place == DOCTOR_SAMPLES && order >= scan->order[--place])
        return;
    scan->data->samples = place + 1;
    for (; place > 0 && scan->order[place - 1] > order; place--) {
        scan->order[place] = scan->order[place - 1];
        memcpy(scan->path[place], scan->path[place - 1], sizeof scan->path[place]);
    }
    scan->order[place] = order;
    snprintf(scan->path[place], sizeof scan->path[place], "%s", path);
}

/* Add a file, or the files of a folder whose names do not begin with a dot. */
static bool path_add(struct scan *scan, const char *path, int depth)
{
    enum { DEEPEST = 16 };
    struct stat status;
    DIR *entries = NULL;
    if (stat(path, &status) != 0)
        return false;
    if (S_ISREG(status.st_mode)) {
        const char *name = path + scan->root_length;
        scan->data->files++;
        scan->data->bytes += status.st_size;
        scan->data->names += name_hash(name, (uint64_t)status.st_size);
        sample_keep(scan, name_hash(name, 0), path);
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
            if (!path_add(&scan, files.file[i].path, 0))
                durable_unreadable(&error, ERROR_DATA, files.file[i].path, errno);
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

void doctor_read_node(struct doctor_facts *facts, const struct options *options)
{
    struct statvfs system;
    if (statvfs("/dev/shm", &system) == 0) {
        facts->shared_bytes = (uint64_t)system.f_blocks * system.f_frsize;
        facts->shared_free = (uint64_t)system.f_bavail * system.f_frsize;
    }
    memory_folders_list(facts->left, sizeof facts->left);
    doctor_read_space(facts, options);
}
