// SPDX-License-Identifier: BSD-3-Clause
/* Checks of the run folder: every node can write there, all nodes share it, a rename atomically
 * replaces a file for all nodes, locks work across nodes, and there is space for checkpoints. If
 * the folder does not exist yet, its nearest existing parent is checked. No files are left behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "config/options.h"
#include "core/durable.h"
#include "tools/doctor/doctor.h"
#include "train/session.h"

static const char hangs[] = "check its file server, unmount it, or set run.dir to another folder";
static const double patience = 3;

/* State of a node's test. It is on the heap because its thread may never return. */
struct trial {
    char folder[OPTION_TEXT];
    char token[24];
    int node, nodes;
    int lock;             /* descriptor; node 0 holds the lock during the test */
    bool locks;           /* the file system has locks */
    struct error error;   /* a failed write */
    char problem[256];    /* with renaming */
    bool sees_first;      /* the node sees the file of node 0 */
    int64_t unseen;       /* on node 0: number of nodes whose files it does not see */
    uint64_t free, files; /* free bytes and inodes */
};

static const char *wanted_folder(const struct doctor *doctor)
{
    return doctor->options->run.dir[0] != '\0' ? doctor->options->run.dir : "runs";
}

/* Replace a folder that does not exist by its nearest existing parent. */
static bool nearest_folder(char folder[OPTION_TEXT], struct error *error)
{
    struct stat status;
    for (int missing; (missing = stat(folder, &status)) != 0 || !S_ISDIR(status.st_mode);) {
        if (missing == 0)
            return error_set(error, ERROR_FILE, "%s is not a folder", folder);
        char *slash = strrchr(folder, '/');
        if (slash == NULL)
            strcpy(folder, ".");
        else if (slash == folder)
            folder[1] = '\0';
        else
            *slash = '\0';
        if (strcmp(folder, ".") == 0 || strcmp(folder, "/") == 0)
            return true;
    }
    return true;
}

static void trial_path(const struct trial *trial, const char *what, int node, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/.doctor-%s-%s%d", trial->folder, trial->token, what, node);
}

static bool token_write(const char *path, const char *text, struct error *error)
{
    int file = durable_create(path, error);
    if (file < 0)
        return false;
    bool good = durable_write(file, path, text, strlen(text), 0, error);
    return durable_close(file, path, error) && good;
}

/* Compare a file with a text. Return 0 if it is equal, EIO if not, or errno. */
static int token_compare(const char *path, const char *expected)
{
    char text[64] = "";
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return errno;
    ssize_t got = read(file, text, sizeof text - 1);
    int reason = got < 0 ? errno : 0;
    close(file);
    return reason != 0 || strcmp(text, expected) == 0 ? reason : EIO;
}

/* Replace this node's file by renaming a new one. */
static bool token_replace(struct trial *trial)
{
    char path[PATH_MAX], part[PATH_MAX];
    trial_path(trial, "node", trial->node, path);
    trial_path(trial, "part", trial->node, part);
    return token_write(part, trial->token, &trial->error) &&
           (rename(part, path) == 0 || durable_failed(&trial->error, "rename", part, errno));
}

static void trial_begin(void *argument)
{
    struct trial *trial = argument;
    char path[PATH_MAX], lock[PATH_MAX];
    if (!nearest_folder(trial->folder, &trial->error))
        return;
    trial_path(trial, "node", trial->node, path);
    trial_path(trial, "lock", 0, lock);
    if (!token_write(path, "old", &trial->error) || !token_replace(trial))
        return;
    int reason = token_compare(path, trial->token);
    if (reason != 0)
        snprintf(trial->problem, sizeof trial->problem, "after a file was replaced by renaming: %s",
                 reason == EIO ? "the old one is still there" : strerror(reason));
    if (trial->node == 0) {
        trial->lock = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        trial->locks = trial->lock >= 0 && flock(trial->lock, LOCK_EX | LOCK_NB) == 0;
    }
}

/* Check that the file of node 0, which that node replaces repeatedly, always exists and is
 * complete. */
static void watch_first(struct trial *trial)
{
    enum { LOOKS = 40 };
    char path[PATH_MAX], lock_path[PATH_MAX];
    trial_path(trial, "node", 0, path);
    trial_path(trial, "lock", 0, lock_path);
    trial->sees_first = token_compare(path, trial->token) == 0;
    for (int i = 0; trial->sees_first && i < LOOKS; i++) {
        int reason = token_compare(path, trial->token);
        if (reason != 0 && reason != ESTALE) {
            snprintf(trial->problem, sizeof trial->problem,
                     "while the first node replaces a file by renaming: %s",
                     reason == EIO ? "it is incomplete" : strerror(reason));
            return;
        }
    }
    int lock = trial->sees_first ? open(lock_path, O_RDWR | O_CLOEXEC) : -1;
    trial->locks = lock < 0 || flock(lock, LOCK_EX | LOCK_NB) != 0;
    if (lock >= 0)
        close(lock);
}

static void trial_meet(void *argument)
{
    enum { REPLACED = 40 };
    struct trial *trial = argument;
    if (trial->node != 0) {
        watch_first(trial);
        return;
    }
    trial->sees_first = true;
    for (int i = 0; i < REPLACED && trial->error.kind == ERROR_NONE; i++)
        token_replace(trial);
    for (int node = 1; node < trial->nodes; node++) {
        char path[PATH_MAX];
        trial_path(trial, "node", node, path);
        trial->unseen += token_compare(path, trial->token) != 0;
    }
}

static void trial_end(void *argument)
{
    struct trial *trial = argument;
    static const char *const names[] = {"node", "part", "lock"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[PATH_MAX];
        trial_path(trial, names[i], trial->node, path);
        unlink(path);
    }
    if (trial->lock >= 0)
        close(trial->lock);
}

static struct trial *trial_make(const struct doctor *doctor)
{
    struct trial *trial = allocate(1, sizeof *trial);
    uint64_t random = 0;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        random = (uint64_t)getpid();
    snprintf(trial->token, sizeof trial->token, "%016llx", (unsigned long long)random);
    comm_broadcast(doctor->leaders, trial->token, sizeof trial->token, COMM_BYTE, 0);
    snprintf(trial->folder, sizeof trial->folder, "%s", wanted_folder(doctor));
    trial->node = doctor->node_index;
    trial->nodes = doctor->node_count;
    trial->lock = -1;
    return trial;
}

void doctor_check_folder(struct doctor *doctor, struct doctor_row *row)
{
    struct comm *leaders = doctor->leaders;
    const char *folder = wanted_folder(doctor);
    if (leaders == NULL)
        return;
    struct trial *trial = trial_make(doctor);
    bool back = doctor_bounded(trial_begin, trial, patience);
    comm_barrier(leaders);
    back = back && doctor_bounded(trial_meet, trial, patience);
    comm_barrier(leaders);
    back = back && doctor_bounded(trial_end, trial, patience);
    bool writes = back && trial->error.kind == ERROR_NONE;
    doctor_set_of(doctor, leaders, row, !back, DOCTOR_FAIL, hangs, "%.200s does not respond",
                  folder);
    doctor_set_of(doctor, leaders, row, back && !writes, DOCTOR_FAIL,
                  "make it writable there, free some space, or choose another run.dir", "%s",
                  trial->error.text);
    doctor_set_of(doctor, leaders, row, writes && trial->problem[0] != '\0', DOCTOR_FAIL,
                  "checkpoints need a file system with atomic renames: set run.dir to another one",
                  "%s", trial->problem);
    doctor_set_of(doctor, leaders, row, writes && trial->node > 0 && !trial->sees_first,
                  DOCTOR_WARN,
                  "set run.dir to a shared folder; with private disks the first node writes all "
                  "checkpoints",
                  "%.200s is not shared with the first node", folder);
    doctor_set_of(doctor, leaders, row, writes && !trial->locks, DOCTOR_WARN,
                  "do not start a second job in the same run folder, or mount it without nolock",
                  "locks do not work across nodes");
    if (trial->unseen > 0)
        doctor_set(row, DOCTOR_WARN, NULL, "%s does not see the files of %lld other nodes",
                   doctor_host(doctor, 0), (long long)trial->unseen);
    doctor_set(row, DOCTOR_PASS, NULL, "%s (%s): writing, renaming and locking work%s", folder,
               back ? trial->folder : "", doctor->node_count > 1 ? ", shared by all nodes" : "");
    if (back)
        free(trial);
}

/* ---- space */
static void space_read(void *argument)
{
    struct trial *trial = argument;
    struct statvfs system;
    if (!nearest_folder(trial->folder, &trial->error))
        return;
    if (statvfs(trial->folder, &system) != 0) {
        durable_failed(&trial->error, "query", trial->folder, errno);
        return;
    }
    trial->free = (uint64_t)system.f_bavail * system.f_frsize;
    /* Some file systems do not count inodes. */
    trial->files = system.f_files > 0 ? (uint64_t)system.f_favail : UINT64_MAX;
}

static size_t checkpoint_bytes(const struct flat_model *flat)
{
    size_t elements = 0;
    for (int i = 0; i < flat->count; i++)
        elements += (size_t)flat->buffers[i].unit->count;
    return elements * sizeof(float) * (size_t)(1 + flat->moments + flat->averaged);
}

/* Return 0 if the options do not determine it (the data set may set the number of classes). */
static size_t checkpoint_size(const struct doctor *doctor)
{
    static struct session session;
    static struct options options;
    struct error error = {0};
    if (doctor->flat != NULL)
        return checkpoint_bytes(doctor->flat);
    options = *doctor->options;
    options.run.backend = BACKEND_CPU;
    options.run.threads = 1;
    if (!session_imagine(&session, &options, 1, 1, true, &error))
        return 0;
    size_t bytes = checkpoint_bytes(&session.flat);
    session_close(&session);
    return bytes;
}

void doctor_judge_space(struct doctor_row *row, uint64_t free_bytes, size_t checkpoint,
                        int64_t keep, const char *folder)
{
    static const char advice[] = "free some space, reduce checkpoint.keep, or choose another "
                                 "run.dir";
    /* The kept checkpoints, the best one, and the one being written. */
    double needed = (double)checkpoint * (double)(keep + 2), has = (double)free_bytes;
    enum doctor_verdict verdict = has < (double)checkpoint + (1 << 20) ? DOCTOR_FAIL
                                  : has < needed + (1 << 20)           ? DOCTOR_WARN
                                                                       : DOCTOR_PASS;
    doctor_set(row, verdict, verdict > DOCTOR_PASS ? advice : NULL,
               "%.4g GB free for %s; %lld checkpoints of %.2f MB take %.4g GB", has / 1e9, folder,
               (long long)keep + 2, (double)checkpoint / 1e6, ceil(needed / 1e6) / 1e3);
}

void doctor_check_space(struct doctor *doctor, struct doctor_row *row)
{
    enum { FILES_LEAST = 100 };
    struct comm *leaders = doctor->leaders;
    const char *folder = wanted_folder(doctor);
    if (leaders == NULL)
        return;
    struct trial *trial = trial_make(doctor);
    bool back = doctor_bounded(space_read, trial, patience);
    bool good = back && trial->error.kind == ERROR_NONE;
    doctor_set_of(doctor, leaders, row, !back, DOCTOR_FAIL, hangs, "%.200s does not respond",
                  folder);
    doctor_set_of(doctor, leaders, row, back && !good, DOCTOR_FAIL, "choose another run.dir", "%s",
                  trial->error.text);
    doctor_set_of(doctor, leaders, row, good && trial->files < FILES_LEAST, DOCTOR_WARN,
                  "remove files, or choose another run.dir", "no free inodes (df -i)");
    /* Only the first node needs space for checkpoints. */
    doctor_set_of(doctor, leaders, row, good && trial->node > 0 && trial->free < 1 << 20,
                  DOCTOR_FAIL, "free some space, or choose another run.dir",
                  "the disk of the run folder is full");
    if (doctor->world->rank == 0 && good)
        doctor_judge_space(row, trial->free, checkpoint_size(doctor),
                           doctor->options->checkpoint.keep, folder);
    if (back)
        free(trial);
}
