/* Lists classes and files in torchvision's order: Python's sorted(os.walk(folder)) and
 * sorted(files), which compare names byte by byte in UTF-8. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "data/image_folder.h"

enum { PATH_SIZE = 4096, DEPTH_MOST = 32 };

/* Endings that torchvision accepts. Only JPEG and PNG can be decoded; other files are listed and
 * then refused, so that no file is skipped silently. */
static const char *const endings[] = {".jpg", ".jpeg", ".png",  ".ppm", ".bmp",
                                      ".pgm", ".tif",  ".tiff", ".webp"};

struct listing {
    char **names;
    size_t count, capacity;
};

static bool no_memory(struct error *error)
{
    return error_set(error, ERROR_MEMORY, "no memory for the list of images");
}

/* Grow an array for one more element. */
static bool grow(void *array, size_t *capacity, size_t count, size_t bytes, struct error *error)
{
    void **place = array;
    if (count < *capacity)
        return true;
    const size_t wanted = *capacity < 64 ? 64 : 2 * *capacity;
    void *larger = realloc(*place, wanted * bytes);
    if (larger == NULL)
        return no_memory(error);
    *place = larger;
    *capacity = wanted;
    return true;
}

static bool listing_add(struct listing *listing, const char *name, struct error *error)
{
    if (!grow(&listing->names, &listing->capacity, listing->count, sizeof *listing->names, error))
        return false;
    listing->names[listing->count] = strdup(name);
    if (listing->names[listing->count] == NULL)
        return no_memory(error);
    listing->count++;
    return true;
}

static void listing_free(struct listing *listing)
{
    for (size_t i = 0; i < listing->count; i++)
        free(listing->names[i]);
    free(listing->names);
    *listing = (struct listing){0};
}

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static bool join(char *path, size_t size, const char *directory, const char *name,
                 struct error *error)
{
    const int length = snprintf(path, size, "%s/%s", directory, name);
    return (length >= 0 && (size_t)length < size) ||
           error_set(error, ERROR_DATA, "%s: the path of %.100s is longer than %zu bytes",
                     directory, name, size);
}

/* True for directories and links to directories. */
static bool is_directory(const char *path, const struct dirent *entry)
{
    struct stat status;
    if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK)
        return entry->d_type == DT_DIR;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static bool is_image_name(const char *name)
{
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        const size_t ending = strlen(endings[i]);
        if (length >= ending && strcasecmp(name + length - ending, endings[i]) == 0)
            return true;
    }
    return false;
}

/* List subdirectories and image files (either may be NULL), sorted. */
static bool list(const char *directory, struct listing *folders, struct listing *files,
                 struct error *error)
{
    char path[PATH_SIZE];
    bool good = true;
    DIR *stream = opendir(directory);
    if (stream == NULL)
        return error_set(error, ERROR_DATA, "%s: %s", directory, strerror(errno));
    for (const struct dirent *entry; good && (entry = readdir(stream)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        good = join(path, sizeof path, directory, entry->d_name, error);
        if (good && is_directory(path, entry))
            good = folders == NULL || listing_add(folders, entry->d_name, error);
        else if (good && files != NULL && is_image_name(entry->d_name))
            good = listing_add(files, entry->d_name, error);
    }
    closedir(stream);
    if (folders != NULL && folders->count > 0)
        qsort(folders->names, folders->count, sizeof *folders->names, compare_names);
    if (files != NULL && files->count > 0)
        qsort(files->names, files->count, sizeof *files->names, compare_names);
    return good;
}

bool folder_list_classes(const char *directory, char ***names, int64_t *count, struct error *error)
{
    struct listing folders = {0};
    if (!list(directory, &folders, NULL, error)) {
        listing_free(&folders);
        return false;
    }
    *names = folders.names;
    *count = (int64_t)folders.count;
    return true;
}

/* List all directories below `directory`, including it. */
static bool walk(const char *directory, int depth, struct listing *found, struct error *error)
{
    struct listing folders = {0};
    char path[PATH_SIZE];
    if (depth > DEPTH_MOST)
        return error_set(error, ERROR_DATA,
                         "%s: more than %d nested folders: check for circular links", directory,
                         DEPTH_MOST);
    bool good = listing_add(found, directory, error) && list(directory, &folders, NULL, error);
    for (size_t i = 0; good && i < folders.count; i++)
        good = join(path, sizeof path, directory, folders.names[i], error) &&
               walk(path, depth + 1, found, error);
    listing_free(&folders);
    return good;
}

static bool add_file(struct image_folder *self, const char *name, struct error *error)
{
    const size_t bytes = strlen(name) + 1;
    while (self->names_capacity - self->names_bytes < bytes)
        if (!grow(&self->names, &self->names_capacity, self->names_capacity, 1, error))
            return false;
    if (!grow(&self->records, &self->record_capacity, self->record_count, sizeof *self->records,
              error))
        return false;
    self->records[self->record_count++] =
        (struct folder_record){self->names_bytes, (uint32_t)self->folder_count - 1};
    memcpy(self->names + self->names_bytes, name, bytes);
    self->names_bytes += bytes;
    return true;
}

static bool add_folder(struct image_folder *self, const char *path, int32_t label,
                       struct error *error)
{
    struct listing files = {0};
    bool good = grow(&self->folders, &self->folder_capacity, self->folder_count,
                     sizeof *self->folders, error) &&
                list(path, NULL, &files, error);
    if (good && files.count > 0) {
        char *copy = strdup(path);
        good = copy != NULL || no_memory(error);
        if (good)
            self->folders[self->folder_count++] = (struct folder){copy, label};
    }
    for (size_t i = 0; good && i < files.count; i++)
        good = add_file(self, files.names[i], error);
    listing_free(&files);
    return good;
}

bool folder_add_class(struct image_folder *self, const char *directory, int32_t label,
                      struct error *error)
{
    struct listing found = {0};
    bool good = walk(directory, 0, &found, error);
    if (good)
        qsort(found.names, found.count, sizeof *found.names, compare_names);
    for (size_t i = 0; good && i < found.count; i++)
        good = add_folder(self, found.names[i], label, error);
    listing_free(&found);
    return good;
}
