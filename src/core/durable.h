// SPDX-License-Identifier: BSD-3-Clause
/* Durable files: written under another name, synced, then renamed. An error names the file, the
 * reason and a remedy. */
#ifndef VITTRAIN_CORE_DURABLE_H
#define VITTRAIN_CORE_DURABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

/* Create or truncate a temporary file for writing and lock it (output_file_create). Return its
 * descriptor, or -1 with ERROR_FILE. Ignores SIGXFSZ, so that writing beyond `ulimit -f` is an
 * error of the write. */
int durable_create(const char *path, struct error *error);

/* Open an existing file for writing, not through a symbolic link, and mark it as in use by a shared
 * lock. Return its descriptor, or -1 with ERROR_FILE. */
int durable_open(const char *path, struct error *error);

/* Reserve space and extend the file to this size. If the file system cannot reserve space, only
 * compare with the free space. */
MUST_CHECK bool durable_reserve(int descriptor, const char *path, int64_t bytes,
                                struct error *error);

/* Write all bytes at this offset. */
MUST_CHECK bool durable_write(int descriptor, const char *path, const void *data, size_t bytes,
                              int64_t offset, struct error *error);

/* Sync the file to disk; close it. durable_close closes also if it fails. */
MUST_CHECK bool durable_sync(int descriptor, const char *path, struct error *error);
MUST_CHECK bool durable_close(int descriptor, const char *path, struct error *error);

/* Rename and sync the directory. Replaces regular files only: a device, pipe or folder of that name
 * is an error (ERROR_FILE). */
MUST_CHECK bool durable_rename(const char *from, const char *to, struct error *error);

/* Sync and close a file of durable_create and rename it to its final name. On failure remove it. */
MUST_CHECK bool durable_commit(int descriptor, const char *part, const char *path,
                               struct error *error);

/* Read `bytes` bytes from `offset`, also if calls are interrupted. Return the number of bytes read;
 * if it is less, errno is the reason, or 0 if the file ends there. */
size_t durable_pread(int descriptor, void *data, size_t bytes, int64_t offset);

/* Set the error of an input file that cannot be opened or read; `number` is errno. ERROR_MEMORY if
 * this process has too few descriptors or too little memory, else `kind`. Return false. */
bool durable_unreadable(struct error *error, enum error_kind kind, const char *path, int number);

/* Read exactly these bytes; a file that ends earlier is an error (ERROR_CHECKPOINT). */
MUST_CHECK bool durable_read(int descriptor, const char *path, void *data, size_t bytes,
                             int64_t offset, struct error *error);

/* Set the error of a failed call on an output file; `number` is errno. Return false. */
bool durable_failed(struct error *error, const char *doing, const char *path, int number);

#endif
