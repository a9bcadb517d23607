// SPDX-License-Identifier: BSD-3-Clause
/* Messages about a data.root that does not hold the data set. */
#include "data/data_root.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/text.h"
#include "data/image_file.h"
#include "data/listing.h"
#include "data/tar_shards.h"

enum { TEXT_SIZE = 1024 };
enum { SEARCHED = 64, LEVELS = 2, NESTED = 8 }; /* limits of searches below the root */

/* ---- kinds of files, by name ---- */

static bool is_archive(const char *name)
{
    static const char *const endings[] = {".zip",     ".tar",     ".tar.gz", ".tgz", ".tar.xz",
                                          ".tar.bz2", ".tar.zst", ".7z",     ".rar"};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (text_ends_with(name, endings[i]))
            return true;
    return false;
}

static bool is_pickle_archive(const char *name)
{
    return strncmp(name, "cifar-10-python.", strlen("cifar-10-python.")) == 0;
}

static bool is_packed(const char *name)
{
    return text_ends_with(name, ".h5");
}

static bool is_pickle(const char *name)
{
    return strcmp(name, "data_batch_1") == 0 || strcmp(name, "batches.meta") == 0;
}

static bool is_binary(const char *name)
{
    return strcmp(name, "data_batch_1.bin") == 0;
}

static bool is_image_format(const char *format)
{
    return strcmp(format, "imagefolder") == 0 || strcmp(format, "cinic10") == 0;
}

/* ---- a root that is no folder ---- */

/* Write the path of a name in a folder; "." is the working directory. */
static void child_path(char *path, size_t size, const char *folder, const char *name)
{
    if (strcmp(folder, ".") == 0)
        snprintf(path, size, "%s", name);
    else
        snprintf(path, size, "%s/%s", strcmp(folder, "/") == 0 ? "" : folder, name);
}

/* Return the name in the list that was probably meant: an archive of the folder, or the nearest by
 * edit distance; else NULL. */
static const char *find_meant(struct listing *names, const char *name, struct error *error)
{
    for (size_t i = 0; i < names->count; i++)
        if (strncmp(names->names[i], name, strlen(name)) == 0 && is_archive(names->names[i]))
            return names->names[i];
    if (!listing_grow(&names->names, &names->capacity, names->count, sizeof *names->names, error))
        return NULL;
    names->names[names->count] = NULL;
    return text_nearest(name, (const char *const *)names->names);
}

/* Set the error of a name that is missing in an existing folder. */
static bool missing_in(const char *root, const char *folder, const char *name, const char *advice,
                       struct error *error)
{
    char path[LISTING_PATH], target[TEXT_SIZE], names[TEXT_SIZE / 2];
    struct listing found = {0};
    struct error none = {0};
    child_path(path, sizeof path, folder, name);
    const ssize_t length = readlink(path, target, sizeof target - 1);
    if (length > 0)
        return error_set(error, ERROR_DATA,
                         "data.root=%s: %.300s is a link to %.*s, which is missing", root, path,
                         (int)length, target);
    error_defer(listing_read(folder, &found, &found, NULL, &none));
    const char *meant = find_meant(&found, name, &none);
    if (meant != NULL) {
        child_path(path, sizeof path, folder, meant);
        error_set(error, ERROR_DATA, "data.root=%s: no such file or folder; %s %.400s%s", root,
                  is_archive(meant) ? "extract the archive" : "did you mean", path,
                  is_archive(meant) ? "" : "?");
    }
    listing_name_some(&found, names, sizeof names);
    const bool has_names = names[0] != '\0';
    listing_free(&found);
    if (strcmp(folder, ".") == 0 && getcwd(target, sizeof target) != NULL)
        folder = target;
    return error_set(error, ERROR_DATA,
                     "data.root=%s: no such file or folder: %.300s does not contain %.100s%s%s; %s",
                     root, folder, name, has_names ? ", only " : "", has_names ? names : "",
                     advice);
}

/* Find the longest part of the path that exists. */
static bool root_missing(const char *root, const char *advice, struct error *error)
{
    char path[LISTING_PATH], quoted[LISTING_PATH];
    struct stat status;
    snprintf(path, sizeof path, "%s", root);
    if (strchr(root, ':') != NULL) { /* the message continues with a colon */
        snprintf(quoted, sizeof quoted, "\"%s\"", root);
        root = quoted;
    }
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

static bool root_is_file(const char *root, const char *advice, struct error *error)
{
    const char *slash = strrchr(root, '/'), *name = slash != NULL ? slash + 1 : root;
    if (is_pickle_archive(name))
        return error_set(
            error, ERROR_DATA,
            "data.root=%s: is the archive of CIFAR-10's Python pickles; get its binary "
            "version with `vittrain fetch cifar10`",
            root);
    if (is_archive(name))
        return error_set(error, ERROR_DATA,
                         "data.root=%s: is an archive; extract it and set data.root to its "
                         "folder%s",
                         root,
                         text_ends_with(name, ".tar")
                             ? ", or set data.format=webdataset for WebDataset shards"
                             : "");
    if (is_packed(name))
        return error_set(error, ERROR_DATA,
                         "data.root=%s: is not a folder; set data.format=packed if `vittrain "
                         "convert data` wrote it",
                         root);
    return error_set(error, ERROR_DATA, "data.root=%s: is %s, not a folder; %s", root,
                     image_file_is_name(name) ? "an image" : "a file", advice);
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
        return root_is_file(root, advice, error);
    const bool good = listing_read(root, &found, &found, NULL, error);
    const bool is_empty = found.count == 0;
    listing_free(&found);
    return good &&
           (!is_empty || error_set(error, ERROR_DATA, "data.root=%s: is empty; %s", root, advice));
}

/* ---- a folder with other data ---- */

static const char *find_name(const struct listing *listing, bool (*matches)(const char *name))
{
    for (size_t i = 0; i < listing->count; i++)
        if (matches(listing->names[i]))
            return listing->names[i];
    return NULL;
}

/* Find a folder train below `folder` and write the path of its parent. */
static bool find_train(const char *folder, int levels, char *path)
{
    struct listing found = {0};
    struct error none = {0};
    char below[LISTING_PATH];
    error_defer(listing_read(folder, &found, NULL, NULL, &none));
    bool is_found = listing_has(&found, "train");
    if (is_found)
        snprintf(path, LISTING_PATH, "%s", folder);
    for (size_t i = 0; i < found.count && i < SEARCHED && !is_found && levels > 0; i++)
        is_found = listing_join(below, sizeof below, folder, found.names[i], &none) &&
                   find_train(below, levels - 1, path);
    listing_free(&found);
    return is_found;
}

/* True if a folder of the list holds images. */
static bool has_class(const char *root, const struct listing *folders)
{
    bool is_found = false;
    struct error none = {0};
    char path[LISTING_PATH];
    for (size_t i = 0; i < folders->count && i < SEARCHED && !is_found; i++) {
        struct listing images = {0};
        is_found = listing_join(path, sizeof path, root, folders->names[i], &none) &&
                   listing_read(path, NULL, &images, image_file_is_name, &none) && images.count > 0;
        listing_free(&images);
    }
    return is_found;
}

/* A folder's names by kind. */
struct contents {
    const char *root, *format;
    struct listing folders, files, images;
};

static bool contents_read(const char *root, const char *format, struct contents *contents,
                          struct error *error)
{
    *contents = (struct contents){.root = root, .format = format};
    return listing_read(root, &contents->folders, &contents->files, NULL, error) &&
           listing_read(root, NULL, &contents->images, image_file_is_name, error);
}

static void contents_free(struct contents *contents)
{
    listing_free(&contents->folders);
    listing_free(&contents->files);
    listing_free(&contents->images);
}

/* True for CIFAR-10 as pickles, or as binary files if the format is another. `text`: what the
 * folder holds and what to do, also below. */
static bool is_cifar10(const struct contents *contents, char *text, size_t size)
{
    const bool own = strcmp(contents->format, "cifar10") == 0;
    if (find_name(&contents->files, is_binary) != NULL ||
        listing_has(&contents->folders, "cifar-10-batches-bin")) {
        snprintf(text, size, "CIFAR-10's binary files: set data.format=cifar10");
        return !own;
    }
    snprintf(text, size,
             "CIFAR-10's Python pickles: get its binary version with `vittrain fetch cifar10`%s",
             own ? "" : " and set data.format=cifar10");
    return find_name(&contents->files, is_pickle) != NULL ||
           listing_has(&contents->folders, "cifar-10-batches-py") ||
           find_name(&contents->files, is_pickle_archive) != NULL;
}

/* True for image folders further below, or here if the format is another. */
static bool is_image_folder(const struct contents *contents, char *text, size_t size)
{
    char path[LISTING_PATH], names[TEXT_SIZE / 2];
    const bool own = is_image_format(contents->format);
    const char *other = own ? "" : " data.format=imagefolder";
    const bool is_found = find_train(contents->root, LEVELS, path);
    if (is_found && strcmp(path, contents->root) != 0)
        snprintf(text, size, "a folder train in %.300s: set data.root=%.300s%s", path, path, other);
    else if (is_found && !own)
        snprintf(text, size, "a folder train: set data.format=imagefolder");
    else if (!own && has_class(contents->root, &contents->folders)) {
        listing_name_some(&contents->folders, names, sizeof names);
        snprintf(text, size, "folders with images (%s): set data.format=imagefolder data.val=0.1",
                 names);
    } else
        return false;
    return true;
}

static bool is_packed_or_archive(const struct contents *contents, char *text, size_t size)
{
    const char *packed = find_name(&contents->files, is_packed);
    const char *archive = find_name(&contents->files, is_archive);
    const char *shard = find_name(&contents->files, tar_shards_is_shard);
    if (contents->folders.count > 0)
        return false;
    if (packed != NULL && strcmp(contents->format, "packed") != 0)
        snprintf(text, size, "%.200s: set data.format=packed if it is packed data", packed);
    else if (shard != NULL && strcmp(contents->format, "webdataset") != 0)
        snprintf(text, size,
                 "%.200s: set data.format=webdataset if it has samples (KEY.jpg, KEY.cls), else "
                 "extract it",
                 shard);
    else if (archive != NULL)
        snprintf(text, size, "the archive %.200s: extract it", archive);
    else
        return false;
    return true;
}

static bool has_images_only(const struct contents *contents, char *text, size_t size)
{
    snprintf(text, size,
             "%zu images outside of class folders: put the images of each class into a folder "
             "of its own",
             contents->images.count);
    return contents->images.count > 0 && contents->folders.count == 0;
}

bool data_root_holds_other(const char *root, const char *format, struct error *error)
{
    char text[TEXT_SIZE];
    struct contents contents;
    struct error none = {0};
    const bool is_other = contents_read(root, format, &contents, &none) &&
                          (is_cifar10(&contents, text, sizeof text) ||
                           is_image_folder(&contents, text, sizeof text) ||
                           is_packed_or_archive(&contents, text, sizeof text) ||
                           has_images_only(&contents, text, sizeof text));
    contents_free(&contents);
    if (is_other)
        error_set(error, ERROR_DATA, "data.root=%s: holds %s", root, text);
    return is_other;
}

bool data_root_unexpected(const char *root, const char *format, const char *expected,
                          const char *advice, struct error *error)
{
    char names[TEXT_SIZE / 2];
    struct listing found = {0};
    if (data_root_holds_other(root, format, error) ||
        !listing_read(root, &found, &found, NULL, error))
        return false;
    listing_name_some(&found, names, sizeof names);
    listing_free(&found);
    return error_set(error, ERROR_DATA, "data.root=%s: %s%s%s; %s", root, expected,
                     names[0] != '\0' ? ", only " : "", names, advice);
}

bool data_root_one_class(const char *root, const char *path, const char *name, struct error *error)
{
    char nested[LISTING_PATH], names[TEXT_SIZE / 2];
    struct contents contents;
    struct error none = {0};
    snprintf(nested, sizeof nested, "%s/%s", path, name);
    /* Follow folders that hold one folder and no images. */
    for (int level = 0;; level++) {
        if (!contents_read(nested, "imagefolder", &contents, &none) || level == NESTED ||
            contents.folders.count != 1 || contents.images.count > 0)
            break;
        const size_t used = strlen(nested);
        snprintf(nested + used, sizeof nested - used, "/%s", contents.folders.names[0]);
        contents_free(&contents);
    }
    listing_name_some(&contents.folders, names, sizeof names);
    const bool is_nested = contents.folders.count > 1 && contents.images.count == 0;
    const size_t images = contents.images.count;
    contents_free(&contents);
    if (!is_nested)
        return error_set(
            error, ERROR_DATA,
            "%s: one class only, %.100s (%zu images): training needs two or more, each "
            "in a folder of its own",
            path, name, images);
    if (strcmp(root, path) == 0)
        return error_set(error, ERROR_DATA,
                         "data.root=%s: one class only, %.100s; the classes (%s) are further "
                         "below: set data.root=%.400s",
                         root, name, names, nested);
    return error_set(error, ERROR_DATA,
                     "%s: one class only, %.100s; the classes (%s) are further below: move them "
                     "from %.400s to %.300s",
                     path, name, names, nested, path);
}
