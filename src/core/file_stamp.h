// SPDX-License-Identifier: BSD-3-Clause
/* Identity, size and time of an open file, to find out whether it was changed. */
#ifndef VITTRAIN_CORE_FILE_STAMP_H
#define VITTRAIN_CORE_FILE_STAMP_H

#include <stdbool.h>
#include <stdint.h>

struct file_stamp {
    uint64_t inode;
    int64_t bytes, seconds, nanoseconds; /* size and time of the last modification */
};

/* Return false with errno if the system does not return them. */
bool file_stamp_read(int descriptor, struct file_stamp *stamp);

/* True if the file still has this stamp. */
bool file_stamp_holds(int descriptor, const struct file_stamp *stamp);

#endif
