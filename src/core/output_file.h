// SPDX-License-Identifier: BSD-3-Clause
/* Output files: opened without following a symbolic link, and only if they are regular files, so
 * that a malicious link or pipe neither redirects a write nor blocks. The folders of the path may
 * be links. A file is locked while it is written under a temporary name, so that another process
 * does not remove it. */
#ifndef VITTRAIN_CORE_OUTPUT_FILE_H
#define VITTRAIN_CORE_OUTPUT_FILE_H

#include <stdbool.h>
#include <stdio.h>

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

#endif
