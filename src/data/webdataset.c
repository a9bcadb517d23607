// SPDX-License-Identifier: BSD-3-Clause
/* The format webdataset: tar shards, read in place. Only the index is in memory, 32 bytes per
 * record. A record is one pread. Records are numbered in the order of shards and members. As in
 * WebDataset, consecutive members with the same path up to the first dot of the file name are one
 * sample. Each rank indexes a part of the shards, in several threads. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"
#include "data/listing.h"
#include "data/split.h"
#include "options/options.h"

enum {
    THREADS = 8,
    PROBLEM = 512,
    BLOCK = 512,         /* of a tar archive */
    LABEL_MOST = 1 << 20 /* bytes of a label's file */
};

/* One sample: an image in a shard, and its label. Checkpoints have the checksum of these bytes. */
struct record {
    int64_t offset;  /* of the image's bytes in the shard */
    int64_t shard;   /* number of the shard */
    uint32_t bytes;  /* size of the image file */
    int32_t label;   /* 0 to CLASSES_MOST - 1 */
    uint32_t header; /* bytes of the member's tar headers, which precede the image */
    uint32_t sum;    /* CRC32C of the last of these headers, BLOCK bytes */
};

/* What a rank finds in a shard, beside its records. */
struct findings {
    int64_t problems;      /* samples that cannot be used */
    char problem[PROBLEM]; /* the first one: "MEMBER at byte N: why" */
};

struct shard {
    const char *path;
    int64_t number;
    int descriptor; /* -1: not open */
    struct file_stamp stamp;
    struct findings found;
    struct byte_buffer records; /* struct record, while this rank indexes the shard */
};

struct webdataset {
    struct split_files files;
    struct shard *shard;
    int64_t shard_count;         /* all stay open */
    struct joined_bytes joined;  /* the records of all ranks */
    const struct record *record; /* in the order of shards and members */
    void *kept;                  /* the records without broken images, or NULL */
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
    struct shard *shard;
    char *key;                 /* NULL: none */
    int64_t position;          /* of its first member's headers */
    struct member part[PARTS]; /* offset 0: the sample has no such member */
    const char *problem;       /* NULL: none */
};

static void problem_add(struct findings *found, const char *name, int64_t position, const char *why)
{
    if (found->problems++ > 0)
        return;
    snprintf(found->problem, PROBLEM, "%.200s at byte %lld: %.240s", name, (long long)position,
             why);
    text_remove_control(found->problem);
}

/* Read the sample's label; .cls is preferred to .json. Return the problem, or NULL. */
static const char *read_label(const struct shard *shard, const struct sample *sample,
                              int32_t *label)
{
    const bool is_cls = sample->part[CLS].offset > 0;
    const struct member *member = &sample->part[is_cls ? CLS : JSON];
    if (member->bytes > LABEL_MOST)
        return "its label file is too large";
    const size_t bytes = (size_t)member->bytes;
    OWNED char *text = allocate(bytes + 1, 1);
    if (durable_pread(shard->descriptor, text, bytes, member->offset) != bytes)
        return "its label cannot be read";
    json_int_t number = -1;
    if (is_cls) {
        char *end;
        number = strtol(text, &end, 10);
        if (end == text || end[strspn(end, " \t\n\v\f\r")] != '\0')
            number = -1;
    } else {
        json_t *root = json_loadb(text, bytes, 0, NULL);
        const json_t *value = json_object_get(root, "label");
        if (value == NULL)
            value = json_object_get(root, "cls");
        if (json_is_integer(value))
            number = json_integer_value(value);
        json_decref(root);
    }
    *label = (int32_t)number;
    if (number >= 0 && number < CLASSES_MOST)
        return NULL;
    return is_cls ? ".cls is not a class number from 0 to 499999"
                  : ".json has no class number from 0 to 499999 as \"label\" or \"cls\"";
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

/* Add the sample that is complete. Members without image and label are ignored. */
static void sample_end(struct sample *sample)
{
    struct shard *shard = sample->shard;
    const struct member *image = &sample->part[IMAGE];
    const bool is_labelled = sample->part[CLS].offset > 0 || sample->part[JSON].offset > 0;
    const bool has_image = image->offset > 0;
    struct record record = {.offset = image->offset,
                            .shard = shard->number,
                            .bytes = (uint32_t)image->bytes,
                            .header = (uint32_t)image->header};
    if (has_image && !is_labelled)
        sample->problem = "no label, .cls or .json, next to the image";
    else if (is_labelled && !has_image)
        sample->problem = "no image, .jpg, .jpeg, .png or .webp, next to the label";
    else if (is_labelled && sample->problem == NULL)
        sample->problem = read_label(shard, sample, &record.label);
    if (is_labelled && sample->problem == NULL && !header_sum(shard, image->offset, &record.sum))
        sample->problem = "its header cannot be read";
    if (sample->problem != NULL)
        problem_add(&shard->found, sample->key, sample->position, sample->problem);
    else if (is_labelled)
        byte_buffer_append(&shard->records, &record, sizeof record);
    free(sample->key);
    *sample = (struct sample){.shard = shard};
}

/* Add a regular member. The key is its path up to the first dot of the file name. */
static void add_member(struct sample *sample, const char *path, struct member member)
{
    static const struct {
        const char *extension;
        enum part part;
        const char *twice;
    } known[] = {{"jpg", IMAGE, "more than one image"}, {"jpeg", IMAGE, "more than one image"},
                 {"png", IMAGE, "more than one image"}, {"webp", IMAGE, "more than one image"},
                 {"cls", CLS, "more than one .cls"},    {"json", JSON, "more than one .json"}};
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    const char *dot = strchr(name, '.');
    if (dot == NULL || dot == name)
        return;
    const size_t length = (size_t)(dot - path);
    if (sample->key == NULL || strncmp(sample->key, path, length) != 0 ||
        sample->key[length] != '\0') {
        sample_end(sample);
        sample->key = memcpy(allocate(length + 1, 1), path, length);
        sample->position = member.offset - member.header;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct member *part = &sample->part[known[i].part];
        if (strcasecmp(dot + 1, known[i].extension) != 0)
            continue;
        if (part->offset > 0)
            sample->problem = known[i].twice;
        else if (known[i].part == IMAGE && member.bytes > (int64_t)UINT32_MAX)
            sample->problem = "the image is larger than 4 GiB";
        *part = member;
    }
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

/* Return the path of a record's member, for messages; it is read from the shard. */
static char *member_name(const struct shard *shard, const struct record *record)
{
    struct archive_entry *entry;
    const char *path = NULL;
    OWNED uint8_t *headers = allocate(record->header, 1);
    struct archive *archive = archive_begin();
    if (durable_pread(shard->descriptor, headers, record->header,
                      record->offset - record->header) == record->header &&
        archive_read_open_memory(archive, headers, record->header) == ARCHIVE_OK &&
        archive_read_next_header(archive, &entry) >= ARCHIVE_WARN)
        path = archive_entry_pathname(entry);
    char *name = allocate_copy(path != NULL ? path : "image");
    archive_read_free(archive);
    return name;
}

/* Set the records and the findings of an open shard. Damage ends the shard; the samples before it
 * can be used. */
static void shard_index(struct shard *shard)
{
    enum { READ_SIZE = 4096 };
    struct sample sample = {.shard = shard};
    struct archive *archive = archive_begin();
    struct archive_entry *entry;
    int64_t end = 0;
    int status = ARCHIVE_OK;
    bool good = archive_read_open_fd(archive, shard->descriptor, READ_SIZE) == ARCHIVE_OK;
    if (!good)
        problem_add(&shard->found, "archive", 0,
                    "is not a tar archive, or a compressed one: unpack it");
    while (good && ((status = archive_read_next_header(archive, &entry)) == ARCHIVE_OK ||
                    status == ARCHIVE_WARN)) {
        const char *path = archive_entry_pathname(entry);
        const int64_t position = archive_read_header_position(archive);
        const struct member member = {.offset = archive_filter_bytes(archive, 0),
                                      .bytes = archive_entry_size(entry),
                                      .header = archive_filter_bytes(archive, 0) - position};
        const char *damage = archive_entry_sparse_count(entry) > 0
                                 ? "is sparse: write it without tar --sparse"
                             : member.bytes < 0 ? "has a size below 0: the shard is damaged"
                             : member.bytes > shard->stamp.bytes - member.offset
                                 ? "ends after the end of the file: the shard is truncated"
                                 : NULL;
        end = member.offset;
        if (archive_entry_filetype(entry) != AE_IFREG || path == NULL ||
            archive_entry_hardlink(entry) != NULL)
            continue;
        good = damage == NULL;
        end += good ? round_up(member.bytes, BLOCK) : 0;
        if (good)
            add_member(&sample, path, member);
        else
            problem_add(&shard->found, path, position, damage);
    }
    sample_end(&sample);
    const char *why = archive_error_string(archive);
    if (good && status != ARCHIVE_EOF)
        problem_add(&shard->found, "archive", archive_filter_bytes(archive, 0),
                    why != NULL ? why : "unknown error");
    else if (good && archive_filter_bytes(archive, 0) <= end)
        problem_add(&shard->found, "archive", end, "no end of archive: the shard is truncated");
    archive_read_free(archive);
    if (shard->records.count == 0 && shard->found.problems == 0)
        problem_add(
            &shard->found, "archive", 0,
            "no samples: a sample is KEY.jpg, .jpeg, .png or .webp with KEY.cls or .json, and "
            "KEY has no dot");
}

/* ---- Shards of a split. */

static bool shard_open(struct webdataset *self, const char *path, struct error *error)
{
    struct shard *shard = &self->shard[self->shard_count];
    int64_t bytes;
    *shard = (struct shard){.path = path, .number = self->shard_count++};
    shard->descriptor = text_file_descriptor(path, &bytes);
    return (shard->descriptor >= 0 && file_stamp_read(shard->descriptor, &shard->stamp)) ||
           error_set(error, ERROR_DATA, "%s: %s; %s", path,
                     errno == EINVAL ? "is not a regular file" : strerror(errno),
                     errno == EMFILE
                         ? "raise the hard limit (ulimit -Hn), or use fewer, larger shards"
                         : "check data.root");
}

/* The shards that this rank indexes. */
struct indexing {
    struct shard *shards;
    int64_t count;
    atomic_llong claimed;
};

static void *index_some(void *argument)
{
    struct indexing *work = argument;
    for (int64_t i; (i = atomic_fetch_add(&work->claimed, 1)) < work->count;)
        shard_index(&work->shards[i]);
    return NULL;
}

/* Collective. Index the open shards, and set the records of all ranks. Samples without label or
 * image, and damaged shards, are an error, or skipped with data.skip_broken=on. A shard that is
 * written meanwhile is an error. */
static bool shards_index(struct dataset *dataset, const struct options *options,
                         struct error *error)
{
    struct webdataset *self = dataset->self;
    struct indexing work = {0};
    struct byte_buffer records = {0}, findings = {0};
    struct joined_bytes found;
    int64_t begin;
    cut_evenly(self->shard_count, dataset->ranks, dataset->rank, &begin, &work.count);
    work.shards = self->shard + begin;
    log_info("data: reading the headers of %lld shard%s", (long long)self->shard_count,
             self->shard_count == 1 ? "" : "s");
    threads_run("tar-index", smaller(THREADS, 1 + work.count), index_some, &work);
    for (struct shard *shard = work.shards; shard < work.shards + work.count; shard++) {
        byte_buffer_append(&findings, &shard->found, sizeof shard->found);
        byte_buffer_append(&records, shard->records.data, shard->records.count);
        free(shard->records.data);
    }
    comm_join(dataset->comm, records.data, (int64_t)records.count, &self->joined);
    comm_join(dataset->comm, findings.data, (int64_t)findings.count, &found);
    self->record = (const struct record *)(const void *)self->joined.data;
    dataset->count = self->joined.bytes / (int64_t)sizeof(struct record);
    for (int64_t i = 0; i < self->shard_count; i++)
        dataset->seen = crc32c_update(dataset->seen, &self->shard[i].stamp.bytes,
                                      sizeof self->shard[i].stamp.bytes);
    const struct findings *of_shard = (const struct findings *)(const void *)found.data;
    int64_t problems = 0, first = 0;
    for (int64_t i = 0; i < self->shard_count; i++) {
        first = problems == 0 ? i : first;
        problems += of_shard[i].problems;
    }
    OWNED char *text =
        allocate_text("%lld problem%s in the shards, the first: %.512s: %s", (long long)problems,
                      problems == 1 ? "" : "s", self->shard[first].path, of_shard[first].problem);
    comm_joined_free(&found);
    for (int64_t i = 0; error->kind == ERROR_NONE && i < self->shard_count; i++)
        if (!file_stamp_holds(self->shard[i].descriptor, &self->shard[i].stamp))
            error_defer(error_set(error, ERROR_DATA,
                                  "%s was changed while its headers were read; start again when "
                                  "it is complete",
                                  self->shard[i].path));
    if (!dataset_agree(dataset, error))
        return false;
    if (problems > 0 && !options->data.skip_broken)
        return error_set(error, ERROR_DATA, "%s; data.skip_broken=on skips such samples", text);
    if (problems > 0)
        log_warn("data: such samples are skipped: %s", text);
    return true;
}

/* ---- Records. */

static const struct shard *shard_of(const struct dataset *dataset, int64_t record)
{
    const struct webdataset *self = dataset->self;
    return &self->shard[self->record[record].shard];
}

static const struct record *record_of(const struct dataset *dataset, int64_t record)
{
    const struct webdataset *self = dataset->self;
    return &self->record[record];
}

static void webdataset_name_record(const struct dataset *dataset, int64_t record, char *text,
                                   size_t size)
{
    const struct shard *shard = shard_of(dataset, record);
    const struct record *entry = record_of(dataset, record);
    OWNED char *name = member_name(shard, entry);
    snprintf(text, size, "%s: %s at byte %lld", shard->path, name,
             (long long)(entry->offset - entry->header));
}

static bool label_check(const struct dataset *dataset, int64_t record, struct error *error)
{
    const int32_t label = record_of(dataset, record)->label;
    return label < dataset->classes ||
           error_set(error, ERROR_DATA,
                     "label %d is out of range: there are %lld classes (in the file of class "
                     "names, else in the training split)",
                     label, (long long)dataset->classes);
}

/* Find a sample's image. Fails if its label is out of range. */
static bool webdataset_locate(const struct dataset *dataset, int64_t record,
                              struct record_place *place, struct error *error)
{
    const struct shard *shard = shard_of(dataset, record);
    const struct record *entry = record_of(dataset, record);
    *place = (struct record_place){
        .descriptor = shard->descriptor, .offset = entry->offset, .bytes = entry->bytes};
    return label_check(dataset, record, error);
}

/* Fails if a sample's tar header differs from the index: the shard was rewritten. */
static bool webdataset_verify(const struct dataset *dataset, int64_t record, struct error *error)
{
    const struct shard *shard = shard_of(dataset, record);
    const struct record *entry = record_of(dataset, record);
    uint32_t sum = 0;
    return (header_sum(shard, entry->offset, &sum) && sum == entry->sum) ||
           error_set(error, ERROR_DATA,
                     "the shard was rewritten: the tar header of this sample has changed; start "
                     "again when the shard is complete");
}

static int32_t webdataset_label(const struct dataset *dataset, int64_t record)
{
    return record_of(dataset, record)->label;
}

/* ---- The data set. */

/* Read the names of classes, one per line, from a file beside a shard or in the folder above, which
 * contains the folders of splits. */
static void find_class_names(struct dataset *dataset, const char *shard)
{
    static const char *const names[] = {"classes.txt", "classnames.txt", "../classes.txt",
                                        "../classnames.txt"};
    const char *slash = strrchr(shard, '/');
    const int length = slash != NULL ? (int)(slash - shard) + 1 : 0;
    struct listing lines = {0};
    for (size_t i = 0; lines.count == 0 && i < sizeof names / sizeof names[0]; i++) {
        OWNED char *path = allocate_text("%.*s%s", length, shard, names[i]);
        OWNED char *text = text_file_read(path, NULL);
        char *rest = text;
        for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
            line[strcspn(line, "\r")] = '\0';
            listing_add(&lines, line);
        }
        while (lines.count > 0 && lines.names[lines.count - 1][0] == '\0')
            free(lines.names[--lines.count]);
    }
    dataset->class_name = lines.names;
    dataset->classes = (int64_t)lines.count;
}

/* Without names, the classes are the numbers up to the largest label of the training shards, which
 * are then indexed before other shards. Without training shards, those of this split count. */
static bool webdataset_open(const struct options *options, enum data_split split,
                            struct dataset *dataset, struct error *error)
{
    const bool all = options->data.val == VALIDATION_REFERENCE;
    struct webdataset *self = dataset->self = allocate(1, sizeof *self);
    int64_t count, training_count, first = 0;
    dataset->encoded = true;
    dataset->channels = 3;
    if (options->data.root[0] == '\0')
        return error_set(error, ERROR_USAGE, "data.format=webdataset needs data.root");
    if (!split_files_find(options->data.root, &split_files_shards, &self->files, dataset->comm,
                          error) ||
        (all &&
         split_files_choose(&self->files, options, SPLIT_TRAIN, &training_count, error) == NULL))
        return false;
    char *const *files =
        split_files_choose(&self->files, options, all ? SPLIT_TEST : split, &count, error);
    if (files == NULL)
        return false;
    dataset->held_out |= split != SPLIT_TRAIN && split_of_path(files[0]) == SPLIT_TRAIN;
    char *const *training = split_files_of(&self->files, SPLIT_TRAIN, &training_count);
    if (dataset->rank == 0)
        find_class_names(dataset, all ? training[0] : files[0]);
    comm_share_texts(dataset->comm, &dataset->class_name, &dataset->classes);
    const bool is_named = dataset->classes > 0;
    if (training == files || (is_named && !all))
        training_count = 0;
    self->shard = allocate((size_t)(training_count + count), sizeof *self->shard);
    for (int64_t i = 0; i < training_count && shard_open(self, training[i], error); i++)
        ;
    for (int64_t i = 0; error->kind == ERROR_NONE && i < count; i++)
        error_defer(shard_open(self, files[i], error));
    if (!dataset_agree(dataset, error) || !shards_index(dataset, options, error))
        return false;
    while (first < dataset->count && self->record[first].shard < training_count)
        first++;
    if (!is_named) {
        dataset->classes = 1;
        for (int64_t i = 0; i < (first > 0 ? first : dataset->count); i++)
            dataset->classes = larger(dataset->classes, 1 + self->record[i].label);
        dataset_number_classes(dataset, "");
    }
    if (!all) {
        self->record += first;
        dataset->count -= first;
        for (int64_t i = 0; i < training_count; i++) { /* they were opened for the classes only */
            close(self->shard[i].descriptor);
            self->shard[i].descriptor = -1;
        }
    }
    for (int64_t i = 0; !options->data.skip_broken && i < dataset->count; i++) {
        struct error reason = {0};
        if (!label_check(dataset, i, &reason))
            return dataset_name_error(dataset, i, &reason, error);
    }
    if (!record_check(dataset, options, self->record, sizeof *self->record, &self->kept, error))
        return false;
    if (self->kept != NULL)
        self->record = self->kept;
    dataset->sum = crc32c_update(0, self->record, (size_t)dataset->count * sizeof *self->record);
    return true;
}

static void webdataset_close(struct dataset *dataset)
{
    struct webdataset *self = dataset->self;
    for (int64_t i = 0; i < self->shard_count; i++)
        if (self->shard[i].descriptor >= 0)
            close(self->shard[i].descriptor);
    free(self->shard);
    comm_joined_free(&self->joined);
    split_files_free(&self->files);
    free(self->kept);
    free(self);
}

const struct dataset_format dataset_webdataset = {
    .name = "webdataset",
    .open = webdataset_open,
    .locate = webdataset_locate,
    .verify = webdataset_verify,
    .label = webdataset_label,
    .name_record = webdataset_name_record,
    .close = webdataset_close,
    .splits = true,
};
