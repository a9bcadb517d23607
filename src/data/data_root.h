// SPDX-License-Identifier: BSD-3-Clause
/* Messages about a data.root that does not hold the data set: they show what was found instead. */
#ifndef VITTRAIN_DATA_DATA_ROOT_H
#define VITTRAIN_DATA_DATA_ROOT_H

#include "core/error.h"

/* Return true if data.root is a folder that is not empty. Else set ERROR_DATA. advice: the end of
 * the message. */
MUST_CHECK bool data_root_check(const char *root, const char *advice, struct error *error);

/* Set ERROR_DATA for a folder without `expected` ("no folder train"), with some names in it and the
 * advice. Return false. */
bool data_root_unexpected(const char *root, const char *expected, const char *advice,
                          struct error *error);

#endif
