// SPDX-License-Identifier: BSD-3-Clause
#include "data/tar_shards.h"

#include <archive.h>
#include <archive_entry.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "core/allocate.h"
#include "core/crc32c.h"
#include "core/file.h"
#include "core/integer.h"
#include "core/log.h"
#include "core/thread.h"
#include "data/record_check.h"

bool tar_shards_find(const char *root, struct split_files *files, struct comm *comm,
                     struct error *error)
{
    static const char *const endings[] = {".tar", NULL};
    static const struct split_file_kind kind = {
        .endings = endings,
        .plural = "shards",
        .expected = "no shards (*.tar or train/*.tar)",
        .advice = "set data.root to the folder of the shards or to their names"};
    return split_files_find(root, &kind, files, comm, error);
}

static bool open_one(struct tar_shard *shard, struct error *error)
{
    int64_t bytes;
    shard->descriptor = text_file_descriptor(shard->path, &bytes);
    if (shard->descriptor < 0 && errno == EINVAL)
        return error_set(error, ERROR_DATA, "%s: is not a regular file", shard->path);
    if (shard->descriptor < 0)
        return error_set(error, ERROR_DATA, "%s: %s; %s", shard->path, strerror(errno),
                         errno == EMFILE ? "raise the hard limit, or use fewer, larger shards"
                                         : "check data.root");
    return file_stamp_read(shard->descriptor, &shard->stamp) ||
           error_set(error, ERROR_DATA, "%s: %s", shard->path, strerror(errno));
}

bool tar_shards_open(struct tar_shard *shards, int64_t count, struct error *error)
{
    bool good = true;
    for (int64_t i = 0; good && i < count; i++)
        good = shards[i].descriptor >= 0 || open_one(&shards[i], error);
    return good;
}

bool tar_shards_check(const struct tar_shard *shards, int64_t count, struct error *error)
{
    for (int64_t i = 0; i < count; i++)
        if (!file_stamp_holds(shards[i].descriptor, &shards[i].stamp))
            return error_set(error, ERROR_DATA,
                             "%s was changed while its headers were read; start again when it is "
                             "complete",
                             shards[i].path);
    return true;
}

void tar_shards_close(struct tar_shard *shards, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (shards[i].descriptor >= 0)
            close(shards[i].descriptor);
        free(shards[i].own);
        comm_joined_free(&shards[i].joined);
        shards[i].descriptor = -1;
        shards[i].own = NULL;
        shards[i].records = NULL;
        shards[i].count = 0;
    }
}

/* Builds the index of a shard with libarchive, which reads the tar headers and seeks over the
 * contents. After archive_read_next_header, the position of the archive is that of the member's
 * contents. */

enum { THREADS = 8, READ_SIZE = 4096, CLS_MOST = 64, JSON_MOST = 1 << 20 };

struct member {
    int64_t offset, bytes, header; /* of the contents; bytes of its headers */
};

/* The sample that is being read. */
struct sample {
    char *key;        /* NULL: none */
    int64_t position; /* of its first member's headers */
    bool has_image, has_cls, has_json;
    struct member image, cls, json;
    const char *problem; /* NULL: none */
};

/* To find keys that occur twice in a shard. */
struct key {
    uint64_t hash;
    int64_t record;
};

struct builder {
    struct tar_shard *shard;
    struct sample sample;
    struct key *keys;              /* [count of records] */
    size_t key_capacity, capacity; /* of keys and records */
    struct byte_buffer buffer;
};

/* FNV-1a */
static uint64_t key_hash(const char *text)
{
    uint64_t value = UINT64_C(0xcbf29ce484222325);
    for (; *text != '\0'; text++)
        value = (value ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return value;
}

static void problem_add(struct tar_shard *shard, const char *name, int64_t position,
                        const char *why)
{
    if (shard->problems++ > 0)
        return;
    snprintf(shard->problem, sizeof shard->problem, "%.200s at byte %lld: %.240s", name,
             (long long)position, why);
    for (char *at = shard->problem; *at != '\0'; at++) /* names may contain anything */
        if (iscntrl((unsigned char)*at))
            *at = '?';
}

/* ---- Labels. */

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

/* Read the sample's label; .cls is preferred to .json. */
static bool read_label(struct builder *builder, int32_t *label, struct error *error)
{
    struct sample *sample = &builder->sample;
    const struct member *member = sample->has_cls ? &sample->cls : &sample->json;
    const size_t bytes = (size_t)member->bytes;
    if (member->bytes > (sample->has_cls ? CLS_MOST : JSON_MOST)) {
        sample->problem = "its label file is too large";
        return true;
    }
    if (!byte_buffer_reserve(&builder->buffer, bytes + 1, error))
        return false;
    struct error reason = {0};
    char *text = (char *)builder->buffer.data;
    if (!durable_read(builder->shard->descriptor, "", text, bytes, member->offset, &reason)) {
        sample->problem = "its label cannot be read";
        return true;
    }
    text[bytes] = '\0';
    if (sample->has_cls ? !parse_integer(text, label) : !parse_json(text, bytes, label))
        sample->problem =
            sample->has_cls ? ".cls is not a class number from 0 to 499999"
                            : ".json has no class number from 0 to 499999 as \"label\" or \"cls\"";
    return true;
}

/* ---- Images. */

uint32_t tar_index_pixels(const struct tar_shard *shard, const struct tar_record *record,
                          struct byte_buffer *buffer, int64_t most_pixels,
                          struct image_header *header, struct error *reason)
{
    if (!record_check_header(shard->descriptor, (size_t)record->offset, record->bytes, most_pixels,
                             buffer, header, reason))
        return 0;
    const int64_t most_rows = UINT32_MAX / header->width;
    return header->height > most_rows ? UINT32_MAX : (uint32_t)(header->width * header->height);
}

/* ---- Samples. */

/* Compute the checksum of the block before the contents of a member. False: it cannot be read. */
static bool header_sum(const struct tar_shard *shard, int64_t offset, uint32_t *sum)
{
    uint8_t block[TAR_BLOCK];
    if (durable_pread(shard->descriptor, block, sizeof block, offset - TAR_BLOCK) != sizeof block)
        return false;
    *sum = crc32c_update(0, block, sizeof block);
    return true;
}

bool tar_index_load(const struct tar_shard *shard, const struct tar_record *record, uint8_t *bytes,
                    struct error *error)
{
    struct error reason = {0};
    uint32_t sum = record->sum;
    if (!durable_read(shard->descriptor, shard->path, bytes, record->bytes, record->offset,
                      &reason))
        return error_set(error, ERROR_DATA, "%s", reason.text);
    return (header_sum(shard, record->offset, &sum) && sum == record->sum) ||
           error_set(
               error, ERROR_DATA,
               "%s was rewritten: the tar header of the sample at byte %lld has changed; start "
               "again when the shard is complete",
               shard->path, (long long)(record->offset - record->header));
}

static bool add_record(struct builder *builder, int32_t label, struct error *error)
{
    struct tar_shard *shard = builder->shard;
    const struct member *image = &builder->sample.image;
    const size_t count = (size_t)shard->count;
    struct image_header header = {.orientation = 0};
    struct error reason = {0};
    struct tar_record record = {.offset = image->offset,
                                .bytes = (uint32_t)image->bytes,
                                .label = label,
                                .header = (uint32_t)image->header};
    if (!header_sum(shard, record.offset, &record.sum)) {
        problem_add(shard, builder->sample.key, builder->sample.position,
                    "its header cannot be read");
        return true;
    }
    record.pixels = tar_index_pixels(shard, &record, &builder->buffer, INT64_MAX, &header, &reason);
    if (reason.kind == ERROR_MEMORY)
        return error_set(error, ERROR_MEMORY, "%s", reason.text);
    record.orientation = (uint16_t)header.orientation;
    record.has_alpha = header.has_alpha;
    builder->keys =
        allocate_more(builder->keys, &builder->key_capacity, count, sizeof *builder->keys);
    shard->own = allocate_more(shard->own, &builder->capacity, count, sizeof *shard->own);
    builder->keys[shard->count] = (struct key){key_hash(builder->sample.key), shard->count};
    shard->own[shard->count++] = record;
    return true;
}

/* Add the sample that is complete. Members without image and label are ignored. */
static bool sample_end(struct builder *builder, struct error *error)
{
    struct sample *sample = &builder->sample;
    const bool labelled = sample->has_cls || sample->has_json;
    int32_t label = 0;
    bool good = true;
    if (sample->has_image && !labelled)
        sample->problem = "no label, .cls or .json, next to the image";
    else if (labelled && !sample->has_image)
        sample->problem = "no image, .jpg, .jpeg, .png or .webp, next to the label";
    else if (labelled && sample->problem == NULL)
        good = read_label(builder, &label, error);
    if (good && sample->problem != NULL)
        problem_add(builder->shard, sample->key, sample->position, sample->problem);
    else if (good && labelled)
        good = add_record(builder, label, error);
    free(sample->key);
    *sample = (struct sample){0};
    return good;
}

static bool is_image(const char *extension)
{
    return strcasecmp(extension, "jpg") == 0 || strcasecmp(extension, "jpeg") == 0 ||
           strcasecmp(extension, "png") == 0 || strcasecmp(extension, "webp") == 0;
}

static void sample_add(struct sample *sample, const char *extension, struct member member)
{
    if (is_image(extension)) {
        if (sample->has_image)
            sample->problem = "more than one image";
        else if (member.bytes > (int64_t)UINT32_MAX)
            sample->problem = "the image is larger than 4 GiB";
        sample->has_image = true;
        sample->image = member;
    } else if (strcasecmp(extension, "cls") == 0) {
        sample->problem = sample->has_cls ? "more than one .cls" : sample->problem;
        sample->has_cls = true;
        sample->cls = member;
    } else if (strcasecmp(extension, "json") == 0) {
        sample->problem = sample->has_json ? "more than one .json" : sample->problem;
        sample->has_json = true;
        sample->json = member;
    }
}

/* Add a regular member. The key is its path up to the first dot of the file name. */
static bool add_member(struct builder *builder, const char *path, struct member member,
                       struct error *error)
{
    struct sample *sample = &builder->sample;
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    const char *dot = strchr(name, '.');
    if (dot == NULL || dot == name)
        return true;
    const size_t length = (size_t)(dot - path);
    if (sample->key == NULL || strncmp(sample->key, path, length) != 0 ||
        sample->key[length] != '\0') {
        if (!sample_end(builder, error))
            return false;
        sample->key = memcpy(allocate(length + 1, 1), path, length);
        sample->position = member.offset - member.header;
    }
    sample_add(sample, dot + 1, member);
    return true;
}

/* ---- Archives. */

static struct archive *archive_begin(int descriptor, int *status)
{
    struct archive *archive = archive_read_new();
    ENSURE(archive != NULL, "libarchive cannot be started");
    archive_read_support_format_tar(archive);
    *status = archive_read_open_fd(archive, descriptor, READ_SIZE);
    return archive;
}

static const char *why_unknown(const struct tar_shard *shard)
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

/* Add one member. Return false, with a problem or an error, if the rest cannot be read. */
static bool add_entry(struct builder *builder, struct archive *archive, struct archive_entry *entry,
                      int64_t *end, struct error *error)
{
    struct tar_shard *shard = builder->shard;
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
        problem_add(shard, path, position,
                    sparse             ? "is sparse: write it without tar --sparse"
                    : member.bytes < 0 ? "has a size below 0: the shard is damaged"
                                       : "ends after the end of the file: the shard is truncated");
        shard->damaged = true;
        error_defer(sample_end(builder, error));
        return false;
    }
    *end = member.offset + (member.bytes + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
    return add_member(builder, path, member, error);
}

/* Read all members. Damage ends the shard; the samples before it can be used. */
static bool add_entries(struct builder *builder, struct archive *archive, struct error *error)
{
    struct tar_shard *shard = builder->shard;
    struct archive_entry *entry;
    int64_t end = 0;
    int status;
    while ((status = archive_read_next_header(archive, &entry)) == ARCHIVE_OK ||
           status == ARCHIVE_WARN)
        if (!add_entry(builder, archive, entry, &end, error))
            return error->kind == ERROR_NONE;
    if (!sample_end(builder, error))
        return false;
    const char *why = archive_error_string(archive);
    shard->damaged = true;
    if (status != ARCHIVE_EOF)
        problem_add(shard, "archive", archive_filter_bytes(archive, 0),
                    why != NULL ? why : "unknown error");
    else if (archive_filter_bytes(archive, 0) <= end)
        problem_add(shard, "archive", end, "no end of archive: the shard is truncated");
    else
        shard->damaged = false;
    return true;
}

static int compare_keys(const void *left, const void *right)
{
    const struct key *a = left, *b = right;
    return a->hash != b->hash ? (a->hash > b->hash) - (a->hash < b->hash)
                              : (a->record > b->record) - (a->record < b->record);
}

/* Remove the samples whose key belongs to an earlier sample of the shard. */
static void remove_duplicates(struct builder *builder)
{
    struct tar_shard *shard = builder->shard;
    const int64_t count = shard->count;
    char name[256];
    if (count > 1)
        qsort(builder->keys, (size_t)count, sizeof *builder->keys, compare_keys);
    for (int64_t i = 1; i < count; i++)
        if (builder->keys[i - 1].hash == builder->keys[i].hash)
            shard->own[builder->keys[i].record].label = -1;
    shard->count = 0;
    for (int64_t i = 0; i < count; i++) {
        const struct tar_record *record = &shard->own[i];
        if (record->label >= 0) {
            shard->own[shard->count++] = *record;
            continue;
        }
        tar_index_name(shard, record, name, sizeof name);
        problem_add(shard, name, record->offset - record->header,
                    "the shard has an earlier sample of this name");
    }
}

static bool index_build(struct tar_shard *shard, struct error *error)
{
    struct builder builder = {.shard = shard};
    int status;
    bool good = true;
    if (lseek(shard->descriptor, 0, SEEK_SET) != 0)
        return error_set(error, ERROR_DATA, "%s: %s", shard->path, strerror(errno));
    struct archive *archive = archive_begin(shard->descriptor, &status);
    if (status == ARCHIVE_OK) {
        good = add_entries(&builder, archive, error);
    } else {
        problem_add(shard, "archive", 0, why_unknown(shard));
        shard->damaged = true;
    }
    archive_read_free(archive);
    if (good)
        remove_duplicates(&builder);
    if (good && shard->count == 0 && shard->problems == 0)
        problem_add(
            shard, "archive", 0,
            "no samples: a sample is KEY.jpg, .jpeg, .png or .webp with KEY.cls or .json, and "
            "KEY has no dot");
    free(builder.sample.key);
    free(builder.keys);
    free(builder.buffer.data);
    return good;
}

struct building {
    struct tar_shard *shards;
    int64_t count, rank, ranks;
    atomic_llong claimed;
    pthread_mutex_t mutex;
    struct error *error; /* guarded by mutex */
};

static void *build_some(void *argument)
{
    struct building *building = argument;
    for (int64_t i; (i = atomic_fetch_add(&building->claimed, 1) * building->ranks +
                         building->rank) < building->count;) {
        struct error reason = {0};
        if (index_build(&building->shards[i], &reason))
            continue;
        pthread_mutex_lock(&building->mutex);
        error_set(building->error, reason.kind, "%s", reason.text);
        pthread_mutex_unlock(&building->mutex);
    }
    return NULL;
}

/* What is sent to other ranks about a shard, beside its records. */
struct summary {
    int64_t count, problems;
    char problem[TAR_PROBLEM];
    bool damaged;
};

/* Collective. Copy the records of all shards to all ranks, in the order of ranks. */
static void shards_join(struct tar_shard *shards, int64_t count, int64_t rank, int64_t ranks,
                        struct comm *comm)
{
    struct tar_record *records = NULL;
    struct summary *summaries = allocate((size_t)(count / ranks + 1), sizeof *summaries);
    int64_t own = 0, total = 0;
    struct joined_bytes joined, all;
    for (int64_t i = rank; i < count; i += ranks) {
        struct summary *summary = &summaries[own++];
        summary->count = shards[i].count;
        summary->problems = shards[i].problems;
        memcpy(summary->problem, shards[i].problem, TAR_PROBLEM);
        summary->damaged = shards[i].damaged;
        total += shards[i].count;
    }
    records = allocate((size_t)total, sizeof *records);
    total = 0;
    for (int64_t i = rank; i < count; i += ranks) {
        if (shards[i].count > 0)
            memcpy(records + total, shards[i].own, (size_t)shards[i].count * sizeof *records);
        total += shards[i].count;
        free(shards[i].own);
        shards[i].own = NULL;
    }
    comm_join(comm, records, total * (int64_t)sizeof *records, &joined);
    comm_join(comm, summaries, own * (int64_t)sizeof *summaries, &all);
    const struct summary *summary = (const struct summary *)(void *)all.data;
    const struct tar_record *next = (const struct tar_record *)(void *)joined.data;
    for (int64_t r = 0; r < ranks; r++)
        for (int64_t i = r; i < count; i += ranks, summary++) {
            shards[i].count = summary->count;
            shards[i].problems = summary->problems;
            memcpy(shards[i].problem, summary->problem, TAR_PROBLEM);
            shards[i].damaged = summary->damaged;
            shards[i].records = next;
            next += summary->count;
        }
    shards[0].joined = joined;
    comm_joined_free(&all);
}

bool tar_index_build(const struct dataset *dataset, struct tar_shard *shards, int64_t count,
                     struct error *error)
{
    struct comm *comm = dataset->comm;
    struct building building = {.shards = shards,
                                .count = count,
                                .rank = comm != NULL ? comm->rank : 0,
                                .ranks = comm != NULL ? comm->size : 1,
                                .error = error};
    log_info("data: reading the headers of %lld shard%s", (long long)count, count == 1 ? "" : "s");
    pthread_mutex_init(&building.mutex, NULL);
    threads_run("tar-index", smaller(THREADS, 1 + count / building.ranks), build_some, &building);
    pthread_mutex_destroy(&building.mutex);
    error_defer(error->kind == ERROR_NONE && tar_shards_check(shards, count, error));
    if (!dataset_agree(dataset, error))
        return false;
    shards_join(shards, count, building.rank, building.ranks, comm);
    return true;
}

void tar_index_name(const struct tar_shard *shard, const struct tar_record *record, char *name,
                    size_t size)
{
    struct archive_entry *entry;
    const char *path = NULL;
    int status;
    const int descriptor = open(shard->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    const int64_t position = record->offset - record->header;
    if (descriptor >= 0 && lseek(descriptor, position, SEEK_SET) == position) {
        struct archive *archive = archive_begin(descriptor, &status);
        if (status == ARCHIVE_OK && archive_read_next_header(archive, &entry) >= ARCHIVE_WARN)
            path = archive_entry_pathname(entry);
        snprintf(name, size, "%s", path != NULL ? path : "image");
        archive_read_free(archive);
    } else {
        snprintf(name, size, "image");
    }
    if (descriptor >= 0)
        close(descriptor);
}
