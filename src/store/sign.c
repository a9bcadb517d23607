/* The canonical form of a request, its hash, and the signature by a key made for day, region and
 * service. */
#include "store/sign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "core/error.h"

enum { CANONICAL = 32768, PAIRS = 32, ENCODED = 8192, SHA256_BYTES = 32 };

/* ---- encoding ---- */

bool store_encode(const char *text, bool keeps_slashes, char *encoded, size_t size)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~";
    size_t used = 0;
    for (; *text != '\0'; text++) {
        bool stays = strchr(plain, *text) != NULL || (keeps_slashes && *text == '/');
        if (used + (stays ? 1 : 3) >= size)
            return false;
        used += (size_t)snprintf(encoded + used, size - used, stays ? "%c" : "%%%02X",
                                 (unsigned)(unsigned char)*text);
    }
    encoded[used] = '\0';
    return used < size;
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* "NAME=VALUE" of each, sorted: no encoded name holds a '=', and none of its letters sorts before
 * it but digits, '-', '.' and '%', so a name that another one begins with is put first by hand. */
static int compare_pairs(const void *a, const void *b)
{
    char *const *left = a, *const *right = b;
    size_t left_name = strcspn(*left, "="), right_name = strcspn(*right, "=");
    size_t shorter = left_name < right_name ? left_name : right_name;
    int order = strncmp(*left, *right, shorter);
    if (order != 0)
        return order;
    if (left_name != right_name)
        return left_name < right_name ? -1 : 1;
    return compare_text(a, b);
}

bool store_encode_query(const struct store_pair *query, int count, char *text, size_t size)
{
    char *encoded = malloc((size_t)ENCODED), *begin[PAIRS];
    size_t used = 0, length = 0;
    ENSURE(encoded != NULL, "no memory for a query");
    bool good = count <= PAIRS;
    for (int n = 0; n < count && good; n++) {
        begin[n] = encoded + used;
        good = store_encode(query[n].name, false, encoded + used, ENCODED - used);
        used += good ? strlen(encoded + used) : 0;
        good = good && used + 2 < ENCODED;
        if (good)
            encoded[used++] = '=';
        good = good && store_encode(query[n].value, false, encoded + used, ENCODED - used);
        used += good ? strlen(encoded + used) + 1 : 0;
    }
    if (good && count > 0)
        qsort(begin, (size_t)count, sizeof *begin, compare_pairs);
    text[0] = '\0';
    for (int n = 0; n < count && good; n++) {
        length +=
            (size_t)snprintf(text + length, size - length, "%s%s", n > 0 ? "&" : "", begin[n]);
        good = length < size;
    }
    free(encoded);
    return good;
}

/* ---- hashes ---- */

static void to_hexadecimal(const unsigned char *bytes, char text[STORE_SHA256])
{
    for (int i = 0; i < SHA256_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

void store_sha256(const void *data, size_t bytes, char text[STORE_SHA256])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    ENSURE(EVP_Digest(data, bytes, digest, NULL, EVP_sha256(), NULL) == 1,
           "libcrypto has no SHA-256");
    to_hexadecimal(digest, text);
}

static void keyed_hash(const void *key, size_t key_bytes, const char *text,
                       unsigned char digest[SHA256_BYTES])
{
    unsigned char result[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    ENSURE(HMAC(EVP_sha256(), key, (int)key_bytes, (const unsigned char *)text, strlen(text),
                result, &length) != NULL &&
               length == SHA256_BYTES,
           "libcrypto has no HMAC of SHA-256");
    memcpy(digest, result, SHA256_BYTES);
}

/* ---- the canonical request ---- */

struct canonical {
    char text[CANONICAL];
    size_t used;
    bool full;
};

static void put(struct canonical *canonical, const char *text, size_t length)
{
    canonical->full = canonical->full || canonical->used + length >= CANONICAL;
    if (canonical->full)
        return;
    memcpy(canonical->text + canonical->used, text, length);
    canonical->used += length;
    canonical->text[canonical->used] = '\0';
}

static void put_text(struct canonical *canonical, const char *text)
{
    put(canonical, text, strlen(text));
}

/* Without blanks around it, and one for each stretch of them within. */
static void put_value(struct canonical *canonical, const char *value)
{
    bool begun = false;
    while (*value != '\0') {
        size_t blanks = strspn(value, " \t");
        value += blanks;
        size_t letters = strcspn(value, " \t");
        if (letters > 0 && blanks > 0 && begun)
            put(canonical, " ", 1);
        put(canonical, value, letters);
        begun = begun || letters > 0;
        value += letters;
    }
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct store_pair *)a)->name, ((const struct store_pair *)b)->name);
}

static void put_request(struct canonical *canonical, const struct store_signing *signing,
                        const struct store_pair *header, const char *query, const char *names)
{
    put_text(canonical, signing->method);
    put_text(canonical, "\n");
    put_text(canonical, signing->path);
    put_text(canonical, "\n");
    put_text(canonical, query);
    put_text(canonical, "\n");
    for (int n = 0; n < signing->header_count; n++) {
        put_text(canonical, header[n].name);
        put_text(canonical, ":");
        put_value(canonical, header[n].value);
        put_text(canonical, "\n");
    }
    put_text(canonical, "\n");
    put_text(canonical, names);
    put_text(canonical, "\n");
    put_text(canonical, signing->payload_sha256);
}

/* The hash of the canonical request, and the names of the headers that it signs. */
static bool request_hash(const struct store_signing *signing, char *names, size_t size,
                         char hash[STORE_SHA256])
{
    struct store_pair header[PAIRS];
    size_t used = 0;
    if (signing->header_count > PAIRS)
        return false;
    memcpy(header, signing->header, (size_t)signing->header_count * sizeof *header);
    qsort(header, (size_t)signing->header_count, sizeof *header, compare_names);
    for (int n = 0; n < signing->header_count && used < size; n++)
        used +=
            (size_t)snprintf(names + used, size - used, "%s%s", n > 0 ? ";" : "", header[n].name);
    struct canonical *canonical = calloc(1, sizeof *canonical);
    char *query = malloc(ENCODED);
    ENSURE(canonical != NULL && query != NULL, "no memory for a signature");
    bool good =
        used < size && store_encode_query(signing->query, signing->query_count, query, ENCODED);
    if (good)
        put_request(canonical, signing, header, query, names);
    good = good && !canonical->full;
    if (good)
        store_sha256(canonical->text, canonical->used, hash);
    free(query);
    free(canonical);
    return good;
}

bool store_sign(const struct store_signing *signing, char authorization[STORE_AUTHORIZATION])
{
    char names[512], hash[STORE_SHA256], scope[256], text[512], seed[512];
    unsigned char key[SHA256_BYTES];
    if (!request_hash(signing, names, sizeof names, hash))
        return false;
    int scoped = snprintf(scope, sizeof scope, "%.8s/%s/%s/aws4_request", signing->date,
                          signing->region, signing->service);
    int stated =
        snprintf(text, sizeof text, "AWS4-HMAC-SHA256\n%s\n%s\n%s", signing->date, scope, hash);
    int seeded = snprintf(seed, sizeof seed, "AWS4%s", signing->secret_key);
    if (scoped >= (int)sizeof scope || stated >= (int)sizeof text || seeded >= (int)sizeof seed)
        return false;
    char day[9];
    snprintf(day, sizeof day, "%.8s", signing->date);
    keyed_hash(seed, strlen(seed), day, key);
    keyed_hash(key, sizeof key, signing->region, key);
    keyed_hash(key, sizeof key, signing->service, key);
    keyed_hash(key, sizeof key, "aws4_request", key);
    keyed_hash(key, sizeof key, text, key);
    to_hexadecimal(key, hash);
    return snprintf(authorization, STORE_AUTHORIZATION,
                    "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s",
                    signing->access_key, scope, names, hash) < STORE_AUTHORIZATION;
}
