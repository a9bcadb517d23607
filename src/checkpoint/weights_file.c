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

#include "core/file.h"
#include "core/text.h"
#include "data/image_file.h"

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

/* Read the first 9 bytes of a file. Return false if it is not a regular file of that size. */
static bool start_read(const char *path, unsigned char start[9])
{
    int64_t bytes;
    const int descriptor = text_file_descriptor(path, &bytes);
    if (descriptor < 0)
        return false;
    const bool good = durable_pread(descriptor, start, 9, 0) == 9;
    close(descriptor);
    return good;
}

/* True for a PyTorch file. torch.save writes a zip archive or, before version 1.6, a pickle of
 * protocol 2 or later. A safetensors file may begin with the same bytes, which are the length of
 * its header, but its 9th byte is '{'. */
static bool is_of_torch(const char *path, const unsigned char start[9])
{
    static const char *const endings[] = {".pth", ".pt", ".bin", ".ckpt"};
    if (memcmp(start, "\211HDF", 4) == 0 || start[8] == '{')
        return false;
    bool named = false;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        named = named || text_ends_with(path, endings[i]);
    return named || memcmp(start, "PK\3\4", 4) == 0 ||
           (start[0] == 0x80 && start[1] >= 2 && start[1] <= 5);
}

/* Quote a word for a shell. */
static void shell_quote(const char *word, char *text, size_t size)
{
    size_t used = 1;
    text[0] = '\'';
    for (; *word != '\0' && used + 6 < size; word++)
        used += (size_t)snprintf(text + used, size - used, *word == '\'' ? "'\\''" : "%c", *word);
    snprintf(text + used, size - used, "'");
}

bool weights_file_check(const char *path, struct error *error)
{
    unsigned char start[9] = {0};
    char in[PATH_MAX], out[PATH_MAX], stem[PATH_MAX];
    if (!start_read(path, start) || !is_of_torch(path, start))
        return true;
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    const bool has_ending = dot != NULL && (slash == NULL || dot > slash + 1);
    snprintf(stem, sizeof stem, "%.*s.safetensors",
             has_ending ? (int)(dot - path) : (int)strlen(path), path);
    shell_quote(path, in, sizeof in);
    shell_quote(stem, out, sizeof out);
    return error_set(
        error, ERROR_CHECKPOINT,
        "%.256s is a PyTorch file: only safetensors and checkpoints are read; convert it with "
        "python -c \"import sys, torch; from safetensors.torch import save_file; "
        "d = torch.load(sys.argv[1], map_location='cpu', weights_only=True); "
        "d = d.get('state_dict', d.get('model', d)); "
        "save_file({k.removeprefix('module.'): v.clone().contiguous() for k, v in d.items() "
        "if torch.is_tensor(v)}, sys.argv[2], {'format': 'pt'})\" %.512s %.512s",
        path, in, out);
}
