// SPDX-License-Identifier: BSD-3-Clause
/* The stored index of a list of shards: a header with a CRC32C of all that follows, the key, one
 * summary per shard, and all records. It is written to NAME.part, on which the process that builds
 * it holds a lock, and renamed. Where locks are not supported, several processes may write it at
 * once. The checksum rejects incomplete files, also those left by a power failure. */
#include "data/tar_cache.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/crc32c.h"
#include "core/durable.h"
#include "core/folder.h"
#include "core/log.h"
#include "core/output_file.h"
#include "core/text_file.h"
#include "core/thread.h"
#include "data/tar_index.h"

enum { VERSION = 3, THREADS = 8, PATH_SIZE = 4096 };
static const char magic[8] = "vittars";
static const double longest_wait = 600; /* seconds for another process */

struct cache_header {
    char magic[8];
    uint32_t version, sum; /* CRC32C of all bytes after the header */
    uint64_t key_bytes;
};

struct cache_shard {
    int64_t count, problems;
    char problem[TAR_PROBLEM];
};

/* Names, sizes and times of a list of shards, as text; freed by the caller. */
static char *key_make(const struct tar_shard *shards, int64_t count, size_t *bytes,
                      struct error *error)
{
    char *key = NULL;
    FILE *stream = open_memstream(&key, bytes);
    for (int64_t i = 0; stream != NULL && i < count; i++) {
        const char *slash = strrchr(shards[i].path, '/');
        fprintf(stream, "%s %lld %lld.%09lld\n", slash != NULL ? slash + 1 : shards[i].path,
                (long long)shards[i].stamp.bytes, (long long)shards[i].stamp.seconds,
                (long long)shards[i].stamp.nanoseconds);
    }
    if (stream == NULL || fclose(stream) != 0) {
        error_set(error, ERROR_MEMORY, "no memory for the index of %lld shards", (long long)count);
        return NULL;
    }
    return key;
}

/* ---- Reading. */

/* True if a record is inside its shard. */
static bool is_valid(const struct tar_record *record, const struct tar_shard *shard)
{
    return record->offset >= 0 && record->bytes <= shard->stamp.bytes &&
           record->offset <= shard->stamp.bytes - record->bytes &&
           record->header <= record->offset && record->header >= TAR_BLOCK &&
           record->orientation <= 8 && record->label >= 0 && record->label < CLASSES_MOST;
}

/* Copy the records of one shard from the file. */
static bool shard_parse(struct tar_shard *shard, const struct cache_shard *stored, const char **at,
                        const char *end)
{
    const size_t room = (size_t)(end - *at) / sizeof(struct tar_record);
    if (stored->count < 0 || (uint64_t)stored->count > room || stored->problems < 0 ||
        memchr(stored->problem, '\0', sizeof stored->problem) == NULL)
        return false;
    const size_t bytes = (size_t)stored->count * sizeof *shard->records;
    shard->records = malloc(bytes + 1);
    if (shard->records == NULL)
        return false;
    memcpy(shard->records, *at, bytes);
    *at += bytes;
    shard->count = stored->count;
    shard->problems = stored->problems;
    memcpy(shard->problem, stored->problem, sizeof shard->problem);
    for (int64_t i = 0; i < shard->count; i++)
        if (!is_valid(&shard->records[i], shard))
            return false;
    return true;
}

static bool cache_parse(const char *text, size_t bytes, const char *key, size_t key_bytes,
                        struct tar_shard *shards, int64_t count)
{
    struct cache_header header;
    const char *at = text + sizeof header, *end = text + bytes;
    const size_t tables = (size_t)count * sizeof(struct cache_shard);
    if (bytes < sizeof header)
        return false;
    memcpy(&header, text, sizeof header);
    if (memcmp(header.magic, magic, sizeof magic) != 0 || header.version != VERSION ||
        header.key_bytes != key_bytes || (size_t)(end - at) < key_bytes + tables ||
        memcmp(at, key, key_bytes) != 0 || header.sum != crc32c_update(0, at, (size_t)(end - at)))
        return false;
    const char *stored = at + key_bytes;
    at = stored + tables;
    for (int64_t i = 0; i < count; i++) {
        struct cache_shard shard;
        memcpy(&shard, stored + (size_t)i * sizeof shard, sizeof shard);
        if (!shard_parse(&shards[i], &shard, &at, end))
            return false;
    }
    return at == end;
}

static void shards_clear(struct tar_shard *shards, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        free(shards[i].records);
        shards[i].records = NULL;
        shards[i].count = shards[i].problems = 0;
        shards[i].problem[0] = '\0';
    }
}

static bool cache_read(const char *path, const char *key, size_t key_bytes,
                       struct tar_shard *shards, int64_t count)
{
    size_t bytes;
    char *text = path[0] != '\0' ? text_file_read(path, &bytes) : NULL;
    if (text == NULL)
        return false;
    const bool good = cache_parse(text, bytes, key, key_bytes, shards, count);
    free(text);
    if (!good)
        shards_clear(shards, count);
    return good;
}

/* ---- Building. */

struct building {
    struct tar_shard *shards;
    int64_t count;
    atomic_llong claimed;
    atomic_bool failed;
};

static void *build_some(void *argument)
{
    struct building *building = argument;
    for (int64_t i; (i = atomic_fetch_add(&building->claimed, 1)) < building->count;) {
        struct error reason = {0};
        if (!tar_index_build(&building->shards[i], &reason))
            atomic_store(&building->failed, true);
    }
    return NULL;
}

static bool indexes_build(struct tar_shard *shards, int64_t count, struct error *error)
{
    struct building building = {.shards = shards, .count = count};
    pthread_t threads[THREADS - 1];
    int started = 0;
    log_info("data: reading the headers of %lld shard%s", (long long)count, count == 1 ? "" : "s");
    while (started < THREADS - 1 && started + 1 < count &&
           thread_start(&threads[started], "tar-index", build_some, &building) == 0)
        started++;
    build_some(&building); /* completes the index even if thread_start fails */
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    return !building.failed ||
           error_set(error, ERROR_MEMORY, "no memory for the index of %lld shards",
                     (long long)count);
}

/* ---- Writing. */

static bool cache_write(int descriptor, const char *part, const char *path, const char *key,
                        size_t key_bytes, const struct tar_shard *shards, int64_t count,
                        struct error *error)
{
    struct cache_header header = {.version = VERSION, .key_bytes = key_bytes};
    char *text = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);
    if (stream == NULL)
        return error_set(error, ERROR_MEMORY, "no memory");
    fwrite(&header, sizeof header, 1, stream);
    fwrite(key, 1, key_bytes, stream);
    for (int64_t i = 0; i < count; i++) {
        struct cache_shard shard = {.count = shards[i].count, .problems = shards[i].problems};
        memcpy(shard.problem, shards[i].problem, sizeof shard.problem);
        fwrite(&shard, sizeof shard, 1, stream);
    }
    for (int64_t i = 0; i < count; i++)
        if (shards[i].count > 0)
            fwrite(shards[i].records, sizeof *shards[i].records, (size_t)shards[i].count, stream);
    bool good = fclose(stream) == 0 || error_set(error, ERROR_MEMORY, "no memory");
    if (good) {
        memcpy(header.magic, magic, sizeof magic);
        header.sum = crc32c_update(0, text + sizeof header, bytes - sizeof header);
        memcpy(text, &header, sizeof header);
        good = durable_write(descriptor, part, text, bytes, 0, error) &&
               (rename(part, path) == 0 || durable_failed(error, "rename to", path, errno));
    }
    free(text);
    return good;
}

/* ---- Locations. */

/* Paths of the index: beside the first shard, and in the user's cache folder ("" without one). */
struct places {
    char path[2][PATH_SIZE];
};

static struct places places_find(const struct tar_shard *shards, int64_t count)
{
    struct places places = {0};
    char folder[PATH_SIZE], *real;
    uint32_t names = 0, paths = 0;
    for (int64_t i = 0; i < count; i++) {
        const char *slash = strrchr(shards[i].path, '/');
        const char *name = slash != NULL ? slash + 1 : shards[i].path;
        names = crc32c_update(names, name, strlen(name) + 1);
        real = realpath(shards[i].path, NULL);
        paths =
            crc32c_update(paths, real != NULL ? real : name, strlen(real != NULL ? real : name));
        free(real);
    }
    const char *slash = strrchr(shards[0].path, '/');
    const int length = slash != NULL ? (int)(slash - shards[0].path) : 1;
    snprintf(places.path[0], PATH_SIZE, "%.*s/.vittrain-%lld-%08lx.index", length,
             slash != NULL ? shards[0].path : ".", (long long)count, (unsigned long)names);
    folder_cache(folder, sizeof folder);
    if (folder[0] != '\0')
        snprintf(places.path[1], PATH_SIZE, "%.4000s/shards-%lld-%08lx.index", folder,
                 (long long)count, (unsigned long)paths);
    return places;
}

static bool places_read(const struct places *places, const char *key, size_t key_bytes,
                        struct tar_shard *shards, int64_t count)
{
    return cache_read(places->path[0], key, key_bytes, shards, count) ||
           cache_read(places->path[1], key, key_bytes, shards, count);
}

/* Create and lock NAME.part beside the shards or, if that folder is not writable, in the user's
 * cache folder. Return -1 and EBUSY if another process holds the lock, else -1 if neither can be
 * created. */
static int places_lock(const struct places *places, const char **path, char *part)
{
    char folder[PATH_SIZE];
    struct error ignored = {0};
    int descriptor = -1;
    errno = EACCES;
    for (int i = 0; i < 2 && descriptor < 0 && errno != EBUSY; i++) {
        *path = places->path[i];
        if (i == 1) {
            folder_cache(folder, sizeof folder);
            if ((*path)[0] == '\0' || !folder_make(folder, "", &ignored))
                return -1;
        }
        snprintf(part, PATH_SIZE + 8, "%s.part", *path);
        descriptor = output_file_try_create(part);
    }
    return descriptor;
}

/* Build the index and, with a lock, store it. It is not stored if a shard is damaged, because the
 * reason may be a disk that cannot be read. */
static bool build_and_store(struct tar_shard *shards, int64_t count, const char *key,
                            size_t key_bytes, int descriptor, const char *part, const char *path,
                            struct error *error)
{
    struct error reason = {0};
    bool stored = descriptor >= 0;
    const bool good = indexes_build(shards, count, error);
    for (int64_t i = 0; i < count; i++)
        stored = stored && !shards[i].damaged;
    if (good && stored &&
        !cache_write(descriptor, part, path, key, key_bytes, shards, count, &reason)) {
        log_warn("data: the index of the shards is not stored: %s", reason.text);
        stored = false;
    }
    if (descriptor >= 0 && !(good && stored))
        unlink(part);
    return good;
}

/* Build the index, or wait for the process that builds it. If that process could not store it, all
 * waiting processes build their own at the same time. */
static bool open_unstored(struct tar_shard *shards, int64_t count, const char *key,
                          size_t key_bytes, const struct places *places, struct error *error)
{
    const struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};
    const double begin = clock_now();
    char part[PATH_SIZE + 8];
    const char *path = NULL;
    bool waited = false;
    int descriptor;
    while ((descriptor = places_lock(places, &path, part)) < 0 && errno == EBUSY &&
           clock_now() < begin + longest_wait) {
        if (!waited)
            log_info("data: waiting for another process that reads the headers of %lld shards",
                     (long long)count);
        waited = true;
        nanosleep(&pause, NULL);
        if (places_read(places, key, key_bytes, shards, count))
            return true;
    }
    if (descriptor < 0)
        return build_and_store(shards, count, key, key_bytes, -1, NULL, NULL, error);
    /* Another process may have stored it before this one got the lock. */
    const bool is_stored = places_read(places, key, key_bytes, shards, count);
    if (is_stored || waited) {
        unlink(part);
        close(descriptor);
        return is_stored || build_and_store(shards, count, key, key_bytes, -1, NULL, NULL, error);
    }
    const bool good = build_and_store(shards, count, key, key_bytes, descriptor, part, path, error);
    close(descriptor);
    return good;
}

bool tar_cache_open(struct tar_shard *shards, int64_t count, struct error *error)
{
    size_t key_bytes;
    char *key = key_make(shards, count, &key_bytes, error);
    if (key == NULL)
        return false;
    const struct places places = places_find(shards, count);
    const bool good = places_read(&places, key, key_bytes, shards, count) ||
                      (open_unstored(shards, count, key, key_bytes, &places, error) &&
                       tar_shards_check(shards, count, error));
    free(key);
    return good;
}
