/* Creation of folders, names in a folder, and the cache folder. */
#ifndef VITTRAIN_CORE_FOLDER_H
#define VITTRAIN_CORE_FOLDER_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"

/* Create a folder and its missing parents. On failure set ERROR_FILE with the folder that cannot be
 * created, the reason and `advice`, the remedy. */
MUST_CHECK bool folder_make(const char *path, const char *advice, struct error *error);

/* Return the next name in a folder, without "." and "..", in no particular order; NULL after the
 * last one and for a folder that cannot be read. *entries is NULL before the first call and again
 * after the last one; a caller that stops earlier calls closedir. */
const char *folder_next(DIR **entries, const char *path);

/* Write the user's cache folder of this program: $XDG_CACHE_HOME/vittrain or ~/.cache/vittrain. ""
 * if neither variable is an absolute path. It may not exist. */
void folder_cache(char *path, size_t size);

#endif
