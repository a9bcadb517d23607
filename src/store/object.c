/* Operations of S3 on whole objects. */
#include "store/object.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "store/xml.h"

static struct store_request plain(const char *method, const char *key)
{
    return (struct store_request){.method = method, .key = key, .file = -1, .sink = -1};
}

static void add(struct store_pair *pairs, int *count, const char *name, const char *value)
{
    ENSURE(*count < STORE_PAIRS, "too many words of a request");
    pairs[(*count)++] = (struct store_pair){name, value};
}

/* ---- reading ---- */

enum store_outcome store_head(struct store *store, const char *key, struct store_head *head,
                              struct error *error)
{
    struct store_reply reply;
    struct store_request request = plain("HEAD", key);
    add(request.header, &request.header_count, "x-amz-checksum-mode", "ENABLED");
    enum store_outcome outcome = store_ask(store, &request, &reply, error);
    if (outcome != STORE_DONE)
        return outcome;
    *head = (struct store_head){.bytes = reply.length};
    snprintf(head->etag, sizeof head->etag, "%s", reply.etag);
    snprintf(head->own_crc32c, sizeof head->own_crc32c, "%s", reply.own_crc32c);
    /* "SUM-12" is a sum of the sums of 12 parts. */
    if (strchr(reply.crc32c, '-') == NULL)
        snprintf(head->crc32c, sizeof head->crc32c, "%s", reply.crc32c);
    if (strchr(reply.sha256, '-') == NULL)
        snprintf(head->sha256, sizeof head->sha256, "%s", reply.sha256);
    bool plain_text = reply.encryption[0] == '\0' || strcmp(reply.encryption, "AES256") == 0;
    head->md5_etag =
        plain_text && strlen(reply.etag) == 32 && strspn(reply.etag, "0123456789abcdef") == 32;
    return STORE_DONE;
}

enum store_outcome store_get(struct store *store, const char *key, const char *etag, int file,
                             int64_t offset, int64_t bytes, struct error *error)
{
    struct store_reply reply;
    struct store_request request = plain("GET", key);
    char range[64], match[STORE_ETAG + 2];
    snprintf(range, sizeof range, "bytes=%lld-%lld", (long long)offset,
             (long long)(offset + bytes - 1));
    snprintf(match, sizeof match, "\"%s\"", etag);
    add(request.header, &request.header_count, "range", range);
    if (etag[0] != '\0')
        add(request.header, &request.header_count, "if-match", match);
    request.sink = file;
    request.offset = offset;
    request.bytes = bytes;
    enum store_outcome outcome = store_ask(store, &request, &reply, error);
    if (outcome == STORE_REFUSED && reply.status == 412)
        return STORE_MISSING;
    if (outcome == STORE_DONE && reply.status != 206 && offset > 0) {
        error_set(error, ERROR_NETWORK, "s3://%s/%s: the store knows no ranges of bytes",
                  store->bucket, key);
        return STORE_REFUSED;
    }
    if (outcome == STORE_DONE && reply.length != bytes) {
        error_set(error, ERROR_NETWORK, "s3://%s/%s: %lld bytes came in place of %lld",
                  store->bucket, key, (long long)reply.length, (long long)bytes);
        return STORE_LATER;
    }
    return outcome;
}

enum store_outcome store_get_text(struct store *store, const char *key, char *text, size_t size,
                                  struct error *error)
{
    struct store_reply reply;
    struct store_request request = plain("GET", key);
    enum store_outcome outcome = store_ask(store, &request, &reply, error);
    snprintf(text, size, "%s", outcome == STORE_DONE ? store->text : "");
    return outcome;
}

/* One page of a listing; *after: where the next one begins, empty after the last. */
static enum store_outcome list_page(struct store *store, const char *prefix, char *after,
                                    size_t after_size, store_seen *seen, void *user,
                                    struct error *error)
{
    struct store_reply reply;
    struct store_request request = plain("GET", NULL);
    char key[STORE_KEY], number[32];
    add(request.query, &request.query_count, "list-type", "2");
    add(request.query, &request.query_count, "prefix", prefix);
    if (after[0] != '\0')
        add(request.query, &request.query_count, "continuation-token", after);
    enum store_outcome outcome = store_ask(store, &request, &reply, error);
    if (outcome != STORE_DONE)
        return outcome;
    struct xml_span all = {store->text, store->text + store->text_bytes}, rest = all, object;
    while (xml_next(&rest, "Contents", &object)) {
        xml_text(object, "Size", number, sizeof number);
        if (xml_text(object, "Key", key, sizeof key) &&
            !seen(key, strtoll(number, NULL, 10), user)) {
            after[0] = '\0';
            return STORE_DONE;
        }
    }
    xml_text(all, "NextContinuationToken", after, after_size);
    return STORE_DONE;
}

enum store_outcome store_list(struct store *store, const char *prefix, store_seen *seen, void *user,
                              struct error *error)
{
    char after[2048] = "";
    enum store_outcome outcome;
    do
        outcome = list_page(store, prefix, after, sizeof after, seen, user, error);
    while (outcome == STORE_DONE && after[0] != '\0');
    return outcome;
}

/* ---- writing ---- */

/* Is what the store says it took what was sent? It has compared the signed SHA-256 itself; its own
 * sum tells that it did. */
static bool is_confirmed(struct store *store, const char *key, const struct store_reply *reply,
                         struct error *error)
{
    bool plain_text = reply->encryption[0] == '\0' || strcmp(reply->encryption, "AES256") == 0;
    bool md5_etag = plain_text && strlen(reply->etag) == 32 && reply->sent_md5[0] != '\0';
    const char *told = reply->crc32c[0] != '\0' ? reply->crc32c : reply->etag;
    const char *sent = reply->crc32c[0] != '\0' ? reply->sent_crc32c : reply->sent_md5;
    if (reply->crc32c[0] != '\0')
        store->confirms = true;
    else if (!md5_etag)
        return true;
    return strcmp(told, sent) == 0 ||
           error_set(error, ERROR_NETWORK,
                     "s3://%s/%s: the store took other bytes than were sent (sum %s, not %s)",
                     store->bucket, key, told, sent);
}

static enum store_outcome send_file(struct store *store, struct store_request *request,
                                    struct store_reply *reply, struct error *error)
{
    enum store_outcome outcome = store_ask(store, request, reply, error);
    if (outcome == STORE_DONE && !is_confirmed(store, request->key, reply, error))
        return STORE_LATER;
    return outcome;
}

enum store_outcome store_put(struct store *store, const char *key, int file, int64_t bytes,
                             const char *crc32c, struct error *error)
{
    struct store_reply reply;
    struct store_request request = plain("PUT", key);
    add(request.header, &request.header_count, "x-amz-meta-crc32c", crc32c);
    request.file = file;
    request.bytes = bytes;
    return send_file(store, &request, &reply, error);
}

enum store_outcome store_put_text(struct store *store, const char *key, const char *text,
                                  struct error *error)
{
    struct store_reply reply;
    struct store_request request = plain("PUT", key);
    request.text = text;
    return store_ask(store, &request, &reply, error);
}

enum store_outcome store_delete(struct store *store, const char *key, struct error *error)
{
    struct store_reply reply;
    const struct store_request request = plain("DELETE", key);
    return store_ask(store, &request, &reply, error);
}

/* ---- in parts ---- */

enum store_outcome store_upload_begin(struct store *store, const char *key, const char *crc32c,
                                      char id[STORE_UPLOAD_ID], struct error *error)
{
    struct store_reply reply;
    struct store_request request = plain("POST", key);
    add(request.query, &request.query_count, "uploads", "");
    add(request.header, &request.header_count, "x-amz-checksum-algorithm", "CRC32C");
    if (crc32c != NULL)
        add(request.header, &request.header_count, "x-amz-meta-crc32c", crc32c);
    enum store_outcome outcome = store_ask(store, &request, &reply, error);
    if (outcome != STORE_DONE)
        return outcome;
    struct xml_span all = {store->text, store->text + store->text_bytes};
    if (xml_text(all, "UploadId", id, STORE_UPLOAD_ID))
        return STORE_DONE;
    error_set(error, ERROR_NETWORK, "s3://%s/%s: the store begins an upload and gives no UploadId",
              store->bucket, key);
    return STORE_REFUSED;
}

enum store_outcome store_upload_part(struct store *store, const char *key, const char *id,
                                     int number, int file, int64_t offset, int64_t bytes,
                                     struct store_part *part, struct error *error)
{
    struct store_reply reply;
    struct store_request request = plain("PUT", key);
    char digits[16];
    snprintf(digits, sizeof digits, "%d", number);
    add(request.query, &request.query_count, "partNumber", digits);
    add(request.query, &request.query_count, "uploadId", id);
    request.file = file;
    request.offset = offset;
    request.bytes = bytes;
    enum store_outcome outcome = send_file(store, &request, &reply, error);
    if (outcome != STORE_DONE)
        return outcome;
    part->bytes = bytes;
    snprintf(part->etag, sizeof part->etag, "%s", reply.etag);
    snprintf(part->crc32c, sizeof part->crc32c, "%s", reply.crc32c);
    return STORE_DONE;
}

static void take_parts(const struct store *store, struct store_part *part, int count)
{
    struct xml_span rest = {store->text, store->text + store->text_bytes}, one;
    while (xml_next(&rest, "Part", &one)) {
        struct store_part found;
        char number[16], bytes[32], etag[STORE_ETAG];
        xml_text(one, "PartNumber", number, sizeof number);
        xml_text(one, "Size", bytes, sizeof bytes);
        xml_text(one, "ETag", etag, sizeof etag);
        xml_text(one, "ChecksumCRC32C", found.crc32c, sizeof found.crc32c);
        found.bytes = strtoll(bytes, NULL, 10);
        const char *begin = etag + (etag[0] == '"' ? 1 : 0);
        snprintf(found.etag, sizeof found.etag, "%.*s", (int)strcspn(begin, "\""), begin);
        long n = strtol(number, NULL, 10);
        if (n >= 1 && n <= count)
            part[n - 1] = found;
    }
}

enum store_outcome store_upload_list(struct store *store, const char *key, const char *id,
                                     struct store_part *part, int count, struct error *error)
{
    char marker[16] = "", more[8] = "";
    do {
        struct store_reply reply;
        struct store_request request = plain("GET", key);
        add(request.query, &request.query_count, "uploadId", id);
        if (marker[0] != '\0')
            add(request.query, &request.query_count, "part-number-marker", marker);
        enum store_outcome outcome = store_ask(store, &request, &reply, error);
        if (outcome != STORE_DONE)
            return outcome;
        take_parts(store, part, count);
        struct xml_span all = {store->text, store->text + store->text_bytes};
        xml_text(all, "IsTruncated", more, sizeof more);
        xml_text(all, "NextPartNumberMarker", marker, sizeof marker);
    } while (strcmp(more, "true") == 0 && marker[0] != '\0');
    return STORE_DONE;
}

/* "<Part>...</Part>" of each; sums are named only if the store told them of all, as some know no
 * such element. */
static char *end_text(const struct store_part *part, int count)
{
    size_t room = 64 + (size_t)count * (STORE_ETAG + 160), used = 0;
    char *text = malloc(room);
    bool summed = true;
    ENSURE(text != NULL, "no memory for the list of an upload's parts");
    for (int n = 0; n < count; n++)
        summed = summed && part[n].crc32c[0] != '\0';
    used += (size_t)snprintf(text, room, "<CompleteMultipartUpload>");
    for (int n = 0; n < count; n++) {
        used += (size_t)snprintf(text + used, room - used, "<Part>");
        if (summed)
            used += (size_t)snprintf(text + used, room - used,
                                     "<ChecksumCRC32C>%s</ChecksumCRC32C>", part[n].crc32c);
        used += (size_t)snprintf(text + used, room - used,
                                 "<ETag>\"%s\"</ETag><PartNumber>%d</PartNumber></Part>",
                                 part[n].etag, n + 1);
    }
    snprintf(text + used, room - used, "</CompleteMultipartUpload>");
    return text;
}

enum store_outcome store_upload_end(struct store *store, const char *key, const char *id,
                                    const struct store_part *part, int count, struct error *error)
{
    struct store_reply reply;
    struct store_request request = plain("POST", key);
    add(request.query, &request.query_count, "uploadId", id);
    add(request.header, &request.header_count, "content-type", "application/xml");
    char *text = end_text(part, count);
    request.text = text;
    enum store_outcome outcome = store_ask(store, &request, &reply, error);
    free(text);
    return outcome;
}

void store_upload_abort(struct store *store, const char *key, const char *id)
{
    struct store_reply reply;
    struct error error = {.kind = ERROR_NONE};
    struct store_request request = plain("DELETE", key);
    add(request.query, &request.query_count, "uploadId", id);
    enum store_outcome outcome = store_ask(store, &request, &reply, &error);
    if (outcome != STORE_DONE && outcome != STORE_MISSING)
        log_debug("object store: an upload of s3://%s/%s was not given up: %s", store->bucket, key,
                  error.text);
}
