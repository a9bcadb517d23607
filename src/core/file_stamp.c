// SPDX-License-Identifier: BSD-3-Clause
#include "core/file_stamp.h"

#include <sys/stat.h>

bool file_stamp_read(int descriptor, struct file_stamp *stamp)
{
    struct stat status;
    if (fstat(descriptor, &status) != 0)
        return false;
    *stamp = (struct file_stamp){.inode = status.st_ino,
                                 .bytes = status.st_size,
                                 .seconds = status.st_mtim.tv_sec,
                                 .nanoseconds = status.st_mtim.tv_nsec};
    return true;
}

bool file_stamp_holds(int descriptor, const struct file_stamp *stamp)
{
    struct file_stamp now;
    return file_stamp_read(descriptor, &now) && now.inode == stamp->inode &&
           now.bytes == stamp->bytes && now.seconds == stamp->seconds &&
           now.nanoseconds == stamp->nanoseconds;
}
