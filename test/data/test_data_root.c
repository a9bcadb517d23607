// SPDX-License-Identifier: BSD-3-Clause
/* Messages about a data.root that does not hold the data set: missing, a file, empty, with other
 * content. */
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
    assert_false(dataset_open(&dataset, &options, SPLIT_TRAIN, NULL, &error));
    assert_error(&error, ERROR_DATA, wanted);
}

TEST(missing_roots)
{
    put("photos/dog/1.jpg");
    fails("imagefolder", "@/photso", "data.root=@/photso: No such file or directory; data.root");
    fails("imagefolder", "@/photos/dog/1.jpg/x", "data.root=@/photos/dog/1.jpg/x: ");
}

TEST(roots_with_other_content)
{
    put("files/notes");
    put("nothing/");
    put("odd/notes.txt");
    put("torch/cifar-10-batches-py/data_batch_1");
    fails("cifar10", "@/files/notes", "is a file, not a folder; ");
    fails("imagefolder", "@/nothing", "data.root=@/nothing: is empty; ");
    fails("imagefolder", "@/odd", "no folder train, only notes.txt; data.root must contain train");
    fails("cifar10", "@/torch", "test_batch.bin, only cifar-10-batches-py; get the data set");
}

static int open_folder(void **state)
{
    (void)state;
    snprintf(top, sizeof top, "%s", temporary_open());
    return 0;
}

TEST_MAIN(.setup = open_folder, .teardown = temporary_teardown)
