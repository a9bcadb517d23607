/* Creation of folders. */
#ifndef VITTRAIN_CORE_FOLDER_H
#define VITTRAIN_CORE_FOLDER_H

#include <stdbool.h>

#include "core/error.h"

/* Create a folder and its missing parents. On failure set ERROR_FILE with the folder that cannot be
 * created, the reason and `advice`, the remedy. */
MUST_CHECK bool folder_make(const char *path, const char *advice, struct error *error);

#endif
