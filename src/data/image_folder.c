// SPDX-License-Identifier: BSD-3-Clause
/* Image files. The format imagefolder is ROOT/SPLIT/CLASS/.../file.jpg as in torchvision's
 * ImageFolder, or ROOT/CLASS/.../file.jpg without splits (a flat folder). Predictions read files
 * and folders without labels. Rank 0 lists the classes and files; then each rank has the list. The
 * ranks of a node share one copy of a large list. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* qsort_r */
#endif
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/file.h"
#include "base/log.h"
#include "comm/comm.h"
#include "data/listing.h"
#include "data/split.h"
#include "image/image_file.h"
#include "options/options.h"

/* One file: offsets of its folder and its name in the texts. */
struct image_entry {
    size_t folder, name;
    int64_t label;
};

/* Precedes the entries in the index. */
struct header {
    int64_t count, held_out;
};

struct image_list {
    struct byte_buffer entries, texts; /* while rank 0 lists the files */
    bool skips_folders;                /* that cannot be read */
    struct joined_bytes index;         /* of all ranks: header, entries, texts */
    const struct image_entry *entry;   /* [dataset->count] */
    const char *text;                  /* each with a terminating zero */
    void *kept;                        /* the entries without broken files, or NULL */
};

/* ---- Listing, on rank 0. */

/* Return the offset of the text. */
static size_t text_add(struct image_list *list, const char *text)
{
    return byte_buffer_append(&list->texts, text, strlen(text) + 1);
}

static void file_add(struct image_list *list, size_t folder, const char *name, int64_t label)
{
    const struct image_entry entry = {folder, text_add(list, name), label};
    byte_buffer_append(&list->entries, &entry, sizeof entry);
}

/* A folder and those above it. */
struct level {
    dev_t device;
    ino_t inode;
    const struct level *above;
};

/* Add the images of a folder and of all folders below it, in any order of folders. A folder that
 * cannot be read or is inside itself (a circular link) is an error, or skipped with a warning. */
static bool folder_walk(struct image_list *list, const char *folder, const struct level *above,
                        int64_t label, struct error *error)
{
    struct listing folders = {0}, files = {0};
    struct error reason = {0};
    struct stat status = {.st_ino = 0};
    bool good = stat(folder, &status) == 0 ||
                error_set(&reason, ERROR_DATA, "%s: %s", folder, strerror(errno));
    const struct level level = {status.st_dev, status.st_ino, above};
    for (; good && above != NULL; above = above->above)
        if (above->device == level.device && above->inode == level.inode)
            good = error_set(&reason, ERROR_DATA,
                             "%s: the folder is inside itself: a circular link", folder);
    good = good && listing_read(folder, &folders, &files, image_file_is_name, &reason);
    if (!good && list->skips_folders)
        log_warn("skipped: %s", reason.text);
    else if (!good)
        *error = reason;
    good |= list->skips_folders;
    const size_t at = files.count > 0 ? text_add(list, folder) : 0;
    for (size_t i = 0; i < files.count; i++)
        file_add(list, at, files.names[i], label);
    for (size_t i = 0; good && i < folders.count; i++) {
        OWNED char *path = allocate_text("%s/%s", folder, folders.names[i]);
        good = folder_walk(list, path, &level, label, error);
    }
    listing_free(&folders);
    listing_free(&files);
    return good;
}

static int entries_compare(const void *left, const void *right, void *texts)
{
    const struct image_entry *a = left, *b = right;
    const char *text = texts;
    const int order = strcmp(text + a->folder, text + b->folder);
    return order != 0 ? order : strcmp(text + a->name, text + b->name);
}

/* Add the images of the folder and of all folders below it, in torchvision's order: Python's
 * sorted(os.walk(folder)) and sorted(files). Set `is_empty` if there are none. */
static bool folder_add(struct image_list *list, const char *folder, int64_t label, bool *is_empty,
                       struct error *error)
{
    const size_t before = list->entries.count;
    const bool good = folder_walk(list, folder, NULL, label, error);
    const size_t bytes = list->entries.count - before;
    *is_empty = bytes == 0;
    if (good && bytes > 0)
        qsort_r(list->entries.data + before, bytes / sizeof *list->entry, sizeof *list->entry,
                entries_compare, list->texts.data);
    return good;
}

/* ---- The list of all ranks. */

static void list_begin(struct dataset *dataset)
{
    dataset->self = allocate(1, sizeof(struct image_list));
    dataset->encoded = true;
    dataset->channels = 3;
}

static char *list_path(const struct dataset *dataset, int64_t record)
{
    const struct image_list *list = dataset->self;
    const struct image_entry *entry = &list->entry[record];
    const char *folder = list->text + entry->folder, *name = list->text + entry->name;
    return allocate_text("%s%s%s", folder, folder[0] != '\0' ? "/" : "", name);
}

/* Collective over dataset->comm. Copy the list of rank 0, its classes and held_out to all ranks.
 * Set dataset->count, and dataset->seen from the sizes of some files. */
static void list_share(struct dataset *dataset)
{
    struct image_list *list = dataset->self;
    struct byte_buffer all = {0};
    if (dataset->rank == 0) {
        const int64_t count = (int64_t)(list->entries.count / sizeof *list->entry);
        const struct header own = {count, dataset->held_out};
        byte_buffer_append(&all, &own, sizeof own);
        byte_buffer_append(&all, list->entries.data, list->entries.count);
        byte_buffer_append(&all, list->texts.data, list->texts.count);
        free(list->entries.data);
        free(list->texts.data);
        list->entries = list->texts = (struct byte_buffer){0};
    }
    comm_join(dataset->comm, all.data, (int64_t)all.count, &list->index);
    const struct header *header = (const struct header *)(const void *)list->index.data;
    list->entry = (const struct image_entry *)(const void *)(header + 1);
    list->text = (const char *)(list->entry + header->count);
    dataset->count = header->count;
    dataset->held_out = header->held_out != 0;
    comm_share_texts(dataset->comm, &dataset->class_name, &dataset->classes);
    const int64_t compared = listing_compared(dataset->count, dataset->ranks);
    for (int64_t i = 0; i < compared; i++) {
        OWNED char *path = list_path(dataset, i * dataset->count / compared);
        dataset->seen = listing_sum_size(dataset->seen, path);
    }
}

/* Collective. Check the files, remove broken ones, and set dataset->sum. */
static bool list_check(struct dataset *dataset, const struct options *options, struct error *error)
{
    struct image_list *list = dataset->self;
    if (!record_check(dataset, options, list->entry, sizeof *list->entry, &list->kept, error))
        return false;
    if (list->kept != NULL)
        list->entry = list->kept;
    for (int64_t i = 0; dataset->rank == 0 && i < dataset->count; i++) {
        const char *name = list->text + list->entry[i].name;
        const int32_t label = (int32_t)list->entry[i].label;
        dataset->sum = crc32c_update(dataset->sum, name, strlen(name) + 1);
        dataset->sum = crc32c_update(dataset->sum, &label, sizeof label);
    }
    if (dataset->comm != NULL)
        comm_broadcast(dataset->comm, &dataset->sum, sizeof dataset->sum, COMM_BYTE, 0);
    return true;
}

/* ---- Records. */

static bool list_locate(const struct dataset *dataset, int64_t record, struct record_place *place,
                        struct error *error)
{
    OWNED char *path = list_path(dataset, record);
    int64_t bytes = 0;
    const int descriptor = text_file_descriptor(path, &bytes);
    *place = (struct record_place){descriptor, .is_own = descriptor >= 0, .bytes = (size_t)bytes};
    return descriptor >= 0 ||
           error_set(error, ERROR_DATA, "%s",
                     errno == EINVAL ? "is not a regular file" : strerror(errno));
}

static int32_t list_label(const struct dataset *dataset, int64_t record)
{
    const struct image_list *list = dataset->self;
    return (int32_t)list->entry[record].label;
}

static void list_name(const struct dataset *dataset, int64_t record, char *text, size_t size)
{
    OWNED char *path = list_path(dataset, record);
    snprintf(text, size, "%s", path);
}

static void list_close(struct dataset *dataset)
{
    struct image_list *list = dataset->self;
    free(list->entries.data);
    free(list->texts.data);
    free(list->kept);
    comm_joined_free(&list->index);
    free(list);
}

/* ---- The format imagefolder. */

/* List the folders of classes. Hidden folders, as .ipynb_checkpoints, are none. */
static bool classes_list(const char *path, struct listing *classes, struct error *error)
{
    size_t count = 0;
    const bool good = listing_read(path, classes, NULL, NULL, error);
    for (size_t i = 0; i < classes->count; i++)
        if (classes->names[i][0] == '.')
            free(classes->names[i]);
        else
            classes->names[count++] = classes->names[i];
    classes->count = count;
    return good;
}

static const char layout[] =
    "it must contain train and val or test, each with one folder per class, or one folder per "
    "class and data.val=0.1";

/* The folders of splits in data.root. In a flat folder, whose subfolders are classes, all images
 * are for training. */
struct split_folders {
    char *path[SPLIT_TEST + 1]; /* NULL: none */
    bool is_flat;
};

static void folders_find(const char *root, struct split_folders *folders)
{
    static const struct {
        const char *name;
        enum data_split split;
    } names[] = {{"train", SPLIT_TRAIN}, /* in order of preference */
                 {"val", SPLIT_VALIDATION},
                 {"valid", SPLIT_VALIDATION},
                 {"validation", SPLIT_VALIDATION},
                 {"test", SPLIT_TEST}};
    *folders = (struct split_folders){.is_flat = true};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char **path = &folders->path[names[i].split];
        char *found = allocate_text("%s/%s", root, names[i].name);
        if (*path != NULL || !listing_is_folder(found)) {
            free(found);
            continue;
        }
        *path = found;
        folders->is_flat = false;
    }
    if (folders->is_flat)
        folders->path[SPLIT_TRAIN] = allocate_copy(root);
}

/* Return the folder to open for a split (split_stored), or NULL and an error. */
static const char *folder_choose(const struct options *options, const struct split_folders *folders,
                                 enum data_split split, struct dataset *dataset,
                                 struct error *error)
{
    const bool val = options->data.val == VALIDATION_VAL && split == SPLIT_VALIDATION;
    bool stored[SPLIT_TEST + 1];
    for (int s = SPLIT_TRAIN; s <= SPLIT_TEST; s++)
        stored[s] = folders->path[s] != NULL;
    const int chosen = split_stored(options, split, stored);
    if (chosen >= 0 && !(folders->is_flat && options->data.val == VALIDATION_TEST)) {
        if (split != SPLIT_TRAIN)
            dataset->held_out = chosen == SPLIT_TRAIN;
        return folders->path[chosen];
    }
    data_root_unexpected(options->data.root,
                         folders->is_flat       ? "no folder train, val or test"
                         : split == SPLIT_TRAIN ? "no folder train"
                         : val                  ? "no folder val, valid or validation"
                                                : "no folder test, val, valid or validation",
                         folders->is_flat || split == SPLIT_TRAIN
                             ? layout
                             : "add one, or train with data.val=0.1 or data.val=none",
                         error);
    return NULL;
}

/* Classes are those of the training folder; without one, those of the folder `path`, which may have
 * no other classes: the model has no outputs for them. */
static bool classes_find(struct dataset *dataset, const char *train, const char *path,
                         struct error *error)
{
    struct listing found = {0};
    bool good = true;
    if (dataset->class_name == NULL) {
        const char *first = train != NULL ? train : path;
        struct listing classes = {0};
        good = classes_list(first, &classes, error);
        dataset->class_name = classes.names; /* freed by dataset_close */
        dataset->classes = (int64_t)classes.count;
        if (good && dataset->classes == 0)
            good = data_root_unexpected(first, "no class folders", layout, error);
    }
    good = good && classes_list(path, &found, error);
    for (size_t i = 0; good && i < found.count; i++)
        if (bsearch(&found.names[i], dataset->class_name, (size_t)dataset->classes, sizeof(char *),
                    listing_compare) == NULL)
            good =
                error_set(error, ERROR_DATA,
                          "%s/%s: class missing in the training folder: both need the same classes",
                          path, found.names[i]);
    listing_free(&found);
    return good;
}

/* Add the images of all classes of a split; a missing folder of a class is empty. */
static bool split_add(const struct options *options, const struct split_folders *folders,
                      enum data_split split, struct dataset *dataset, struct error *error)
{
    const char *path = folder_choose(options, folders, split, dataset, error);
    if (path == NULL || !classes_find(dataset, folders->path[SPLIT_TRAIN], path, error))
        return false;
    for (int64_t i = 0; i < dataset->classes; i++) {
        OWNED char *class_path = allocate_text("%s/%s", path, dataset->class_name[i]);
        bool is_empty = true;
        if (listing_is_folder(class_path) &&
            !folder_add(dataset->self, class_path, i, &is_empty, error))
            return false;
        if (is_empty && !options->data.allow_empty)
            return error_set(
                error, ERROR_DATA,
                "%s: no images (.jpg, .jpeg, .png, .webp) in this class's folder: add some, "
                "or set data.allow_empty=on",
                class_path);
    }
    return true;
}

/* Add the records of a split; with data.val=reference all records, training first. A flat folder
 * has training records only. */
static bool records_add(const struct options *options, enum data_split split,
                        struct dataset *dataset, struct error *error)
{
    const bool all = options->data.val == VALIDATION_REFERENCE;
    struct split_folders folders;
    if (!data_root_check(options->data.root, "set it to the folder of train and val", error))
        return false;
    folders_find(options->data.root, &folders);
    bool good = split_add(options, &folders, all ? SPLIT_TRAIN : split, dataset, error);
    if (good && all && !folders.is_flat)
        good = split_add(options, &folders, SPLIT_TEST, dataset, error);
    for (int s = SPLIT_TRAIN; s <= SPLIT_TEST; s++)
        free(folders.path[s]);
    return good;
}

static bool image_folder_open(const struct options *options, enum data_split split,
                              struct dataset *dataset, struct error *error)
{
    list_begin(dataset);
    if (options->data.root[0] == '\0')
        return error_set(error, ERROR_USAGE, "data.format=imagefolder needs data.root");
    if (dataset->rank == 0)
        error_defer(records_add(options, split, dataset, error));
    if (!dataset_agree(dataset, error))
        return false;
    list_share(dataset);
    return list_check(dataset, options, error);
}

const struct dataset_format dataset_image_folder = {
    .name = "imagefolder",
    .open = image_folder_open,
    .locate = list_locate,
    .label = list_label,
    .name_record = list_name,
    .close = list_close,
    .splits = true,
};

/* ---- Image files without labels, for predictions. */

static const struct dataset_format file_list = {
    .name = "files",
    .locate = list_locate,
    .name_record = list_name,
    .close = list_close,
};

/* On rank 0: list the files. */
static bool operands_add(struct image_list *list, const char *const *operands, int count,
                         struct error *error)
{
    const size_t no_folder = text_add(list, "");
    bool good = true, is_empty = false;
    for (int i = 0; good && i < count; i++) {
        int length = (int)strlen(operands[i]);
        while (length > 1 && operands[i][length - 1] == '/')
            length--;
        OWNED char *path = allocate_text("%.*s", length, operands[i]);
        if (!listing_is_folder(path))
            file_add(list, no_folder, operands[i], 0);
        else
            good = folder_add(list, path, 0, &is_empty, error);
        if (good && is_empty)
            good = error_set(error, ERROR_DATA,
                             "%s: no images in this folder: no file name has the extension of an "
                             "image, such as .jpg, .png or .webp",
                             path);
    }
    return good;
}

bool file_list_open(struct dataset *dataset, const struct options *options,
                    const char *const *operands, int count, struct comm *comm, struct error *error)
{
    dataset_begin_open(dataset, comm);
    list_begin(dataset);
    dataset->format = &file_list;
    struct image_list *list = dataset->self;
    list->skips_folders = options->data.skip_broken;
    if (dataset->rank == 0)
        error_defer(operands_add(list, operands, count, error));
    bool good = dataset_agree(dataset, error);
    if (good)
        list_share(dataset);
    good = good && list_check(dataset, options, error);
    if (good && dataset->count == 0)
        good = error_set(error, ERROR_DATA, "none of the files can be used");
    if (!good)
        dataset_close(dataset);
    return good;
}
