// SPDX-License-Identifier: BSD-3-Clause
/* Resident set size from /proc/self/status. */
#include "core/resident.h"

#include <stdio.h>
#include <string.h>

/* Return a field like "VmRSS:    1234 kB" in bytes. */
static size_t status_read(const char *name)
{
    char line[256];
    unsigned long long kibibytes = 0;
    FILE *file = fopen("/proc/self/status", "re");
    if (file == NULL)
        return 0;
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            sscanf(line + strlen(name), "%llu", &kibibytes);
    fclose(file);
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

size_t resident_files(void)
{
    return status_read("RssFile:");
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
