// SPDX-License-Identifier: BSD-3-Clause
/* The format webdataset: tar shards, read in place. Only the index is in memory, 24 bytes per
 * record. A record is one pread. Records are numbered in the order of shards and members. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"
#include "core/allocate.h"
#include "core/crc32c.h"
#include "core/file.h"
#include "core/log.h"
#include "data/record_check.h"
#include "data/tar_shards.h"

enum { PATH_SIZE = 4096 };

struct webdataset {
    struct split_files files;
    struct tar_shard *shard; /* [files.count] */
    struct tar_shard **open; /* [open_count] in the order of records */
    int64_t open_count;
    int64_t named_classes; /* lines of the file of class names; 0: none */
};

static enum data_split split_of(const struct webdataset *self, const struct tar_shard *shard)
{
    return self->files.file[shard - self->shard].split;
}

static const struct tar_shard *shard_of(const struct webdataset *self, int64_t record)
{
    int64_t low = 0, high = self->open_count - 1;
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (self->open[middle]->first <= record)
            low = middle;
        else
            high = middle - 1;
    }
    return self->open[low];
}

static const struct tar_record *record_of(const struct webdataset *self, int64_t record,
                                          const struct tar_shard **shard)
{
    *shard = shard_of(self, record);
    return &(*shard)->records[record - (*shard)->first];
}

static void webdataset_name_record(const struct dataset *dataset, int64_t record, char *text,
                                   size_t size)
{
    const struct tar_shard *shard;
    const struct tar_record *entry = record_of(dataset->self, record, &shard);
    char name[PATH_SIZE];
    tar_index_name(shard, entry, name, sizeof name);
    snprintf(text, size, "%s: %s at byte %lld", shard->path, name,
             (long long)(entry->offset - entry->header));
}

/* ---- Shards of a split. */

/* Samples without label or image, and damaged shards, are an error, or skipped with
 * data.skip_broken=on. */
static bool check_problems(const struct tar_shard *shards, int64_t count,
                           const struct options *options, struct error *error)
{
    int64_t problems = 0;
    const struct tar_shard *first = NULL;
    for (int64_t i = 0; i < count; i++) {
        problems += shards[i].problems;
        if (first == NULL && shards[i].problems > 0)
            first = &shards[i];
    }
    if (first == NULL)
        return true;
    if (!options->data.skip_broken)
        return error_set(error, ERROR_DATA,
                         "%lld problem%s in the shards, the first: %.512s: %s; "
                         "data.skip_broken=on skips such samples",
                         (long long)problems, problems == 1 ? "" : "s", first->path,
                         first->problem);
    log_warn("data: %lld problem%s in the shards, such samples are skipped, the first: %.512s: %s",
             (long long)problems, problems == 1 ? "" : "s", first->path, first->problem);
    return true;
}

/* Open and index the shards of a split. */
static struct tar_shard *open_shards(struct dataset *dataset, const struct options *options,
                                     enum data_split split, int64_t *count, struct error *error)
{
    struct webdataset *self = dataset->self;
    const struct split_file *files = split_files_choose(&self->files, options, split, count, error);
    struct tar_shard *shards = files != NULL ? self->shard + (files - self->files.file) : NULL;
    if (shards == NULL)
        return NULL;
    if (shards[0].descriptor >= 0) /* open already */
        return shards;
    error_defer(tar_shards_open(shards, *count, error));
    if (!dataset_agree(dataset, error) || !tar_index_build(dataset, shards, *count, error) ||
        !check_problems(shards, *count, options, error))
        return NULL;
    for (int64_t i = 0; i < *count; i++)
        dataset->seen =
            crc32c_update(dataset->seen, &shards[i].stamp.bytes, sizeof shards[i].stamp.bytes);
    return shards;
}

static bool add_split(struct dataset *dataset, const struct options *options, enum data_split split,
                      struct error *error)
{
    struct webdataset *self = dataset->self;
    int64_t count;
    struct tar_shard *shards = open_shards(dataset, options, split, &count, error);
    if (shards == NULL)
        return false;
    dataset->held_out |= split != SPLIT_TRAIN && split_of(self, &shards[0]) == SPLIT_TRAIN;
    for (int64_t i = 0; i < count; i++) {
        shards[i].first = dataset->count;
        dataset->count += shards[i].count;
        self->open[self->open_count++] = &shards[i];
    }
    return true;
}

/* ---- Classes. */

/* Read the names of classes, one per line, from classes.txt or classnames.txt in a folder. */
static void read_class_names(struct dataset *dataset, const char *folder, int length)
{
    static const char *const names[] = {"classes.txt", "classnames.txt"};
    char path[PATH_SIZE], *text = NULL;
    for (size_t i = 0; text == NULL && i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%.*s/%s", length, folder, names[i]);
        text = text_file_read(path, NULL);
    }
    if (text == NULL)
        return;
    size_t lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    dataset->class_name = allocate(lines + 2, sizeof *dataset->class_name);
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        line[strcspn(line, "\r")] = '\0';
        if (line[0] == '\0' && (rest == NULL || rest[strspn(rest, "\r\n")] == '\0'))
            break; /* empty lines at the end */
        dataset->class_name[dataset->classes++] = allocate_copy(line);
    }
    free(text);
}

/* Look for class names beside the first shard and in the folder above, which contains the folders
 * of splits. */
static void find_class_names(struct dataset *dataset)
{
    const struct webdataset *self = dataset->self;
    const char *path = self->shard[0].path;
    const char *slash = strrchr(path, '/');
    const int length = slash != NULL ? (int)(slash - path) : 1;
    const char *folder = slash != NULL ? path : ".";
    char above[PATH_SIZE];
    snprintf(above, sizeof above, "%.*s/..", length, folder);
    read_class_names(dataset, folder, length);
    if (dataset->classes == 0)
        read_class_names(dataset, above, (int)strlen(above));
}

static int32_t largest_label(const struct tar_shard *shards, int64_t count)
{
    int32_t largest = 0;
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < shards[i].count; j++)
            if (shards[i].records[j].label > largest)
                largest = shards[i].records[j].label;
    return largest;
}

/* Without names, the classes are the numbers up to the largest label of the training shards, or of
 * the open shards if there are no training shards. */
static bool number_classes(struct dataset *dataset, const struct options *options,
                           struct error *error)
{
    struct webdataset *self = dataset->self;
    int64_t count;
    const struct split_file *files = split_files_of(&self->files, SPLIT_TRAIN, &count);
    struct tar_shard *shards = self->shard + (files - self->files.file);
    if (count > 0 && open_shards(dataset, options, SPLIT_TRAIN, &count, error) == NULL)
        return false;
    if (count == 0) {
        shards = self->open[0];
        count = self->open_count;
    }
    const int32_t largest = largest_label(shards, count);
    if (split_of(self, shards) != split_of(self, self->open[0])) /* opened for its labels only */
        tar_shards_close(shards, count);
    dataset->classes = largest + 1;
    dataset_number_classes(dataset, "");
    return true;
}

/* ---- The data set. */

static bool check_record(const struct dataset *dataset, int64_t record,
                         const struct options *options, struct check_scratch *scratch,
                         struct error *error)
{
    const struct webdataset *self = dataset->self;
    const struct tar_shard *shard;
    const struct tar_record *entry = record_of(self, record, &shard);
    struct image_header header;
    if (entry->label >= dataset->classes)
        return error_set(error, ERROR_DATA, "label %d is out of range: %s has %lld classes",
                         entry->label,
                         self->named_classes > 0 ? "the file of class names" : "the training split",
                         (long long)dataset->classes);
    const bool full = record_check_is_full(options);
    if (options->data.check == CHECK_NONE && !full)
        return true;
    record_check_count(scratch, entry->orientation, entry->has_alpha != 0);
    if (!full && entry->pixels > 0 && entry->pixels <= options->data.max_pixels)
        return true; /* checked when the shard was indexed */
    return tar_index_pixels(shard, entry, &scratch->file, options->data.max_pixels, &header,
                            error) > 0 &&
           (!full || (byte_buffer_reserve(&scratch->file, entry->bytes, error) &&
                      tar_index_load(shard, entry, scratch->file.data, error) &&
                      record_check_decode(scratch, entry->bytes, &header, options, error)));
}

/* Check the records and remove those that cannot be used. */
static bool check_records(struct dataset *dataset, const struct options *options,
                          struct error *error)
{
    struct webdataset *self = dataset->self;
    uint8_t *broken = allocate((size_t)dataset->count, 1);
    const bool good =
        record_check(dataset, (size_t)dataset->count, options, check_record, broken, error);
    const uint8_t *next = broken;
    dataset->count = 0;
    for (int64_t i = 0; i < self->open_count; i++) {
        struct tar_shard *shard = self->open[i];
        const int64_t count = shard->count;
        shard->first = dataset->count;
        if (count > 0 && memchr(next, 1, (size_t)count) != NULL) {
            shard->own = allocate((size_t)count, sizeof *shard->own);
            shard->count = 0;
            for (int64_t j = 0; j < count; j++)
                if (!next[j])
                    shard->own[shard->count++] = shard->records[j];
            shard->records = shard->own;
        }
        next += count;
        dataset->count += shard->count;
    }
    free(broken);
    return good;
}

static void sum_records(struct dataset *dataset)
{
    const struct webdataset *self = dataset->self;
    for (int64_t i = 0; i < self->open_count; i++)
        dataset->sum = crc32c_update(dataset->sum, self->open[i]->records,
                                     (size_t)self->open[i]->count * sizeof(struct tar_record));
}

static bool webdataset_open(const struct options *options, enum data_split split,
                            struct dataset *dataset, struct error *error)
{
    const bool all = options->data.val == VALIDATION_REFERENCE;
    struct webdataset *self = dataset->self = allocate(1, sizeof *self);
    dataset->encoded = true;
    dataset->channels = 3;
    if (options->data.root[0] == '\0')
        return error_set(error, ERROR_USAGE, "data.format=webdataset needs data.root");
    if (!tar_shards_find(options->data.root, &self->files, dataset->comm, error))
        return false;
    self->shard = allocate((size_t)self->files.count, sizeof *self->shard);
    self->open = allocate((size_t)self->files.count, sizeof(struct tar_shard *));
    for (int64_t i = 0; i < self->files.count; i++)
        self->shard[i] = (struct tar_shard){.path = self->files.file[i].path, .descriptor = -1};
    if ((all && !add_split(dataset, options, SPLIT_TRAIN, error)) ||
        !add_split(dataset, options, all ? SPLIT_TEST : split, error))
        return false;
    if (dataset_is_first(dataset))
        find_class_names(dataset);
    comm_share_texts(dataset->comm, &dataset->class_name, &dataset->classes);
    self->named_classes = dataset->classes;
    if ((self->named_classes == 0 && !number_classes(dataset, options, error)) ||
        !check_records(dataset, options, error))
        return false;
    sum_records(dataset);
    return true;
}

static bool webdataset_load(struct dataset *dataset, int64_t record, struct byte_buffer *bytes,
                            int32_t *label, struct error *error)
{
    const struct tar_shard *shard;
    const struct tar_record *entry = record_of(dataset->self, record, &shard);
    *label = entry->label;
    bytes->count = entry->bytes;
    return byte_buffer_reserve(bytes, entry->bytes, error) &&
           tar_index_load(shard, entry, bytes->data, error);
}

static bool webdataset_label(struct dataset *dataset, int64_t record, int32_t *label,
                             struct error *error)
{
    const struct tar_shard *shard;
    (void)error;
    *label = record_of(dataset->self, record, &shard)->label;
    return true;
}

static void webdataset_advise(struct dataset *dataset, int64_t first, int64_t end)
{
    while (first < end) {
        const struct tar_shard *shard = shard_of(dataset->self, first);
        const int64_t shard_end = shard->first + shard->count;
        const int64_t next = end < shard_end ? end : shard_end;
        const struct tar_record *last = &shard->records[next - 1 - shard->first];
        dataset_advise_range(shard->descriptor, shard->records[first - shard->first].offset,
                             last->offset + last->bytes);
        first = next;
    }
}

static void webdataset_close(struct dataset *dataset)
{
    struct webdataset *self = dataset->self;
    if (self->shard != NULL)
        tar_shards_close(self->shard, self->files.count);
    split_files_free(&self->files);
    free(self->shard);
    free(self->open);
    free(self);
}

const struct dataset_format dataset_webdataset = {
    .name = "webdataset",
    .open = webdataset_open,
    .load = webdataset_load,
    .label = webdataset_label,
    .advise = webdataset_advise,
    .name_record = webdataset_name_record,
    .close = webdataset_close,
    .splits = true,
};
