// SPDX-License-Identifier: BSD-3-Clause
#include "data/encoded_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/options.h"
#include "core/durable.h"

enum { FIRST_BYTES = 4096 }; /* read first for the header of an image */

/* Open a regular file and set its size. Return -1 and an error that does not name the file. */
static int file_open(const char *path, size_t *bytes, struct error *error)
{
    struct stat status;
    /* O_NONBLOCK: opening a pipe must not block */
    const int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0) {
        error_set(error, ERROR_DATA, "%s", strerror(errno));
        return -1;
    }
    if (fstat(descriptor, &status) != 0)
        error_set(error, ERROR_DATA, "%s", strerror(errno));
    else if (!S_ISREG(status.st_mode))
        error_set(error, ERROR_DATA, "is not a regular file");
    else {
        *bytes = (size_t)status.st_size;
        return descriptor;
    }
    close(descriptor);
    return -1;
}

static bool file_read(int descriptor, uint8_t *to, size_t offset, size_t bytes, struct error *error)
{
    return durable_pread(descriptor, to, bytes, (int64_t)offset) == bytes ||
           error_set(error, ERROR_DATA, "cannot be read: %s",
                     errno == 0 ? "it was truncated" : strerror(errno));
}

bool encoded_file_header(int descriptor, size_t offset, size_t bytes, int64_t most_pixels,
                         struct byte_buffer *file, struct image_header *header, struct error *error)
{
    /* Read until the header is complete, four times as much in each round. */
    bool incomplete = true;
    for (size_t most = FIRST_BYTES; incomplete; most *= 4) {
        const size_t wanted = bytes < most ? bytes : most;
        if (!byte_buffer_reserve(file, wanted, error) ||
            !file_read(descriptor, file->data, offset, wanted, error))
            return false;
        file->count = wanted;
        if (image_file_header(file->data, wanted, wanted == bytes, most_pixels, header, &incomplete,
                              error))
            return true;
    }
    return false;
}

bool encoded_file_check(const char *path, const struct options *options,
                        struct check_scratch *scratch, struct error *error)
{
    struct image_header header;
    size_t bytes;
    const int descriptor = file_open(path, &bytes, error);
    if (descriptor < 0)
        return false;
    bool good = encoded_file_header(descriptor, 0, bytes, options->data.max_pixels, &scratch->file,
                                    &header, error);
    if (good && options->data.check == CHECK_FULL)
        good = byte_buffer_reserve(&scratch->file, bytes, error) &&
               file_read(descriptor, scratch->file.data, 0, bytes, error) &&
               record_check_decode(scratch, bytes, &header, options, error);
    close(descriptor);
    if (good)
        record_check_orientation(scratch, header.orientation);
    return good;
}

bool encoded_file_load(const char *path, struct byte_buffer *bytes, struct error *error)
{
    struct error reason = {0};
    size_t size;
    const int descriptor = file_open(path, &size, &reason);
    bool good = descriptor >= 0 && byte_buffer_reserve(bytes, size, &reason) &&
                file_read(descriptor, bytes->data, 0, size, &reason);
    if (descriptor >= 0) {
        bytes->count = size;
        close(descriptor);
    }
    return good || error_set(error, reason.kind, "%.1024s: %.512s", path, reason.text);
}

int64_t encoded_file_size(const char *path, struct error *error)
{
    struct error reason = {0};
    size_t bytes = 0;
    const int descriptor = file_open(path, &bytes, &reason);
    if (descriptor >= 0)
        close(descriptor);
    else
        error_set(error, reason.kind, "%.1024s: %.512s", path, reason.text);
    return (int64_t)bytes;
}
