// SPDX-License-Identifier: BSD-3-Clause
#include "core/memory.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>

#include "core/file.h"

/* Available memory from /proc/meminfo and control groups, CPU quota from control groups. cgroup v2
 * has one hierarchy, v1 one for each controller. A container often sees its own group as the
 * root. */

/* File names of a cgroup version. */
struct group_files {
    const char *controller; /* in /proc/self/cgroup; "" in version 2 */
    const char *tree, *limit, *used, *cached;
    /* Return the amount that one group leaves; SIZE_MAX: no limit. */
    size_t (*room)(const char *root, const struct group_files *files, const char *group);
};

static size_t memory_room(const char *root, const struct group_files *files, const char *group)
{
    char path[PATH_MAX];
    unsigned long long limit, used, cached = 0;
    snprintf(path, sizeof path, "%s%s%s/%s", root, files->tree, group, files->limit);
    if (!text_file_number(path, "", &limit))
        return SIZE_MAX;
    snprintf(path, sizeof path, "%s%s%s/%s", root, files->tree, group, files->used);
    if (!text_file_number(path, "", &used))
        return SIZE_MAX;
    snprintf(path, sizeof path, "%s%s%s/memory.stat", root, files->tree, group);
    text_file_number(path, files->cached, &cached);
    used -= cached < used ? cached : used;
    return limit > used ? (size_t)(limit - used) : 1;
}

/* Return thousandths of a CPU. cgroup v2 has "QUOTA PERIOD" or "max PERIOD" in one file; v1 has one
 * file for each, and the quota -1 for no limit. */
static size_t core_room(const char *root, const struct group_files *files, const char *group)
{
    char path[PATH_MAX];
    long long quota = -1, period = 0;
    snprintf(path, sizeof path, "%s%s%s/%s", root, files->tree, group, files->limit);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return SIZE_MAX;
    int found = fscanf(file, "%lld %lld", &quota, &period);
    fclose(file);
    unsigned long long other = 0;
    snprintf(path, sizeof path, "%s%s%s/%s", root, files->tree, group, files->used);
    if (found == 1 && files->used[0] != '\0' && text_file_number(path, "", &other))
        period = (long long)other;
    return quota > 0 && period > 0 ? (size_t)(quota * 1000 / period) : SIZE_MAX;
}

static const struct group_files memory_files[] = {{"memory", "/sys/fs/cgroup/memory",
                                                   "memory.limit_in_bytes", "memory.usage_in_bytes",
                                                   "total_inactive_file", memory_room},
                                                  {"", "/sys/fs/cgroup", "memory.max",
                                                   "memory.current", "inactive_file", memory_room}},
                                core_files[] = {
                                    {"cpu", "/sys/fs/cgroup/cpu", "cpu.cfs_quota_us",
                                     "cpu.cfs_period_us", "", core_room},
                                    {"", "/sys/fs/cgroup", "cpu.max", "", "", core_room}};

/* Return the minimum over a group and its ancestors. Shortens `group` ("/a/b"). */
static size_t groups_room(const char *root, const struct group_files *files, char *group)
{
    size_t least = SIZE_MAX;
    for (;;) {
        size_t room = files->room(root, files, strcmp(group, "/") == 0 ? "" : group);
        least = room < least ? room : least;
        char *end = strrchr(group, '/');
        if (end == NULL || group[0] == '\0')
            return least;
        *end = '\0';
    }
}

/* True if a comma-separated list contains the word. */
static bool list_holds(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (; list != NULL; list = strchr(list, ','), list = list != NULL ? list + 1 : NULL)
        if (strncmp(list, word, length) == 0 && (list[length] == ',' || list[length] == '\0'))
            return true;
    return false;
}

/* Evaluate the lines "NUMBER:CONTROLLERS:PATH" of /proc/self/cgroup. `files` has both versions. */
static size_t control_room(const char *root, const struct group_files files[2])
{
    char path[PATH_MAX], line[PATH_MAX];
    size_t least = SIZE_MAX;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL)
            continue;
        *group++ = '\0';
        for (int version = 0; version < 2; version++) {
            bool holds = list_holds(controllers + 1, files[version].controller);
            size_t room = holds ? groups_room(root, &files[version], group) : SIZE_MAX;
            least = room < least ? room : least;
            if (holds)
                break; /* groups_room has shortened the path */
        }
    }
    if (file != NULL)
        fclose(file);
    return least;
}

size_t memory_available(const char *root)
{
    char path[PATH_MAX];
    unsigned long long available;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    size_t room = control_room(root, memory_files);
    if (text_file_number(path, "MemAvailable:", &available) && available * 1024 < room)
        room = (size_t)available * 1024;
    return room == SIZE_MAX ? 0 : room;
}

double shared_memory_free(void)
{
    struct statvfs disk;
    return statvfs("/dev/shm", &disk) == 0 ? (double)disk.f_bavail * (double)disk.f_frsize : -1;
}

bool memory_mappable(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory != MAP_FAILED && munmap(memory, bytes) == 0;
}

double cores_quota(const char *root)
{
    size_t thousandths = control_room(root, core_files);
    return thousandths == SIZE_MAX ? 0 : (double)thousandths / 1000;
}

/* Resident set size from /proc/self/status. */

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
