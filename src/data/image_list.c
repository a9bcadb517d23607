// SPDX-License-Identifier: BSD-3-Clause
#include "data/image_list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"
#include "core/allocate.h"
#include "core/base.h"
#include "core/file.h"
#include "core/text.h"
#include "data/image_file.h"
#include "data/listing.h"
#include "data/record_check.h"

/* ---- Listing, on rank 0. */

size_t image_list_text(struct image_list *list, const char *text)
{
    return byte_buffer_append(&list->texts, text, strlen(text) + 1);
}

void image_list_add(struct image_list *list, size_t folder, const char *name, int64_t label)
{
    const struct image_entry entry = {folder, image_list_text(list, name), label};
    byte_buffer_append(&list->entries, &entry, sizeof entry);
}

bool image_list_walk(struct image_list *list, const char *folder, bool skip_broken, int64_t label,
                     struct error *error)
{
    struct listing folders = {0};
    bool good = listing_walk(folder, skip_broken, &folders, error);
    for (size_t f = 0; good && f < folders.count; f++) {
        struct listing files = {0};
        good = listing_read(folders.names[f], NULL, &files, image_file_is_name, error);
        const size_t at = files.count > 0 ? image_list_text(list, folders.names[f]) : 0;
        for (size_t i = 0; good && i < files.count; i++)
            image_list_add(list, at, files.names[i], label);
        listing_free(&files);
    }
    listing_free(&folders);
    return good;
}

/* ---- The list of all ranks. */

/* Precedes the entries in the index. */
struct header {
    int64_t count, classes, held_out, sum;
};

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

void image_list_share(struct dataset *dataset)
{
    struct image_list *list = dataset->self;
    struct byte_buffer all = {0};
    if (dataset->rank == 0) {
        const int64_t count = (int64_t)(list->entries.count / sizeof *list->entry);
        list->entry = (const struct image_entry *)(const void *)list->entries.data;
        list->text = (const char *)list->texts.data;
        const struct header own = {count, dataset->classes, dataset->held_out,
                                   list_sum(list, count)};
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
    if (dataset->rank != 0 && header->classes > 0) {
        const char *name = list->text;
        dataset->classes = header->classes;
        dataset->class_name = allocate((size_t)header->classes, sizeof *dataset->class_name);
        for (int64_t c = 0; c < dataset->classes; c++, name += strlen(name) + 1)
            dataset->class_name[c] = allocate_copy(name);
    }
    const int64_t compared = listing_compared(dataset->count, dataset->ranks);
    for (int64_t i = 0; i < compared; i++) {
        char path[2 * LISTING_PATH];
        image_list_name(dataset, i * dataset->count / compared, path, sizeof path);
        dataset->seen = listing_sum_size(dataset->seen, path);
    }
}

static bool check_file(const struct dataset *dataset, int64_t record, const struct options *options,
                       struct check_scratch *scratch, struct error *error)
{
    char path[2 * LISTING_PATH];
    image_list_name(dataset, record, path, sizeof path);
    return record_check_file(path, options, scratch, error);
}

bool image_list_check(struct dataset *dataset, const struct options *options, struct error *error)
{
    struct image_list *list = dataset->self;
    const int64_t count = dataset->count;
    uint8_t *broken = NULL;
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
    free(broken);
    return true;
}

/* ---- Records. */

void image_list_name(const struct dataset *dataset, int64_t record, char *path, size_t size)
{
    const struct image_list *list = dataset->self;
    const struct image_entry *entry = &list->entry[record];
    const char *folder = list->text + entry->folder, *name = list->text + entry->name;
    snprintf(path, size, "%s%s%s", folder, folder[0] != '\0' ? "/" : "", name);
}

bool image_list_label(struct dataset *dataset, int64_t record, int32_t *label, struct error *error)
{
    const struct image_list *list = dataset->self;
    (void)error;
    *label = (int32_t)list->entry[record].label;
    return true;
}

bool image_list_load(struct dataset *dataset, int64_t record, struct byte_buffer *bytes,
                     int32_t *label, struct error *error)
{
    char path[2 * LISTING_PATH];
    image_list_name(dataset, record, path, sizeof path);
    return image_list_label(dataset, record, label, error) && record_file_load(path, bytes, error);
}

void image_list_close(struct dataset *dataset)
{
    struct image_list *list = dataset->self;
    free(list->entries.data);
    free(list->texts.data);
    free(list->kept);
    comm_joined_free(&list->index);
    free(list);
}

/* ---- Image files without labels, for predictions. */

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
