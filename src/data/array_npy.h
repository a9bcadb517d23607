// SPDX-License-Identifier: BSD-3-Clause
/* The index of NumPy's .npy files, which have one array each. */
#ifndef VITTRAIN_DATA_ARRAY_NPY_H
#define VITTRAIN_DATA_ARRAY_NPY_H

#include "data/array.h"

/* Open the file as an array. A .npz archive is an error. `name`: name of the array for messages.
 * `path` must stay valid. Call array_close in any case. */
MUST_CHECK bool array_npy_open(const char *path, const char *name, struct array *array,
                               struct error *error);

#endif
