// SPDX-License-Identifier: BSD-3-Clause
/* Downloads: to FILE.part, resumed after interruptions, verified, then renamed. */
#ifndef VITTRAIN_TOOLS_FETCH_DOWNLOAD_H
#define VITTRAIN_TOOLS_FETCH_DOWNLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"

enum { FETCH_URL = 2048, CHECKSUM_TEXT = 65 /* SHA-256 in hexadecimal and a zero */ };

/* Compute the hash of a file with the algorithm "sha256" or "md5" as hexadecimal text. ERROR_FILE:
 * the file cannot be read. */
MUST_CHECK bool checksum_file(const char *path, const char *algorithm, char text[CHECKSUM_TEXT],
                              struct error *error);

/* True if the file has these hashes; NULL means not checked. False without an error: a hash
 * differs, and `found` is the file's. */
MUST_CHECK bool checksum_matches(const char *path, const char *sha256, const char *md5,
                                 char found[CHECKSUM_TEXT], struct error *error);

/* Append the file's name to a URL that ends in '/'. */
void fetch_complete_url(const char *url, const char *name, char complete[FETCH_URL]);

/* Download url to path; create the folders above it. sha256, md5: hexadecimal, or NULL for no check
 * except the hash that the server may send. Returns at once if the file exists with these hashes.
 * An interrupted download, of this call or an earlier one, is resumed. Retries; shows progress.
 * Errors: ERROR_NETWORK, ERROR_FILE. */
MUST_CHECK bool fetch_file(const char *url, const char *path, const char *sha256, const char *md5,
                           struct error *error);

/* A data set in a .tar.gz. */
struct fetch_member {
    const char *name;
    int64_t bytes;
    const char *sha256;
};

struct fetch_archive {
    const char *url, *md5;             /* the official archive */
    const char *folder;                /* folder of the files, below the given directory */
    const struct fetch_member *member; /* the files that are extracted; others are ignored */
    int member_count;
};

/* Download the archive from its official URL, or from `url` if not NULL, and extract it into
 * `directory`. A mirror's archive may be packed differently, so only the hashes of its files are
 * checked. Returns at once if all files exist with their hashes. */
MUST_CHECK bool fetch_archive(const struct fetch_archive *archive, const char *url,
                              const char *directory, struct error *error);

/* Download weights of a registry model to directory/NAME.safetensors, from `url` or, if NULL, from
 * the official URL. A model without published weights: ERROR_USAGE. */
MUST_CHECK bool fetch_weights(const char *model, const char *url, const char *directory,
                              struct error *error);

#endif
