/* Which failures pass, which a person has to put right, and how. */
#include "store/judge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/log.h"
#include "store/xml.h"

/* Credentials are asked for anew so long before they end. */
enum { RENEWAL_SECONDS = 300, CLOCK_TOLERANCE = 60 };

static bool is_one_of(const char *code, const char *const *list)
{
    for (; *list != NULL; list++)
        if (strcmp(code, *list) == 0)
            return true;
    return false;
}

/* ---- what a person is told ---- */

static const char *const bad_keys[] = {"InvalidAccessKeyId", "SignatureDoesNotMatch",
                                       "AuthFailure",        "UnrecognizedClientException",
                                       "InvalidSecurity",    NULL};
static const char *const bad_tokens[] = {"ExpiredToken", "TokenRefreshRequired", "InvalidToken",
                                         "ExpiredTokenException", NULL};

static void advise(const struct store *store, const struct store_reply *reply, char *text,
                   size_t size)
{
    const char *origin = store->credentials.origin;
    if (strcmp(reply->code, "NoSuchBucket") == 0)
        snprintf(text, size, "make the bucket, or correct its name");
    else if (is_one_of(reply->code, bad_keys))
        snprintf(text, size, "check access key and secret key (they come from %s)", origin);
    else if (is_one_of(reply->code, bad_tokens))
        snprintf(text, size, "get new credentials (these come from %s)", origin);
    else if (reply->status == 403)
        snprintf(text, size,
                 "allow these credentials (from %s) to do it there, or use others: AWS_PROFILE",
                 origin);
    else if (reply->status == 404)
        snprintf(text, size, "correct the name");
    else
        snprintf(text, size, "check the endpoint (AWS_ENDPOINT_URL) and what it can do");
}

static void say_status(const struct store *store, const struct store_request *request,
                       const struct store_reply *reply, bool passes, struct error *error)
{
    char advice[700], place[700];
    advise(store, reply, advice, sizeof advice);
    store_describe(store, place, sizeof place);
    error_set(error, ERROR_NETWORK, "s3://%s/%s at %s: %s%s%s (HTTP %ld); %s", store->bucket,
              request->key != NULL ? request->key : "", place,
              reply->code[0] != '\0' ? reply->code : (passes ? "busy" : "refused"),
              reply->message[0] != '\0' ? ": " : "", reply->message, reply->status,
              passes ? "the same may work later" : advice);
}

static void say_network(const struct store *store, const char *detail, bool passes,
                        struct error *error)
{
    char place[700];
    store_describe(store, place, sizeof place);
    error_set(error, ERROR_NETWORK, "s3://%s at %s: %s%s", store->bucket, place, detail,
              passes ? "" : "; check the endpoint (AWS_ENDPOINT_URL) and AWS_CA_BUNDLE");
}

/* ---- the verdict ---- */

static bool status_passes(const struct store_reply *reply)
{
    static const char *const passing[] = {"RequestTimeout",
                                          "XAmzContentSHA256Mismatch",
                                          "BadDigest",
                                          "IncompleteBody",
                                          "InternalError",
                                          "SlowDown",
                                          "ServiceUnavailable",
                                          "OperationAborted",
                                          "ConditionalRequestConflict",
                                          NULL};
    return (reply->status >= 500 && reply->status != 501) || reply->status == 429 ||
           reply->status == 408 || is_one_of(reply->code, passing);
}

static enum store_outcome judge_network(const struct store *store,
                                        const struct store_result *result, struct error *error)
{
    const char *detail =
        result->detail[0] != '\0' ? result->detail : curl_easy_strerror(result->curl);
    switch (result->curl) {
    case CURLE_ABORTED_BY_CALLBACK:
        if (atomic_load(&store->cancelled))
            return STORE_CANCELLED;
        break;
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
        say_network(store, detail, false, error);
        return STORE_REFUSED;
    default:
        break;
    }
    say_network(store, detail, true, error);
    return STORE_LATER;
}

/* Amazon begins the reply to the end of a long upload before it knows how that goes: an error may
 * stand in a reply of status 200. */
static void read_error(const struct store *store, const struct store_request *request,
                       struct store_reply *reply)
{
    struct xml_span all = {store->text, store->text + store->text_bytes}, body;
    bool good = reply->status / 100 == 2;
    if ((good && request->sink >= 0) || !xml_next(&all, "Error", &body))
        return;
    xml_text(body, "Code", reply->code, sizeof reply->code);
    xml_text(body, "Message", reply->message, sizeof reply->message);
    if (reply->region[0] == '\0')
        xml_text(body, "Region", reply->region, sizeof reply->region);
    for (char *letter = reply->message; *letter != '\0'; letter++)
        if ((unsigned char)*letter < ' ')
            *letter = ' ';
    if (good)
        reply->status = 500;
}

enum store_outcome store_judge(struct store *store, const struct store_request *request,
                               const struct store_result *result, struct store_reply *reply,
                               struct error *error)
{
    if (result->file_failed) {
        error_set(error, ERROR_FILE, "%s: %s", request->key,
                  request->sink >= 0 ? strerror(result->file_failed)
                                     : "the file cannot be read any more");
        return request->sink >= 0 ? STORE_REFUSED : STORE_LATER;
    }
    if (result->curl != CURLE_OK)
        return judge_network(store, result, error);
    read_error(store, request, reply);
    if (reply->status / 100 == 2)
        return STORE_DONE;
    bool passes = status_passes(reply);
    say_status(store, request, reply, passes, error);
    if (passes)
        return STORE_LATER;
    return reply->status == 404 ? STORE_MISSING : STORE_REFUSED;
}

/* ---- what can be put right at once ---- */

bool store_renew(struct store *store)
{
    struct store_credentials fresh;
    struct error error = {.kind = ERROR_NONE};
    int64_t expires = store->credentials.expires;
    bool told = store->refreshed; /* the store said so */
    if (!told && (expires == 0 || time(NULL) + RENEWAL_SECONDS < expires))
        return false;
    if (!store_credentials_find(&fresh, &error)) {
        log_debug("object store: no new credentials: %s", error.text);
        return false;
    }
    bool other = strcmp(fresh.access_key, store->credentials.access_key) != 0 ||
                 strcmp(fresh.secret_key, store->credentials.secret_key) != 0 ||
                 strcmp(fresh.token, store->credentials.token) != 0;
    store->credentials = fresh;
    return other;
}

bool store_turn(struct store *store, const struct store_reply *reply)
{
    int64_t ahead = reply->date - (int64_t)time(NULL);
    if (reply->region[0] != '\0' && strcmp(reply->region, store->region) != 0 &&
        (reply->status / 100 == 3 || reply->status == 400 || reply->status == 403)) {
        snprintf(store->region, sizeof store->region, "%s", reply->region);
        store_place(store);
        return true;
    }
    if (reply->status == 403 && strcmp(reply->code, "RequestTimeTooSkewed") == 0 &&
        reply->date != 0 && llabs(ahead - store->clock) > CLOCK_TOLERANCE) {
        store->clock = ahead;
        return true;
    }
    if (is_one_of(reply->code, bad_tokens) && !store->refreshed) {
        store->refreshed = true;
        return store_renew(store);
    }
    return false;
}
