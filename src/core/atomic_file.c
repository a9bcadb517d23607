/* Atomic replacement of small files: stdio on top of durable.h. */
#include "core/atomic_file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "core/durable.h"

bool atomic_file_open(struct atomic_file *file, const char *path, struct error *error)
{
    ENSURE(strlen(path) < sizeof file->path, "path of %zu characters", strlen(path));
    snprintf(file->path, sizeof file->path, "%s", path);
    snprintf(file->part, sizeof file->part, "%s.part", path);
    file->stream = fopen(file->part, "we");
    return file->stream != NULL || durable_failed(error, "create", file->part, errno);
}

bool atomic_file_commit(struct atomic_file *file, struct error *error)
{
    bool good = !ferror(file->stream) && fflush(file->stream) == 0;
    int reason = errno;

    good = good ? durable_sync(fileno(file->stream), file->part, error)
                : durable_failed(error, "write", file->part, reason);
    if (fclose(file->stream) != 0 && good)
        good = durable_failed(error, "close", file->part, errno);
    file->stream = NULL;
    if (good && durable_rename(file->part, file->path, error))
        return true;
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
