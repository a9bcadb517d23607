// SPDX-License-Identifier: BSD-3-Clause
#include "data/image_list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"
#include "core/allocate.h"
#include "core/file.h"
#include "core/text.h"
#include "data/listing.h"

enum { NO_FOLDER = 0 }; /* offset of an empty text in a list */

static bool add_folder(const char *operand, bool skip_broken, struct image_list *files,
                       struct error *error)
{
    char folder[LISTING_PATH];
    int length = (int)strlen(operand);
    while (length > 1 && operand[length - 1] == '/')
        length--;
    snprintf(folder, sizeof folder, "%.*s", length, operand);
    const size_t before = files->entries.count;
    return image_list_walk(files, folder, skip_broken, 0, error) &&
           (files->entries.count > before ||
            error_set(error, ERROR_DATA,
                      "%s: no images in this folder: no file name has the extension of an image, "
                      "such as .jpg, .png or .webp",
                      folder));
}

/* Add the names in a list, which are relative to its folder. */
static bool add_list(const char *list, struct image_list *files, struct error *error)
{
    char path[LISTING_PATH];
    const char *slash = strrchr(list, '/');
    const int folder = slash != NULL ? (int)(slash - list) + 1 : 0;
    const size_t before = files->entries.count;
    size_t length;
    struct listing lines = {0};
    char *text = text_file_read(list, &length);
    if (text == NULL)
        return error_set(error, ERROR_DATA, "%s: cannot read the list: %s", list,
                         errno == EINVAL ? "not a regular file" : strerror(errno));
    bool good =
        strlen(text) == length ||
        error_set(error, ERROR_DATA, "%s: not a list of file names: it contains null bytes", list);
    if (good)
        listing_add_lines(&lines, text);
    for (size_t i = 0; good && i < lines.count; i++) {
        const char *name = lines.names[i];
        const int used =
            snprintf(path, sizeof path, "%.*s%s", name[0] == '/' ? 0 : folder, list, name);
        good = used < (int)sizeof path ||
               error_set(error, ERROR_DATA, "%s: the path of %.100s is too long", list, name);
        if (good && name[0] != '\0')
            image_list_add(files, NO_FOLDER, path, 0);
    }
    listing_free(&lines);
    free(text);
    return good && (files->entries.count > before ||
                    error_set(error, ERROR_DATA,
                              "%s: the list is empty: write one file name per line", list));
}

static const struct dataset_format file_list = {
    .name = "files",
    .load = image_list_load,
    .name_record = image_list_name,
    .close = image_list_close,
};

/* On rank 0: list the files. */
static bool add_operands(struct image_list *files, const char *const *operands, int count,
                         bool skip_broken, struct error *error)
{
    bool good = true;
    image_list_text(files, ""); /* NO_FOLDER */
    for (int i = 0; good && i < count; i++) {
        if (listing_is_folder(operands[i]))
            good = add_folder(operands[i], skip_broken, files, error);
        else if (text_ends_with(operands[i], ".txt"))
            good = add_list(operands[i], files, error);
        else
            image_list_add(files, NO_FOLDER, operands[i], 0);
    }
    return good;
}

bool file_list_open(struct dataset *dataset, const struct options *options,
                    const char *const *operands, int count, struct comm *comm, struct error *error)
{
    const bool skip_broken = options->data.skip_broken;
    dataset_begin_open(dataset, comm);
    struct image_list *files = dataset->self = allocate(1, sizeof *files);
    dataset->format = &file_list;
    dataset->encoded = true;
    dataset->channels = 3;
    if (dataset->rank == 0)
        error_defer(add_operands(files, operands, count, skip_broken, error));
    bool good = dataset_agree(dataset, error);
    if (good)
        image_list_share(dataset);
    if (good && skip_broken) /* the loader finds the files that cannot be used */
        dataset->fault = allocate((size_t)dataset->count, sizeof *dataset->fault);
    else if (good)
        good = image_list_check(dataset, options, error);
    if (!good)
        dataset_close(dataset);
    return good;
}
