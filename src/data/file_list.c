// SPDX-License-Identifier: BSD-3-Clause

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"
#include "core/allocate.h"
#include "core/file.h"
#include "core/text.h"
#include "data/image_list.h"
#include "data/listing.h"

enum { NO_FOLDER = 0 }; /* offset of an empty text in a list */

/* ---- operands */

static bool add_folder(const char *operand, bool skip_broken, struct image_list *files,
                       struct error *error)
{
    char folder[LISTING_PATH];
    size_t length = strlen(operand);
    while (length > 1 && operand[length - 1] == '/')
        length--;
    snprintf(folder, sizeof folder, "%.*s", (int)length, operand);
    const size_t before = files->count;
    return image_list_walk(files, folder, skip_broken, 0, error) &&
           (files->count > before ||
            error_set(error, ERROR_DATA,
                      "%s: no images in this folder: no file name has the extension of an image, "
                      "such as .jpg, .png or .webp",
                      folder));
}

/* Add a name of a list in `folder`, which is empty for the working directory. */
static bool add_line(const char *folder, const char *name, struct image_list *files,
                     struct error *error)
{
    char path[LISTING_PATH];
    const bool joins = name[0] != '/' && folder[0] != '\0';
    if (joins && !listing_join(path, sizeof path, folder, name, error))
        return false;
    if (name[0] != '\0')
        image_list_add(files, NO_FOLDER, joins ? path : name, 0);
    return true;
}

static bool add_lines(const char *list, char *text, struct image_list *files, struct error *error)
{
    char folder[LISTING_PATH] = "";
    const char *slash = strrchr(list, '/');
    const size_t before = files->count;
    if (slash != NULL) /* the root folder has an empty name before its slash */
        snprintf(folder, sizeof folder, "%.*s", slash == list ? 1 : (int)(slash - list), list);
    for (char *line = text, *end; line != NULL; line = end) {
        end = strchr(line, '\n');
        if (end != NULL)
            *end++ = '\0';
        const size_t length = strlen(line);
        if (length > 0 && line[length - 1] == '\r')
            line[length - 1] = '\0';
        if (!add_line(folder, line, files, error))
            return false;
    }
    return files->count > before ||
           error_set(error, ERROR_DATA, "%s: the list is empty: write one file name per line",
                     list);
}

static bool add_list(const char *list, struct image_list *files, struct error *error)
{
    size_t length;
    char *text = text_file_read(list, &length);
    if (text == NULL)
        return error_set(error, ERROR_DATA, "%s: cannot read the list: %s", list,
                         errno == EINVAL ? "not a regular file" : strerror(errno));
    const bool good = strlen(text) == length
                          ? add_lines(list, text, files, error)
                          : error_set(error, ERROR_DATA,
                                      "%s: not a list of file names: it contains null bytes", list);
    free(text);
    return good;
}

static bool add_operand(const char *operand, bool skip_broken, struct image_list *files,
                        struct error *error)
{
    if (listing_is_folder(operand))
        return add_folder(operand, skip_broken, files, error);
    if (text_ends_with(operand, ".txt"))
        return add_list(operand, files, error);
    image_list_add(files, NO_FOLDER, operand, 0);
    return true;
}

/* ---- the data set */

/* With data.skip_broken=on the loader finds the files that cannot be used. */
static bool check_files(struct dataset *dataset, const struct options *options, struct error *error)
{
    if (!options->data.skip_broken)
        return image_list_check(dataset, options, error);
    dataset->fault = allocate((size_t)dataset->count, sizeof *dataset->fault);
    return true;
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
    image_list_text(files, ""); /* NO_FOLDER */
    for (int i = 0; i < count; i++)
        if (!add_operand(operands[i], skip_broken, files, error))
            return false;
    return files->count <= UINT32_MAX ||
           error_set(error, ERROR_DATA, "%zu files are more than the limit of 2^32", files->count);
}

bool file_list_open(struct dataset *dataset, const struct options *options,
                    const char *const *operands, int count, struct comm *comm, struct error *error)
{
    struct image_list *files = allocate(1, sizeof *files);
    *dataset = (struct dataset){
        .format = &file_list, .comm = comm, .encoded = true, .channels = 3, .self = files};
    if (dataset_is_first(dataset))
        error_defer(add_operands(files, operands, count, options->data.skip_broken, error));
    bool good = dataset_agree(dataset, error);
    if (good) {
        image_list_share(dataset);
        good = check_files(dataset, options, error);
    }
    if (!good)
        dataset_close(dataset);
    return good;
}
