/* Hashes of files, computed in pieces by libcrypto. */
#include "data/checksum.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <openssl/evp.h>

enum { CHUNK = 1 << 16 };

static bool digest_stream(FILE *file, EVP_MD_CTX *context)
{
    unsigned char chunk[CHUNK];
    size_t got;
    while ((got = fread(chunk, 1, sizeof chunk, file)) > 0)
        if (EVP_DigestUpdate(context, chunk, got) != 1)
            return false;
    return ferror(file) == 0;
}

bool checksum_file(const char *path, const char *algorithm, char text[CHECKSUM_TEXT],
                   struct error *error)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return error_set(error, ERROR_FILE, "%s: %s", path, strerror(errno));
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    bool good = context != NULL &&
                EVP_DigestInit_ex(context, EVP_get_digestbyname(algorithm), NULL) == 1 &&
                digest_stream(file, context) && EVP_DigestFinal_ex(context, digest, &length) == 1;
    EVP_MD_CTX_free(context);
    fclose(file);
    if (!good || 2 * length >= CHECKSUM_TEXT)
        return error_set(error, ERROR_FILE, "%s: cannot compute its %s hash", path, algorithm);
    for (unsigned int i = 0; i < length; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    return true;
}

static bool one_matches(const char *path, const char *algorithm, const char *expected,
                        char found[CHECKSUM_TEXT], struct error *error)
{
    if (expected == NULL)
        return true;
    return checksum_file(path, algorithm, found, error) && strcasecmp(found, expected) == 0;
}

bool checksum_matches(const char *path, const char *sha256, const char *md5,
                      char found[CHECKSUM_TEXT], struct error *error)
{
    return one_matches(path, "sha256", sha256, found, error) &&
           one_matches(path, "md5", md5, found, error);
}
