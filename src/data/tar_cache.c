// SPDX-License-Identifier: BSD-3-Clause
/* The stored index of a list of shards: a header with a CRC32C of all that follows, the key, one
 * summary per shard, and all records. It is written to NAME.part, on which the process that builds
 * it holds a lock, and renamed. Where locks are not supported, several processes may write it at
 * once. The checksum rejects incomplete files, also those left by a power failure. */
#include "core/text.h"
#include "data/tar_index.h"

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
#include "core/integer.h"
#include "core/log.h"
#include "core/output_file.h"
#include "core/text_file.h"
#include "core/thread.h"

enum { VERSION = 4, THREADS = 8, PATH_SIZE = 4096 };
static const char magic[8] = "vittars";
static const double longest_wait = 600; /* seconds for another process */

struct cache_header {
    char magic[8];
    uint32_t version, sum; /* CRC32C of all bytes after the header */
    uint64_t key_bytes;
};

static const char *file_name(const struct tar_shard *shard)
{
    const char *slash = strrchr(shard->path, '/');
    return slash != NULL ? slash + 1 : shard->path;
}

struct cache_shard {
    int64_t count, problems;
    char problem[TAR_PROBLEM];
};

/* The stored index of these shards. */
struct cache {
    struct tar_shard *shards;
    int64_t count;
    char *key; /* names, sizes and times of the shards, as text */
    size_t key_bytes;
    char path[2][PATH_SIZE]; /* beside the first shard, and in the user's cache folder or "" */
    const char *chosen;      /* one of the paths */
    char part[PATH_SIZE + 8];
    int descriptor; /* of the locked file `part`; -1: none */
};

static void key_make(struct cache *cache)
{
    struct text_stream text;
    FILE *stream = text_stream_open(&text);
    for (int64_t i = 0; i < cache->count; i++) {
        const struct file_stamp *stamp = &cache->shards[i].stamp;
        fprintf(stream, "%s %lld %lld.%09lld\n", file_name(&cache->shards[i]),
                (long long)stamp->bytes, (long long)stamp->seconds, (long long)stamp->nanoseconds);
    }
    cache->key = text_stream_close(&text);
    cache->key_bytes = text.length;
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

static bool cache_parse(const struct cache *cache, const char *text, size_t bytes)
{
    struct cache_header header;
    const size_t key_bytes = cache->key_bytes;
    const char *at = text + sizeof header, *end = text + bytes;
    const size_t tables = (size_t)cache->count * sizeof(struct cache_shard);
    if (bytes < sizeof header)
        return false;
    memcpy(&header, text, sizeof header);
    if (memcmp(header.magic, magic, sizeof magic) != 0 || header.version != VERSION ||
        header.key_bytes != key_bytes || (size_t)(end - at) < key_bytes + tables ||
        memcmp(at, cache->key, key_bytes) != 0 ||
        header.sum != crc32c_update(0, at, (size_t)(end - at)))
        return false;
    const char *stored = at + key_bytes;
    at = stored + tables;
    for (int64_t i = 0; i < cache->count; i++) {
        struct cache_shard shard;
        memcpy(&shard, stored + (size_t)i * sizeof shard, sizeof shard);
        if (!shard_parse(&cache->shards[i], &shard, &at, end))
            return false;
    }
    return at == end;
}

static void shards_clear(const struct cache *cache)
{
    for (int64_t i = 0; i < cache->count; i++) {
        struct tar_shard *shard = &cache->shards[i];
        free(shard->records);
        shard->records = NULL;
        shard->count = shard->problems = 0;
        shard->problem[0] = '\0';
    }
}

static bool cache_read(const struct cache *cache)
{
    bool good = false;
    for (int i = 0; !good && i < 2; i++) {
        size_t bytes;
        char *text = cache->path[i][0] != '\0' ? text_file_read(cache->path[i], &bytes) : NULL;
        good = text != NULL && cache_parse(cache, text, bytes);
        if (text != NULL && !good)
            shards_clear(cache);
        free(text);
    }
    return good;
}

/* ---- Building. */

struct building {
    const struct cache *cache;
    atomic_llong claimed;
    atomic_bool failed;
};

static void *build_some(void *argument)
{
    struct building *building = argument;
    for (int64_t i; (i = atomic_fetch_add(&building->claimed, 1)) < building->cache->count;) {
        struct error reason = {0};
        if (!tar_index_build(&building->cache->shards[i], &reason))
            atomic_store(&building->failed, true);
    }
    return NULL;
}

static bool indexes_build(const struct cache *cache, struct error *error)
{
    struct building building = {.cache = cache};
    log_info("data: reading the headers of %lld shard%s", (long long)cache->count,
             cache->count == 1 ? "" : "s");
    threads_run("tar-index", smaller(THREADS, cache->count), build_some, &building);
    return !building.failed ||
           error_set(error, ERROR_MEMORY, "no memory for the index of %lld shards",
                     (long long)cache->count);
}

/* ---- Writing. */

static bool cache_write(const struct cache *cache, struct error *error)
{
    struct cache_header header = {.version = VERSION, .key_bytes = cache->key_bytes};
    const struct tar_shard *shards = cache->shards;
    struct text_stream contents;
    FILE *stream = text_stream_open(&contents);
    fwrite(&header, sizeof header, 1, stream);
    fwrite(cache->key, 1, cache->key_bytes, stream);
    for (int64_t i = 0; i < cache->count; i++) {
        struct cache_shard shard = {.count = shards[i].count, .problems = shards[i].problems};
        memcpy(shard.problem, shards[i].problem, sizeof shard.problem);
        fwrite(&shard, sizeof shard, 1, stream);
    }
    for (int64_t i = 0; i < cache->count; i++)
        if (shards[i].count > 0)
            fwrite(shards[i].records, sizeof *shards[i].records, (size_t)shards[i].count, stream);
    char *text = text_stream_close(&contents);
    memcpy(header.magic, magic, sizeof magic);
    header.sum = crc32c_update(0, text + sizeof header, contents.length - sizeof header);
    memcpy(text, &header, sizeof header);
    const bool good =
        durable_write(cache->descriptor, cache->part, text, contents.length, 0, error) &&
        (rename(cache->part, cache->chosen) == 0 ||
         durable_failed(error, "rename to", cache->chosen, errno));
    free(text);
    return good;
}

/* ---- Locations. */

static void paths_set(struct cache *cache)
{
    const struct tar_shard *shards = cache->shards;
    char folder[PATH_SIZE];
    uint32_t names = 0, paths = 0;
    for (int64_t i = 0; i < cache->count; i++) {
        const char *name = file_name(&shards[i]);
        char *real = realpath(shards[i].path, NULL);
        const char *path = real != NULL ? real : name;
        names = crc32c_update(names, name, strlen(name) + 1);
        paths = crc32c_update(paths, path, strlen(path));
        free(real);
    }
    const int length = (int)(file_name(&shards[0]) - shards[0].path);
    snprintf(cache->path[0], PATH_SIZE, "%.*s.vittrain-%lld-%08lx.index", length, shards[0].path,
             (long long)cache->count, (unsigned long)names);
    folder_cache(folder, sizeof folder);
    if (folder[0] != '\0')
        snprintf(cache->path[1], PATH_SIZE, "%.4000s/shards-%lld-%08lx.index", folder,
                 (long long)cache->count, (unsigned long)paths);
}

/* Create and lock NAME.part beside the shards or, if that folder is not writable, in the user's
 * cache folder. Return false and set errno to EBUSY if another process holds the lock. */
static bool cache_lock(struct cache *cache)
{
    char folder[PATH_SIZE];
    struct error ignored = {0};
    errno = EACCES;
    for (int i = 0; i < 2 && cache->descriptor < 0 && errno != EBUSY; i++) {
        cache->chosen = cache->path[i];
        if (i == 1) {
            folder_cache(folder, sizeof folder);
            if (cache->chosen[0] == '\0' || !folder_make(folder, "", &ignored))
                return false;
        }
        snprintf(cache->part, sizeof cache->part, "%s.part", cache->chosen);
        cache->descriptor = output_file_try_create(cache->part);
    }
    return cache->descriptor >= 0;
}

static void cache_unlock(struct cache *cache, bool is_stored)
{
    if (cache->descriptor < 0)
        return;
    if (!is_stored)
        unlink(cache->part);
    close(cache->descriptor);
    cache->descriptor = -1;
}

/* Build the index and, with a lock, store it. It is not stored if a shard is damaged, because the
 * reason may be a disk that cannot be read. */
static bool build_and_store(struct cache *cache, struct error *error)
{
    struct error reason = {0};
    const bool good = indexes_build(cache, error);
    bool stored = good && cache->descriptor >= 0;
    for (int64_t i = 0; i < cache->count; i++)
        stored = stored && !cache->shards[i].damaged;
    if (stored && !cache_write(cache, &reason)) {
        log_warn("data: the index of the shards is not stored: %s", reason.text);
        stored = false;
    }
    cache_unlock(cache, stored);
    return good;
}

/* Build the index, or wait for the process that builds it. If that process could not store it, all
 * waiting processes build their own at the same time. */
static bool open_unstored(struct cache *cache, struct error *error)
{
    const struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};
    const double begin = clock_now();
    bool waited = false;
    while (!cache_lock(cache) && errno == EBUSY && clock_now() < begin + longest_wait) {
        if (!waited)
            log_info("data: waiting for another process that reads the headers of %lld shards",
                     (long long)cache->count);
        waited = true;
        nanosleep(&pause, NULL);
        if (cache_read(cache))
            return true;
    }
    /* Another process may have stored it before this one got the lock. */
    const bool is_stored = cache->descriptor >= 0 && cache_read(cache);
    if (is_stored || waited)
        cache_unlock(cache, false);
    return is_stored || build_and_store(cache, error);
}

bool tar_index_open(struct tar_shard *shards, int64_t count, struct error *error)
{
    struct cache cache = {.shards = shards, .count = count, .descriptor = -1};
    key_make(&cache);
    paths_set(&cache);
    const bool good = cache_read(&cache) ||
                      (open_unstored(&cache, error) && tar_shards_check(shards, count, error));
    free(cache.key);
    return good;
}
