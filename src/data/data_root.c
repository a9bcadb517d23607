// SPDX-License-Identifier: BSD-3-Clause
#include "data/data_root.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/allocate.h"
#include "core/text.h"
#include "data/listing.h"

enum { TEXT_SIZE = 512 };

/* Set the error of a path that is missing: `name` is its first part that is not in `folder`. */
static bool missing_in(const char *root, const char *folder, const char *name, const char *advice,
                       struct error *error)
{
    char names[TEXT_SIZE], directory[TEXT_SIZE];
    struct listing found = {0};
    struct error none = {0};
    const bool is_here = strcmp(folder, ".") == 0;
    error_defer(listing_read(folder, &found, &found, NULL, &none));
    found.names = allocate_more(found.names, &found.capacity, found.count, sizeof *found.names);
    found.names[found.count] = NULL;
    const char *nearest = text_nearest(name, (const char *const *)found.names);
    if (nearest != NULL)
        error_set(error, ERROR_DATA,
                  "data.root=%s: no such file or folder; did you mean %.300s%s%.100s?", root,
                  is_here ? "" : folder, is_here ? "" : "/", nearest);
    listing_name_some(&found, names, sizeof names);
    listing_free(&found);
    if (is_here && getcwd(directory, sizeof directory) != NULL)
        folder = directory;
    return error_set(error, ERROR_DATA,
                     "data.root=%s: no such file or folder: %.300s does not contain %.100s%s%s; %s",
                     root, folder, name, names[0] != '\0' ? ", only " : "", names, advice);
}

/* Find the longest part of the path that exists. */
static bool root_missing(const char *root, const char *advice, struct error *error)
{
    char path[LISTING_PATH];
    struct stat status;
    snprintf(path, sizeof path, "%s", root);
    for (size_t length = strlen(path); length > 1 && path[length - 1] == '/'; length--)
        path[length - 1] = '\0';
    for (char *slash; (slash = strrchr(path, '/')) != NULL;) {
        *slash = '\0';
        const char *folder = slash == path ? "/" : path;
        if (stat(folder, &status) != 0)
            continue;
        if (S_ISDIR(status.st_mode))
            return missing_in(root, folder, slash + 1, advice, error);
        return error_set(error, ERROR_DATA, "data.root=%s: %.400s is not a folder; %s", root,
                         folder, advice);
    }
    return missing_in(root, ".", path, advice, error);
}

bool data_root_check(const char *root, const char *advice, struct error *error)
{
    struct listing found = {0};
    struct stat status;
    if (stat(root, &status) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return root_missing(root, advice, error);
    if (stat(root, &status) != 0)
        return error_set(error, ERROR_DATA, "data.root=%s: %s; %s", root, strerror(errno), advice);
    if (!S_ISDIR(status.st_mode))
        return error_set(error, ERROR_DATA, "data.root=%s: it is a file, not a folder; %s", root,
                         advice);
    const bool good = listing_read(root, &found, &found, NULL, error);
    const bool is_empty = found.count == 0;
    listing_free(&found);
    return good &&
           (!is_empty || error_set(error, ERROR_DATA, "data.root=%s: is empty; %s", root, advice));
}

bool data_root_unexpected(const char *root, const char *expected, const char *advice,
                          struct error *error)
{
    char names[TEXT_SIZE];
    struct listing found = {0};
    if (!listing_read(root, &found, &found, NULL, error))
        return false;
    listing_name_some(&found, names, sizeof names);
    listing_free(&found);
    return error_set(error, ERROR_DATA, "data.root=%s: %s%s%s; %s", root, expected,
                     names[0] != '\0' ? ", only " : "", names, advice);
}
