// SPDX-License-Identifier: BSD-3-Clause
/* The formats imagefolder and cinic10: ROOT/SPLIT/CLASS/.../file.jpg as in torchvision's
 * ImageFolder, or ROOT/CLASS/.../file.jpg without splits (a flat folder). Rank 0 lists the classes
 * and files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"
#include "core/allocate.h"
#include "data/image_list.h"
#include "data/listing.h"
#include "data/split.h"

/* Find the folder of a split by its names, in order of preference. */
static bool find_named(const char *root, enum data_split split, char *path, size_t size)
{
    static const char *const names[][3] = {[SPLIT_TRAIN] = {"train"},
                                           [SPLIT_VALIDATION] = {"val", "valid", "validation"},
                                           [SPLIT_TEST] = {"test"}};
    for (int i = 0; i < 3 && names[split][i] != NULL; i++) {
        snprintf(path, size, "%s/%s", root, names[split][i]);
        if (listing_is_folder(path))
            return true;
    }
    return false;
}

static const char advice[] =
    "data.root must contain train and val or test, each with one folder per class, or one folder "
    "per class and data.val=0.1";

/* Set the error of a flat folder without data.val=FRACTION; returns false. */
static bool no_test_images(const char *root, struct error *error)
{
    char names[256], parent[OPTION_TEXT + 8], path[LISTING_PATH];
    struct listing found = {0};
    if (!listing_read(root, &found, NULL, NULL, error))
        return false;
    listing_name_some(&found, names, sizeof names);
    listing_free(&found);
    if (listing_join(parent, sizeof parent, root, "..", error) &&
        find_named(parent, SPLIT_TRAIN, path, sizeof path) &&
        (find_named(parent, SPLIT_VALIDATION, path, sizeof path) ||
         find_named(parent, SPLIT_TEST, path, sizeof path)))
        return error_set(
            error, ERROR_DATA,
            "data.root=%s: contains class folders (%s); the folder above it has train and "
            "%s: set data.root to that folder",
            root, names, strrchr(path, '/') + 1);
    return error_set(
        error, ERROR_DATA,
        "data.root=%s: contains class folders (%s), but no train, val or test: set data.val=0.1 "
        "to hold out a tenth of the images for validation, or data.val=none",
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

/* True if the subfolders of the root are classes: none has the name of a split. */
static bool is_flat(const char *root)
{
    struct listing found = {0};
    struct error none = {0};
    char path[LISTING_PATH];
    bool flat = classes_list(root, &found, &none) && found.count > 0;
    listing_free(&found);
    for (int split = SPLIT_TRAIN; flat && split <= SPLIT_TEST; split++)
        flat = !find_named(root, (enum data_split)split, path, sizeof path);
    return flat;
}

/* Find the folder to open for a split (split_stored). In a flat folder all images are for training.
 */
static bool find_split(const struct options *options, enum data_split split,
                       struct dataset *dataset, char *path, size_t size, struct error *error)
{
    const char *root = options->data.root;
    const bool flat = is_flat(root);
    bool stored[3];
    for (int s = SPLIT_TRAIN; s <= SPLIT_TEST; s++)
        stored[s] = find_named(root, (enum data_split)s, path, size);
    stored[SPLIT_TRAIN] |= flat;
    const int chosen = split_stored(options, split, stored);
    if (flat && (chosen < 0 || options->data.val == VALIDATION_TEST))
        return no_test_images(root, error);
    if (chosen < 0 && split == SPLIT_TRAIN)
        return data_root_unexpected(root, "no folder train", advice, error);
    if (chosen < 0)
        return error_set(
            error, ERROR_DATA,
            "data.root=%s: no folder %sval, valid or validation in it: add one, or train "
            "with data.val=0.1 or data.val=none",
            root, options->data.val == VALIDATION_VAL && split == SPLIT_VALIDATION ? "" : "test, ");
    if (split != SPLIT_TRAIN)
        dataset->held_out = chosen == SPLIT_TRAIN;
    if (!find_named(root, (enum data_split)chosen, path, size))
        snprintf(path, size, "%s", root);
    return true;
}

/* Classes are those of the training folder; without one, those of this split. */
static bool find_classes(const struct options *options, struct dataset *dataset, const char *path,
                         struct error *error)
{
    char train[LISTING_PATH];
    const bool trained = find_named(options->data.root, SPLIT_TRAIN, train, sizeof train);
    if (dataset->class_name != NULL)
        return true;
    struct listing found = {0};
    const bool good = classes_list(trained ? train : path, &found, error);
    dataset->class_name = found.names; /* freed by dataset_close */
    dataset->classes = (int64_t)found.count;
    for (size_t i = 0; i < found.count; i++)
        image_list_text(dataset->self, found.names[i]);
    return (good && dataset->classes > 0) ||
           error_set(error, ERROR_DATA, "%s: no class folders: it needs one folder per class",
                     trained ? train : path);
}

/* A class that is missing in the training folder has no output in the model: an error. */
static bool check_classes(const struct dataset *dataset, const char *path, struct error *error)
{
    const struct listing classes = {.names = dataset->class_name,
                                    .count = (size_t)dataset->classes};
    struct listing found = {0};
    bool good = classes_list(path, &found, error);
    for (size_t i = 0; good && i < found.count; i++)
        if (!listing_has(&classes, found.names[i]))
            good =
                error_set(error, ERROR_DATA,
                          "%s/%s: class missing in the training folder: both need the same classes",
                          path, found.names[i]);
    listing_free(&found);
    return good;
}

/* Add the images of all classes; a missing folder is empty. */
static bool add_classes(const struct options *options, struct dataset *dataset, const char *path,
                        struct error *error)
{
    struct image_list *list = dataset->self;
    char class_path[LISTING_PATH + 256];
    for (int64_t i = 0; i < dataset->classes; i++) {
        snprintf(class_path, sizeof class_path, "%s/%s", path, dataset->class_name[i]);
        const size_t before = list->entries.count;
        if (listing_is_folder(class_path) && !image_list_walk(list, class_path, false, i, error))
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

static bool add_split(const struct options *options, enum data_split split, struct dataset *dataset,
                      struct error *error)
{
    char path[LISTING_PATH];
    return find_split(options, split, dataset, path, sizeof path, error) &&
           find_classes(options, dataset, path, error) && check_classes(dataset, path, error) &&
           add_classes(options, dataset, path, error);
}

/* Add the records of a split; with data.val=reference all records, training first. A flat folder
 * has training records only. */
static bool add_records(const struct options *options, enum data_split split,
                        struct dataset *dataset, struct error *error)
{
    if (options->data.val != VALIDATION_REFERENCE)
        return add_split(options, split, dataset, error);
    return add_split(options, SPLIT_TRAIN, dataset, error) &&
           (is_flat(options->data.root) || add_split(options, SPLIT_TEST, dataset, error));
}

static bool image_folder_open(const struct options *options, enum data_split split,
                              struct dataset *dataset, struct error *error)
{
    dataset->self = allocate(1, sizeof(struct image_list));
    dataset->encoded = true;
    dataset->channels = 3;
    if (options->data.root[0] == '\0')
        return error_set(error, ERROR_USAGE, "data.format=%s needs data.root",
                         options->data.format);
    if (dataset->rank == 0)
        error_defer(data_root_check(options->data.root, advice, error) &&
                    add_records(options, split, dataset, error));
    if (!dataset_agree(dataset, error))
        return false;
    image_list_share(dataset);
    return image_list_check(dataset, options, error);
}

/* Darlow et al. 2018, with mean and std published by the authors. */
static bool cinic10_open(const struct options *options, enum data_split split,
                         struct dataset *dataset, struct error *error)
{
    static const double mean[3] = {0.47889522, 0.47227842, 0.43047404};
    static const double std[3] = {0.24205776, 0.23828046, 0.25874835};
    dataset->normalised = true;
    memcpy(dataset->mean, mean, sizeof mean);
    memcpy(dataset->std, std, sizeof std);
    return image_folder_open(options, split, dataset, error);
}

const struct dataset_format dataset_image_folder = {
    .name = "imagefolder",
    .open = image_folder_open,
    .load = image_list_load,
    .label = image_list_label,
    .name_record = image_list_name,
    .close = image_list_close,
    .splits = true,
};

const struct dataset_format dataset_cinic10 = {
    .name = "cinic10",
    .open = cinic10_open,
    .load = image_list_load,
    .label = image_list_label,
    .name_record = image_list_name,
    .close = image_list_close,
    .splits = true,
};
