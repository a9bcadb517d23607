// SPDX-License-Identifier: BSD-3-Clause
#include "data/tar_shards.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/text_file.h"

bool tar_shards_find(const char *root, struct split_files *files, struct comm *comm,
                     struct error *error)
{
    static const char *const endings[] = {".tar", NULL};
    static const struct split_file_kind kind = {
        .endings = endings,
        .plural = "shards",
        .expected = "no shards (*.tar or train/*.tar)",
        .advice = "set data.root to the folder of the shards or to their names"};
    return split_files_find(root, &kind, files, comm, error);
}

static bool open_one(struct tar_shard *shard, struct error *error)
{
    int64_t bytes;
    shard->descriptor = text_file_descriptor(shard->path, &bytes);
    if (shard->descriptor < 0 && errno == EINVAL)
        return error_set(error, ERROR_DATA, "%s: is not a regular file", shard->path);
    if (shard->descriptor < 0)
        return error_set(error, ERROR_DATA, "%s: %s; %s", shard->path, strerror(errno),
                         errno == EMFILE ? "raise the hard limit, or use fewer, larger shards"
                                         : "check data.root");
    return file_stamp_read(shard->descriptor, &shard->stamp);
}

bool tar_shards_open(struct tar_shard *shards, int64_t count, struct error *error)
{
    bool good = true;
    for (int64_t i = 0; good && i < count; i++)
        good = shards[i].descriptor >= 0 || open_one(&shards[i], error);
    return good;
}

bool tar_shards_check(const struct tar_shard *shards, int64_t count, struct error *error)
{
    for (int64_t i = 0; i < count; i++)
        if (!file_stamp_holds(shards[i].descriptor, &shards[i].stamp))
            return error_set(error, ERROR_DATA,
                             "%s was changed while its headers were read; start again when it is "
                             "complete",
                             shards[i].path);
    return true;
}

void tar_shards_close(struct tar_shard *shards, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (shards[i].descriptor >= 0)
            close(shards[i].descriptor);
        free(shards[i].own);
        comm_joined_free(&shards[i].joined);
        shards[i].descriptor = -1;
        shards[i].own = NULL;
        shards[i].records = NULL;
        shards[i].count = 0;
    }
}
