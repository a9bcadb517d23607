// SPDX-License-Identifier: BSD-3-Clause
/* Sorted lists of the names in a folder. */
#include "data/listing.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/allocate.h"
#include "base/base.h"

void listing_add(struct listing *listing, const char *name)
{
    listing->names =
        allocate_more(listing->names, &listing->capacity, listing->count, sizeof *listing->names);
    listing->names[listing->count++] = allocate_copy(name);
}

void listing_free(struct listing *listing)
{
    for (size_t i = 0; i < listing->count; i++)
        free(listing->names[i]);
    free(listing->names);
    *listing = (struct listing){0};
}

int listing_compare(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

bool listing_is_folder(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

int64_t listing_compared(int64_t count, int64_t ranks)
{
    enum { IN_ALL = 4096, LEAST = 16 };
    return ranks > 1 ? smaller(count, larger(LEAST, IN_ALL / ranks)) : 0;
}

uint32_t listing_sum_size(uint32_t sum, const char *path)
{
    struct stat status;
    const int64_t bytes = stat(path, &status) == 0 ? (int64_t)status.st_size : -1;
    return crc32c_update(sum, &bytes, sizeof bytes);
}

static void listing_sort(struct listing *listing)
{
    if (listing != NULL && listing->count > 0)
        qsort(listing->names, listing->count, sizeof *listing->names, listing_compare);
}

bool listing_read(const char *folder, struct listing *folders, struct listing *files,
                  bool (*keep)(const char *name), struct error *error)
{
    DIR *stream = opendir(folder);
    if (stream == NULL)
        return error_set(error, ERROR_DATA, "%s: %s", folder, strerror(errno));
    for (const struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        bool is_folder = entry->d_type == DT_DIR;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (entry->d_type == DT_UNKNOWN || entry->d_type == DT_LNK) {
            OWNED char *path = allocate_text("%s/%s", folder, entry->d_name);
            is_folder = listing_is_folder(path);
        }
        struct listing *listing = is_folder ? folders : files;
        if (listing != NULL && (is_folder || keep == NULL || keep(entry->d_name)))
            listing_add(listing, entry->d_name);
    }
    closedir(stream);
    listing_sort(folders);
    listing_sort(files);
    return true;
}

bool data_root_unexpected(const char *root, const char *expected, const char *advice,
                          struct error *error)
{
    enum { NAMED = 4 };
    char names[512] = "";
    size_t used = 0, count = 0;
    struct listing found = {0};
    if (!listing_read(root, &found, &found, NULL, error))
        return false;
    for (size_t i = 0; i < found.count; i++)
        if (found.names[i][0] != '.' && count++ < NAMED)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%.40s",
                                     count > 1 ? ", " : ", only ", found.names[i]);
    if (count > NAMED)
        snprintf(names + used, sizeof names - used, " and %zu more", count - NAMED);
    error_set(error, ERROR_DATA, "data.root=%s: %s%s%s; %s", root, expected,
              found.count == 0 ? ": it is empty" : "", names, advice);
    listing_free(&found);
    return false;
}

bool data_root_check(const char *root, const char *advice, struct error *error)
{
    struct stat status;
    if (stat(root, &status) != 0)
        return error_set(error, ERROR_DATA, "data.root=%s: %s; %s", root, strerror(errno), advice);
    return S_ISDIR(status.st_mode) ||
           error_set(error, ERROR_DATA, "data.root=%s: it is a file, not a folder; %s", root,
                     advice);
}
