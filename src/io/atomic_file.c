/* Small files that are either old or new. The folder is synced too, since a rename is a change of
 * the folder; a file system that cannot sync folders (some network ones) says so by EINVAL, and
 * there is nothing better to do than to go on. */
#include "io/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <string.h>
#include <unistd.h>

bool atomic_file_open(struct atomic_file *file, const char *path, struct error *error)
{
    ENSURE(strlen(path) < sizeof file->path, "path of %zu characters", strlen(path));
    snprintf(file->path, sizeof file->path, "%s", path);
    snprintf(file->part, sizeof file->part, "%s.part", path);
    file->stream = fopen(file->part, "we");
    if (file->stream == NULL)
        return error_set(error, ERROR_FILE, "%s cannot be created (%s)", file->part,
                         strerror(errno));
    return true;
}

/* The rename itself must reach the disk. */
static bool sync_folder_of(const char *path)
{
    char copy[FILE_PATH];

    snprintf(copy, sizeof copy, "%s", path);
    int folder = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return false;
    bool synced = fsync(folder) == 0 || errno == EINVAL || errno == ENOTSUP;
    int reason = errno;
    close(folder);
    errno = reason;
    return synced;
}

bool atomic_file_commit(struct atomic_file *file, struct error *error)
{
    bool whole =
        !ferror(file->stream) && fflush(file->stream) == 0 && fsync(fileno(file->stream)) == 0;
    int reason = errno;

    if (fclose(file->stream) != 0 && whole) {
        reason = errno;
        whole = false;
    }
    file->stream = NULL;
    if (whole && rename(file->part, file->path) == 0 && sync_folder_of(file->path))
        return true;
    if (whole)
        reason = errno;
    unlink(file->part);
    return error_set(error, ERROR_FILE, "%s cannot be written (%s)", file->path, strerror(reason));
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
