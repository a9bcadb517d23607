/* Resident set size from /proc and getrusage. */
#include "core/resident.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static void resident_read(size_t *all, size_t *shared)
{
    unsigned long long mapped, pages[2];
    *all = *shared = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL)
        return;
    if (fscanf(file, "%llu %llu %llu", &mapped, &pages[0], &pages[1]) == 3) {
        *all = (size_t)pages[0] * (size_t)sysconf(_SC_PAGESIZE);
        *shared = (size_t)pages[1] * (size_t)sysconf(_SC_PAGESIZE);
    }
    fclose(file);
}

size_t resident_now(void)
{
    size_t all, shared;
    resident_read(&all, &shared);
    return all;
}

size_t resident_private(void)
{
    size_t all, shared;
    resident_read(&all, &shared);
    return all - shared;
}

size_t resident_peak(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return 0;
    return (size_t)usage.ru_maxrss * 1024; /* in KiB on Linux */
}

bool resident_peak_reset(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "we");
    if (file == NULL)
        return false;
    bool good = fputs("5", file) >= 0;
    return fclose(file) == 0 && good;
}
