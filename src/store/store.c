/* Where an object store is and who we are to it. */
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <curl/curl.h>

#include "core/text.h"
#include "store/object.h"

enum { TRIES = 6, CHECK_TRIES = 2, PATIENCE = 30, CHECK_PATIENCE = 5 };

static const char scheme_text[] = "s3://";

/* ---- addresses ---- */

bool store_is_url(const char *text)
{
    return strncmp(text, scheme_text, strlen(scheme_text)) == 0;
}

bool store_url_read(const char *text, const char *option, struct store_url *url,
                    struct error *error)
{
    const char *bucket = text + strlen(scheme_text);
    size_t length = store_is_url(text) ? strcspn(bucket, "/") : 0;
    const char *key = length > 0 && bucket[length] == '/' ? bucket + length + 1 : "";
    if (length < 3 || length >= STORE_BUCKET || strlen(key) >= STORE_KEY - 256 ||
        strspn(bucket, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") !=
            length)
        return error_set(error, ERROR_USAGE,
                         "%s=%s: give s3://BUCKET/PREFIX, the bucket's name of 3 or more letters, "
                         "digits, dots and hyphens",
                         option, text);
    snprintf(url->bucket, sizeof url->bucket, "%.*s", (int)length, bucket);
    snprintf(url->key, sizeof url->key, "%s", key);
    return true;
}

/* ---- opening ---- */

static void find_region(struct store *store)
{
    const char *region = store_environment("AWS_REGION");
    if (region == NULL)
        region = store_environment("AWS_DEFAULT_REGION");
    if (region != NULL)
        snprintf(store->region, sizeof store->region, "%s", region);
    else if (!store_profile_value("region", store->region, sizeof store->region))
        snprintf(store->region, sizeof store->region, "us-east-1");
}

/* "https://HOST[:PORT][/PATH]" in its parts. A port that goes without saying is left out, as in the
 * header Host that is signed. */
static bool take_endpoint(struct store *store, const char *endpoint, struct error *error)
{
    const char *host = strstr(endpoint, "://");
    size_t scheme = host != NULL ? (size_t)(host - endpoint) : 0;
    bool secure = scheme == 5 && strncmp(endpoint, "https", 5) == 0;
    if (!secure && !(scheme == 4 && strncmp(endpoint, "http", 4) == 0))
        return error_set(error, ERROR_USAGE,
                         "the object store's endpoint (AWS_ENDPOINT_URL) is %s: give "
                         "http://HOST:PORT or https://HOST",
                         endpoint);
    host += 3;
    size_t length = strcspn(host, "/");
    snprintf(store->scheme, sizeof store->scheme, "%s", secure ? "https" : "http");
    int fits = snprintf(store->authority, sizeof store->authority, "%.*s", (int)length, host);
    const char *port = secure ? ":443" : ":80";
    if (text_ends_with(store->authority, port))
        store->authority[strlen(store->authority) - strlen(port)] = '\0';
    int base = snprintf(store->base, sizeof store->base, "%s", host + length);
    while (base > 0 && base < (int)sizeof store->base && store->base[base - 1] == '/')
        store->base[--base] = '\0';
    return (fits > 0 && fits < (int)sizeof store->authority && base < (int)sizeof store->base) ||
           error_set(error, ERROR_USAGE, "the object store's endpoint %s is too long or no host",
                     endpoint);
}

/* Amazon's certificates are for one name below the region's: buckets with a dot stand in the path.
 */
void store_place(struct store *store)
{
    bool china = strncmp(store->region, "cn-", 3) == 0;
    if (!store->amazon)
        return;
    snprintf(store->scheme, sizeof store->scheme, "https");
    snprintf(store->authority, sizeof store->authority, "s3.%s.amazonaws.com%s", store->region,
             china ? ".cn" : "");
    store->path_style = strchr(store->bucket, '.') != NULL;
}

static bool find_endpoint(struct store *store, struct error *error)
{
    char value[512] = "", style[16] = "";
    const char *endpoint = store_environment("AWS_ENDPOINT_URL_S3");
    if (endpoint == NULL)
        endpoint = store_environment("AWS_ENDPOINT_URL");
    if (endpoint == NULL && store_profile_value("endpoint_url", value, sizeof value))
        endpoint = value;
    store->amazon = endpoint == NULL;
    store_place(store);
    if (store->amazon)
        return true;
    store->path_style = !(store_profile_value("s3.addressing_style", style, sizeof style) &&
                          strcmp(style, "virtual") == 0);
    return take_endpoint(store, endpoint, error);
}

struct store *store_open(const char *bucket, struct error *error)
{
    pthread_condattr_t attributes;
    struct store *store = calloc(1, sizeof *store);
    ENSURE(store != NULL, "no memory for an object store");
    snprintf(store->bucket, sizeof store->bucket, "%s", bucket);
    store->tries = TRIES;
    store->patience = PATIENCE;
    store->jitter = (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
    atomic_init(&store->cancelled, false);
    pthread_mutex_init(&store->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&store->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    store->curl = curl_easy_init();
    ENSURE(store->curl != NULL, "libcurl cannot be started");
    find_region(store);
    if (find_endpoint(store, error) && store_credentials_find(&store->credentials, error))
        return store;
    store_close(store);
    return NULL;
}

void store_close(struct store *store)
{
    if (store == NULL)
        return;
    curl_easy_cleanup(store->curl);
    curl_global_cleanup();
    pthread_cond_destroy(&store->wake);
    pthread_mutex_destroy(&store->mutex);
    free(store->text);
    free(store);
}

void store_describe(const struct store *store, char *text, size_t size)
{
    snprintf(text, size, "%s://%s%s", store->scheme, store->authority, store->base);
}

void store_cancel(struct store *store)
{
    pthread_mutex_lock(&store->mutex);
    atomic_store(&store->cancelled, true);
    pthread_cond_broadcast(&store->wake);
    pthread_mutex_unlock(&store->mutex);
}

enum store_outcome store_check(struct store *store, const char *key, struct error *error)
{
    char id[STORE_UPLOAD_ID];
    store->tries = CHECK_TRIES;
    store->patience = CHECK_PATIENCE;
    enum store_outcome outcome = store_upload_begin(store, key, NULL, id, error);
    if (outcome == STORE_DONE)
        store_upload_abort(store, key, id);
    store->tries = TRIES;
    store->patience = PATIENCE;
    return outcome;
}
