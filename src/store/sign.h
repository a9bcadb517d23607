/* AWS's Signature Version 4, by which object stores know who asks: a keyed hash over all that a
 * request says. libcurl has it, too, but signs the query as it stands (unsorted), leaves out the
 * payload's hash in the versions that are installed, and knows nothing of what a retry needs.
 * Source: "Authenticating Requests (AWS Signature Version 4)" of the Amazon S3 API Reference. */
#ifndef VITTRAIN_STORE_SIGN_H
#define VITTRAIN_STORE_SIGN_H

#include <stdbool.h>
#include <stddef.h>

enum { STORE_SHA256 = 65, STORE_DATE = 17, STORE_AUTHORIZATION = 1536 };

struct store_pair {
    const char *name, *value;
};

struct store_signing {
    const char *method;
    const char *path;               /* as in the URL: encoded once, from the first slash */
    const struct store_pair *query; /* as meant, not encoded, in any order */
    int query_count;
    const struct store_pair *header; /* all that is signed; names in lower case, in any order */
    int header_count;
    const char *payload_sha256; /* in hexadecimal */
    const char *date;           /* 20130524T000000Z: also the header x-amz-date */
    const char *region, *service;
    const char *access_key, *secret_key;
};

/* Every byte but A-Z a-z 0-9 - _ . ~ (and '/', where it is kept) as %XX. False: it does not fit. */
bool store_encode(const char *text, bool keeps_slashes, char *encoded, size_t size);

/* The query as it is signed and has to stand in the URL: encoded, sorted. False: it does not fit.
 */
bool store_encode_query(const struct store_pair *query, int count, char *text, size_t size);

/* The value of the header Authorization. False: the request is too long. */
bool store_sign(const struct store_signing *signing, char authorization[STORE_AUTHORIZATION]);

/* Of bytes in memory, in hexadecimal. */
void store_sha256(const void *data, size_t bytes, char text[STORE_SHA256]);

#endif
