/* Creation of folders, and the cache folder. */
#ifndef VITTRAIN_CORE_FOLDER_H
#define VITTRAIN_CORE_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"

/* Create a folder and its missing parents. On failure set ERROR_FILE with the folder that cannot be
 * created, the reason and `advice`, the remedy. */
MUST_CHECK bool folder_make(const char *path, const char *advice, struct error *error);

/* Write the user's cache folder of this program: $XDG_CACHE_HOME/vittrain or ~/.cache/vittrain. ""
 * if neither variable is an absolute path. It may not exist. */
void folder_cache(char *path, size_t size);

#endif
