// SPDX-License-Identifier: BSD-3-Clause
/* Files: durable ones, small ones that are replaced atomically, output files, reading of regular
 * files, files that are reopened on demand; and folders. An error names the file, the reason and a
 * remedy. */
#ifndef VITTRAIN_BASE_FILE_H
#define VITTRAIN_BASE_FILE_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

/* ---- Durable files: written under another name, synced, then renamed. */

/* Create or truncate a temporary file for writing and lock it until all duplicates of the
 * descriptor are closed. A symbolic link of that name is replaced. Wait up to ten seconds for
 * another process that writes the file. Where locks are not supported, the file is not locked.
 * Return its descriptor, or -1 with ERROR_FILE. Ignores SIGXFSZ, so that writing beyond `ulimit -f`
 * is an error of the write. */
int durable_create(const char *path, struct error *error);

/* Open an existing file for writing, not through a symbolic link. Return its descriptor, or -1 with
 * ERROR_FILE. */
int durable_open(const char *path, struct error *error);

/* Reserve space and extend the file to this size. If the file system cannot reserve space, only
 * compare with the free space. */
MUST_CHECK bool durable_reserve(int descriptor, const char *path, int64_t bytes,
                                struct error *error);

/* Write all bytes at this offset. */
MUST_CHECK bool durable_write(int descriptor, const char *path, const void *data, size_t bytes,
                              int64_t offset, struct error *error);

/* Sync the file to disk. */
MUST_CHECK bool durable_sync(int descriptor, const char *path, struct error *error);

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

/* ---- Output files: opened without following a symbolic link, and only if they are regular files,
 * so that a malicious link or pipe neither redirects a write nor blocks. The folders of the path
 * may be links. */

/* As open(2) with O_CLOEXEC and mode 0666. Return -1 and set errno on failure: ELOOP for a symbolic
 * link, EISDIR, EINVAL or ENXIO for a pipe or a device. */
int output_file_open(const char *path, int flags);

/* As fopen with mode "r" or "a". NULL and errno on failure. */
FILE *output_file_stream(const char *path, const char *mode);

/* ---- Reading of regular files only: opening a pipe of that name could block forever. */

/* Open a file for reading and set its size. Return its descriptor, or -1 and errno (EISDIR; EINVAL
 * for pipes and devices) on failure. */
int text_file_descriptor(const char *path, int64_t *bytes);

/* Return the whole file, zero-terminated and freed by the caller; NULL and errno on failure.
 * `length` may be NULL; the file may contain zeros. */
char *text_file_read(const char *path, size_t *length);

/* Read the first number that follows `word` at the start of a line ("MemAvailable: 123 kB"); if the
 * word is empty, the first number at the start of a line. Return false if no line has one. */
bool text_file_number(const char *path, const char *word, unsigned long long *number);

/* ---- Folders, names in a folder, the cache folder, and installed files. */

/* Create a folder and its missing parents. On failure set ERROR_FILE with the folder that cannot be
 * created, the reason and `advice`, the remedy; ERROR_USAGE for the root of the file system. */
MUST_CHECK bool folder_make(const char *path, const char *advice, struct error *error);

/* Return the next name in the folder `path`, without "." and "..", in no particular order; NULL
 * after the last name, or if the folder cannot be read. *entries must be NULL before the first call
 * and is NULL again when NULL is returned; a caller that stops earlier calls closedir. */
const char *folder_next(DIR **entries, const char *path);

/* Create a private folder in $TMPDIR, default /tmp; false if that is impossible. */
bool folder_make_temporary(char *path, size_t size);

/* What the lock file PATH/.lock shows; FOLDER_USE_UNKNOWN without one, as in a downloaded folder.
 */
enum folder_use { FOLDER_USE_UNKNOWN, FOLDER_FREE, FOLDER_IN_USE };

enum folder_use folder_use(const char *path);

/* Remove a folder and its content as far as possible. */
void folder_remove(const char *path);

/* Write the user's cache folder of this program: $XDG_CACHE_HOME/vittrain or ~/.cache/vittrain. ""
 * if neither variable is an absolute path, or if HOME does not exist. The folder may not exist. */
void folder_cache(char *path, size_t size);

/* Write the name in a folder that ends with `ending` and is otherwise nearest to `name`
 * (text_nearest), without the ending. Return false if there is none. */
bool folder_nearest(const char *folder, const char *name, const char *ending, char *nearest,
                    size_t size);

/* Write the path of a file or folder that is installed with the program, such as
 * "input/cnn_a.ini". It is found relative to the program file, so it works in a build tree and
 * after the installed tree is moved. Return false if it does not exist; the path is then that of
 * the installation. */
bool folder_installed(const char *name, char *path, size_t size);

/* ---- Input files that are read at any time, of which there may be more than the process can have
 * open. They share half of the limit of open files: beyond that, the least recently used file is
 * closed, and reopened on demand. Thread-safe. */

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
