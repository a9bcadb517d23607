/* An object store that speaks S3 (Amazon's, MinIO, Ceph, Swift, ...): where it is, who we are to
 * it, and one connection. One thread at a time uses a store; store_cancel alone may come from
 * another. What is asked of it: request.h, object.h; files: upload.h, download.h. */
#ifndef VITTRAIN_STORE_STORE_H
#define VITTRAIN_STORE_STORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"
#include "store/credentials.h"

enum { STORE_BUCKET = 256, STORE_KEY = 1025, STORE_URL = STORE_BUCKET + STORE_KEY + 8 };

/* s3://bucket/key; the key may be empty, or end with a slash. */
struct store_url {
    char bucket[STORE_BUCKET], key[STORE_KEY];
};

/* Does a name lead to an object store? It begins with s3://. */
bool store_is_url(const char *text);

/* ERROR_USAGE: no such address; `option` names what was set so. */
MUST_CHECK bool store_url_read(const char *text, const char *option, struct store_url *url,
                               struct error *error);

/* What came of a request, after all tries. */
enum store_outcome {
    STORE_DONE,
    STORE_MISSING,  /* there is no such object, upload or bucket */
    STORE_LATER,    /* the network or the store is down or busy: the same may work later */
    STORE_REFUSED,  /* no use in trying again as it is */
    STORE_CANCELLED /* by store_cancel */
};

/* The fields are those of this room. */
struct store {
    char bucket[STORE_BUCKET], region[64];
    char scheme[8], authority[300], base[256]; /* of the endpoint; base: its path, no last slash */
    bool amazon;                               /* no endpoint was given */
    bool path_style;                           /* the bucket is in the path, not in the host */
    struct store_credentials credentials;
    int tries;      /* of a request */
    int patience;   /* seconds without a byte, after which a try has failed */
    int64_t rate;   /* bytes a second that may be sent; 0: no limit */
    int64_t clock;  /* seconds by which the store's clock is ahead of ours */
    bool confirms;  /* it tells CRC32C sums of what it has taken */
    bool refreshed; /* credentials, within this request */
    uint64_t jitter;
    void *curl;
    char *text; /* the newest reply's */
    size_t text_bytes, text_room;
    atomic_bool cancelled;
    pthread_mutex_t mutex;
    pthread_cond_t wake; /* of `cancelled` */
};

/* Finds credentials, region (AWS_REGION, AWS_DEFAULT_REGION, the profile's) and endpoint
 * (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's endpoint_url; else Amazon's of the region).
 * Buckets stand in the path at endpoints that were given, unless the profile says
 * s3.addressing_style = virtual. Asks nothing of the store. NULL: ERROR_NETWORK, ERROR_USAGE. */
struct store *store_open(const char *bucket, struct error *error);

/* NULL is allowed. */
void store_close(struct store *store);

/* "http://127.0.0.1:9000", for messages. */
void store_describe(const struct store *store, char *text, size_t size);

/* From any thread: what is under way ends soon, what comes is not begun. */
void store_cancel(struct store *store);

/* Do bucket and credentials let us write below this key? Begins an upload and gives it up: two
 * small requests, a few seconds at most. */
enum store_outcome store_check(struct store *store, const char *key, struct error *error);

#endif
