// SPDX-License-Identifier: BSD-3-Clause
/* Files: durable ones, small ones that are replaced atomically, output files, and reading of
 * regular files. An error names the file, the reason and a remedy. */
#ifndef VITTRAIN_CORE_FILE_H
#define VITTRAIN_CORE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/error.h"

/* ---- Durable files: written under another name, synced, then renamed. */

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

/* ---- Atomic replacement of small files: written to PATH.part, synced, renamed. */

/* Bytes of a path: a folder given as an option and a name in it. */
enum { FILE_PATH = 1152 };

struct atomic_file {
    FILE *stream; /* write here */
    char path[FILE_PATH], part[FILE_PATH + 8];
};

MUST_CHECK bool atomic_file_open(struct atomic_file *file, const char *path, struct error *error);

/* Close the file and rename it to PATH. On failure PATH is unchanged and the part is removed. */
MUST_CHECK bool atomic_file_commit(struct atomic_file *file, struct error *error);

/* Remove the part; PATH is unchanged. */
void atomic_file_discard(struct atomic_file *file);

/* Write a whole file. */
MUST_CHECK bool atomic_file_write(const char *path, const char *text, struct error *error);

/* Output files: opened without following a symbolic link, and only if they are regular files, so
 * that a malicious link or pipe neither redirects a write nor blocks. The folders of the path may
 * be links. A file is locked while it is written under a temporary name, so that another process
 * does not remove it. */

/* As open(2) with O_CLOEXEC and mode 0666. Return -1 and set errno on failure: ELOOP for a symbolic
 * link, EISDIR, EINVAL or ENXIO for a pipe or a device. */
int output_file_open(const char *path, int flags);

/* As fopen with mode "r", "w" or "a". NULL and errno on failure. */
FILE *output_file_stream(const char *path, const char *mode);

/* Create or truncate a temporary file and lock it until all duplicates of the descriptor are
 * closed. A symbolic link of that name is replaced. Wait up to OUTPUT_FILE_WAIT seconds for another
 * process that writes the file; then fail with EBUSY. Where locks are not supported, the file is
 * not locked. */
enum { OUTPUT_FILE_WAIT = 10 };
int output_file_create(const char *path);

/* Remove the temporary files of a folder that no living process has locked. is_temporary decides by
 * name. Where locks are not supported, remove files that are older than a day. */
void output_file_clean(const char *folder, bool (*is_temporary)(const char *name));

/* Reading of regular files only: opening a pipe of that name could block forever. */

/* Open a file for reading and set its size. Return its descriptor, or -1 and errno (EISDIR; EINVAL
 * for pipes and devices) on failure. */
int text_file_descriptor(const char *path, int64_t *bytes);

/* Return the whole file, zero-terminated and freed by the caller; NULL and errno on failure,
 * also ENOMEM. `length` may be NULL; the file may contain zeros. */
char *text_file_read(const char *path, size_t *length);

/* Read the first number that follows `word` at the start of a line ("MemAvailable: 123 kB"); if the
 * word is empty, the first number at the start of a line. Return false if no line has one. */
bool text_file_number(const char *path, const char *word, unsigned long long *number);

#endif
