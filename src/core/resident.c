/* The resident set, from /proc and getrusage. */
#include "core/resident.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

size_t resident_now(void)
{
    unsigned long long total = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL)
        return 0;
    int read = fscanf(file, "%llu %llu", &total, &pages);
    fclose(file);
    return read == 2 ? (size_t)pages * (size_t)sysconf(_SC_PAGESIZE) : 0;
}

size_t resident_peak(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return 0;
    return (size_t)usage.ru_maxrss * 1024; /* Linux counts KiB */
}

bool resident_peak_reset(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "we");
    if (file == NULL)
        return false;
    bool good = fputs("5", file) >= 0;
    return fclose(file) == 0 && good;
}
