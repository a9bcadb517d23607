// SPDX-License-Identifier: BSD-3-Clause
/* Reads packed data sets: image files or pixels, concatenated in a few large files. Only tables are
 * in memory (16 bytes per encoded record, 9 per decoded one). A record is one pread, verified with
 * its checksum. HDF5 is called only while the data set is opened, so threads can read. */
#include "data/packed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/options.h"
#include "core/allocate.h"
#include "core/crc32c.h"
#include "core/durable.h"
#include "core/log.h"
#include "data/split.h"

/* The records of one split in one file. */
struct packed_stretch {
    char path[PACKED_PATH];
    int descriptor;
    struct packed_part part;
    int64_t first;   /* index of its first record in the data set */
    int64_t *offset; /* encoded: [records + 1] offsets in the file */
    int32_t *label;
    uint32_t *crc;
    atomic_uchar *checked; /* decoded: bytes of a record */
};

struct packed {
    struct packed_set set;
    struct packed_stretch *stretches;
    int64_t stretch_count;
    int64_t record_bytes; /* decoded */
    bool check_always;
};

static void *read_table(const struct packed_stretch *stretch, int64_t rows, size_t row,
                        int64_t offset, struct error *error)
{
    void *table = allocate((size_t)rows, row);
    if (durable_pread(stretch->descriptor, table, (size_t)rows * row, offset) != (size_t)rows * row)
        error_set(error, ERROR_DATA, "%s: cannot read its tables: %s", stretch->path,
                  errno == 0 ? "it is cut" : strerror(errno));
    return table;
}

static bool record_refuse(const struct packed_stretch *stretch, int64_t record, const char *what,
                          struct error *error)
{
    return error_set(error, ERROR_DATA,
                     "%s: invalid %s of record %lld: the file is damaged; copy or pack it again",
                     stretch->path, what, (long long)record);
}

/* Check the offsets, and convert them from the first record's position to the file's. */
static bool check_offsets(struct packed_stretch *stretch, struct error *error)
{
    const struct packed_part *part = &stretch->part;
    int64_t before = 0;
    for (int64_t i = 0; i <= part->records; i++) {
        const int64_t offset = stretch->offset[i];
        if (offset < before || offset > part->byte_count || (i == 0 && offset != 0) ||
            (i == part->records && offset != part->byte_count))
            return record_refuse(stretch, i, "offset", error);
        before = offset;
        stretch->offset[i] += part->bytes;
    }
    return true;
}

static bool read_tables(struct packed *self, struct packed_stretch *stretch, struct error *error)
{
    const struct packed_part *part = &stretch->part;
    stretch->label = read_table(stretch, part->records, sizeof(int32_t), part->label, error);
    stretch->crc = read_table(stretch, part->records, sizeof(uint32_t), part->crc, error);
    if (self->set.encoded)
        stretch->offset =
            read_table(stretch, part->records + 1, sizeof(int64_t), part->offset, error);
    if (error->kind != ERROR_NONE)
        return false;
    for (int64_t i = 0; i < part->records; i++)
        if (stretch->label[i] < 0 || stretch->label[i] >= self->set.classes)
            return record_refuse(stretch, i, "label", error);
    return !self->set.encoded || check_offsets(stretch, error);
}

static bool add_stretch(struct dataset *dataset, const char *name, int64_t file,
                        enum data_split split, struct error *error)
{
    struct packed *self = dataset->self;
    struct packed_stretch *stretch = &self->stretches[self->stretch_count];
    *stretch =
        (struct packed_stretch){.part = self->set.part[file][split], .first = dataset->count};
    packed_path(stretch->path, name, file, self->set.files);
    stretch->descriptor = open(stretch->path, O_RDONLY | O_CLOEXEC);
    if (stretch->descriptor < 0)
        return error_set(error, ERROR_DATA, "%s: %s", stretch->path, strerror(errno));
    self->stretch_count++;
    if (!read_tables(self, stretch, error))
        return false;
    if (!self->set.encoded && !self->check_always)
        stretch->checked = allocate((size_t)stretch->part.records, sizeof *stretch->checked);
    dataset->count += stretch->part.records;
    dataset->sum = crc32c_update(dataset->sum, stretch->crc,
                                 (size_t)stretch->part.records * sizeof *stretch->crc);
    return true;
}

static bool add_split(struct dataset *dataset, const char *name, enum data_split split,
                      struct error *error)
{
    const struct packed *self = dataset->self;
    bool good = true;
    for (int64_t file = 0; good && file < self->set.files; file++)
        if (self->set.part[file][split].records > 0)
            good = add_stretch(dataset, name, file, split, error);
    return good;
}

static void packed_describe(struct dataset *dataset)
{
    struct packed *self = dataset->self;
    dataset->encoded = self->set.encoded;
    dataset->channels = self->set.channels;
    dataset->height = self->set.height;
    dataset->width = self->set.width;
    dataset->classes = self->set.classes;
    dataset->class_name = self->set.class_name;
    self->set.class_name = NULL; /* dataset_close frees them */
    dataset->normalised = self->set.normalised;
    memcpy(dataset->mean, self->set.mean, sizeof dataset->mean);
    memcpy(dataset->std, self->set.std, sizeof dataset->std);
    self->record_bytes = dataset->channels * dataset->height * dataset->width;
}

/* Blocks of data sorted by class contain few classes. */
static void warn_if_sorted(const struct packed *self, const char *name)
{
    int32_t before = 0;
    for (int64_t s = 0; s < self->stretch_count; s++)
        for (int64_t i = 0; i < self->stretches[s].part.records; i++) {
            if (self->stretches[s].label[i] < before)
                return;
            before = self->stretches[s].label[i];
        }
    if (before > 0)
        log_warn("%s: its records are sorted by class, so with data.shuffle_block a batch has few "
                 "classes: pack the data with convert.shuffle=on",
                 name);
}

static bool packed_open(const struct options *options, enum data_split split,
                        struct dataset *dataset, struct error *error)
{
    const bool all = options->data.val == VALIDATION_REFERENCE;
    char name[PACKED_PATH];
    int64_t files;
    struct packed *self = dataset->self = allocate(1, sizeof *self);
    if (!packed_find(options->data.root, name, &files, error) ||
        !packed_frames_read(name, files, &self->set, error))
        return false;
    packed_describe(dataset);
    if (options->data.exif && !self->set.encoded && split == SPLIT_TRAIN)
        log_warn("data.exif=on has no effect: %s contains decoded pixels, which `convert data` "
                 "turns if it is given data.exif=on",
                 name);
    self->check_always = options->data.check == CHECK_FULL;
    self->stretches = allocate((size_t)files * 2, sizeof *self->stretches);
    const int stored = split_stored(options, all ? SPLIT_TEST : split, self->set.total);
    if (stored < 0)
        return error_set(
            error, ERROR_DATA,
            "%s has no %s split: pack it again with data.val=%s, or use another data.val", name,
            split == SPLIT_TRAIN  ? "training"
            : split == SPLIT_TEST ? "test"
                                  : "validation",
            options->data.val == VALIDATION_VAL ? "val" : "test");
    dataset->held_out |= split != SPLIT_TRAIN && stored == SPLIT_TRAIN;
    if ((all && !add_split(dataset, name, SPLIT_TRAIN, error)) ||
        !add_split(dataset, name, (enum data_split)stored, error))
        return false;
    if (split == SPLIT_TRAIN && options->data.shuffle && options->data.shuffle_block > 0)
        warn_if_sorted(self, name);
    return true;
}

static const struct packed_stretch *stretch_of(const struct packed *self, int64_t record)
{
    const struct packed_stretch *stretch = self->stretches;
    while (record >= stretch->first + stretch->part.records)
        stretch++;
    return stretch;
}

/* Return the offset of a record in the file; for the index after the last record, the end. */
static int64_t record_begin(const struct packed *self, const struct packed_stretch *stretch,
                            int64_t number)
{
    return self->set.encoded ? stretch->offset[number]
                             : stretch->part.bytes + number * self->record_bytes;
}

/* Read a record and verify its checksum. number: index in its stretch. */
static bool read_record(const struct packed_stretch *stretch, int64_t number, uint8_t *data,
                        int64_t bytes, int64_t offset, int32_t *label, struct error *error)
{
    *label = stretch->label[number];
    if (durable_pread(stretch->descriptor, data, (size_t)bytes, offset) != (size_t)bytes)
        return error_set(error, ERROR_DATA, "%s: cannot read record %lld: %s; check the disk",
                         stretch->path, (long long)number,
                         errno == 0 ? "the file was truncated after it was opened"
                                    : strerror(errno));
    /* Verifying a checksum takes a fifth of the time of reading pixels from memory, so pixels are
     * verified once per run. Compared with decoding an image it is negligible. */
    if (stretch->checked != NULL &&
        atomic_exchange_explicit(&stretch->checked[number], 1, memory_order_relaxed) != 0)
        return true;
    if (packed_crc(data, (size_t)bytes, *label) == stretch->crc[number])
        return true;
    if (stretch->checked != NULL)
        atomic_store_explicit(&stretch->checked[number], 0, memory_order_relaxed);
    return error_set(
        error, ERROR_DATA,
        "%s: wrong checksum of record %lld: the file is damaged; copy or pack it again",
        stretch->path, (long long)number);
}

static bool packed_read(struct dataset *dataset, int64_t record, void *values, int32_t *label,
                        struct error *error)
{
    const struct packed *self = dataset->self;
    const struct packed_stretch *stretch = stretch_of(self, record);
    const int64_t number = record - stretch->first;
    return read_record(stretch, number, values, self->record_bytes,
                       record_begin(self, stretch, number), label, error);
}

static bool packed_load(struct dataset *dataset, int64_t record, struct byte_buffer *buffer,
                        int32_t *label, struct error *error)
{
    const struct packed_stretch *stretch = stretch_of(dataset->self, record);
    const int64_t number = record - stretch->first, begin = stretch->offset[number];
    const int64_t bytes = stretch->offset[number + 1] - begin;
    if (!byte_buffer_reserve(buffer, (size_t)bytes, error))
        return false;
    buffer->count = (size_t)bytes;
    return read_record(stretch, number, buffer->data, bytes, begin, label, error);
}

static bool packed_label(struct dataset *dataset, int64_t record, int32_t *label,
                         struct error *error)
{
    const struct packed_stretch *stretch = stretch_of(dataset->self, record);
    (void)error;
    *label = stretch->label[record - stretch->first];
    return true;
}

static int64_t packed_size(struct dataset *dataset, int64_t record, struct error *error)
{
    (void)error;
    const struct packed_stretch *stretch = stretch_of(dataset->self, record);
    const int64_t number = record - stretch->first;
    return stretch->offset[number + 1] - stretch->offset[number];
}

static void packed_advise(struct dataset *dataset, int64_t first, int64_t end)
{
    const struct packed *self = dataset->self;
    while (first < end) {
        const struct packed_stretch *stretch = stretch_of(self, first);
        const int64_t stretch_end = stretch->first + stretch->part.records;
        const int64_t last = end < stretch_end ? end : stretch_end;
        dataset_advise_range(stretch->descriptor,
                             record_begin(self, stretch, first - stretch->first),
                             record_begin(self, stretch, last - stretch->first));
        first = last;
    }
}

static void packed_name_record(const struct dataset *dataset, int64_t record, char *text,
                               size_t size)
{
    const struct packed_stretch *stretch = stretch_of(dataset->self, record);
    snprintf(text, size, "%s: record %lld", stretch->path, (long long)(record - stretch->first));
}

static void packed_close(struct dataset *dataset)
{
    struct packed *self = dataset->self;
    for (int64_t i = 0; i < self->stretch_count; i++) {
        close(self->stretches[i].descriptor);
        free(self->stretches[i].offset);
        free(self->stretches[i].label);
        free(self->stretches[i].crc);
        free(self->stretches[i].checked);
    }
    free(self->stretches);
    packed_set_free(&self->set);
    free(self);
}

const struct dataset_format dataset_packed = {
    .name = "packed",
    .open = packed_open,
    .read = packed_read,
    .load = packed_load,
    .size = packed_size,
    .label = packed_label,
    .advise = packed_advise,
    .name_record = packed_name_record,
    .close = packed_close,
    .splits = true,
};
