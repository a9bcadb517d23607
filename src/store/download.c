/* A download. Beside FILE.part lies FILE.from.part, which says what it is the beginning of: names
 * by which folders of checkpoints know what is not whole. */
#include "store/download.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/evp.h>

#include "core/clock.h"
#include "core/durable.h"
#include "core/log.h"
#include "data/checksum.h"
#include "fetch/transfer.h"
#include "store/upload.h"

enum { RANGE = 16 << 20, PATH_SIZE = 4096, REPLACEMENTS = 3 };

struct download {
    struct store *store;
    const char *key, *path;
    char part[PATH_SIZE], from[PATH_SIZE];
    struct store_head head;
    int file;
};

/* ---- sums ---- */

/* A sum that stores tell as base64, in hexadecimal. */
static bool to_hexadecimal(const char *base64, int bytes, char text[CHECKSUM_TEXT])
{
    unsigned char decoded[64];
    size_t length = strlen(base64);
    if (length == 0 || length > 64 || length % 4 != 0 ||
        EVP_DecodeBlock(decoded, (const unsigned char *)base64, (int)length) < bytes)
        return false;
    for (int i = 0; i < bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", decoded[i]);
    return true;
}

static bool crc32c_is(const char *path, int64_t bytes, const char *expected, char found[16])
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    bool good = file >= 0 && store_file_crc32c(file, bytes, found) && strcmp(found, expected) == 0;
    if (file >= 0)
        close(file);
    return good;
}

/* Has the file the sum that the store knows of the object? */
static bool has_sum(const struct download *download, const char *path, struct error *error)
{
    const struct store_head *head = &download->head;
    char expected[CHECKSUM_TEXT] = "", found[CHECKSUM_TEXT] = "";
    bool good = true;
    if (head->own_crc32c[0] != '\0')
        snprintf(expected, sizeof expected, "%s", head->own_crc32c);
    if (expected[0] != '\0' || to_hexadecimal(head->crc32c, 4, expected))
        good = crc32c_is(path, head->bytes, expected, found);
    else if (to_hexadecimal(head->sha256, 32, expected))
        good = checksum_matches(path, expected, NULL, found, error);
    else if (head->md5_etag)
        good = checksum_matches(path, NULL, head->etag, found, error);
    return good ||
           error_set(error, ERROR_NETWORK,
                     "s3://%s/%s: what came has the sum %s, the object has %s; start again, "
                     "or use another object",
                     download->store->bucket, download->key, found,
                     expected[0] != '\0' ? expected : head->etag);
}

static bool is_there(const struct download *download)
{
    struct store_identity identity;
    struct error ignored = {.kind = ERROR_NONE};
    return store_identify(download->path, &identity) && identity.bytes == download->head.bytes &&
           has_sum(download, download->path, &ignored);
}

/* ---- the part ---- */

/* Which object, and which version of it. */
static void origin(const struct download *download, char text[STORE_URL + STORE_ETAG + 64])
{
    snprintf(text, STORE_URL + STORE_ETAG + 64, "s3://%s/%s %s %lld\n", download->store->bucket,
             download->key, download->head.etag, (long long)download->head.bytes);
}

/* Opens the part; *have: how much of it is of this object, in whole ranges. */
static bool open_part(struct download *download, int64_t *have, struct error *error)
{
    char wanted[STORE_URL + STORE_ETAG + 64], found[sizeof wanted] = "";
    struct stat status;
    origin(download, wanted);
    FILE *from = fopen(download->from, "re");
    if (from != NULL) {
        if (fgets(found, sizeof found, from) == NULL)
            found[0] = '\0';
        fclose(from);
    }
    bool same = strcmp(found, wanted) == 0;
    download->file =
        open(download->part, O_RDWR | O_CREAT | O_CLOEXEC | (same ? 0 : O_TRUNC), 0666);
    if (download->file < 0 || fstat(download->file, &status) != 0)
        return durable_failed(error, "create", download->part, errno);
    *have = status.st_size / RANGE * RANGE;
    if (status.st_size == download->head.bytes)
        *have = status.st_size;
    if (same)
        return true;
    from = fopen(download->from, "we");
    bool good = from != NULL && fputs(wanted, from) >= 0;
    good = (from == NULL || fclose(from) == 0) && good;
    return good || durable_failed(error, "write", download->from, errno);
}

static enum store_outcome get_ranges(struct download *download, int64_t have, struct error *error)
{
    const char *slash = strrchr(download->path, '/');
    struct transfer_progress progress = {
        .name = slash != NULL ? slash + 1 : download->path, .had = have, .begin = clock_now()};
    int64_t total = download->head.bytes;
    if (have > 0)
        log_info("%s: going on after %lld bytes", progress.name, (long long)have);
    for (int64_t offset = have; offset < total; offset += RANGE) {
        int64_t bytes = total - offset < RANGE ? total - offset : RANGE;
        enum store_outcome outcome = store_get(download->store, download->key, download->head.etag,
                                               download->file, offset, bytes, error);
        if (outcome != STORE_DONE)
            return outcome;
        transfer_progress_say(&progress, offset + bytes - have, total - have);
    }
    return STORE_DONE;
}

static void drop_part(const struct download *download)
{
    unlink(download->part);
    unlink(download->from);
}

/* One version of the object into the part, checked, and renamed. */
static enum store_outcome get_version(struct download *download, bool *resumed, struct error *error)
{
    int64_t have = 0;
    download->file = -1;
    enum store_outcome outcome = STORE_REFUSED;
    bool opened = open_part(download, &have, error);
    *resumed = have > 0;
    if (opened)
        outcome = get_ranges(download, have, error);
    if (outcome == STORE_DONE && !durable_sync(download->file, download->part, error))
        outcome = STORE_REFUSED;
    if (download->file >= 0)
        close(download->file);
    if (outcome != STORE_DONE)
        return outcome;
    if (!has_sum(download, download->part, error)) {
        drop_part(download);
        return STORE_LATER;
    }
    if (!durable_rename(download->part, download->path, error))
        return STORE_REFUSED;
    unlink(download->from);
    return STORE_DONE;
}

enum store_outcome store_download(struct store *store, const char *key, const char *path,
                                  struct error *error)
{
    struct download download = {.store = store, .key = key, .path = path};
    bool resumed = false, wrong = false;
    if (snprintf(download.part, PATH_SIZE, "%s.part", path) >= PATH_SIZE ||
        snprintf(download.from, PATH_SIZE, "%s.from.part", path) >= PATH_SIZE) {
        error_set(error, ERROR_USAGE, "%s: too long a name", path);
        return STORE_REFUSED;
    }
    for (int n = 1;; n++) {
        error_clear(error);
        enum store_outcome outcome = store_head(store, key, &download.head, error);
        if (outcome != STORE_DONE)
            return outcome;
        if (is_there(&download))
            return STORE_DONE;
        outcome = get_version(&download, &resumed, error);
        bool sum_is_wrong = outcome == STORE_LATER && access(download.part, F_OK) != 0;
        if (outcome != STORE_MISSING && (!sum_is_wrong || wrong))
            return outcome;
        if (n == REPLACEMENTS)
            return STORE_LATER; /* it is replaced all the time */
        wrong = wrong || sum_is_wrong;
        log_warn("s3://%s/%s: %s, getting it again", store->bucket, key,
                 sum_is_wrong ? "wrong content came" : "it was replaced meanwhile");
        drop_part(&download);
    }
}
