// SPDX-License-Identifier: BSD-3-Clause
#include "data/data_root.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "data/listing.h"

bool data_root_unexpected(const char *root, const char *expected, const char *advice,
                          struct error *error)
{
    char names[512];
    struct listing found = {0};
    if (!listing_read(root, &found, &found, NULL, error))
        return false;
    listing_name_some(&found, names, sizeof names);
    listing_free(&found);
    return error_set(error, ERROR_DATA, "data.root=%s: %s%s%s; %s", root, expected,
                     names[0] != '\0' ? ", only " : "", names, advice);
}

bool data_root_check(const char *root, const char *advice, struct error *error)
{
    struct listing found = {0};
    struct stat status;
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
