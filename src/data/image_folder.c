// SPDX-License-Identifier: BSD-3-Clause
/* Image files. The formats imagefolder and cinic10 are ROOT/SPLIT/CLASS/.../file.jpg as in
 * torchvision's ImageFolder, or ROOT/CLASS/.../file.jpg without splits (a flat folder). Predictions
 * read files and folders without labels. Rank 0 lists the classes and files; then each rank has the
 * list. The ranks of a node share one copy of a large list. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "data/listing.h"
#include "data/record_check.h"
#include "data/split.h"
#include "options/options.h"

/* One file: offsets of its folder and its name in the texts. */
struct image_entry {
    size_t folder, name;
    int64_t label;
};

/* Precedes the entries in the index. */
struct header {
    int64_t count, held_out, sum;
};

struct image_list {
    struct byte_buffer entries, texts; /* while rank 0 lists the files */
    struct joined_bytes index;         /* of all ranks: header, entries, texts */
    const struct image_entry *entry;   /* [dataset->count] */
    const char *text;                  /* each with a terminating zero */
    struct image_entry *kept;          /* the entries without broken files, or NULL */
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

/* The images of one folder. */
struct image_folder {
    char *path;
    struct listing files;
};

struct walk {
    struct image_folder *folder;
    size_t count, capacity;
    bool skip_broken;
};

/* A folder and those above it. */
struct level {
    dev_t device;
    ino_t inode;
    const struct level *above;
};

/* Find the images of a folder and of all folders below it. A folder that cannot be read or is
 * inside itself (a circular link) is an error; with skip_broken it is skipped with a warning. */
static bool folder_walk(struct walk *walk, const char *folder, const struct level *above,
                        struct error *error)
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
    if (!good) {
        listing_free(&folders);
        listing_free(&files);
        if (!walk->skip_broken || reason.kind != ERROR_DATA) {
            *error = reason;
            return false;
        }
        log_warn("skipped: %s", reason.text);
        return true;
    }
    walk->folder = allocate_more(walk->folder, &walk->capacity, walk->count, sizeof *walk->folder);
    walk->folder[walk->count++] = (struct image_folder){allocate_copy(folder), files};
    for (size_t i = 0; good && i < folders.count; i++) {
        OWNED char *path = allocate_text("%s/%s", folder, folders.names[i]);
        good = folder_walk(walk, path, &level, error);
    }
    listing_free(&folders);
    return good;
}

static int paths_compare(const void *left, const void *right)
{
    const struct image_folder *a = left, *b = right;
    return strcmp(a->path, b->path);
}

/* Add the images of the folder and of all folders below it, in torchvision's order: Python's
 * sorted(os.walk(folder)) and sorted(files). */
static bool walk_add(struct image_list *list, const char *folder, bool skip_broken, int64_t label,
                     struct error *error)
{
    struct walk walk = {.skip_broken = skip_broken};
    const bool good = folder_walk(&walk, folder, NULL, error);
    if (walk.count > 0)
        qsort(walk.folder, walk.count, sizeof *walk.folder, paths_compare);
    for (size_t f = 0; f < walk.count; f++) {
        struct listing *files = &walk.folder[f].files;
        const size_t at = files->count > 0 ? text_add(list, walk.folder[f].path) : 0;
        for (size_t i = 0; i < files->count; i++)
            file_add(list, at, files->names[i], label);
        listing_free(files);
        free(walk.folder[f].path);
    }
    free(walk.folder);
    return good;
}

/* ---- The list of all ranks. */

static void list_begin(struct dataset *dataset)
{
    dataset->self = allocate(1, sizeof(struct image_list));
    dataset->encoded = true;
    dataset->channels = 3;
}

static uint32_t list_sum(const struct image_list *list, int64_t count)
{
    uint32_t sum = 0;
    for (int64_t i = 0; i < count; i++) {
        const char *name = list->text + list->entry[i].name;
        const int32_t label = (int32_t)list->entry[i].label;
        sum = crc32c_update(sum, name, strlen(name) + 1);
        sum = crc32c_update(sum, &label, sizeof label);
    }
    return sum;
}

static char *list_path(const struct dataset *dataset, int64_t record)
{
    const struct image_list *list = dataset->self;
    const struct image_entry *entry = &list->entry[record];
    const char *folder = list->text + entry->folder, *name = list->text + entry->name;
    return allocate_text("%s%s%s", folder, folder[0] != '\0' ? "/" : "", name);
}

/* Collective over dataset->comm. Copy the list of rank 0, its classes and held_out to all ranks.
 * Set dataset->count, dataset->sum, and dataset->seen from the sizes of some files. */
static void list_share(struct dataset *dataset)
{
    struct image_list *list = dataset->self;
    struct byte_buffer all = {0};
    if (dataset->rank == 0) {
        const int64_t count = (int64_t)(list->entries.count / sizeof *list->entry);
        list->entry = (const struct image_entry *)(const void *)list->entries.data;
        list->text = (const char *)list->texts.data;
        const struct header own = {count, dataset->held_out, list_sum(list, count)};
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
    dataset->sum = (uint32_t)header->sum;
    comm_share_texts(dataset->comm, &dataset->class_name, &dataset->classes);
    const int64_t compared = listing_compared(dataset->count, dataset->ranks);
    for (int64_t i = 0; i < compared; i++) {
        OWNED char *path = list_path(dataset, i * dataset->count / compared);
        dataset->seen = listing_sum_size(dataset->seen, path);
    }
}

/* Open a regular file and set its size. The error does not name it. */
static int file_open(const char *path, int64_t *bytes, struct error *error)
{
    const int descriptor = text_file_descriptor(path, bytes);
    if (descriptor < 0)
        error_set(error, ERROR_DATA, "%s",
                  errno == EINVAL ? "is not a regular file" : strerror(errno));
    return descriptor;
}

static bool check_file(const struct dataset *dataset, int64_t record, const struct options *options,
                       struct check_scratch *scratch, struct error *error)
{
    OWNED char *path = list_path(dataset, record);
    int64_t bytes;
    const int descriptor = file_open(path, &bytes, error);
    const bool good = descriptor >= 0 &&
                      record_check_image(descriptor, 0, (size_t)bytes, options, scratch, error);
    if (descriptor >= 0)
        close(descriptor);
    return good;
}

/* Collective. Check every file, each by one rank. Files that are not images are an error, or
 * removed with data.skip_broken=on. */
static bool list_check(struct dataset *dataset, const struct options *options, struct error *error)
{
    struct image_list *list = dataset->self;
    const int64_t count = dataset->count;
    OWNED uint8_t *broken = NULL;
    if ((options->data.check != CHECK_NONE || record_check_is_full(options)) &&
        !record_check(dataset, options, check_file, &broken, error))
        return false;
    if (broken != NULL) {
        list->kept = allocate((size_t)count, sizeof *list->kept);
        dataset->count = 0;
        for (int64_t i = 0; i < count; i++)
            if (!broken[i])
                list->kept[dataset->count++] = list->entry[i];
        list->entry = list->kept;
        dataset->sum = list_sum(list, dataset->count);
    }
    return true;
}

/* ---- Records. */

static bool list_label(struct dataset *dataset, int64_t record, int32_t *label, struct error *error)
{
    const struct image_list *list = dataset->self;
    (void)error;
    *label = (int32_t)list->entry[record].label;
    return true;
}

static bool list_load(struct dataset *dataset, int64_t record, struct byte_buffer *bytes,
                      int32_t *label, struct error *error)
{
    OWNED char *path = list_path(dataset, record);
    struct error reason = {0};
    int64_t size = 0;
    const int descriptor = file_open(path, &size, &reason);
    if (descriptor >= 0 && byte_buffer_reserve(bytes, (size_t)size, &reason) &&
        record_read(descriptor, bytes->data, 0, (size_t)size, &reason))
        bytes->count = (size_t)size;
    if (descriptor >= 0)
        close(descriptor);
    return list_label(dataset, record, label, error) &&
           (reason.kind == ERROR_NONE ||
            error_set(error, reason.kind, "%.1024s: %.512s", path, reason.text));
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

/* ---- The formats imagefolder and cinic10. */

static const char advice[] =
    "data.root must contain train and val or test, each with one folder per class, or one folder "
    "per class and data.val=0.1";

/* Set the error of a flat folder without data.val=FRACTION. */
static void no_test_images(const char *root, struct error *error)
{
    char names[256];
    struct listing found = {0};
    if (!listing_read(root, &found, NULL, NULL, error))
        return;
    listing_name_some(&found, names, sizeof names);
    listing_free(&found);
    error_set(error, ERROR_DATA,
              "data.root=%s: contains class folders (%s), but no train, val or test: set "
              "data.val=0.1 to hold out a tenth of the images for validation, or "
              "data.val=none, or data.root to the folder of train and val",
              root, names);
}

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
    struct listing classes = {0};
    struct error none = {0};
    *folders = (struct split_folders){.is_flat = true};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char **path = &folders->path[names[i].split];
        OWNED char *found = allocate_text("%s/%s", root, names[i].name);
        if (*path == NULL && listing_is_folder(found)) {
            *path = found;
            found = NULL;
            folders->is_flat = false;
        }
    }
    folders->is_flat = folders->is_flat && classes_list(root, &classes, &none) && classes.count > 0;
    if (folders->is_flat)
        folders->path[SPLIT_TRAIN] = allocate_copy(root);
    listing_free(&classes);
}

/* Return the folder to open for a split (split_stored), or NULL and an error. */
static const char *folder_choose(const struct options *options, const struct split_folders *folders,
                                 enum data_split split, struct dataset *dataset,
                                 struct error *error)
{
    const char *root = options->data.root;
    bool stored[SPLIT_TEST + 1];
    for (int s = SPLIT_TRAIN; s <= SPLIT_TEST; s++)
        stored[s] = folders->path[s] != NULL;
    const int chosen = split_stored(options, split, stored);
    if (folders->is_flat && (chosen < 0 || options->data.val == VALIDATION_TEST)) {
        no_test_images(root, error);
    } else if (chosen >= 0) {
        if (split != SPLIT_TRAIN)
            dataset->held_out = chosen == SPLIT_TRAIN;
        return folders->path[chosen];
    } else if (split == SPLIT_TRAIN) {
        data_root_unexpected(root, "no folder train", advice, error);
    } else {
        const bool val = options->data.val == VALIDATION_VAL && split == SPLIT_VALIDATION;
        data_root_unexpected(root,
                             val ? "no folder val, valid or validation"
                                 : "no folder test, val, valid or validation",
                             "add one, or train with data.val=0.1 or data.val=none", error);
    }
    return NULL;
}

/* Classes are those of the training folder; without one, those of this split. */
static bool find_classes(struct dataset *dataset, const char *path, struct error *error)
{
    struct listing found = {0};
    if (dataset->class_name != NULL)
        return true;
    const bool good = classes_list(path, &found, error);
    dataset->class_name = found.names; /* freed by dataset_close */
    dataset->classes = (int64_t)found.count;
    return (good && dataset->classes > 0) ||
           error_set(error, ERROR_DATA, "%s: no class folders: it needs one folder per class",
                     path);
}

/* A class that is missing in the training folder has no output in the model: an error. */
static bool check_classes(const struct dataset *dataset, const char *path, struct error *error)
{
    struct listing found = {0};
    bool good = classes_list(path, &found, error);
    int64_t c = 0; /* both lists are sorted */
    for (size_t i = 0; good && i < found.count; i++) {
        while (c < dataset->classes && strcmp(dataset->class_name[c], found.names[i]) < 0)
            c++;
        if (c == dataset->classes || strcmp(dataset->class_name[c], found.names[i]) != 0)
            good =
                error_set(error, ERROR_DATA,
                          "%s/%s: class missing in the training folder: both need the same classes",
                          path, found.names[i]);
    }
    listing_free(&found);
    return good;
}

/* Add the images of all classes; a missing folder is empty. */
static bool add_classes(const struct options *options, struct dataset *dataset, const char *path,
                        struct error *error)
{
    struct image_list *list = dataset->self;
    for (int64_t i = 0; i < dataset->classes; i++) {
        OWNED char *class_path = allocate_text("%s/%s", path, dataset->class_name[i]);
        const size_t before = list->entries.count;
        if (listing_is_folder(class_path) && !walk_add(list, class_path, false, i, error))
            return false;
        if (list->entries.count == before && !options->data.allow_empty)
            return error_set(
                error, ERROR_DATA,
                "%s: no images (.jpg, .jpeg, .png, .webp) in this class's folder: add some, "
                "or set data.allow_empty=on",
                class_path);
    }
    return true;
}

static bool add_split(const struct options *options, const struct split_folders *folders,
                      enum data_split split, struct dataset *dataset, struct error *error)
{
    const char *path = folder_choose(options, folders, split, dataset, error);
    const char *train = folders->path[SPLIT_TRAIN];
    return path != NULL && find_classes(dataset, train != NULL ? train : path, error) &&
           check_classes(dataset, path, error) && add_classes(options, dataset, path, error);
}

/* Add the records of a split; with data.val=reference all records, training first. A flat folder
 * has training records only. */
static bool add_records(const struct options *options, enum data_split split,
                        struct dataset *dataset, struct error *error)
{
    const bool all = options->data.val == VALIDATION_REFERENCE;
    struct split_folders folders;
    folders_find(options->data.root, &folders);
    bool good = add_split(options, &folders, all ? SPLIT_TRAIN : split, dataset, error);
    if (good && all && !folders.is_flat)
        good = add_split(options, &folders, SPLIT_TEST, dataset, error);
    for (int s = SPLIT_TRAIN; s <= SPLIT_TEST; s++)
        free(folders.path[s]);
    return good;
}

static bool image_folder_open(const struct options *options, enum data_split split,
                              struct dataset *dataset, struct error *error)
{
    list_begin(dataset);
    if (options->data.root[0] == '\0')
        return error_set(error, ERROR_USAGE, "data.format=%s needs data.root",
                         options->data.format);
    if (dataset->rank == 0)
        error_defer(data_root_check(options->data.root, advice, error) &&
                    add_records(options, split, dataset, error));
    if (!dataset_agree(dataset, error))
        return false;
    list_share(dataset);
    return list_check(dataset, options, error);
}

/* Darlow et al. 2018, with mean and std published by the authors. */
static bool cinic10_open(const struct options *options, enum data_split split,
                         struct dataset *dataset, struct error *error)
{
    static const double mean[3] = {0.47889522, 0.47227842, 0.43047404};
    static const double std[3] = {0.24205776, 0.23828046, 0.25874835};
    dataset->mean = mean;
    dataset->std = std;
    return image_folder_open(options, split, dataset, error);
}

const struct dataset_format dataset_image_folder = {
    .name = "imagefolder",
    .open = image_folder_open,
    .load = list_load,
    .label = list_label,
    .name_record = list_name,
    .close = list_close,
    .splits = true,
};

const struct dataset_format dataset_cinic10 = {
    .name = "cinic10",
    .open = cinic10_open,
    .load = list_load,
    .label = list_label,
    .name_record = list_name,
    .close = list_close,
    .splits = true,
};

/* ---- Image files without labels, for predictions. */

enum { NO_FOLDER = 0 }; /* offset of an empty text in a list */

static bool add_images(const char *operand, bool skip_broken, struct image_list *files,
                       struct error *error)
{
    int length = (int)strlen(operand);
    while (length > 1 && operand[length - 1] == '/')
        length--;
    OWNED char *folder = allocate_text("%.*s", length, operand);
    const size_t before = files->entries.count;
    return walk_add(files, folder, skip_broken, 0, error) &&
           (files->entries.count > before ||
            error_set(error, ERROR_DATA,
                      "%s: no images in this folder: no file name has the extension of an image, "
                      "such as .jpg, .png or .webp",
                      folder));
}

/* Add the names in a list, which are relative to its folder. */
static bool add_list(const char *list, struct image_list *files, struct error *error)
{
    const char *slash = strrchr(list, '/');
    const int folder = slash != NULL ? (int)(slash - list) + 1 : 0;
    const size_t before = files->entries.count;
    size_t length;
    struct listing lines = {0};
    OWNED char *text = text_file_read(list, &length);
    if (text == NULL)
        return error_set(error, ERROR_DATA, "%s: cannot read the list: %s", list,
                         errno == EINVAL ? "not a regular file" : strerror(errno));
    if (strlen(text) != length)
        return error_set(error, ERROR_DATA, "%s: not a list of file names: it contains null bytes",
                         list);
    listing_add_lines(&lines, text);
    for (size_t i = 0; i < lines.count; i++) {
        const char *name = lines.names[i];
        OWNED char *path = allocate_text("%.*s%s", name[0] == '/' ? 0 : folder, list, name);
        if (name[0] != '\0')
            file_add(files, NO_FOLDER, path, 0);
    }
    listing_free(&lines);
    return files->entries.count > before ||
           error_set(error, ERROR_DATA, "%s: the list is empty: write one file name per line",
                     list);
}

static const struct dataset_format file_list = {
    .name = "files",
    .load = list_load,
    .name_record = list_name,
    .close = list_close,
};

/* On rank 0: list the files. */
static bool add_operands(struct image_list *files, const char *const *operands, int count,
                         bool skip_broken, struct error *error)
{
    bool good = true;
    text_add(files, ""); /* NO_FOLDER */
    for (int i = 0; good && i < count; i++) {
        if (listing_is_folder(operands[i]))
            good = add_images(operands[i], skip_broken, files, error);
        else if (text_ends_with(operands[i], ".txt"))
            good = add_list(operands[i], files, error);
        else
            file_add(files, NO_FOLDER, operands[i], 0);
    }
    return good;
}

bool file_list_open(struct dataset *dataset, const struct options *options,
                    const char *const *operands, int count, struct comm *comm, struct error *error)
{
    const bool skip_broken = options->data.skip_broken;
    dataset_begin_open(dataset, comm);
    list_begin(dataset);
    dataset->format = &file_list;
    if (dataset->rank == 0)
        error_defer(add_operands(dataset->self, operands, count, skip_broken, error));
    bool good = dataset_agree(dataset, error);
    if (good)
        list_share(dataset);
    if (good && skip_broken) /* the loader finds the files that cannot be used */
        dataset->fault = allocate((size_t)dataset->count, sizeof *dataset->fault);
    else if (good)
        good = list_check(dataset, options, error);
    if (!good)
        dataset_close(dataset);
    return good;
}
