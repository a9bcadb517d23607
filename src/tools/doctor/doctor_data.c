// SPDX-License-Identifier: BSD-3-Clause
/* Check that the data set exists and is equal on all nodes. Compared are a sum of hashes of all
 * names and sizes, and the contents of some files. These are chosen by the hashes of their names,
 * so that all nodes choose the same ones. Number of files and time are limited. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/options.h"
#include "core/clock.h"
#include "core/crc32c.h"
#include "data/array_path.h"
#include "data/data_root.h"
#include "data/dataset.h"
#include "data/tar_shards.h"
#include "tools/doctor/doctor.h"

static const double patience = 2.5; /* seconds for the files of a node */

/* Hash a name below the root and a size. The sum of hashes is independent of the order. */
static uint64_t name_hash(const char *name, uint64_t size)
{
    uint64_t value = UINT64_C(0xcbf29ce484222325) ^ size; /* FNV-1a, then mixed */
    for (; *name != '\0'; name++)
        value = (value ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    value = (value ^ value >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return value ^ value >> 32;
}

/* Keep the files with the lowest hashes, sorted. */
static void sample_keep(struct data_scan *scan, uint64_t order, const char *path)
{
    int place = scan->samples;
    if (place == DATA_SAMPLES && order >= scan->sample[place - 1].order)
        return;
    if (place == DATA_SAMPLES)
        place--;
    else
        scan->samples++;
    for (; place > 0 && scan->sample[place - 1].order > order; place--)
        scan->sample[place] = scan->sample[place - 1];
    scan->sample[place] = (struct data_sample){.order = order};
    snprintf(scan->sample[place].path, sizeof scan->sample[place].path, "%s", path);
}

static void file_add(struct data_scan *scan, const char *path, const struct stat *status)
{
    const char *name = path + scan->root_length;
    uint64_t order = name_hash(name, 0);
    scan->files++;
    scan->bytes += status->st_size;
    scan->names += name_hash(name, (uint64_t)status->st_size);
    sample_keep(scan, order, path);
}

static bool is_late(struct data_scan *scan)
{
    scan->cut = scan->cut || clock_now() > scan->start + scan->seconds;
    return scan->cut;
}

static void folder_add(struct data_scan *scan, const char *folder, int depth)
{
    enum { DEEPEST = 16 };
    DIR *entries = opendir(folder);
    if (entries == NULL) {
        error_set(&scan->error, ERROR_DATA, "%s: %s", folder, strerror(errno));
        return;
    }
    for (struct dirent *entry; !is_late(scan) && (entry = readdir(entries)) != NULL;) {
        char path[PATH_MAX];
        struct stat status;
        int length = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] == '.' || length >= (int)sizeof path || stat(path, &status) != 0)
            continue;
        if (S_ISDIR(status.st_mode) && depth < DEEPEST)
            folder_add(scan, path, depth + 1);
        else if (S_ISREG(status.st_mode))
            file_add(scan, path, &status);
    }
    closedir(entries);
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

static bool path_add(struct data_scan *scan, const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return error_set(&scan->error, ERROR_DATA, "%s: %s", path, strerror(errno));
    file_add(scan, path, &status);
    return true;
}

/* Names are compared with their folders, which may be those of splits. */
static void shards_add(struct data_scan *scan)
{
    struct split_files shards = {0};
    bool good = tar_shards_find(scan->root, &shards, NULL, &scan->error);
    scan->root_length = 0;
    for (int64_t i = 0; good && i < shards.count; i++)
        good = path_add(scan, shards.file[i].path);
    split_files_free(&shards);
}

static void arrays_add(struct data_scan *scan)
{
    struct split_files files = {0};
    struct stat status;
    bool good = array_path_find(scan->root, &files, NULL, &scan->error);
    scan->root_length = 0;
    for (int64_t i = 0; good && i < files.count; i++) {
        const char *path = files.file[i].path;
        if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
            folder_add(scan, path, 0);
        else
            good = path_add(scan, path);
    }
    split_files_free(&files);
}

void doctor_data_read(void *argument)
{
    struct data_scan *scan = argument;
    scan->start = clock_now();
    scan->root_length = strlen(scan->root);
    if (scan->shards)
        shards_add(scan);
    else if (scan->arrays)
        arrays_add(scan);
    else if (data_root_check(scan->root, "set data.root", &scan->error))
        folder_add(scan, scan->root, 0);
    if (scan->error.kind == ERROR_NONE && scan->files == 0 && !scan->cut)
        error_set(&scan->error, ERROR_DATA, "%s: the folder has no files", scan->root);
    for (int i = 0; i < scan->samples && !is_late(scan); i++)
        scan->sample[i].sum = sample_sum(scan->sample[i].path);
}

bool doctor_data_differs(const struct data_scan *own, const struct data_scan *first, char *text,
                         size_t size)
{
    text[0] = '\0';
    if (own->error.kind != ERROR_NONE || first->error.kind != ERROR_NONE || own->cut || first->cut)
        return false;
    if (own->files != first->files || own->bytes != first->bytes) {
        snprintf(text, size, "%lld files with %lld bytes; the first node has %lld files with %lld",
                 (long long)own->files, (long long)own->bytes, (long long)first->files,
                 (long long)first->bytes);
        return true;
    }
    if (own->names != first->names) {
        snprintf(text, size, "names or sizes of files differ from those on the first node");
        return true;
    }
    for (int i = 0; i < own->samples; i++)
        if (own->sample[i].sum != first->sample[i].sum) {
            snprintf(text, size, "%.200s differs from the file on the first node",
                     own->sample[i].path);
            return true;
        }
    return false;
}

void doctor_check_data(struct doctor *doctor, struct doctor_row *row)
{
    const struct options *options = doctor->options;
    struct comm *leaders = doctor->leaders;
    char difference[256] = "";
    if (strcmp(options->data.format, "synthetic") == 0) {
        doctor_set(row, DOCTOR_PASS, NULL, "synthetic data: no files");
        return;
    }
    if (leaders == NULL)
        return;
    struct data_scan *scan = allocate(1, sizeof *scan), *first = allocate(1, sizeof *first);
    const char *root = options->data.root;
    snprintf(scan->root, sizeof scan->root, "%s",
             root[0] != '\0' ? root : dataset_sample_directory());
    scan->shards = strcmp(options->data.format, "webdataset") == 0;
    scan->arrays = strcmp(options->data.format, "arrays") == 0;
    scan->seconds = patience;
    bool back = doctor_bounded(doctor_data_read, scan, 2 * patience);
    bool good = back && scan->error.kind == ERROR_NONE;
    *first = *scan;
    first->cut = first->cut || !back;
    comm_broadcast(leaders, first, sizeof *first, COMM_BYTE, 0);
    if (good)
        doctor_data_differs(scan, first, difference, sizeof difference);
    doctor_set_of(doctor, leaders, row, !back, DOCTOR_FAIL,
                  "check its file server, or set data.root to another folder",
                  "%.200s does not respond", scan->root);
    doctor_set_of(doctor, leaders, row, back && !good, DOCTOR_FAIL,
                  strcmp(options->data.format, "cifar10") == 0
                      ? "copy the data set there (tools/fetch.sh cifar10), or set data.root"
                      : "copy the data set there, or set data.root",
                  "%s", scan->error.text);
    doctor_set_of(doctor, leaders, row, difference[0] != '\0', DOCTOR_FAIL,
                  "copy the data set from one node to the others again", "%s", difference);
    doctor_set_of(doctor, leaders, row, good && scan->cut, DOCTOR_WARN,
                  "write images into tar shards (docs/data.md)",
                  "too many files, or a too slow disk, to compare all");
    if (good)
        doctor_set(row, DOCTOR_PASS, NULL,
                   "%s: %lld file%s, %.4g MB%s; %d of them compared by content", scan->root,
                   (long long)scan->files, scan->files == 1 ? "" : "s", (double)scan->bytes / 1e6,
                   doctor->node_count > 1 ? ", equal on all nodes" : "", scan->samples);
    free(first);
    if (back)
        free(scan);
}
