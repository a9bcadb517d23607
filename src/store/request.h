/* One request to an object store, signed, and tried again while that may help: backoff with jitter
 * after 5xx, 429, time-outs and broken connections; at once after the store has told its region or
 * its time, or that credentials are over and there are new ones. */
#ifndef VITTRAIN_STORE_REQUEST_H
#define VITTRAIN_STORE_REQUEST_H

#include <stddef.h>

#include "store/sign.h"
#include "store/store.h"

enum { STORE_PAIRS = 8, STORE_ETAG = 160 };

struct store_request {
    const char *method;
    const char *key;                                           /* NULL: the bucket itself */
    struct store_pair query[STORE_PAIRS], header[STORE_PAIRS]; /* header: names in lower case */
    int query_count, header_count;
    /* What is sent: text, or a stretch of a file, or nothing. */
    const char *text;
    int file; /* -1: no file */
    int64_t offset, bytes;
    /* Where what is got goes: a stretch of a file (bytes, at offset), else store->text. */
    int sink; /* -1: no file */
};

struct store_reply {
    long status;
    char code[64], message[256];        /* of an error */
    char etag[STORE_ETAG];              /* without quotes */
    char crc32c[16], sha256[48];        /* x-amz-checksum-*: base64 */
    char own_crc32c[16];                /* x-amz-meta-crc32c: hexadecimal, by upload.c */
    char region[64];                    /* x-amz-bucket-region */
    char encryption[32];                /* x-amz-server-side-encryption */
    int64_t length;                     /* of the object, or of the range; -1: not told */
    int64_t date;                       /* the store's time, seconds since 1970; 0: not told */
    double retry_after;                 /* seconds; 0: not told */
    char sent_md5[33], sent_crc32c[16]; /* of what was sent from a file: hexadecimal; base64 */
};

/* Sends the request. The reply's text lies in store->text (with a '\0' behind) until the next one.
 * Where the outcome is neither DONE nor CANCELLED the error says what and why. */
enum store_outcome store_ask(struct store *store, const struct store_request *request,
                             struct store_reply *reply, struct error *error);

/* Waits; false: the store was cancelled. */
bool store_pause(struct store *store, double seconds);

/* Seconds to wait before try number n (from 1), with jitter. */
double store_backoff(struct store *store, int n, double least, double most);

/* Credentials once more from the start; store.c. */
bool store_renew(struct store *store);

/* The endpoint of store->region, of Amazon's; store.c. */
void store_place(struct store *store);

#endif
