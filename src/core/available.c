/* Available memory from /proc/meminfo and from the files of control groups: version 2 has one tree,
 * version 1 one for memory alone. A container often sees its own group as the root. */
#include "core/available.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* How the two versions call things. */
struct group_files {
    const char *tree, *limit, *used, *cached;
};

static const struct group_files version1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                            "memory.usage_in_bytes", "total_inactive_file"},
                                version2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                                            "inactive_file"};

/* The number behind a word that begins a line ("MemAvailable:"), or of the first line where the
 * word is empty; false: there is none. */
static bool number_read(const char *path, const char *word, unsigned long long *number)
{
    char line[256], name[128];
    bool found = false;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    while (!found && fgets(line, sizeof line, file) != NULL)
        found = word[0] == '\0'
                    ? sscanf(line, "%llu", number) == 1
                    : sscanf(line, "%127s %llu", name, number) == 2 && strcmp(name, word) == 0;
    fclose(file);
    return found;
}

/* What one group leaves, SIZE_MAX where it has no limit. */
static size_t group_room(const char *root, const struct group_files *files, const char *group)
{
    char path[PATH_MAX];
    unsigned long long limit, used, cached = 0;
    snprintf(path, sizeof path, "%s%s%s/%s", root, files->tree, group, files->limit);
    if (!number_read(path, "", &limit))
        return SIZE_MAX;
    snprintf(path, sizeof path, "%s%s%s/%s", root, files->tree, group, files->used);
    if (!number_read(path, "", &used))
        return SIZE_MAX;
    snprintf(path, sizeof path, "%s%s%s/memory.stat", root, files->tree, group);
    number_read(path, files->cached, &cached);
    used -= cached < used ? cached : used;
    return limit > used ? (size_t)(limit - used) : 1;
}

/* The least that a group and those above it leave. `group`: "/a/b", cut as we go up. */
static size_t groups_room(const char *root, const struct group_files *files, char *group)
{
    size_t least = SIZE_MAX;
    for (;;) {
        size_t room = group_room(root, files, strcmp(group, "/") == 0 ? "" : group);
        least = room < least ? room : least;
        char *end = strrchr(group, '/');
        if (end == NULL || group[0] == '\0')
            return least;
        *end = '\0';
    }
}

/* Lines "NUMBER:CONTROLLERS:PATH" of /proc/self/cgroup. */
static size_t control_room(const char *root)
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
        const struct group_files *files = strcmp(controllers, ":memory") == 0 ? &version1
                                          : strcmp(controllers, ":") == 0     ? &version2
                                                                              : NULL;
        size_t room = files != NULL ? groups_room(root, files, group) : SIZE_MAX;
        least = room < least ? room : least;
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
    size_t room = control_room(root);
    if (number_read(path, "MemAvailable:", &available) && available * 1024 < room)
        room = (size_t)available * 1024;
    return room == SIZE_MAX ? 0 : room;
}
