// SPDX-License-Identifier: BSD-3-Clause
/* Messages about a data.root that does not hold the data set: missing, moved, a file, empty, nested
 * too deep, in another format. */
#include <unistd.h>

#include "config/options.h"
#include "data/dataset.h"
#include "temporary.h"
#include "test.h"

static char top[1024]; /* the temporary folder */

/* Create an empty file below the temporary folder, or a folder if the name ends in '/'. */
static void put(const char *path)
{
    char name[256];
    snprintf(name, sizeof name, "%s", path);
    char *slash = strrchr(name, '/');
    const bool is_folder = slash != NULL && slash[1] == '\0';
    if (slash != NULL) {
        *slash = '\0';
        temporary_directory(name);
    }
    if (!is_folder)
        temporary_file(path, "x", 1);
}

/* Write a text with each '@' replaced by the temporary folder. */
static void expand(const char *text, char *expanded, size_t size)
{
    size_t used = 0;
    for (; *text != '\0' && used < size; text++)
        used += (size_t)snprintf(expanded + used, size - used, *text == '@' ? "%s" : "%.1s",
                                 *text == '@' ? top : text);
}

/* The error of opening the training split of data.root=@/root. '@' in `expected`: see expand. */
static void fails(const char *format, const char *root, const char *expected)
{
    struct options options;
    struct dataset dataset;
    struct error error = {0};
    char wanted[4096];
    options_default(&options);
    snprintf(options.data.format, sizeof options.data.format, "%s", format);
    expand(root, options.data.root, sizeof options.data.root);
    expand(expected, wanted, sizeof wanted);
    options.data.val = VALIDATION_FRACTION;
    options.data.val_fraction = 0.1;
    assert_false(dataset_open(&dataset, &options, SPLIT_TRAIN, &error));
    assert_error(&error, ERROR_DATA, wanted);
}

TEST(missing_roots)
{
    put("photos/cat/1.jpg");
    put("photos/dog/1.jpg");
    put("plants.zip");
    put("store/imagenet/train/");
    fails("imagefolder", "@/photso",
          "data.root=@/photso: no such file or folder; did you mean @/photos?");
    fails("imagefolder", "@/photos/cats//", "did you mean @/photos/cat?");
    fails("cifar10", "@/phtos/deep/er", "did you mean @/photos?");
    fails("imagefolder", "@/plants", "extract the archive @/plants.zip");
    fails("imagefolder", "@/store/2026/x/train",
          "no such file or folder: @/store does not contain 2026, only imagenet; data.root must"
          " contain train");
    fails("cifar10", "@/store/imagenet/train/x",
          "@/store/imagenet/train does not contain x; get the data set");
    fails("imagefolder", "@/photos/dog/1.jpg/x", "@/photos/dog/1.jpg is not a folder");
    fails("packed", "@/photos/x.h5",
          "@/photos does not contain x.h5, only cat, dog; make packed data");
    char target[512];
    expand("@/no/disk", target, sizeof target);
    assert_int_equal(symlink(target, temporary_path("linked")), 0);
    fails("imagefolder", "@/linked", "@/linked is a link to @/no/disk, which is missing");
    char *before = getcwd(NULL, 0);
    assert_int_equal(chdir(top), 0);
    fails("imagefolder", "photso",
          "data.root=photso: no such file or folder; did you mean photos?");
    fails("imagefolder", "::", "data.root=\"::\": no such file or folder: ");
    assert_int_equal(chdir("store"), 0);
    fails("imagefolder", "nowhere", "@/store does not contain nowhere, only imagenet; ");
    assert_int_equal(chdir(before), 0);
    free(before);
}

TEST(files_as_roots)
{
    put("files/photos.tar.gz");
    put("files/cifar-10-python.tar.gz");
    put("files/set.h5");
    put("files/1.PNG");
    put("files/notes");
    put("nothing/");
    fails("imagefolder", "@/files/photos.tar.gz", "is an archive; extract it");
    fails("cifar10", "@/files/cifar-10-python.tar.gz",
          "binary version with `vittrain fetch cifar10`");
    fails("imagefolder", "@/files/set.h5", "is not a folder; set data.format=packed");
    fails("imagefolder", "@/files/1.PNG", "is an image, not a folder; ");
    fails("cifar10", "@/files/notes", "is a file, not a folder; ");
    fails("imagefolder", "@/nothing", "data.root=@/nothing: is empty; ");
    fails("packed", "@/nothing", "data.root=@/nothing: is empty; ");
}

TEST(folders_too_high)
{
    put("one/cat/1.jpg");
    put("one/cat/2.jpg");
    put("high/photos/all/cat/1.jpg");
    put("high/photos/all/dog/1.jpg");
    put("set/archive/imagenet/train/cat/1.jpg");
    put("set/notes/1.txt");
    put("deep/train/all/cat/1.jpg");
    put("deep/train/all/dog/1.jpg");
    put("heap/1.jpg");
    put("heap/2.webp");
    put("packages/photos.zip");
    put("odd/notes.txt");
    fails("imagefolder", "@/one",
          "@/one: one class only, cat (2 images): training needs two or more");
    fails("imagefolder", "@/high",
          "one class only, photos; the classes (cat, dog) are further below: set "
          "data.root=@/high/photos/all");
    fails("imagefolder", "@/set",
          "holds a folder train in @/set/archive/imagenet: set data.root=@/set/archive/imagenet");
    fails("cinic10", "@/deep",
          "@/deep/train: one class only, all; the classes (cat, dog) are further below: move them "
          "from @/deep/train/all to @/deep/train");
    fails("imagefolder", "@/heap", "holds 2 images outside of class folders");
    fails("imagefolder", "@/packages", "holds the archive photos.zip: extract it");
    put("train-0000.tar");
    fails(
        "imagefolder", "@/train-0000.tar",
        "is an archive; extract it and set data.root to its folder, or set data.format=webdataset");
    fails("imagefolder", "@/odd", "no folder train, only notes.txt; data.root must contain train");
}

TEST(other_formats)
{
    put("torch/cifar-10-batches-py/data_batch_1");
    put("torch/cifar-10-batches-py/batches.meta");
    put("download/cifar-10-python.tar.gz");
    put("binary/cifar-10-batches-bin/data_batch_1.bin");
    put("flat/cat/1.jpg");
    put("flat/dog/1.jpg");
    put("split/train/cat/1.jpg");
    put("packs/set.h5");
#define PICKLES                                                                                    \
    "holds CIFAR-10's Python pickles: get its binary version with `vittrain fetch cifar10`"
    fails("cifar10", "@/torch", "data.root=@/torch: " PICKLES);
    fails("cifar10", "@/torch/cifar-10-batches-py", PICKLES);
    fails("cifar10", "@/download", PICKLES);
    fails("imagefolder", "@/torch", PICKLES " and set data.format=cifar10");
    fails("imagefolder", "@/binary", "holds CIFAR-10's binary files: set data.format=cifar10");
    fails("packed", "@/binary/cifar-10-batches-bin", "set data.format=cifar10");
    fails("cifar10", "@/flat",
          "holds folders with images (cat, dog): set data.format=imagefolder data.val=0.1");
    fails("cifar10", "@/split", "holds a folder train: set data.format=imagefolder");
    fails("packed", "@/split", "holds a folder train: set data.format=imagefolder");
    fails("cifar10", "@/packs", "holds set.h5: set data.format=packed");
}

static int open_folder(void **state)
{
    (void)state;
    snprintf(top, sizeof top, "%s", temporary_open());
    return 0;
}

TEST_MAIN(.setup = open_folder, .teardown = temporary_teardown)
