// SPDX-License-Identifier: BSD-3-Clause
/* Messages about a data.root that does not hold the data set: they show what was found instead. */
#ifndef VITTRAIN_DATA_DATA_ROOT_H
#define VITTRAIN_DATA_DATA_ROOT_H

#include "core/error.h"

/* Return true if data.root is a folder that is not empty. Else set ERROR_DATA: a missing one
 * with the nearest name that exists, or the part of the path that exists; a file with its kind.
 * advice: the end of the message. */
MUST_CHECK bool data_root_check(const char *root, const char *advice, struct error *error);

/* Return true, with ERROR_DATA set, if the folder holds data that data.format=`format` does not
 * read, or has a folder train further below. The message names the options that read them. */
MUST_CHECK bool data_root_holds_other(const char *root, const char *format, struct error *error);

/* Set ERROR_DATA for a folder without `expected` ("no folder train"): with what
 * data_root_holds_other finds, else with some names in it and the advice. Returns false. */
bool data_root_unexpected(const char *root, const char *format, const char *expected,
                          const char *advice, struct error *error);

/* Set ERROR_DATA for the folder `path`, which is `root` or below it, with the only class `name`. If
 * the classes are folders further below, the message names them. Returns false. */
bool data_root_one_class(const char *root, const char *path, const char *name, struct error *error);

#endif
