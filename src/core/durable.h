/* Files that are whole or not there: written under another name, synced, then renamed. Every call
 * that can fail says in one line which file, why and what to do. */
#ifndef VITTRAIN_CORE_DURABLE_H
#define VITTRAIN_CORE_DURABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

/* Creates the file, or empties it. -1 and an error (ERROR_FILE) when that cannot be done. From here
 * on writing beyond `ulimit -f` is an error of the write, where it would have killed the process.
 */
int durable_create(const char *path, struct error *error);

/* Opens a file that is there, for writing. -1 and an error (ERROR_FILE) when that cannot be done.
 */
int durable_open(const char *path, struct error *error);

/* Makes sure that there is room for these bytes, and makes the file that long; where the file
 * system cannot reserve space the free space is compared and the file stays as it is. */
MUST_CHECK bool durable_reserve(int descriptor, const char *path, int64_t bytes,
                                struct error *error);

/* All the bytes at this offset of the file. */
MUST_CHECK bool durable_write(int descriptor, const char *path, const void *data, size_t bytes,
                              int64_t offset, struct error *error);

/* Onto the disk. durable_close also closes, whether it failed or not. */
MUST_CHECK bool durable_sync(int descriptor, const char *path, struct error *error);
MUST_CHECK bool durable_close(int descriptor, const char *path, struct error *error);

/* Renames and syncs the directory. Replaces files only: a device, a pipe or a folder of that name
 * is an error (ERROR_FILE). */
MUST_CHECK bool durable_rename(const char *from, const char *to, struct error *error);

/* Reads exactly these bytes; a file that ends before is an error (ERROR_CHECKPOINT). */
MUST_CHECK bool durable_read(int descriptor, const char *path, void *data, size_t bytes,
                             int64_t offset, struct error *error);

/* Describes a failed call on a file that was to be written; `number` is errno. Returns false. */
bool durable_failed(struct error *error, const char *doing, const char *path, int number);

#endif
