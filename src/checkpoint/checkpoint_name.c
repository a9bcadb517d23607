// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/checkpoint_name.h"

#include <stdio.h>

#include "core/text.h"

void checkpoint_name(char name[CHECKPOINT_NAME], int64_t step)
{
    snprintf(name, CHECKPOINT_NAME, "step-%08lld.h5", (long long)step);
}

int64_t checkpoint_name_step(const char *path)
{
    const char *name = text_base_name(path);
    long long step = -1;
    int end = 0;
    return sscanf(name, "step-%lld.h5%n", &step, &end) == 1 && end > 0 && name[end] == '\0' ? step
                                                                                            : -1;
}
