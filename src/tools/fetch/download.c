// SPDX-License-Identifier: BSD-3-Clause
/* Downloads a file with libcurl and verifies it. During the download there are FILE.part and
 * FILE.part.from, which has the URL and the version of the partial document; a later call resumes
 * only the same document. */
#include "tools/fetch/download.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <curl/curl.h>
#include <openssl/evp.h>

#include "core/clock.h"
#include "core/folder.h"
#include "core/log.h"
#include "core/text.h"

enum { PATH_SIZE = 4096, VALIDATOR = 256, MEBIBYTE = 1 << 20 };
enum { CONNECT_SECONDS = 30, STALL_SECONDS = 60, REDIRECTS = 10 };
enum { FRUITLESS_TRIES = 5, FIRST_DELAY_MS = 250 }; /* a try that received bytes is not fruitless */
enum { RESTARTS = 3 }; /* limit for servers that interrupt downloads and cannot resume */

/* ---- hashes */

bool checksum_file(const char *path, const char *algorithm, char text[CHECKSUM_TEXT],
                   struct error *error)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return error_set(error, ERROR_FILE, "%s: %s", path, strerror(errno));
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    unsigned char chunk[1 << 16], digest[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    size_t got;
    bool good =
        context != NULL && EVP_DigestInit_ex(context, EVP_get_digestbyname(algorithm), NULL) == 1;
    while (good && (got = fread(chunk, 1, sizeof chunk, file)) > 0)
        good = EVP_DigestUpdate(context, chunk, got) == 1;
    good = good && ferror(file) == 0 && EVP_DigestFinal_ex(context, digest, &length) == 1;
    EVP_MD_CTX_free(context);
    fclose(file);
    if (!good || 2 * length >= CHECKSUM_TEXT)
        return error_set(error, ERROR_FILE, "%s: cannot compute its %s hash", path, algorithm);
    for (unsigned int i = 0; i < length; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    return true;
}

bool checksum_matches(const char *path, const char *sha256, const char *md5,
                      char found[CHECKSUM_TEXT], struct error *error)
{
    return (sha256 == NULL ||
            (checksum_file(path, "sha256", found, error) && strcasecmp(found, sha256) == 0)) &&
           (md5 == NULL ||
            (checksum_file(path, "md5", found, error) && strcasecmp(found, md5) == 0));
}

/* ---- one try */

enum transfer_outcome {
    TRANSFER_DONE,    /* the file is complete */
    TRANSFER_RESTART, /* the partial file is useless: start again without it */
    TRANSFER_RETRY,   /* interrupted; may be resumed */
    TRANSFER_FAILED   /* permanent failure */
};

struct transfer {
    const char *url, *part;
    const char *name; /* in progress lines */
    /* The version of the partial document (ETag or date) as the server sent it; empty: unknown. */
    char validator[VALIDATOR];
    char sha256[CHECKSUM_TEXT]; /* sent by the server (Hugging Face's X-Linked-ETag), or empty */
    int64_t received;           /* bytes received in this try */
};

struct attempt {
    struct transfer *transfer;
    struct error *error;
    int descriptor;
    int64_t had;      /* size of the partial file at the start */
    double begin;     /* clock */
    int64_t reported; /* tenths of the document */
    char etag[VALIDATOR], modified[VALIDATOR];
    char detail[CURL_ERROR_SIZE];
};

static bool origin_write(const struct transfer *transfer, struct error *error)
{
    char from[PATH_SIZE + 8];
    snprintf(from, sizeof from, "%s.from", transfer->part);
    FILE *file = fopen(from, "w");
    if (file == NULL)
        return error_set(error, ERROR_FILE, "%s: %s; set fetch.dir", from, strerror(errno));
    char url[FETCH_URL];
    snprintf(url, sizeof url, "%s", transfer->url);
    text_mask_password(url);
    fprintf(file, "%s\n%s\n", url, transfer->validator);
    if (fclose(file) != 0)
        return error_set(error, ERROR_FILE, "%s: %s; free some space or set fetch.dir", from,
                         strerror(errno));
    return true;
}

/* Get the value of a header line if it has this name and fits. */
static bool header_value(const char *line, size_t length, const char *name, char *value,
                         size_t size)
{
    size_t name_length = strlen(name);
    if (length <= name_length || strncasecmp(line, name, name_length) != 0 ||
        line[name_length] != ':')
        return false;
    const char *begin = line + name_length + 1, *end = line + length;
    while (begin < end && isspace((unsigned char)*begin))
        begin++;
    while (end > begin && isspace((unsigned char)end[-1]))
        end--;
    if ((size_t)(end - begin) >= size)
        return false;
    memcpy(value, begin, (size_t)(end - begin));
    value[end - begin] = '\0';
    return true;
}

static size_t on_header(char *line, size_t one, size_t length, void *user)
{
    (void)one;
    struct attempt *attempt = user;
    char value[VALIDATOR];
    if (length >= 5 && strncmp(line, "HTTP/", 5) == 0) /* a new response, after a redirection */
        attempt->etag[0] = attempt->modified[0] = '\0';
    else if (header_value(line, length, "etag", value, sizeof value))
        snprintf(attempt->etag, sizeof attempt->etag, "%s", value[0] == '"' ? value : "");
    else if (header_value(line, length, "last-modified", value, sizeof value))
        snprintf(attempt->modified, sizeof attempt->modified, "%s", value);
    else if (header_value(line, length, "x-linked-etag", value, sizeof value) &&
             strlen(value) == 66 && value[0] == '"' &&
             strspn(value + 1, "0123456789abcdef") == 64) /* the document's SHA-256 */
        snprintf(attempt->transfer->sha256, CHECKSUM_TEXT, "%.64s", value + 1);
    return length;
}

static size_t on_data(char *data, size_t one, size_t bytes, void *user)
{
    (void)one;
    struct attempt *attempt = user;
    struct transfer *transfer = attempt->transfer;
    if (attempt->had == 0 && transfer->received == 0) {
        snprintf(transfer->validator, sizeof transfer->validator, "%s",
                 attempt->etag[0] != '\0' ? attempt->etag : attempt->modified);
        if (!origin_write(transfer, attempt->error))
            return 0;
    }
    for (size_t done = 0; done < bytes;) {
        ssize_t put = write(attempt->descriptor, data + done, bytes - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0) {
            error_set(attempt->error, ERROR_FILE,
                      "%s: %s; free some space or set fetch.dir, then start again to resume",
                      transfer->part, strerror(errno));
            return 0;
        }
        done += (size_t)put;
        transfer->received += put;
    }
    return bytes;
}

static int on_progress(void *user, curl_off_t total, curl_off_t now, curl_off_t up_total,
                       curl_off_t up_now)
{
    (void)up_total;
    (void)up_now;
    struct attempt *attempt = user;
    if (now <= 0 || (double)total < MEBIBYTE) /* the size is unknown, or too small for progress */
        return 0;
    const double seconds = clock_now() - attempt->begin;
    const double have = (double)(attempt->had + now) / MEBIBYTE;
    const double all = (double)(attempt->had + total) / MEBIBYTE;
    const double rate = seconds > 0 ? (double)now / MEBIBYTE / seconds : 0;
    const char *name = attempt->transfer->name;
    log_progress("%s: %.1f of %.1f MiB, %.1f MiB/s", name, have, all, rate);
    const int64_t tenth = (int64_t)(have / all * 10);
    if (!log_is_terminal() && tenth > attempt->reported)
        log_info("%s: %.1f of %.1f MiB, %.1f MiB/s", name, have, all, rate);
    attempt->reported = tenth;
    return 0;
}

static struct curl_slist *curl_set_up(CURL *curl, struct attempt *attempt)
{
    struct curl_slist *headers = NULL;
    curl_easy_setopt(curl, CURLOPT_URL, attempt->transfer->url);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "vittrain");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)REDIRECTS);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)STALL_SECONDS);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, attempt->detail);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, attempt);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, attempt);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, attempt);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    if (attempt->had > 0) {
        curl_easy_setopt(curl, CURLOPT_RESUME_FROM_LARGE, (curl_off_t)attempt->had);
        char line[VALIDATOR + 16];
        snprintf(line, sizeof line, "If-Range: %s", attempt->transfer->validator);
        if (attempt->transfer->validator[0] != '\0')
            headers = curl_slist_append(NULL, line);
        curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    }
    return headers;
}

static enum transfer_outcome failed_status(const struct attempt *attempt, long status)
{
    const char *url = attempt->transfer->url;
    if (status >= 500 || status == 429 || status == 408) {
        error_set(attempt->error, ERROR_NETWORK,
                  "%s: the server is not available (HTTP %ld); try again later or set fetch.url",
                  url, status);
        return TRANSFER_RETRY;
    }
    error_set(attempt->error, ERROR_NETWORK, "%s: %s (HTTP %ld); set fetch.url to another address",
              url, status == 404 ? "not found" : "refused by the server", status);
    return TRANSFER_FAILED;
}

/* Map the result of libcurl to an outcome. */
static enum transfer_outcome outcome_find(const struct attempt *attempt, CURLcode code, long status)
{
    const char *url = attempt->transfer->url;
    const char *detail = attempt->detail[0] != '\0' ? attempt->detail : curl_easy_strerror(code);
    if (attempt->error->kind != ERROR_NONE) /* set by a callback */
        return TRANSFER_FAILED;
    if (status == 416 || code == CURLE_RANGE_ERROR || code == CURLE_BAD_DOWNLOAD_RESUME)
        return TRANSFER_RESTART;
    switch (code) {
    case CURLE_OK:
        return TRANSFER_DONE;
    case CURLE_HTTP_RETURNED_ERROR:
        return failed_status(attempt, status);
    case CURLE_FILE_COULDNT_READ_FILE:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_TOO_MANY_REDIRECTS:
    case CURLE_PEER_FAILED_VERIFICATION:
        error_set(attempt->error, ERROR_NETWORK, "%s: %s; check fetch.url", url, detail);
        return TRANSFER_FAILED;
    default:
        error_set(attempt->error, ERROR_NETWORK, "%s: %s; start again to resume, or set fetch.url",
                  url, detail);
        return TRANSFER_RETRY;
    }
}

static enum transfer_outcome attempt_perform(struct attempt *attempt)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
    CURL *curl = curl_easy_init();
    ENSURE(curl != NULL, "libcurl cannot be started");
    struct curl_slist *headers = curl_set_up(curl, attempt);
    attempt->begin = clock_now();
    CURLcode code = curl_easy_perform(curl);
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    enum transfer_outcome outcome = outcome_find(attempt, code, status);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    curl_global_cleanup();
    return outcome;
}

/* Append to the partial file; a missing or empty file starts the document. `error` is set for RETRY
 * and FAILED. */
static enum transfer_outcome transfer_run(struct transfer *transfer, struct error *error)
{
    struct attempt attempt = {.transfer = transfer, .error = error};
    transfer->received = 0;
    attempt.descriptor = open(transfer->part, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    struct stat status;
    if (attempt.descriptor < 0 || fstat(attempt.descriptor, &status) != 0) {
        error_set(error, ERROR_FILE, "%s: %s; set fetch.dir", transfer->part, strerror(errno));
        if (attempt.descriptor >= 0)
            close(attempt.descriptor);
        return TRANSFER_FAILED;
    }
    attempt.had = status.st_size;
    enum transfer_outcome outcome = attempt_perform(&attempt);
    if (fsync(attempt.descriptor) != 0 && outcome == TRANSFER_DONE) {
        error_set(error, ERROR_FILE, "%s: %s; free some space or set fetch.dir", transfer->part,
                  strerror(errno));
        outcome = TRANSFER_FAILED;
    }
    close(attempt.descriptor);
    return outcome;
}

/* ---- the whole download */

struct fetch {
    struct transfer transfer;
    const char *path, *sha256, *md5;
    char part[PATH_SIZE], from[PATH_SIZE];
};

/* Create the folders above a file. */
static bool make_directories(const char *path, struct error *error)
{
    char parent[PATH_SIZE];
    snprintf(parent, sizeof parent, "%s", path);
    char *slash = strrchr(parent, '/');
    if (slash == NULL || slash == parent)
        return true;
    *slash = '\0';
    return folder_make(parent, "choose another fetch.dir", error);
}

static bool read_line(FILE *file, char *line, int size)
{
    if (fgets(line, size, file) == NULL)
        return false;
    line[strcspn(line, "\n")] = '\0';
    return true;
}

/* True if the partial file of an earlier call is of this document. */
static bool origin_read(struct fetch *fetch)
{
    char url[FETCH_URL + 1];
    FILE *file = fopen(fetch->from, "r");
    if (file == NULL)
        return false;
    char wanted[FETCH_URL];
    snprintf(wanted, sizeof wanted, "%s", fetch->transfer.url);
    text_mask_password(wanted);
    bool same = read_line(file, url, sizeof url) && strcmp(url, wanted) == 0 &&
                read_line(file, fetch->transfer.validator, sizeof fetch->transfer.validator);
    fclose(file);
    return same;
}

static void drop_part(struct fetch *fetch)
{
    unlink(fetch->part);
    unlink(fetch->from);
    fetch->transfer.validator[0] = '\0';
}

/* True if the partial file is complete and has the known hashes. */
static bool check_part(struct fetch *fetch, struct error *error)
{
    char found[CHECKSUM_TEXT];
    const char *sha256 = fetch->sha256;
    if (sha256 == NULL && fetch->md5 == NULL && fetch->transfer.sha256[0] != '\0')
        sha256 = fetch->transfer.sha256;
    if (checksum_matches(fetch->part, sha256, fetch->md5, found, error))
        return true;
    return error_set(error, ERROR_NETWORK,
                     "%s: wrong content: its hash is %s, not %s; start again or set fetch.url to "
                     "another address",
                     fetch->transfer.url, found, sha256 != NULL ? sha256 : fetch->md5);
}

/* Download the whole document to the partial file; *resumed: it has bytes of an earlier try or
 * call. */
static bool document_download(struct fetch *fetch, bool *resumed, struct error *error)
{
    int fruitless = 0, restarts = 0;
    for (bool first = true;; first = false) {
        struct stat status;
        bool going_on = stat(fetch->part, &status) == 0 && status.st_size > 0;
        *resumed = *resumed || going_on;
        if (first && going_on)
            log_info("%s: resuming after %lld bytes", fetch->transfer.name,
                     (long long)status.st_size);
        switch (transfer_run(&fetch->transfer, error)) {
        case TRANSFER_DONE:
            return true;
        case TRANSFER_FAILED:
            return false;
        case TRANSFER_RESTART:
            drop_part(fetch);
            if (!going_on || ++restarts > RESTARTS)
                return error_set(error, ERROR_NETWORK,
                                 "%s: the server interrupts the download and cannot resume it; set "
                                 "fetch.url to another address",
                                 fetch->transfer.url);
            *resumed = false;
            continue;
        case TRANSFER_RETRY:
            break;
        }
        fruitless = fetch->transfer.received > 0 ? 0 : fruitless + 1;
        if (fruitless == FRUITLESS_TRIES)
            return false;
        log_debug("%s; trying again", error->text);
        error_clear(error);
        const long milliseconds = (long)FIRST_DELAY_MS << (fruitless > 0 ? fruitless - 1 : 0);
        nanosleep(&(struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000}, NULL);
    }
}

static bool download_and_check(struct fetch *fetch, struct error *error)
{
    for (bool resumed = false; document_download(fetch, &resumed, error);) {
        if (check_part(fetch, error))
            return true;
        drop_part(fetch);
        if (!resumed || error->kind != ERROR_NETWORK)
            return false;
        log_warn("%s: the parts do not match, downloading it again", fetch->transfer.name);
        error_clear(error);
        resumed = false;
    }
    return false;
}

void fetch_complete_url(const char *url, const char *name, char complete[FETCH_URL])
{
    size_t length = strlen(url);
    bool is_folder = length > 0 && url[length - 1] == '/';
    snprintf(complete, FETCH_URL, "%s%s", url, is_folder ? name : "");
}

/* True if the file exists with its hashes. */
static bool is_whole(const struct fetch *fetch)
{
    char found[CHECKSUM_TEXT];
    struct error unreadable = {0};
    return access(fetch->path, R_OK) == 0 &&
           checksum_matches(fetch->path, fetch->sha256, fetch->md5, found, &unreadable);
}

bool fetch_file(const char *url, const char *path, const char *sha256, const char *md5,
                struct error *error)
{
    const char *slash = strrchr(path, '/');
    struct fetch fetch = {.path = path, .sha256 = sha256, .md5 = md5};
    if (strlen(path) + 16 > sizeof fetch.part || strlen(url) + 1 > FETCH_URL)
        return error_set(error, ERROR_USAGE, "%s to %s: the path is too long", url, path);
    if (is_whole(&fetch)) {
        log_info("%s already exists", path);
        return true;
    }
    snprintf(fetch.part, sizeof fetch.part, "%s.part", path);
    snprintf(fetch.from, sizeof fetch.from, "%s.part.from", path);
    fetch.transfer =
        (struct transfer){.url = url, .part = fetch.part, .name = slash != NULL ? slash + 1 : path};
    if (!make_directories(path, error))
        return false;
    if (!origin_read(&fetch) && sha256 == NULL && md5 == NULL)
        drop_part(&fetch);
    log_info("downloading %s", url);
    if (!download_and_check(&fetch, error))
        return false;
    if (rename(fetch.part, path) != 0)
        return error_set(error, ERROR_FILE, "cannot rename %s.part: %s", path, strerror(errno));
    unlink(fetch.from);
    return true;
}
