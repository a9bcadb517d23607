// SPDX-License-Identifier: BSD-3-Clause
/* Version and commit. Only this file is recompiled when the commit changes. */
#include "config.h"

#include "base/base.h"

#include "version_commit.h"

const char version_number[] = PACKAGE_VERSION;
const char version_commit[] = VERSION_COMMIT;
