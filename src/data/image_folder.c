/* The formats imagefolder and cinic10: ROOT/SPLIT/CLASS/.../file.jpg as in torchvision's
 * ImageFolder. Each rank lists the files; feed_open compares the lists. */
#include "data/image_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/options.h"
#include "core/crc32c.h"

enum { PATH_SIZE = 4096 };

/* Possible names of a split's folder, in order of preference. */
static const char *const train_names[] = {"train", NULL};
static const char *const validation_names[] = {"val", "valid", "validation", NULL};
static const char *const test_names[] = {"test", NULL};

static bool is_directory_there(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* Find the folder of a split by its names. */
static bool find_named(const char *root, const char *const *names, char *path, size_t size)
{
    for (; *names != NULL; names++) {
        snprintf(path, size, "%s/%s", root, *names);
        if (is_directory_there(path))
            return true;
    }
    return false;
}

/* Without a test folder, as in ImageNet, the validation folder is the test split. */
static bool find_split(const struct options *options, enum data_split split, char *path,
                       size_t size, struct error *error)
{
    const char *root = options->data.root;
    if (split == SPLIT_TRAIN) {
        if (find_named(root, train_names, path, size))
            return true;
        return error_set(error, ERROR_DATA,
                         "data.root=%s: no folder train: data.root must contain train and val or "
                         "test, each with one folder per class",
                         root);
    }
    const bool own = split == SPLIT_VALIDATION && options->data.val == VALIDATION_VAL;
    if ((!own && find_named(root, test_names, path, size)) ||
        find_named(root, validation_names, path, size))
        return true;
    return error_set(error, ERROR_DATA,
                     "data.root=%s: no folder %sval, valid or validation in it: add one, or train "
                     "with data.val=none",
                     root, own ? "" : "test, ");
}

static void free_names(char **names, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

/* Classes are those of the training folder; without one, those of this split. */
static bool find_classes(const struct options *options, struct dataset *dataset, const char *path,
                         struct error *error)
{
    char train[PATH_SIZE];
    const bool trained = find_named(options->data.root, train_names, train, sizeof train);
    if (dataset->class_name != NULL)
        return true;
    if (!folder_list_classes(trained ? train : path, &dataset->class_name, &dataset->classes,
                             error))
        return false;
    return dataset->classes > 0 ||
           error_set(error, ERROR_DATA, "%s: no class folders: it needs one folder per class",
                     trained ? train : path);
}

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* A class that is missing in the training folder has no output in the model: an error. */
static bool check_classes(const struct dataset *dataset, const char *path, struct error *error)
{
    char **names = NULL;
    int64_t count = 0;
    bool good = folder_list_classes(path, &names, &count, error);
    for (int64_t i = 0; good && i < count; i++)
        if (bsearch(&names[i], dataset->class_name, (size_t)dataset->classes, sizeof *names,
                    compare_names) == NULL)
            good =
                error_set(error, ERROR_DATA,
                          "%s/%s: class missing in the training folder: both need the same classes",
                          path, names[i]);
    free_names(names, count);
    return good;
}

/* Add the images of all classes; a missing folder is empty. */
static bool add_classes(const struct options *options, struct dataset *dataset, const char *path,
                        struct error *error)
{
    struct image_folder *self = dataset->self;
    char class_path[PATH_SIZE + 256];
    for (int64_t i = 0; i < dataset->classes; i++) {
        const size_t before = self->record_count;
        snprintf(class_path, sizeof class_path, "%s/%s", path, dataset->class_name[i]);
        if (is_directory_there(class_path) &&
            !folder_add_class(self, class_path, (int32_t)i, error))
            return false;
        if (self->record_count == before && !options->data.allow_empty)
            return error_set(error, ERROR_DATA,
                             "%s: no images (.jpg, .jpeg, .png) in this class's folder: add some, "
                             "or set data.allow_empty=on",
                             class_path);
    }
    return true;
}

static bool add_split(const struct options *options, enum data_split split, struct dataset *dataset,
                      struct error *error)
{
    char path[PATH_SIZE];
    return find_split(options, split, path, sizeof path, error) &&
           find_classes(options, dataset, path, error) && check_classes(dataset, path, error) &&
           add_classes(options, dataset, path, error);
}

/* Checksum of the names and labels of all records. */
static uint32_t sum_of(const struct image_folder *self)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < self->record_count; i++) {
        const struct folder_record *record = &self->records[i];
        const char *name = self->names + record->name;
        sum = crc32c_update(sum, name, strlen(name) + 1);
        sum = crc32c_update(sum, &self->folders[record->folder].label, sizeof(int32_t));
    }
    return sum;
}

static bool image_folder_open(const struct options *options, enum data_split split,
                              struct dataset *dataset, struct error *error)
{
    const bool all = options->data.val == VALIDATION_REFERENCE;
    int64_t left_out;
    struct image_folder *self = calloc(1, sizeof *self);
    dataset->self = self;
    dataset->encoded = true;
    dataset->channels = 3;
    if (self == NULL)
        return error_set(error, ERROR_MEMORY, "no memory to open data.root=%s", options->data.root);
    if (options->data.root[0] == '\0')
        return error_set(error, ERROR_USAGE, "data.format=%s needs data.root",
                         options->data.format);
    self->most_pixels = options->data.max_pixels;
    if ((all && !add_split(options, SPLIT_TRAIN, dataset, error)) ||
        !add_split(options, all ? SPLIT_TEST : split, dataset, error) ||
        !folder_check(self, options, &left_out, error))
        return false;
    dataset->count = (int64_t)self->record_count;
    dataset->sum = sum_of(self);
    return true;
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

void folder_path(const struct image_folder *self, int64_t record, char *path, size_t size)
{
    const struct folder_record *file = &self->records[record];
    snprintf(path, size, "%s/%s", self->folders[file->folder].path, self->names + file->name);
}

static void image_folder_name_record(const struct dataset *dataset, int64_t record, char *text,
                                     size_t size)
{
    folder_path(dataset->self, record, text, size);
}

static bool load_file(const char *path, struct byte_buffer *bytes, struct error *error)
{
    size_t size;
    const int descriptor = folder_open_file(path, &size, error);
    if (descriptor < 0)
        return false;
    const bool good = byte_buffer_reserve(bytes, size, error) &&
                      folder_read(descriptor, bytes->data, 0, size, error);
    bytes->count = size;
    close(descriptor);
    return good;
}

static bool image_folder_load(struct dataset *dataset, int64_t record, struct byte_buffer *bytes,
                              int32_t *label, struct error *error)
{
    const struct image_folder *self = dataset->self;
    struct error reason = {0};
    char path[2 * PATH_SIZE];
    *label = self->folders[self->records[record].folder].label;
    folder_path(self, record, path, sizeof path);
    return load_file(path, bytes, &reason) ||
           error_set(error, reason.kind, "%.1024s: %.512s", path, reason.text);
}

static int64_t image_folder_size(struct dataset *dataset, int64_t record, struct error *error)
{
    struct error reason = {0};
    size_t bytes = 0;
    char path[2 * PATH_SIZE];
    folder_path(dataset->self, record, path, sizeof path);
    const int descriptor = folder_open_file(path, &bytes, &reason);
    if (descriptor >= 0)
        close(descriptor);
    else
        error_set(error, reason.kind, "%.1024s: %.512s", path, reason.text);
    return (int64_t)bytes;
}

static void image_folder_close(struct dataset *dataset)
{
    struct image_folder *self = dataset->self;
    if (self == NULL)
        return;
    for (size_t i = 0; i < self->folder_count; i++)
        free(self->folders[i].path);
    free(self->folders);
    free(self->records);
    free(self->names);
    free(self);
}

const struct dataset_format dataset_image_folder = {
    .name = "imagefolder",
    .open = image_folder_open,
    .load = image_folder_load,
    .size = image_folder_size,
    .name_record = image_folder_name_record,
    .close = image_folder_close,
    .splits = true,
};

const struct dataset_format dataset_cinic10 = {
    .name = "cinic10",
    .open = cinic10_open,
    .load = image_folder_load,
    .size = image_folder_size,
    .name_record = image_folder_name_record,
    .close = image_folder_close,
    .splits = true,
};
