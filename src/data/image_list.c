// SPDX-License-Identifier: BSD-3-Clause
#include "data/image_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"
#include "core/allocate.h"
#include "core/crc32c.h"
#include "data/image_file.h"
#include "data/listing.h"
#include "data/record_check.h"

/* ---- Listing, on rank 0. */

uint64_t image_list_text(struct image_list *list, const char *text)
{
    const size_t bytes = strlen(text) + 1, offset = list->text_bytes;
    while (list->text_capacity - offset < bytes)
        list->text = allocate_more(list->text, &list->text_capacity, list->text_capacity, 1);
    memcpy(list->text + offset, text, bytes);
    list->text_bytes += bytes;
    return offset;
}

void image_list_add(struct image_list *list, uint64_t folder, const char *name, int64_t label)
{
    list->entry = allocate_more(list->entry, &list->capacity, list->count, sizeof *list->entry);
    list->entry[list->count++] = (struct image_entry){folder, image_list_text(list, name), label};
}

bool image_list_walk(struct image_list *list, const char *folder, bool skip_broken, int64_t label,
                     struct error *error)
{
    struct listing folders = {0};
    bool good = listing_walk(folder, skip_broken, &folders, error);
    for (size_t f = 0; good && f < folders.count; f++) {
        struct listing files = {0};
        good = listing_read(folders.names[f], NULL, &files, image_file_is_name, error);
        const uint64_t at = files.count > 0 ? image_list_text(list, folders.names[f]) : 0;
        for (size_t i = 0; good && i < files.count; i++)
            image_list_add(list, at, files.names[i], label);
        listing_free(&files);
    }
    listing_free(&folders);
    return good;
}

/* ---- The list of all ranks. */

void image_list_share(struct dataset *dataset)
{
    struct image_list *list = dataset->self;
    const int ranks = dataset->comm != NULL ? dataset->comm->size : 1;
    comm_join(dataset->comm, list->entry, (int64_t)(list->count * sizeof *list->entry),
              &list->entries);
    comm_join(dataset->comm, list->text, (int64_t)list->text_bytes, &list->texts);
    list->entry = (struct image_entry *)(void *)list->entries.data;
    list->text = (char *)list->texts.data;
    list->count = (size_t)list->entries.bytes / sizeof *list->entry;
    dataset->count = (int64_t)list->count;
    const int64_t compared = listing_compared(dataset->count, ranks);
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

/* Replace the entries by those that are not broken. */
static void broken_remove(struct dataset *dataset, const uint8_t *broken)
{
    struct image_list *list = dataset->self;
    struct image_entry *kept = allocate(list->count, sizeof *kept);
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++)
        if (!broken[i])
            kept[count++] = list->entry[i];
    comm_joined_free(&list->entries);
    list->entry = kept;
    list->entries.data = (unsigned char *)kept;
    list->count = count;
    dataset->count = (int64_t)count;
}

bool image_list_check(struct dataset *dataset, const struct options *options, struct error *error)
{
    const struct image_list *list = dataset->self;
    bool good = true;
    if ((options->data.check != CHECK_NONE || record_check_is_full(options)) && list->count > 0) {
        uint8_t *broken = allocate(list->count, 1);
        good = record_check(dataset, list->count, options, check_file, broken, error);
        if (memchr(broken, 1, list->count) != NULL)
            broken_remove(dataset, broken);
        free(broken);
    }
    for (size_t i = 0; i < list->count; i++) {
        const char *name = list->text + list->entry[i].name;
        const int32_t label = (int32_t)list->entry[i].label;
        dataset->sum = crc32c_update(dataset->sum, name, strlen(name) + 1);
        dataset->sum = crc32c_update(dataset->sum, &label, sizeof label);
    }
    return good;
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
    if (list->entries.data == NULL)
        free(list->entry);
    if (list->texts.data == NULL)
        free(list->text);
    comm_joined_free(&list->entries);
    comm_joined_free(&list->texts);
    free(list);
}
