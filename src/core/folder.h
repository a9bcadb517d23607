/* Folders, with those above them. */
#ifndef VITTRAIN_CORE_FOLDER_H
#define VITTRAIN_CORE_FOLDER_H

#include <stdbool.h>

#include "core/error.h"

/* Makes the folder and those above it, where they are missing. ERROR_FILE: the first that cannot be
 * made, why, and `advice`, which says what to do. */
MUST_CHECK bool folder_make(const char *path, const char *advice, struct error *error);

#endif
