// SPDX-License-Identifier: BSD-3-Clause
#include "data/file_list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"
#include "core/allocate.h"
#include "core/crc32c.h"
#include "core/text.h"
#include "core/text_file.h"
#include "data/image_file.h"
#include "data/listing.h"
#include "data/record_check.h"

static void file_list_name_record(const struct dataset *dataset, int64_t record, char *text,
                                  size_t size)
{
    const struct listing *files = dataset->self;
    snprintf(text, size, "%s", files->names[record]);
}

/* ---- operands */

static bool add_folder(const char *operand, bool skip_broken, struct listing *files,
                       struct error *error)
{
    struct listing folders = {0};
    char folder[LISTING_PATH], path[LISTING_PATH];
    size_t length = strlen(operand);
    while (length > 1 && operand[length - 1] == '/')
        length--;
    snprintf(folder, sizeof folder, "%.*s", (int)length, operand);
    const size_t before = files->count;
    bool good = listing_walk(folder, skip_broken, &folders, error);
    for (size_t f = 0; good && f < folders.count; f++) {
        struct listing names = {0};
        good = listing_read(folders.names[f], NULL, &names, image_file_is_name, error);
        for (size_t i = 0; good && i < names.count; i++)
            if ((good = listing_join(path, sizeof path, folders.names[f], names.names[i], error)))
                listing_add(files, path);
        listing_free(&names);
    }
    listing_free(&folders);
    if (good && files->count == before)
        return error_set(
            error, ERROR_DATA,
            "%s: no images in this folder: no file name has the extension of an image, "
            "such as .jpg, .png or .webp",
            folder);
    return good;
}

/* Add a name of a list in `folder`, which is empty for the working directory. */
static bool add_line(const char *folder, const char *name, struct listing *files,
                     struct error *error)
{
    char path[LISTING_PATH];
    const bool joins = name[0] != '/' && folder[0] != '\0';
    if (joins && !listing_join(path, sizeof path, folder, name, error))
        return false;
    if (name[0] != '\0')
        listing_add(files, joins ? path : name);
    return true;
}

static bool add_lines(const char *list, char *text, struct listing *files, struct error *error)
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

static bool add_list(const char *list, struct listing *files, struct error *error)
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

static bool add_operand(const char *operand, bool skip_broken, struct listing *files,
                        struct error *error)
{
    if (listing_is_folder(operand))
        return add_folder(operand, skip_broken, files, error);
    if (text_ends_with(operand, ".txt"))
        return add_list(operand, files, error);
    listing_add(files, operand);
    return true;
}

/* ---- the data set */

static bool check_file(const struct dataset *dataset, int64_t record, const struct options *options,
                       struct check_scratch *scratch, struct error *error)
{
    const struct listing *files = dataset->self;
    return record_check_file(files->names[record], options, scratch, error);
}

/* With data.skip_broken=on the loader finds the files that cannot be used. */
static bool check_files(struct dataset *dataset, const struct options *options, struct error *error)
{
    const size_t count = (size_t)dataset->count;
    if (options->data.skip_broken)
        dataset->fault = allocate(count, sizeof *dataset->fault);
    if (options->data.skip_broken || options->data.check == CHECK_NONE)
        return true;
    uint8_t *broken = allocate(count, 1);
    const bool good = record_check(dataset, count, options, check_file, broken, error);
    free(broken);
    return good;
}

static bool file_list_load(struct dataset *dataset, int64_t record, struct byte_buffer *bytes,
                           int32_t *label, struct error *error)
{
    const struct listing *files = dataset->self;
    *label = 0;
    return record_file_load(files->names[record], bytes, error);
}

static void file_list_close(struct dataset *dataset)
{
    listing_free(dataset->self);
    free(dataset->self);
}

static const struct dataset_format file_list = {
    .name = "files",
    .load = file_list_load,
    .name_record = file_list_name_record,
    .close = file_list_close,
};

static bool add_operands(struct dataset *dataset, const char *const *operands, int count,
                         bool skip_broken, struct error *error)
{
    struct listing *files = dataset->self = allocate(1, sizeof *files);
    for (int i = 0; i < count; i++)
        if (!add_operand(operands[i], skip_broken, files, error))
            return false;
    for (size_t i = 0; i < files->count; i++)
        dataset->sum = crc32c_update(dataset->sum, files->names[i], strlen(files->names[i]) + 1);
    dataset->count = (int64_t)files->count;
    return dataset->count <= (int64_t)UINT32_MAX ||
           error_set(error, ERROR_DATA, "%zu files are more than the limit of 2^32", files->count);
}

bool file_list_open(struct dataset *dataset, const struct options *options,
                    const char *const *operands, int count, struct error *error)
{
    *dataset = (struct dataset){.format = &file_list, .encoded = true, .channels = 3};
    if (add_operands(dataset, operands, count, options->data.skip_broken, error) &&
        check_files(dataset, options, error))
        return true;
    dataset_close(dataset);
    return false;
}
