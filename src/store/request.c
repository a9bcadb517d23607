/* One request by libcurl, signed by us. The body of an upload is read from its file as it goes, so
 * that memory does not depend on sizes; its sums are computed before, since the signature holds one
 * of them. */
#include "store/request.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include <curl/curl.h>
#include <openssl/evp.h>

#include "core/clock.h"
#include "core/crc32c.h"
#include "fetch/transfer.h"
#include "store/judge.h"

enum { CONNECT_SECONDS = 10, CHUNK = 1 << 16, URL_SIZE = 8192 };
enum { LONGEST_REPLY = 16 << 20 };
static const double first_delay = 0.25, longest_delay = 10;

/* A try while it runs. */
struct attempt {
    struct store *store;
    const struct store_request *request;
    struct store_reply *reply;
    int64_t sent, received;
    char sha256[STORE_SHA256];
    int file_failed; /* errno */
    char detail[CURL_ERROR_SIZE];
};

/* ---- waiting ---- */

bool store_pause(struct store *store, double seconds)
{
    const double end = clock_now() + seconds;
    const struct timespec until = {.tv_sec = (time_t)end,
                                   .tv_nsec = (long)(1e9 * (end - floor(end)))};
    int waited = 0;
    pthread_mutex_lock(&store->mutex);
    while (!atomic_load(&store->cancelled) && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&store->wake, &store->mutex, &until);
    pthread_mutex_unlock(&store->mutex);
    return !atomic_load(&store->cancelled);
}

double store_backoff(struct store *store, int n, double least, double most)
{
    double delay = least;
    for (int k = 1; k < n && delay < most; k++)
        delay *= 2;
    store->jitter = store->jitter * 6364136223846793005u + 1442695040888963407u;
    double share = (double)(store->jitter >> 40) / (double)(1 << 24);
    return (delay < most ? delay : most) * (0.5 + share / 2);
}

/* ---- what is sent ---- */

/* The sums of a stretch of a file. MD5 only where the store tells no others. */
static bool file_sums(struct attempt *attempt)
{
    const struct store_request *request = attempt->request;
    unsigned char chunk[CHUNK], sha256[EVP_MAX_MD_SIZE], md5[EVP_MAX_MD_SIZE] = {0};
    EVP_MD_CTX *sha256_context = EVP_MD_CTX_new(), *md5_context = EVP_MD_CTX_new();
    uint32_t crc = 0;
    bool wants_md5 = !attempt->store->confirms, good = true;
    ENSURE(sha256_context != NULL && md5_context != NULL &&
               EVP_DigestInit_ex(sha256_context, EVP_sha256(), NULL) == 1,
           "libcrypto has no SHA-256");
    /* Where MD5 is forbidden (FIPS) there is none. */
    wants_md5 = wants_md5 && EVP_DigestInit_ex(md5_context, EVP_md5(), NULL) == 1;
    for (int64_t done = 0; good && done < request->bytes;) {
        int64_t left = request->bytes - done;
        ssize_t got = pread(request->file, chunk, left < CHUNK ? (size_t)left : CHUNK,
                            request->offset + done);
        good = got > 0 || (got < 0 && errno == EINTR);
        if (got <= 0)
            continue;
        EVP_DigestUpdate(sha256_context, chunk, (size_t)got);
        if (wants_md5)
            EVP_DigestUpdate(md5_context, chunk, (size_t)got);
        crc = crc32c_update(crc, chunk, (size_t)got);
        done += got;
    }
    EVP_DigestFinal_ex(sha256_context, sha256, NULL);
    if (wants_md5)
        EVP_DigestFinal_ex(md5_context, md5, NULL);
    EVP_MD_CTX_free(sha256_context);
    EVP_MD_CTX_free(md5_context);
    for (int i = 0; i < 32; i++)
        snprintf(attempt->sha256 + 2 * i, 3, "%02x", sha256[i]);
    for (int i = 0; i < 16 && wants_md5; i++)
        snprintf(attempt->reply->sent_md5 + 2 * i, 3, "%02x", md5[i]);
    const unsigned char bytes[4] = {(unsigned char)(crc >> 24), (unsigned char)(crc >> 16),
                                    (unsigned char)(crc >> 8), (unsigned char)crc};
    EVP_EncodeBlock((unsigned char *)attempt->reply->sent_crc32c, bytes, sizeof bytes);
    return good;
}

static size_t on_read(char *data, size_t one, size_t room, void *user)
{
    struct attempt *attempt = user;
    const struct store_request *request = attempt->request;
    int64_t left = request->bytes - attempt->sent;
    size_t bytes = one * room < (size_t)left ? one * room : (size_t)left;
    ssize_t got = (ssize_t)bytes;
    if (request->file >= 0)
        got = bytes > 0 ? pread(request->file, data, bytes, request->offset + attempt->sent) : 0;
    else
        memcpy(data, request->text + attempt->sent, bytes);
    if (got < 0 || (got == 0 && left > 0)) {
        attempt->file_failed = errno != 0 ? errno : EIO;
        return CURL_READFUNC_ABORT;
    }
    attempt->sent += got;
    return (size_t)got;
}

/* libcurl begins again on a new connection where the store has closed an old one. */
static int on_seek(void *user, curl_off_t offset, int origin)
{
    struct attempt *attempt = user;
    if (origin != SEEK_SET)
        return CURL_SEEKFUNC_CANTSEEK;
    attempt->sent = offset;
    return CURL_SEEKFUNC_OK;
}

/* ---- what is got ---- */

static size_t to_text(struct store *store, const char *data, size_t bytes)
{
    if (store->text_bytes + bytes >= store->text_room) {
        size_t room = 2 * (store->text_bytes + bytes) + 4096;
        char *grown = room <= LONGEST_REPLY ? realloc(store->text, room) : NULL;
        if (grown == NULL)
            return 0;
        store->text = grown;
        store->text_room = room;
    }
    memcpy(store->text + store->text_bytes, data, bytes);
    store->text_bytes += bytes;
    store->text[store->text_bytes] = '\0';
    return bytes;
}

static size_t to_file(struct attempt *attempt, const char *data, size_t bytes)
{
    const struct store_request *request = attempt->request;
    if (attempt->received + (int64_t)bytes > request->bytes)
        return 0; /* more than was asked for: it knows no ranges */
    for (size_t done = 0; done < bytes;) {
        ssize_t put =
            pwrite(request->sink, data + done, bytes - done, request->offset + attempt->received);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) {
            attempt->file_failed = errno != 0 ? errno : EIO;
            return 0;
        }
        done += (size_t)put;
        attempt->received += put;
    }
    return bytes;
}

static size_t on_data(char *data, size_t one, size_t bytes, void *user)
{
    (void)one;
    struct attempt *attempt = user;
    long status = 0;
    curl_easy_getinfo(attempt->store->curl, CURLINFO_RESPONSE_CODE, &status);
    if (attempt->request->sink >= 0 && status / 100 == 2)
        return to_file(attempt, data, bytes);
    return to_text(attempt->store, data, bytes);
}

static void take_etag(const char *value, char etag[STORE_ETAG])
{
    size_t length = strlen(value), quote = length >= 2 && value[0] == '"' ? 1 : 0;
    snprintf(etag, STORE_ETAG, "%.*s", (int)(length - 2 * quote), value + quote);
}

static size_t on_header(char *line, size_t one, size_t length, void *user)
{
    (void)one;
    struct store_reply *reply = ((struct attempt *)user)->reply;
    const struct {
        const char *name;
        char *place;
        size_t size;
    } texts[] = {{"x-amz-checksum-crc32c", reply->crc32c, sizeof reply->crc32c},
                 {"x-amz-checksum-sha256", reply->sha256, sizeof reply->sha256},
                 {"x-amz-meta-crc32c", reply->own_crc32c, sizeof reply->own_crc32c},
                 {"x-amz-bucket-region", reply->region, sizeof reply->region},
                 {"x-amz-server-side-encryption", reply->encryption, sizeof reply->encryption}};
    char value[TRANSFER_VALIDATOR];
    for (size_t n = 0; n < sizeof texts / sizeof texts[0]; n++)
        if (transfer_header_value(line, length, texts[n].name, texts[n].place, texts[n].size))
            return length;
    if (transfer_header_value(line, length, "etag", value, sizeof value))
        take_etag(value, reply->etag);
    else if (transfer_header_value(line, length, "content-length", value, sizeof value))
        reply->length = strtoll(value, NULL, 10);
    else if (transfer_header_value(line, length, "date", value, sizeof value))
        reply->date = (int64_t)curl_getdate(value, NULL);
    else if (transfer_header_value(line, length, "retry-after", value, sizeof value))
        reply->retry_after = strtod(value, NULL);
    return length;
}

static int on_progress(void *user, curl_off_t total, curl_off_t now, curl_off_t up_total,
                       curl_off_t up_now)
{
    (void)total, (void)now, (void)up_total, (void)up_now;
    return atomic_load(&((struct attempt *)user)->store->cancelled);
}

/* ---- the request ---- */

struct prepared {
    char url[URL_SIZE];
    struct curl_slist *headers;
};

static void add_header(struct prepared *prepared, const char *name, const char *value)
{
    char line[STORE_TOKEN + 64];
    snprintf(line, sizeof line, "%s: %s", name, value);
    prepared->headers = curl_slist_append(prepared->headers, line);
    ENSURE(prepared->headers != NULL, "no memory for a request");
}

/* URL, path as it is signed, host. */
static bool make_url(const struct store *store, const struct store_request *request,
                     struct prepared *prepared, char path[URL_SIZE], char host[600])
{
    char key[3 * STORE_KEY] = "", query[URL_SIZE / 2];
    snprintf(host, 600, "%s%s%s", store->path_style ? "" : store->bucket,
             store->path_style ? "" : ".", store->authority);
    if ((request->key != NULL && !store_encode(request->key, true, key, sizeof key)) ||
        !store_encode_query(request->query, request->query_count, query, sizeof query))
        return false;
    bool slash = request->key != NULL || !store->path_style;
    snprintf(path, URL_SIZE, "%s%s%s%s%s", store->base, store->path_style ? "/" : "",
             store->path_style ? store->bucket : "", slash ? "/" : "", key);
    return snprintf(prepared->url, URL_SIZE, "%s://%s%s%s%s", store->scheme, host, path,
                    query[0] != '\0' ? "?" : "", query) < URL_SIZE;
}

static bool prepare(struct attempt *attempt, struct prepared *prepared)
{
    const struct store *store = attempt->store;
    const struct store_request *request = attempt->request;
    struct store_pair header[STORE_PAIRS + 4];
    char path[URL_SIZE], host[600], date[STORE_DATE], authorization[STORE_AUTHORIZATION];
    time_t now = time(NULL) + (time_t)store->clock;
    struct tm parts;
    int count = request->header_count;
    strftime(date, sizeof date, "%Y%m%dT%H%M%SZ", gmtime_r(&now, &parts));
    memcpy(header, request->header, (size_t)count * sizeof *header);
    header[count++] = (struct store_pair){"host", host};
    header[count++] = (struct store_pair){"x-amz-date", date};
    header[count++] = (struct store_pair){"x-amz-content-sha256", attempt->sha256};
    if (store->credentials.token[0] != '\0')
        header[count++] = (struct store_pair){"x-amz-security-token", store->credentials.token};
    if (!make_url(store, request, prepared, path, host))
        return false;
    const struct store_signing signing = {.method = request->method,
                                          .path = path,
                                          .query = request->query,
                                          .query_count = request->query_count,
                                          .header = header,
                                          .header_count = count,
                                          .payload_sha256 = attempt->sha256,
                                          .date = date,
                                          .region = store->region,
                                          .service = "s3",
                                          .access_key = store->credentials.access_key,
                                          .secret_key = store->credentials.secret_key};
    if (!store_sign(&signing, authorization))
        return false;
    for (int n = 0; n < count; n++)
        add_header(prepared, header[n].name, header[n].value);
    add_header(prepared, "Authorization", authorization);
    return true;
}

static void set_up(struct attempt *attempt, const struct prepared *prepared)
{
    CURL *curl = attempt->store->curl;
    const struct store_request *request = attempt->request;
    const char *authorities = store_environment("AWS_CA_BUNDLE");
    curl_easy_reset(curl); /* connections stay */
    curl_easy_setopt(curl, CURLOPT_URL, prepared->url);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, prepared->headers);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "vittrain");
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    int patience = attempt->store->patience;
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT,
                     (long)(patience < CONNECT_SECONDS ? patience : CONNECT_SECONDS));
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)patience);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, attempt->detail);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, attempt);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, attempt);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, attempt);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    if (authorities != NULL)
        curl_easy_setopt(curl, CURLOPT_CAINFO, authorities);
    if (strcmp(request->method, "HEAD") == 0)
        curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    if (strcmp(request->method, "PUT") == 0 || strcmp(request->method, "POST") == 0) {
        curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)request->bytes);
        curl_easy_setopt(curl, CURLOPT_READFUNCTION, on_read);
        curl_easy_setopt(curl, CURLOPT_READDATA, attempt);
        curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, on_seek);
        curl_easy_setopt(curl, CURLOPT_SEEKDATA, attempt);
        curl_easy_setopt(curl, CURLOPT_MAX_SEND_SPEED_LARGE, (curl_off_t)attempt->store->rate);
    }
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
}

/* A store that closes its end while we write must not end the process by SIGPIPE, which TLS does
 * not suppress. */
static CURLcode perform_quietly(CURL *curl)
{
    sigset_t pipe, before, pending;
    const struct timespec none = {0};
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    CURLcode code = curl_easy_perform(curl);
    if (!sigismember(&pending, SIGPIPE))
        while (sigtimedwait(&pipe, NULL, &none) < 0 && errno == EINTR)
            ;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

static enum store_outcome ask_once(struct store *store, const struct store_request *request,
                                   struct store_reply *reply, struct error *error)
{
    struct attempt attempt = {.store = store, .request = request, .reply = reply};
    struct prepared prepared = {.headers = NULL};
    *reply = (struct store_reply){.length = -1};
    store->text_bytes = 0;
    to_text(store, "", 0);
    const char *text = request->text != NULL ? request->text : "";
    if (request->file < 0)
        store_sha256(text, strlen(text), attempt.sha256);
    else if (!file_sums(&attempt)) {
        error_set(error, ERROR_FILE, "%s: the file has become shorter than it was", request->key);
        return STORE_LATER;
    }
    struct store_request whole = *request;
    if (request->file >= 0 && whole.header_count < STORE_PAIRS) {
        whole.header[whole.header_count++] =
            (struct store_pair){"x-amz-checksum-crc32c", reply->sent_crc32c};
        attempt.request = &whole;
    }
    if (!prepare(&attempt, &prepared)) {
        curl_slist_free_all(prepared.headers);
        error_set(error, ERROR_USAGE, "s3://%s/%s: too long a name", store->bucket, request->key);
        return STORE_REFUSED;
    }
    set_up(&attempt, &prepared);
    CURLcode code = perform_quietly(store->curl);
    curl_easy_getinfo(store->curl, CURLINFO_RESPONSE_CODE, &reply->status);
    curl_slist_free_all(prepared.headers);
    const struct store_result result = {
        .curl = code, .detail = attempt.detail, .file_failed = attempt.file_failed};
    return store_judge(store, request, &result, reply, error);
}

enum store_outcome store_ask(struct store *store, const struct store_request *request,
                             struct store_reply *reply, struct error *error)
{
    struct store_request bound = *request;
    store->refreshed = false;
    if (bound.text != NULL)
        bound.bytes = (int64_t)strlen(bound.text);
    store_renew(store);
    for (int n = 1, turns = 0;; n++) {
        if (atomic_load(&store->cancelled))
            return STORE_CANCELLED;
        error_clear(error);
        enum store_outcome outcome = ask_once(store, &bound, reply, error);
        if (outcome != STORE_DONE && outcome != STORE_CANCELLED && turns < 3 &&
            store_turn(store, reply)) {
            turns++;
            n--;
            continue;
        }
        if (outcome != STORE_LATER || n >= store->tries)
            return outcome;
        double delay = store_backoff(store, n, first_delay, longest_delay);
        if (!store_pause(store, fmax(delay, fmin(reply->retry_after, longest_delay))))
            return STORE_CANCELLED;
    }
}
