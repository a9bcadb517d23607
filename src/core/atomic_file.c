// SPDX-License-Identifier: BSD-3-Clause
/* Atomic replacement of small files: stdio on top of durable.h. */
#include "core/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "core/durable.h"

bool atomic_file_open(struct atomic_file *file, const char *path, struct error *error)
{
    ENSURE(strlen(path) < sizeof file->path, "path of %zu characters", strlen(path));
    snprintf(file->path, sizeof file->path, "%s", path);
    snprintf(file->part, sizeof file->part, "%s.part", path);
    int descriptor = durable_create(file->part, error);
    file->stream = descriptor >= 0 ? fdopen(descriptor, "w") : NULL;
    ENSURE_MEMORY(descriptor < 0 || file->stream != NULL, "no memory for %s", path);
    return file->stream != NULL;
}

bool atomic_file_commit(struct atomic_file *file, struct error *error)
{
    int descriptor = fcntl(fileno(file->stream), F_DUPFD_CLOEXEC, 0);
    bool good = descriptor >= 0 && !ferror(file->stream) && fflush(file->stream) == 0;
    int reason = errno;

    if (fclose(file->stream) != 0 && good) {
        good = false;
        reason = errno;
    }
    file->stream = NULL;
    if (good)
        return durable_commit(descriptor, file->part, file->path, error);
    durable_failed(error, "write", file->part, reason);
    if (descriptor >= 0)
        close(descriptor);
    unlink(file->part);
    return false;
}

void atomic_file_discard(struct atomic_file *file)
{
    fclose(file->stream);
    file->stream = NULL;
    unlink(file->part);
}

bool atomic_file_write(const char *path, const char *text, struct error *error)
{
    struct atomic_file file;

    if (!atomic_file_open(&file, path, error))
        return false;
    fputs(text, file.stream);
    return atomic_file_commit(&file, error);
}
