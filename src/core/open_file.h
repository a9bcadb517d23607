// SPDX-License-Identifier: BSD-3-Clause
/* Input files that are read at any time, of which there may be more than the process can have open.
 * They share half of the limit of open files: beyond that, the least recently used file is
 * closed, and reopened on demand. Thread-safe. */
#ifndef VITTRAIN_CORE_OPEN_FILE_H
#define VITTRAIN_CORE_OPEN_FILE_H

#include <stdbool.h>
#include <stdint.h>

/* Identity, size and time of an open file, to find out whether it was changed. */
struct file_stamp {
    uint64_t inode;
    int64_t bytes, seconds, nanoseconds; /* size and time of the last modification */
};

/* Return false with errno if the system does not return them. */
bool file_stamp_read(int descriptor, struct file_stamp *stamp);

/* True if the file still has this stamp. */
bool file_stamp_holds(int descriptor, const struct file_stamp *stamp);

/* Raise the soft limit of open files (ulimit -n) to the hard limit. Called at the start. */
void open_file_raise_limit(void);

struct open_file;

/* Open a regular file and read its stamp. Return NULL with errno. */
struct open_file *open_file_new(const char *path, struct file_stamp *stamp);

/* The same for a file that another rank has described: it is opened when it is read. */
struct open_file *open_file_described(const char *path);

const char *open_file_path(const struct open_file *file);

/* True if the descriptor's file still is the described one. If another rank has described it: true
 * for a file of the same size, which may be a copy, if it has not changed since its first use. */
bool open_file_holds(struct open_file *file, int descriptor, const struct file_stamp *described);

/* Return a descriptor that stays open until open_file_give, or -1 with errno. If the file was
 * opened again, it may be another one of this path: compare its stamp. */
int open_file_take(struct open_file *file);
void open_file_give(struct open_file *file);

/* Close a file that no thread reads; NULL: none. */
void open_file_close(struct open_file *file);

#endif
