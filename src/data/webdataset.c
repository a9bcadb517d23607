// SPDX-License-Identifier: BSD-3-Clause
/* The format webdataset: tar shards, read in place. Only the index is in memory, 32 bytes per
 * record. A record is one pread. Records are numbered in the order of shards and members. As in
 * WebDataset, consecutive members with the same path up to the first dot of the file name are one
 * sample. Rank r indexes every size-th shard from number r on, in several threads. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* tdestroy */
#endif
#include <archive.h>
#include <archive_entry.h>
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <search.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "config/options.h"
#include "core/allocate.h"
#include "core/base.h"
#include "core/file.h"
#include "core/log.h"
#include "core/thread.h"
#include "data/listing.h"
#include "data/record_check.h"
#include "data/split.h"

enum {
    THREADS = 8,
    PATH_SIZE = 4096,
    PROBLEM = 512,
    BLOCK = 512, /* of a tar archive */
    CLS_MOST = 64,
    JSON_MOST = 1 << 20
};

/* One sample: an image in a shard, and its label. Checkpoints have the checksum of these bytes. */
struct record {
    int64_t offset;       /* of the image's bytes in the shard */
    uint32_t bytes;       /* size of the image file */
    int32_t label;        /* 0 to CLASSES_MOST - 1 */
    uint32_t pixels;      /* width times height, at most UINT32_MAX; 0: not an image */
    uint32_t header;      /* bytes of the member's tar headers, which precede the image */
    uint32_t sum;         /* CRC32C of the last of these headers, BLOCK bytes */
    uint16_t orientation; /* of the image's EXIF, 1 to 8; 0: not an image */
    uint16_t has_alpha;
};

/* What a rank finds in a shard, beside its records. */
struct findings {
    int64_t count;         /* of records */
    int64_t problems;      /* samples that cannot be used */
    char problem[PROBLEM]; /* the first one: "MEMBER at byte N: why" */
};

struct shard {
    const char *path;
    int descriptor; /* -1: not open */
    struct file_stamp stamp;
    int64_t first; /* number of its first record in the data set */
    struct findings found;
    const struct record *records; /* [found.count] in the order of the archive */
    struct record *own;           /* allocated: records that are not in joined memory, or NULL */
    struct joined_bytes joined;   /* in the first shard of a split: the records of all its shards */
};

struct webdataset {
    struct split_files files;
    struct shard *shard; /* [files.count]; only open ones have records */
};

const struct split_file_kind split_files_shards = {
    .endings = (const char *const[]){".tar", NULL},
    .plural = "shards",
    .expected = "no shards (*.tar or train/*.tar)",
    .advice = "set data.root to the folder of the shards or to their names"};

/* ---- Samples of a shard. */

struct member {
    int64_t offset, bytes, header; /* of the contents; bytes of its headers */
};

enum part { IMAGE, CLS, JSON, PARTS };

/* The sample that is being read. */
struct sample {
    char *key;                 /* NULL: none */
    int64_t position;          /* of its first member's headers */
    struct member part[PARTS]; /* offset 0: the sample has no such member */
    const char *problem;       /* NULL: none */
};

struct builder {
    struct shard *shard;
    struct sample sample;
    void *keys;      /* of the records: a tree of tsearch */
    size_t capacity; /* of records */
    struct byte_buffer buffer;
};

static int compare_keys(const void *left, const void *right)
{
    return strcmp(left, right);
}

static void problem_add(struct findings *found, const char *name, int64_t position, const char *why)
{
    if (found->problems++ > 0)
        return;
    snprintf(found->problem, PROBLEM, "%.200s at byte %lld: %.240s", name, (long long)position,
             why);
    for (char *at = found->problem; *at != '\0'; at++) /* names may contain anything */
        if (iscntrl((unsigned char)*at))
            *at = '?';
}

static bool parse_integer(const char *text, int32_t *label)
{
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    while (isspace((unsigned char)*end))
        end++;
    *label = (int32_t)value;
    return end != text && *end == '\0' && errno == 0 && value >= 0 && value < CLASSES_MOST;
}

static bool parse_json(const char *text, size_t bytes, int32_t *label)
{
    json_t *root = json_loadb(text, bytes, 0, NULL);
    const json_t *value = json_object_get(root, "label");
    if (value == NULL)
        value = json_object_get(root, "cls");
    const json_int_t number = json_integer_value(value);
    const bool good = json_is_integer(value) && number >= 0 && number < CLASSES_MOST;
    *label = good ? (int32_t)number : 0;
    json_decref(root);
    return good;
}

/* Read the sample's label; .cls is preferred to .json. Return the problem, or NULL. */
static const char *read_label(const struct shard *shard, const struct sample *sample,
                              int32_t *label)
{
    const bool is_cls = sample->part[CLS].offset > 0;
    const struct member *member = &sample->part[is_cls ? CLS : JSON];
    const char *problem = NULL;
    if (member->bytes > (is_cls ? CLS_MOST : JSON_MOST))
        return "its label file is too large";
    const size_t bytes = (size_t)member->bytes;
    char *text = allocate(bytes + 1, 1);
    if (durable_pread(shard->descriptor, text, bytes, member->offset) != bytes)
        problem = "its label cannot be read";
    else if (is_cls ? !parse_integer(text, label) : !parse_json(text, bytes, label))
        problem = is_cls ? ".cls is not a class number from 0 to 499999"
                         : ".json has no class number from 0 to 499999 as \"label\" or \"cls\"";
    free(text);
    return problem;
}

/* Read the header of an image. Return its pixels, or 0 and the reason. */
static uint32_t header_read(const struct shard *shard, const struct record *record,
                            int64_t most_pixels, struct byte_buffer *buffer,
                            struct image_header *header, struct error *reason)
{
    if (!record_check_header(shard->descriptor, (size_t)record->offset, record->bytes, most_pixels,
                             buffer, header, reason))
        return 0;
    const int64_t most_rows = UINT32_MAX / header->width;
    return header->height > most_rows ? UINT32_MAX : (uint32_t)(header->width * header->height);
}

/* Compute the checksum of the block before the contents of a member. False: it cannot be read. */
static bool header_sum(const struct shard *shard, int64_t offset, uint32_t *sum)
{
    uint8_t block[BLOCK];
    if (durable_pread(shard->descriptor, block, sizeof block, offset - BLOCK) != sizeof block)
        return false;
    *sum = crc32c_update(0, block, sizeof block);
    return true;
}

/* Return the problem, or NULL. An image whose header cannot be read is reported by check_record. */
static const char *add_record(struct builder *builder, int32_t label)
{
    struct shard *shard = builder->shard;
    const struct member *image = &builder->sample.part[IMAGE];
    const size_t count = (size_t)shard->found.count;
    struct image_header header = {.orientation = 0};
    struct error unused = {0};
    if (tfind(builder->sample.key, &builder->keys, compare_keys) != NULL)
        return "the shard has an earlier sample of this name";
    struct record record = {.offset = image->offset,
                            .bytes = (uint32_t)image->bytes,
                            .label = label,
                            .header = (uint32_t)image->header};
    if (!header_sum(shard, record.offset, &record.sum))
        return "its header cannot be read";
    record.pixels = header_read(shard, &record, INT64_MAX, &builder->buffer, &header, &unused);
    record.orientation = (uint16_t)header.orientation;
    record.has_alpha = header.has_alpha;
    shard->own = allocate_more(shard->own, &builder->capacity, count, sizeof *shard->own);
    ENSURE_MEMORY(tsearch(builder->sample.key, &builder->keys, compare_keys) != NULL,
                  "no memory for the names of %zu samples", count);
    builder->sample.key = NULL; /* the tree owns it */
    shard->own[count] = record;
    shard->found.count++;
    return NULL;
}

/* Add the sample that is complete. Members without image and label are ignored. */
static void sample_end(struct builder *builder)
{
    struct sample *sample = &builder->sample;
    const bool is_labelled = sample->part[CLS].offset > 0 || sample->part[JSON].offset > 0;
    const bool has_image = sample->part[IMAGE].offset > 0;
    int32_t label = 0;
    if (has_image && !is_labelled)
        sample->problem = "no label, .cls or .json, next to the image";
    else if (is_labelled && !has_image)
        sample->problem = "no image, .jpg, .jpeg, .png or .webp, next to the label";
    else if (is_labelled && sample->problem == NULL)
        sample->problem = read_label(builder->shard, sample, &label);
    if (is_labelled && sample->problem == NULL)
        sample->problem = add_record(builder, label);
    if (sample->problem != NULL)
        problem_add(&builder->shard->found, sample->key, sample->position, sample->problem);
    free(sample->key);
    *sample = (struct sample){0};
}

static void sample_add(struct sample *sample, const char *extension, struct member member)
{
    static const struct {
        const char *extension;
        enum part part;
        const char *twice;
    } known[] = {{"jpg", IMAGE, "more than one image"}, {"jpeg", IMAGE, "more than one image"},
                 {"png", IMAGE, "more than one image"}, {"webp", IMAGE, "more than one image"},
                 {"cls", CLS, "more than one .cls"},    {"json", JSON, "more than one .json"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct member *part = &sample->part[known[i].part];
        if (strcasecmp(extension, known[i].extension) != 0)
            continue;
        if (part->offset > 0)
            sample->problem = known[i].twice;
        else if (known[i].part == IMAGE && member.bytes > (int64_t)UINT32_MAX)
            sample->problem = "the image is larger than 4 GiB";
        *part = member;
    }
}

/* Add a regular member. The key is its path up to the first dot of the file name. */
static void add_member(struct builder *builder, const char *path, struct member member)
{
    struct sample *sample = &builder->sample;
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    const char *dot = strchr(name, '.');
    if (dot == NULL || dot == name)
        return;
    const size_t length = (size_t)(dot - path);
    if (sample->key == NULL || strncmp(sample->key, path, length) != 0 ||
        sample->key[length] != '\0') {
        sample_end(builder);
        sample->key = memcpy(allocate(length + 1, 1), path, length);
        sample->position = member.offset - member.header;
    }
    sample_add(sample, dot + 1, member);
}

/* ---- Archives. libarchive reads the tar headers and seeks over the contents. After
 * archive_read_next_header, the position of the archive is that of the member's contents. */

static struct archive *archive_begin(void)
{
    struct archive *archive = archive_read_new();
    ENSURE(archive != NULL, "libarchive cannot be started");
    archive_read_support_format_tar(archive);
    return archive;
}

static const char *why_unknown(const struct shard *shard)
{
    unsigned char magic[4] = {0};
    if (pread(shard->descriptor, magic, sizeof magic, 0) < 1)
        return "is empty";
    if (magic[0] == 0x1f && magic[1] == 0x8b)
        return "is compressed with gzip, which cannot be read in place: unpack it with gunzip";
    if (memcmp(magic, "\x28\xb5\x2f\xfd", 4) == 0)
        return "is compressed with zstd, which cannot be read in place: unpack it with unzstd";
    return "is not a tar archive";
}

/* Add one member. Return false, with a problem, if the rest cannot be read. */
static bool add_entry(struct builder *builder, struct archive *archive, struct archive_entry *entry,
                      int64_t *end)
{
    struct shard *shard = builder->shard;
    const char *path = archive_entry_pathname(entry);
    const int64_t position = archive_read_header_position(archive);
    const struct member member = {.offset = archive_filter_bytes(archive, 0),
                                  .bytes = archive_entry_size(entry),
                                  .header = archive_filter_bytes(archive, 0) - position};
    const bool is_file = archive_entry_filetype(entry) == AE_IFREG &&
                         archive_entry_hardlink(entry) == NULL && path != NULL;
    *end = member.offset;
    if (!is_file)
        return true;
    const bool sparse = archive_entry_sparse_count(entry) > 0;
    if (sparse || member.bytes < 0 || member.bytes > shard->stamp.bytes - member.offset) {
        problem_add(&shard->found, path, position,
                    sparse             ? "is sparse: write it without tar --sparse"
                    : member.bytes < 0 ? "has a size below 0: the shard is damaged"
                                       : "ends after the end of the file: the shard is truncated");
        return false;
    }
    *end = member.offset + round_up(member.bytes, BLOCK);
    add_member(builder, path, member);
    return true;
}

/* Read all members. Damage ends the shard; the samples before it can be used. */
static void add_entries(struct builder *builder, struct archive *archive)
{
    struct findings *found = &builder->shard->found;
    struct archive_entry *entry;
    int64_t end = 0;
    int status;
    bool good = true;
    while (good && ((status = archive_read_next_header(archive, &entry)) == ARCHIVE_OK ||
                    status == ARCHIVE_WARN))
        good = add_entry(builder, archive, entry, &end);
    sample_end(builder);
    const char *why = archive_error_string(archive);
    if (good && status != ARCHIVE_EOF)
        problem_add(found, "archive", archive_filter_bytes(archive, 0),
                    why != NULL ? why : "unknown error");
    else if (good && archive_filter_bytes(archive, 0) <= end)
        problem_add(found, "archive", end, "no end of archive: the shard is truncated");
}

/* Write the path of a record's member, for messages; it is read from the shard. */
static void member_name(const struct shard *shard, const struct record *record, char *name,
                        size_t size)
{
    struct archive_entry *entry;
    const char *path = NULL;
    uint8_t *headers = allocate(record->header, 1);
    struct archive *archive = archive_begin();
    if (durable_pread(shard->descriptor, headers, record->header,
                      record->offset - record->header) == record->header &&
        archive_read_open_memory(archive, headers, record->header) == ARCHIVE_OK &&
        archive_read_next_header(archive, &entry) >= ARCHIVE_WARN)
        path = archive_entry_pathname(entry);
    snprintf(name, size, "%s", path != NULL ? path : "image");
    archive_read_free(archive);
    free(headers);
}

/* Set the records and the findings of an open shard. */
static void shard_index(struct shard *shard)
{
    enum { READ_SIZE = 4096 };
    struct builder builder = {.shard = shard};
    struct archive *archive = archive_begin();
    if (archive_read_open_fd(archive, shard->descriptor, READ_SIZE) == ARCHIVE_OK)
        add_entries(&builder, archive);
    else
        problem_add(&shard->found, "archive", 0, why_unknown(shard));
    archive_read_free(archive);
    if (shard->found.count == 0 && shard->found.problems == 0)
        problem_add(
            &shard->found, "archive", 0,
            "no samples: a sample is KEY.jpg, .jpeg, .png or .webp with KEY.cls or .json, and "
            "KEY has no dot");
    tdestroy(builder.keys, free);
    free(builder.buffer.data);
}

/* ---- Shards of a split. */

struct indexing {
    struct shard *shards;
    int64_t count, rank, ranks;
    atomic_llong claimed;
};

static void *index_some(void *argument)
{
    struct indexing *work = argument;
    for (int64_t i;
         (i = atomic_fetch_add(&work->claimed, 1) * work->ranks + work->rank) < work->count;)
        shard_index(&work->shards[i]);
    return NULL;
}

/* Collective. Copy the records and the findings of all shards to all ranks, in the order of ranks.
 */
static void shards_join(const struct indexing *work, struct comm *comm)
{
    struct shard *shards = work->shards;
    struct byte_buffer records = {0}, findings = {0};
    struct joined_bytes all;
    for (int64_t i = work->rank; i < work->count; i += work->ranks) {
        byte_buffer_append(&findings, &shards[i].found, sizeof shards[i].found);
        byte_buffer_append(&records, shards[i].own,
                           (size_t)shards[i].found.count * sizeof *shards[i].own);
        free(shards[i].own);
        shards[i].own = NULL;
    }
    comm_join(comm, records.data, (int64_t)records.count, &shards[0].joined);
    comm_join(comm, findings.data, (int64_t)findings.count, &all);
    const struct record *next = (const struct record *)(const void *)shards[0].joined.data;
    const struct findings *found = (const struct findings *)(const void *)all.data;
    for (int64_t r = 0; r < work->ranks; r++)
        for (int64_t i = r; i < work->count; i += work->ranks, found++) {
            shards[i].found = *found;
            shards[i].records = next;
            next += found->count;
        }
    comm_joined_free(&all);
}

static bool shard_open(struct shard *shard, struct error *error)
{
    int64_t bytes;
    shard->descriptor = text_file_descriptor(shard->path, &bytes);
    if (shard->descriptor >= 0 && file_stamp_read(shard->descriptor, &shard->stamp))
        return true;
    return error_set(error, ERROR_DATA, "%s: %s; %s", shard->path,
                     errno == EINVAL ? "is not a regular file" : strerror(errno),
                     errno == EMFILE ? "raise the hard limit, or use fewer, larger shards"
                                     : "check data.root");
}

static bool shards_unchanged(const struct shard *shards, int64_t count, struct error *error)
{
    for (int64_t i = 0; i < count; i++)
        if (!file_stamp_holds(shards[i].descriptor, &shards[i].stamp))
            return error_set(error, ERROR_DATA,
                             "%s was changed while its headers were read; start again when it is "
                             "complete",
                             shards[i].path);
    return true;
}

static void shards_close(struct shard *shards, int64_t count)
{
    for (struct shard *shard = shards; shard < shards + count; shard++) {
        if (shard->descriptor >= 0)
            close(shard->descriptor);
        free(shard->own);
        comm_joined_free(&shard->joined);
        *shard = (struct shard){.path = shard->path, .descriptor = -1};
    }
}

/* Samples without label or image, and damaged shards, are an error, or skipped with
 * data.skip_broken=on. */
static bool check_problems(const struct shard *shards, int64_t count, const struct options *options,
                           struct error *error)
{
    int64_t problems = 0, first = 0;
    for (int64_t i = count - 1; i >= 0; i--) {
        problems += shards[i].found.problems;
        first = shards[i].found.problems > 0 ? i : first;
    }
    if (problems == 0)
        return true;
    char text[2 * PROBLEM + 64];
    snprintf(text, sizeof text, "%lld problem%s in the shards, the first: %.512s: %s",
             (long long)problems, problems == 1 ? "" : "s", shards[first].path,
             shards[first].found.problem);
    if (!options->data.skip_broken)
        return error_set(error, ERROR_DATA, "%s; data.skip_broken=on skips such samples", text);
    log_warn("data: such samples are skipped: %s", text);
    return true;
}

/* Collective. Open and index the shards of a split. All stay open. Return the first one. */
static struct shard *open_shards(struct dataset *dataset, const struct options *options,
                                 enum data_split split, int64_t *count, struct error *error)
{
    struct webdataset *self = dataset->self;
    const struct split_file *files = split_files_choose(&self->files, options, split, count, error);
    struct shard *shards = files != NULL ? self->shard + (files - self->files.file) : NULL;
    if (shards == NULL || shards[0].descriptor >= 0) /* open already */
        return shards;
    struct indexing work = {
        .shards = shards, .count = *count, .rank = dataset->rank, .ranks = dataset->ranks};
    for (int64_t i = 0; i < *count && shard_open(&shards[i], error); i++)
        ;
    if (!dataset_agree(dataset, error))
        return NULL;
    log_info("data: reading the headers of %lld shard%s", (long long)*count,
             *count == 1 ? "" : "s");
    threads_run("tar-index", smaller(THREADS, 1 + *count / work.ranks), index_some, &work);
    error_defer(shards_unchanged(shards, *count, error));
    if (!dataset_agree(dataset, error))
        return NULL;
    shards_join(&work, dataset->comm);
    for (int64_t i = 0; i < *count; i++)
        dataset->seen =
            crc32c_update(dataset->seen, &shards[i].stamp.bytes, sizeof shards[i].stamp.bytes);
    return check_problems(shards, *count, options, error) ? shards : NULL;
}

/* ---- Records. */

/* Number the records of the open shards. */
static void number_records(struct dataset *dataset)
{
    struct webdataset *self = dataset->self;
    dataset->count = 0;
    for (int64_t i = 0; i < self->files.count; i++) {
        self->shard[i].first = dataset->count;
        dataset->count += self->shard[i].found.count;
    }
}

/* Return the shard of a record: the last one that does not begin after it. */
static const struct shard *shard_of(const struct webdataset *self, int64_t record)
{
    int64_t low = 0, high = self->files.count - 1;
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (self->shard[middle].first <= record)
            low = middle;
        else
            high = middle - 1;
    }
    return &self->shard[low];
}

static const struct record *record_of(const struct dataset *dataset, int64_t record,
                                      const struct shard **shard)
{
    *shard = shard_of(dataset->self, record);
    return &(*shard)->records[record - (*shard)->first];
}

static void webdataset_name_record(const struct dataset *dataset, int64_t record, char *text,
                                   size_t size)
{
    const struct shard *shard;
    const struct record *entry = record_of(dataset, record, &shard);
    char name[PATH_SIZE];
    member_name(shard, entry, name, sizeof name);
    snprintf(text, size, "%s: %s at byte %lld", shard->path, name,
             (long long)(entry->offset - entry->header));
}

/* Read the image of a record. Fails if the member's header differs from the index, because the
 * shard was rewritten. */
static bool image_load(const struct shard *shard, const struct record *record,
                       struct byte_buffer *bytes, struct error *error)
{
    struct error reason = {0};
    uint32_t sum = record->sum;
    bytes->count = record->bytes;
    if (!byte_buffer_reserve(bytes, record->bytes, error))
        return false;
    if (!durable_read(shard->descriptor, shard->path, bytes->data, record->bytes, record->offset,
                      &reason))
        return error_set(error, ERROR_DATA, "%s", reason.text);
    return (header_sum(shard, record->offset, &sum) && sum == record->sum) ||
           error_set(
               error, ERROR_DATA,
               "%s was rewritten: the tar header of the sample at byte %lld has changed; start "
               "again when the shard is complete",
               shard->path, (long long)(record->offset - record->header));
}

/* ---- Classes. */

/* Read the names of classes, one per line, from a file beside the first shard or in the folder
 * above, which contains the folders of splits. */
static void find_class_names(struct dataset *dataset)
{
    static const char *const names[] = {"classes.txt", "classnames.txt", "../classes.txt",
                                        "../classnames.txt"};
    const struct webdataset *self = dataset->self;
    const char *shard = self->shard[0].path, *slash = strrchr(shard, '/');
    const int length = slash != NULL ? (int)(slash - shard) + 1 : 0;
    struct listing lines = {0};
    char path[PATH_SIZE];
    for (size_t i = 0; lines.count == 0 && i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%.*s%s", length, shard, names[i]);
        char *text = text_file_read(path, NULL);
        if (text != NULL)
            listing_add_lines(&lines, text);
        free(text);
        while (lines.count > 0 && lines.names[lines.count - 1][0] == '\0')
            free(lines.names[--lines.count]);
    }
    dataset->class_name = lines.names;
    dataset->classes = (int64_t)lines.count;
}

/* Without names, the classes are the numbers up to the largest label of the training shards, or of
 * the open shards if there are no training shards. */
static bool number_classes(struct dataset *dataset, const struct options *options,
                           struct error *error)
{
    struct webdataset *self = dataset->self;
    int64_t count;
    split_files_of(&self->files, SPLIT_TRAIN, &count); /* they are the first files */
    const bool opens = count > 0 && self->shard[0].descriptor < 0;
    if (opens && open_shards(dataset, options, SPLIT_TRAIN, &count, error) == NULL)
        return false;
    dataset->classes = 1;
    for (int64_t i = 0; i < (count > 0 ? count : self->files.count); i++)
        for (int64_t j = 0; j < self->shard[i].found.count; j++)
            dataset->classes = larger(dataset->classes, 1 + self->shard[i].records[j].label);
    if (opens)
        shards_close(self->shard, count);
    dataset_number_classes(dataset, "");
    return true;
}

/* ---- The data set. */

static bool check_record(const struct dataset *dataset, int64_t record,
                         const struct options *options, struct check_scratch *scratch,
                         struct error *error)
{
    const struct shard *shard;
    const struct record *entry = record_of(dataset, record, &shard);
    struct image_header header;
    if (entry->label >= dataset->classes)
        return error_set(error, ERROR_DATA,
                         "label %d is out of range: there are %lld classes (in the file of class "
                         "names, else in the training split)",
                         entry->label, (long long)dataset->classes);
    const bool full = record_check_is_full(options);
    if (options->data.check == CHECK_NONE && !full)
        return true;
    record_check_count(scratch, entry->orientation, entry->has_alpha != 0);
    if (!full && entry->pixels > 0 && entry->pixels <= options->data.max_pixels)
        return true; /* checked when the shard was indexed */
    return header_read(shard, entry, options->data.max_pixels, &scratch->file, &header, error) >
               0 &&
           (!full || (image_load(shard, entry, &scratch->file, error) &&
                      record_check_decode(scratch, entry->bytes, &header, options, error)));
}

/* Check the records and remove those that cannot be used. */
static bool check_records(struct dataset *dataset, const struct options *options,
                          struct error *error)
{
    struct webdataset *self = dataset->self;
    uint8_t *broken;
    if (!record_check(dataset, options, check_record, &broken, error))
        return false;
    const uint8_t *next = broken;
    for (int64_t i = 0; i < self->files.count; i++) {
        struct shard *shard = &self->shard[i];
        const int64_t count = shard->found.count;
        if (broken != NULL && memchr(next, 1, (size_t)count) != NULL) {
            shard->own = allocate((size_t)count, sizeof *shard->own);
            shard->found.count = 0;
            for (int64_t j = 0; j < count; j++)
                if (!next[j])
                    shard->own[shard->found.count++] = shard->records[j];
            shard->records = shard->own;
        }
        next += broken != NULL ? count : 0;
        dataset->sum = crc32c_update(dataset->sum, shard->records,
                                     (size_t)shard->found.count * sizeof *shard->records);
    }
    free(broken);
    number_records(dataset);
    return true;
}

static bool webdataset_open(const struct options *options, enum data_split split,
                            struct dataset *dataset, struct error *error)
{
    const bool all = options->data.val == VALIDATION_REFERENCE;
    struct webdataset *self = dataset->self = allocate(1, sizeof *self);
    int64_t count;
    dataset->encoded = true;
    dataset->channels = 3;
    if (options->data.root[0] == '\0')
        return error_set(error, ERROR_USAGE, "data.format=webdataset needs data.root");
    if (!split_files_find(options->data.root, &split_files_shards, &self->files, dataset->comm,
                          error))
        return false;
    self->shard = allocate((size_t)self->files.count, sizeof *self->shard);
    for (int64_t i = 0; i < self->files.count; i++)
        self->shard[i] = (struct shard){.path = self->files.file[i].path, .descriptor = -1};
    if (all && open_shards(dataset, options, SPLIT_TRAIN, &count, error) == NULL)
        return false;
    const struct shard *shards =
        open_shards(dataset, options, all ? SPLIT_TEST : split, &count, error);
    if (shards == NULL)
        return false;
    dataset->held_out |=
        split != SPLIT_TRAIN && self->files.file[shards - self->shard].split == SPLIT_TRAIN;
    if (dataset->rank == 0)
        find_class_names(dataset);
    comm_share_texts(dataset->comm, &dataset->class_name, &dataset->classes);
    if (dataset->classes == 0 && !number_classes(dataset, options, error))
        return false;
    number_records(dataset);
    return check_records(dataset, options, error);
}

static bool webdataset_load(struct dataset *dataset, int64_t record, struct byte_buffer *bytes,
                            int32_t *label, struct error *error)
{
    const struct shard *shard;
    const struct record *entry = record_of(dataset, record, &shard);
    *label = entry->label;
    return image_load(shard, entry, bytes, error);
}

static bool webdataset_label(struct dataset *dataset, int64_t record, int32_t *label,
                             struct error *error)
{
    const struct shard *shard;
    (void)error;
    *label = record_of(dataset, record, &shard)->label;
    return true;
}

static void webdataset_advise(struct dataset *dataset, int64_t first, int64_t end)
{
    while (first < end) {
        const struct shard *shard = shard_of(dataset->self, first);
        const int64_t next = smaller(end, shard->first + shard->found.count);
        const struct record *last = &shard->records[next - 1 - shard->first];
        dataset_advise_range(shard->descriptor, shard->records[first - shard->first].offset,
                             last->offset + last->bytes);
        first = next;
    }
}

static void webdataset_close(struct dataset *dataset)
{
    struct webdataset *self = dataset->self;
    if (self->shard != NULL)
        shards_close(self->shard, self->files.count);
    split_files_free(&self->files);
    free(self->shard);
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
