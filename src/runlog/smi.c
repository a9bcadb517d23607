// SPDX-License-Identifier: BSD-3-Clause
#include "runlog/smi.h"

#include <stdlib.h>

#include "core/allocate.h"
#include "core/atomic_file.h"
#include "core/child.h"

enum { TEXT_MOST = 256 * 1024 /* bytes of output that are kept */ };

struct watch {
    bool (*wanted)(void *self);
    void *self;
};

static bool is_wanted(const struct child *child, void *self)
{
    const struct watch *watch = self;
    (void)child;
    return watch->wanted(watch->self);
}

bool smi_write(const char *path, const char *title, double seconds, bool (*wanted)(void *self),
               void *self, struct error *error)
{
    char log[256], *text = allocate(TEXT_MOST, 1);
    struct atomic_file file;
    struct watch watch = {wanted, self};
    struct child child = {.words = (const char *[]){"nvidia-smi", NULL},
                          .output = text,
                          .output_size = TEXT_MOST,
                          .log = log,
                          .log_size = sizeof log,
                          .seconds = seconds,
                          .own_group = true,
                          .wanted = is_wanted,
                          .self = &watch};
    bool good = child_run(&child) == 0;
    if (good && child.late && wanted(self))
        error_set(error, ERROR_PEER, "nvidia-smi did not end within %.0f s", seconds);
    good = good && child.status == 0 && text[0] != '\0' && wanted(self);
    if (good && (good = atomic_file_open(&file, path, error))) {
        fprintf(file.stream, "%s\n%s", title, text);
        good = atomic_file_commit(&file, error);
    }
    free(text);
    return good;
}
