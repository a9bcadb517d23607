/* The way of one file. All that is needed to go on with an upload in parts is in the state and, of
 * the parts, in the store. */
#include "store/upload.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/crc32c.h"
#include "core/log.h"
#include "fetch/transfer.h"

enum { PART = 16 << 20, MEBIBYTE = 1 << 20, CHUNK = 1 << 16 };
/* Below this asking whether the store has a file costs more than sending it. */
enum { SMALL = 1 << 20 };

struct upload {
    struct store_sending *sending;
    const char *path, *key;
    char object[STORE_URL];
    int file;
    struct store_identity identity;
    char crc32c[16];
};

int64_t store_part_bytes(int64_t bytes)
{
    int64_t least = (bytes + STORE_PARTS - 1) / STORE_PARTS;
    if (least <= PART)
        return PART;
    return (least + MEBIBYTE - 1) / MEBIBYTE * MEBIBYTE;
}

void store_object_name(const struct store *store, const char *key, char name[STORE_URL])
{
    snprintf(name, STORE_URL, "s3://%s/%s", store->bucket, key);
}

/* ---- the file ---- */

static void take_identity(const struct stat *status, struct store_identity *identity)
{
    identity->bytes = status->st_size;
    identity->modified =
        (int64_t)status->st_mtim.tv_sec * 1000000000 + (int64_t)status->st_mtim.tv_nsec;
    identity->inode = (int64_t)status->st_ino;
}

bool store_identify(const char *path, struct store_identity *identity)
{
    struct stat status;
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode))
        return false;
    take_identity(&status, identity);
    return true;
}

bool store_file_crc32c(int file, int64_t bytes, char text[16])
{
    unsigned char chunk[CHUNK];
    uint32_t crc = 0;
    for (int64_t done = 0; done < bytes;) {
        int64_t left = bytes - done;
        ssize_t got = pread(file, chunk, left < CHUNK ? (size_t)left : CHUNK, done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        crc = crc32c_update(crc, chunk, (size_t)got);
        done += got;
    }
    snprintf(text, 16, "%08" PRIx32, crc);
    return true;
}

static enum store_outcome open_file(struct upload *upload, struct error *error)
{
    struct stat status;
    upload->file = open(upload->path, O_RDONLY | O_CLOEXEC);
    if (upload->file < 0) {
        bool gone = errno == ENOENT;
        error_set(error, ERROR_FILE, "cannot read %s: %s", upload->path, strerror(errno));
        return gone ? STORE_MISSING : STORE_REFUSED;
    }
    if (fstat(upload->file, &status) == 0)
        take_identity(&status, &upload->identity);
    if (store_file_crc32c(upload->file, upload->identity.bytes, upload->crc32c))
        return STORE_DONE;
    error_set(error, ERROR_FILE, "cannot read %s: %s", upload->path,
              errno != 0 ? strerror(errno) : "it has become shorter");
    return STORE_LATER;
}

/* Has the store what the file holds? */
static enum store_outcome compare(const struct upload *upload, bool *same, struct error *error)
{
    struct store_head head;
    enum store_outcome outcome = store_head(upload->sending->store, upload->key, &head, error);
    *same = outcome == STORE_DONE && head.bytes == upload->identity.bytes &&
            strcmp(head.own_crc32c, upload->crc32c) == 0;
    return outcome;
}

/* ---- in parts ---- */

/* Is what was begun the upload of this very file? */
static bool is_of_file(const struct upload *upload, const struct store_begun *begun)
{
    return begun->bytes == upload->identity.bytes && begun->modified == upload->identity.modified &&
           strcmp(begun->crc32c, upload->crc32c) == 0 &&
           begun->part_bytes == store_part_bytes(begun->bytes);
}

/* Goes on with what was begun, or begins. */
static enum store_outcome begin_parts(const struct upload *upload, struct store_begun *begun,
                                      struct store_part *part, int count, struct error *error)
{
    struct store *store = upload->sending->store;
    struct store_state *state = upload->sending->state;
    if (store_state_begun(state, upload->object, begun)) {
        if (is_of_file(upload, begun)) {
            enum store_outcome outcome =
                store_upload_list(store, upload->key, begun->id, part, count, error);
            if (outcome != STORE_MISSING)
                return outcome;
            error_clear(error);
        } else
            store_upload_abort(store, upload->key, begun->id);
        store_state_end(state, upload->object);
    }
    *begun = (struct store_begun){.bytes = upload->identity.bytes,
                                  .part_bytes = store_part_bytes(upload->identity.bytes),
                                  .modified = upload->identity.modified};
    snprintf(begun->crc32c, sizeof begun->crc32c, "%s", upload->crc32c);
    enum store_outcome outcome =
        store_upload_begin(store, upload->key, upload->crc32c, begun->id, error);
    if (outcome == STORE_DONE)
        store_state_begin(state, upload->object, begun);
    return outcome;
}

static enum store_outcome send_parts(const struct upload *upload, const struct store_begun *begun,
                                     struct store_part *part, int count, struct error *error)
{
    const char *slash = strrchr(upload->path, '/');
    struct transfer_progress progress = {.name = slash != NULL ? slash + 1 : upload->path,
                                         .begin = clock_now()};
    int64_t sent = 0;
    int there = 0;
    for (int n = 0; n < count; n++) {
        int64_t offset = n * begun->part_bytes, left = begun->bytes - offset;
        int64_t bytes = left < begun->part_bytes ? left : begun->part_bytes;
        if (part[n].bytes == bytes) { /* by an earlier try */
            there++;
            progress.had += bytes;
            continue;
        }
        if (sent == 0 && there > 0)
            log_info("upload: %s: going on after %d of %d parts", progress.name, there, count);
        enum store_outcome outcome =
            store_upload_part(upload->sending->store, upload->key, begun->id, n + 1, upload->file,
                              offset, bytes, &part[n], error);
        if (outcome != STORE_DONE)
            return outcome;
        sent += bytes;
        if (upload->sending->tells)
            transfer_progress_say(&progress, sent, begun->bytes - progress.had);
    }
    return STORE_DONE;
}

/* An end whose answer was lost may have been one: then the upload is missing, the object there. */
static enum store_outcome end_parts(const struct upload *upload, const struct store_begun *begun,
                                    const struct store_part *part, int count, struct error *error)
{
    struct error unsaid = {.kind = ERROR_NONE};
    bool same = false;
    enum store_outcome outcome =
        store_upload_end(upload->sending->store, upload->key, begun->id, part, count, error);
    if (outcome != STORE_DONE && outcome != STORE_MISSING)
        return outcome;
    store_state_end(upload->sending->state, upload->object);
    enum store_outcome compared = compare(upload, &same, &unsaid);
    if (same || (outcome == STORE_DONE && compared == STORE_REFUSED)) { /* it may not look */
        error_clear(error);
        return STORE_DONE;
    }
    if (compared == STORE_DONE)
        error_set(error, ERROR_NETWORK, "%s: the store has made another object of it",
                  upload->object);
    else if (error->kind == ERROR_NONE)
        *error = unsaid;
    return compared == STORE_CANCELLED ? STORE_CANCELLED : STORE_LATER;
}

static enum store_outcome upload_parts(const struct upload *upload, struct error *error)
{
    struct store_begun begun;
    int64_t part_bytes = store_part_bytes(upload->identity.bytes);
    int count = (int)((upload->identity.bytes + part_bytes - 1) / part_bytes);
    struct store_part *part = calloc((size_t)count, sizeof *part);
    ENSURE(part != NULL, "no memory for the parts of an upload");
    enum store_outcome outcome = begin_parts(upload, &begun, part, count, error);
    if (outcome == STORE_DONE)
        outcome = send_parts(upload, &begun, part, count, error);
    if (outcome == STORE_DONE)
        outcome = end_parts(upload, &begun, part, count, error);
    else if (outcome == STORE_MISSING) { /* somebody has given it up */
        store_state_end(upload->sending->state, upload->object);
        outcome = STORE_LATER;
    }
    free(part);
    return outcome;
}

/* ---- the whole ---- */

static enum store_outcome send_open(const struct upload *upload, struct error *error)
{
    bool same = false;
    if (upload->identity.bytes > SMALL) {
        enum store_outcome outcome = compare(upload, &same, error);
        if (same)
            return STORE_DONE;
        if (outcome != STORE_DONE && outcome != STORE_MISSING && outcome != STORE_REFUSED)
            return outcome;
        error_clear(error); /* who may write need not be allowed to look */
    }
    if (upload->identity.bytes > PART)
        return upload_parts(upload, error);
    enum store_outcome outcome = store_put(upload->sending->store, upload->key, upload->file,
                                           upload->identity.bytes, upload->crc32c, error);
    return outcome == STORE_MISSING ? STORE_REFUSED : outcome; /* no bucket */
}

enum store_outcome store_upload_file(struct store_sending *sending, const char *path,
                                     const char *key, struct store_identity *sent,
                                     struct error *error)
{
    struct upload upload = {.sending = sending, .path = path, .key = key, .file = -1};
    store_object_name(sending->store, key, upload.object);
    enum store_outcome outcome = open_file(&upload, error);
    if (outcome == STORE_DONE)
        outcome = send_open(&upload, error);
    if (upload.file >= 0)
        close(upload.file);
    *sent = upload.identity;
    return outcome;
}
