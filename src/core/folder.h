// SPDX-License-Identifier: BSD-3-Clause
/* Creation of folders, names in a folder, the cache folder, and installed files. */
#ifndef VITTRAIN_CORE_FOLDER_H
#define VITTRAIN_CORE_FOLDER_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"

/* Create a folder and its missing parents. On failure set ERROR_FILE with the folder that cannot be
 * created, the reason and `advice`, the remedy. */
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

#endif
