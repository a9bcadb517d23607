// SPDX-License-Identifier: BSD-3-Clause
/* Resident set size from /proc/self/status. */
#include "core/resident.h"

#include <stdio.h>

#include "core/text_file.h"

/* Return a field of /proc/self/status ("VmRSS:"), which is in KiB, in bytes. */
static size_t status_read(const char *name)
{
    unsigned long long kibibytes = 0;
    text_file_number("/proc/self/status", name, &kibibytes);
    return (size_t)kibibytes * 1024;
}

size_t resident_now(void)
{
    return status_read("VmRSS:");
}

size_t resident_private(void)
{
    return status_read("RssAnon:");
}

size_t resident_shared(void)
{
    return status_read("RssFile:") + status_read("RssShmem:");
}

size_t resident_peak(void)
{
    return status_read("VmHWM:");
}

bool resident_peak_reset(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "we");
    if (file == NULL)
        return false;
    bool good = fputs("5", file) >= 0;
    return fclose(file) == 0 && good;
}
