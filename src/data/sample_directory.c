/* Finds the sample data relative to the program file, so that it works in a build tree and after
 * the installed tree is moved. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "data/dataset.h"

#define SAMPLE "input/data/cifar-10-sample"

enum { PATH_SIZE = 4096, LEVELS_UP = 3 };

static bool is_directory_there(const char *path)
{
    return access(path, R_OK | X_OK) == 0;
}

/* Get the program's folder; empty if unknown. */
static void program_folder(char *folder, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", folder, size - 1);
    folder[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash != NULL)
        *slash = '\0';
}

const char *dataset_sample_directory(void)
{
    static char path[PATH_SIZE + 64];
    char folder[PATH_SIZE];
    program_folder(folder, sizeof folder);
    for (int level = 0; level < LEVELS_UP && folder[0] != '\0'; level++) {
        snprintf(path, sizeof path, "%s/" SAMPLE, folder);
        if (is_directory_there(path))
            return path;
        snprintf(path, sizeof path, "%s/share/vittrain/" SAMPLE, folder);
        if (is_directory_there(path))
            return path;
        *strrchr(folder, '/') = '\0';
    }
    return VITTRAIN_DATA_DIR "/" SAMPLE;
}
