// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/weights_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "image/image_file.h"

bool weights_file_exists(const char *where, const char *path, struct error *error)
{
    if (text_is_remote(path) && access(path, R_OK) != 0)
        return error_set(error, ERROR_USAGE,
                         "%s%s is a remote path: copy it first with `rclone copy --links %s "
                         "FOLDER`, and name the copy",
                         where, path, path);
    return access(path, R_OK) == 0 ||
           error_set(
               error, ERROR_CHECKPOINT,
               "%scannot read %s: %s; name a checkpoint or weights, or download published weights "
               "with `tools/fetch.sh weights NAME`",
               where, path, strerror(errno));
}

/* Rank 0. See weights_file_find. */
static bool name_resolve(const char *name, bool initial, char path[WEIGHTS_PATH],
                         struct error *error)
{
    /* Initial weights may have another head, which checkpoints may not. */
    static const char *const files[2][6] = {
        {"checkpoints/best.h5", "best.safetensors", "checkpoints/last.h5", "weights.safetensors",
         "best.h5", "last.h5"},
        {"best.safetensors", "weights.safetensors", "checkpoints/best.h5", "checkpoints/last.h5",
         "best.h5", "last.h5"}};
    struct stat status;
    snprintf(path, WEIGHTS_PATH, "%s", name);
    if (!initial && image_file_is_name(name))
        return error_set(error, ERROR_USAGE,
                         "%s is an image: name the run folder or the weights first, as in "
                         "`vittrain predict RUN %s`",
                         name, name);
    if (stat(name, &status) != 0 || !S_ISDIR(status.st_mode))
        return initial || weights_file_exists("", name, error);
    for (size_t i = 0; i < sizeof files[0] / sizeof files[0][0]; i++) {
        snprintf(path, WEIGHTS_PATH, "%s/%s", name, files[initial][i]);
        if (stat(path, &status) != 0 || !S_ISREG(status.st_mode))
            continue;
        if (!initial)
            fprintf(stderr, "using %s\n", path);
        return true;
    }
    return error_set(error, ERROR_CHECKPOINT,
                     "%s holds neither checkpoints nor weights: name a run folder, a checkpoint "
                     "(.h5) or weights (.safetensors)",
                     name);
}

void weights_file_hold(char path[WEIGHTS_PATH])
{
    char target[PATH_MAX];
    struct stat status;
    /* The target may be removed before it is locked. */
    for (int tries = 0; tries < 100 && lstat(path, &status) == 0 && S_ISLNK(status.st_mode);
         tries++) {
        if (realpath(path, target) == NULL)
            continue;
        const int file = text_ends_with(target, ".h5") ? output_file_open(target, O_RDONLY) : -1;
        if (file < 0)
            continue;
        flock(file, LOCK_SH); /* without locks on this file system, the target is only followed */
        if (fstat(file, &status) == 0 && status.st_nlink > 0) {
            snprintf(path, WEIGHTS_PATH, "%s", target);
            return;
        }
        close(file);
    }
}

bool weights_file_find(const char *name, bool initial, struct comm *world, char path[WEIGHTS_PATH],
                       struct error *error)
{
    if (world->rank == 0)
        error_defer(name_resolve(name, initial, path, error));
    if (!comm_agree(world, error))
        return false;
    if (world->rank == 0)
        weights_file_hold(path);
    comm_broadcast(world, path, WEIGHTS_PATH, COMM_BYTE, 0);
    return true;
}

bool weights_file_check(const char *path, struct error *error)
{
    static const char *const endings[] = {".pth", ".pt", ".bin", ".ckpt"};
    unsigned char start[9] = {0};
    int64_t bytes;
    const int descriptor = text_file_descriptor(path, &bytes);
    const bool is_read = descriptor >= 0 && durable_pread(descriptor, start, 9, 0) == 9;
    if (descriptor >= 0)
        close(descriptor);
    /* torch.save writes a zip archive or, before version 1.6, a pickle of protocol 2 or later. A
     * safetensors file may begin with the same bytes, which are the length of its header, but its
     * 9th byte is '{'. */
    bool is_torch =
        memcmp(start, "PK\3\4", 4) == 0 || (start[0] == 0x80 && start[1] >= 2 && start[1] <= 5);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        is_torch = is_torch || text_ends_with(path, endings[i]);
    if (!is_read || !is_torch || start[8] == '{' || memcmp(start, "\211HDF", 4) == 0)
        return true;
    return error_set(
        error, ERROR_CHECKPOINT,
        "%.256s is a PyTorch file: only safetensors and checkpoints are read; convert it with "
        "python -c \"import sys, torch; from safetensors.torch import save_file; "
        "d = torch.load(sys.argv[1], map_location='cpu', weights_only=True); "
        "d = d.get('state_dict', d.get('model', d)); "
        "save_file({k.removeprefix('module.'): v.clone().contiguous() for k, v in d.items() "
        "if torch.is_tensor(v)}, sys.argv[2], {'format': 'pt'})\" INPUT OUTPUT.safetensors",
        path);
}
