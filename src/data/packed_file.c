// SPDX-License-Identifier: BSD-3-Clause
/* Names of packed files: NAME.h5 or several NAME-00000-of-00004.h5. */
#include "data/packed.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/folder.h"
#include "core/text.h"
#include "data/data_root.h"

static const char ending[] = ".h5";
static const char advice[] = "make packed data with `vittrain convert data`";

enum { ENDING = sizeof ending - 1, NUMBERED_ENDING = sizeof "-00000-of-00000.h5" - 1 };

void packed_path(char path[PACKED_PATH], const char *name, int64_t file, int64_t files)
{
    const int stem = (int)strlen(name) - ENDING;
    if (files == 1)
        snprintf(path, PACKED_PATH, "%s", name);
    else
        snprintf(path, PACKED_PATH, "%.*s-%05lld-of-%05lld%s", stem, name, (long long)file,
                 (long long)files, ending);
}

/* True if it is the name of one of several files. */
static bool take_numbered(const char *path, int64_t *file, int64_t *files)
{
    const size_t length = strlen(path);
    int number, count, end = 0;
    if (length <= NUMBERED_ENDING ||
        sscanf(path + length - NUMBERED_ENDING, "-%5d-of-%5d.h5%n", &number, &count, &end) != 2 ||
        end != NUMBERED_ENDING || number < 0 || count < 2 || number >= count)
        return false;
    *file = number;
    *files = count;
    return true;
}

/* The common name of a set, from the name of any of its files. */
static int64_t name_of(const char *path, char name[PACKED_PATH])
{
    int64_t file, files = 1;
    if (take_numbered(path, &file, &files))
        snprintf(name, PACKED_PATH, "%.*s%s", (int)(strlen(path) - NUMBERED_ENDING), path, ending);
    else
        snprintf(name, PACKED_PATH, "%s", path);
    return files;
}

/* List the sets in a folder: all of them (wanted NULL), or those of one name. Of several files only
 * the first counts. Returns the number of sets. */
static int sets_find(const char *folder, const char *wanted, char name[PACKED_PATH], int64_t *files)
{
    char path[PACKED_PATH], found_name[PACKED_PATH];
    int found = 0;
    DIR *entries = NULL;
    for (const char *entry; (entry = folder_next(&entries, folder)) != NULL;) {
        int64_t file = 0, count = 1;
        const int length = snprintf(path, sizeof path, "%s/%s", folder, entry);
        if (length >= (int)sizeof path || !text_ends_with(entry, ending) ||
            (take_numbered(path, &file, &count) && file > 0))
            continue;
        name_of(path, found_name);
        if (wanted != NULL && (count == 1 || strcmp(found_name + strlen(folder) + 1, wanted) != 0))
            continue;
        memcpy(name, found_name, sizeof found_name);
        *files = count;
        found++;
    }
    return found;
}

/* NAME.h5 does not exist: look for the files of a set of this name. */
static bool find_numbered(const char *given, char name[PACKED_PATH], int64_t *files,
                          struct error *error)
{
    char folder[PACKED_PATH];
    snprintf(folder, sizeof folder, "%s", given);
    char *slash = strrchr(folder, '/');
    if (slash == NULL)
        memcpy(folder, ".", 2);
    else
        *slash = '\0';
    const int found = sets_find(slash == folder ? "/" : folder,
                                slash == NULL ? given : given + (slash - folder) + 1, name, files);
    if (found == 1)
        return true;
    if (found > 1)
        return error_set(
            error, ERROR_DATA,
            "data.root=%s: there are files of several data sets: name the first file of one",
            given);
    return data_root_check(given, advice, error) &&
           error_set(error, ERROR_DATA, "data.root=%s: changed while it was opened", given);
}

bool packed_find(const char *given, char name[PACKED_PATH], int64_t *files, struct error *error)
{
    struct stat status;
    if (given[0] == '\0')
        return error_set(error, ERROR_USAGE, "data.format=packed needs data.root=FILE.h5");
    const bool there = stat(given, &status) == 0;
    if (there && S_ISDIR(status.st_mode)) {
        const int found = sets_find(given, NULL, name, files);
        if (found > 1)
            return error_set(error, ERROR_DATA,
                             "data.root=%s: several packed data sets (*.h5) in this folder: name "
                             "the file",
                             given);
        return found == 1 || (data_root_check(given, advice, error) &&
                              data_root_unexpected(given, "no packed data (*.h5)", advice, error));
    }
    *files = name_of(given, name);
    if (there || *files > 1)
        return true;
    return find_numbered(given, name, files, error);
}
