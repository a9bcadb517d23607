/* One try with libcurl. The headers give the version of the document, the body is appended to the
 * file, and the result becomes one of four outcomes. A resumed try requests the rest only if the
 * document has not changed (If-Range). */
#include "fetch/transfer.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <curl/curl.h>

#include "core/clock.h"
#include "core/log.h"

enum { CONNECT_SECONDS = 30, STALL_SECONDS = 60, REDIRECTS = 10, PROGRESS_PARTS = 10 };

struct attempt {
    struct transfer *transfer;
    struct error *error;
    int descriptor;
    int64_t had; /* size of the file at the start */
    struct transfer_progress progress;
    char etag[TRANSFER_VALIDATOR], modified[TRANSFER_VALIDATOR];
    char detail[CURL_ERROR_SIZE];
};

bool transfer_header_value(const char *line, size_t length, const char *name, char *value,
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

/* An ETag of 64 hexadecimal digits is the document's SHA-256. */
static void take_linked_sum(const char *value, char sha256[CHECKSUM_TEXT])
{
    if (strlen(value) == 66 && value[0] == '"' && strspn(value + 1, "0123456789abcdef") == 64)
        snprintf(sha256, CHECKSUM_TEXT, "%.64s", value + 1);
}

static size_t on_header(char *line, size_t one, size_t length, void *user)
{
    (void)one;
    struct attempt *attempt = user;
    char value[TRANSFER_VALIDATOR];
    if (length >= 5 && strncmp(line, "HTTP/", 5) == 0) /* a new response, after a redirection */
        attempt->etag[0] = attempt->modified[0] = '\0';
    else if (transfer_header_value(line, length, "etag", value, sizeof value))
        snprintf(attempt->etag, sizeof attempt->etag, "%s", value[0] == '"' ? value : "");
    else if (transfer_header_value(line, length, "last-modified", value, sizeof value))
        snprintf(attempt->modified, sizeof attempt->modified, "%s", value);
    else if (transfer_header_value(line, length, "x-linked-etag", value, sizeof value))
        take_linked_sum(value, attempt->transfer->sha256);
    return length;
}

static bool begin_document(struct attempt *attempt)
{
    struct transfer *transfer = attempt->transfer;
    if (attempt->had > 0 || transfer->received > 0)
        return true;
    snprintf(transfer->validator, sizeof transfer->validator, "%s",
             attempt->etag[0] != '\0' ? attempt->etag : attempt->modified);
    return transfer->begun == NULL || transfer->begun(transfer, attempt->error);
}

static size_t on_data(char *data, size_t one, size_t bytes, void *user)
{
    (void)one;
    struct attempt *attempt = user;
    if (!begin_document(attempt))
        return 0;
    for (size_t done = 0; done < bytes;) {
        ssize_t put = write(attempt->descriptor, data + done, bytes - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0) {
            error_set(attempt->error, ERROR_FILE,
                      "%s: %s; free some space or set fetch.dir, then start again to resume",
                      attempt->transfer->part, strerror(errno));
            return 0;
        }
        done += (size_t)put;
        attempt->transfer->received += put;
    }
    return bytes;
}

void transfer_progress_say(struct transfer_progress *progress, int64_t now, int64_t total)
{
    const double mebibyte = 1024.0 * 1024.0;
    if ((double)total < mebibyte) /* small files need no progress lines */
        return;
    double seconds = clock_now() - progress->begin;
    double have = (double)(progress->had + now) / mebibyte;
    double all = (double)(progress->had + total) / mebibyte;
    double rate = seconds > 0 ? (double)now / mebibyte / seconds : 0;
    log_progress("%s: %.1f of %.1f MiB, %.1f MiB/s", progress->name, have, all, rate);
    int64_t part = (int64_t)(have / all * PROGRESS_PARTS);
    if (!log_is_terminal() && part > progress->reported)
        log_info("%s: %.1f of %.1f MiB, %.1f MiB/s", progress->name, have, all, rate);
    progress->reported = part;
}

static int on_progress(void *user, curl_off_t total, curl_off_t now, curl_off_t up_total,
                       curl_off_t up_now)
{
    (void)up_total;
    (void)up_now;
    struct attempt *attempt = user;
    if (now > 0) /* the size is known */
        transfer_progress_say(&attempt->progress, now, total);
    return 0;
}

static struct curl_slist *set_up(CURL *curl, struct attempt *attempt)
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
        char line[TRANSFER_VALIDATOR + 16];
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
static enum transfer_outcome judge(const struct attempt *attempt, CURLcode code, long status)
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

static enum transfer_outcome perform(struct attempt *attempt)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
    CURL *curl = curl_easy_init();
    ENSURE(curl != NULL, "libcurl cannot be started");
    struct curl_slist *headers = set_up(curl, attempt);
    attempt->progress = (struct transfer_progress){
        .name = attempt->transfer->name, .had = attempt->had, .begin = clock_now()};
    CURLcode code = curl_easy_perform(curl);
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    enum transfer_outcome outcome = judge(attempt, code, status);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    curl_global_cleanup();
    return outcome;
}

enum transfer_outcome transfer_run(struct transfer *transfer, struct error *error)
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
    enum transfer_outcome outcome = perform(&attempt);
    if (fsync(attempt.descriptor) != 0 && outcome == TRANSFER_DONE) {
        error_set(error, ERROR_FILE, "%s: %s; free some space or set fetch.dir", transfer->part,
                  strerror(errno));
        outcome = TRANSFER_FAILED;
    }
    close(attempt.descriptor);
    return outcome;
}
