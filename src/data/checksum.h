/* Hashes of files as hexadecimal text. */
#ifndef VITTRAIN_DATA_CHECKSUM_H
#define VITTRAIN_DATA_CHECKSUM_H

#include <stdbool.h>

#include "core/error.h"

enum { CHECKSUM_TEXT = 65 }; /* SHA-256 and the terminating zero */

/* Compute the hash of a file with the algorithm "sha256" or "md5". ERROR_FILE: the file cannot be
 * read. */
MUST_CHECK bool checksum_file(const char *path, const char *algorithm, char text[CHECKSUM_TEXT],
                              struct error *error);

/* True if the file has these hashes; NULL means not checked. False without an error: a hash
 * differs, and `found` is the file's. */
MUST_CHECK bool checksum_matches(const char *path, const char *sha256, const char *md5,
                                 char found[CHECKSUM_TEXT], struct error *error);

#endif
