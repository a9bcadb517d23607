/* Sums of files, in hexadecimal, by libcrypto. */
#ifndef VITTRAIN_DATA_CHECKSUM_H
#define VITTRAIN_DATA_CHECKSUM_H

#include <stdbool.h>

#include "core/error.h"

enum { CHECKSUM_TEXT = 65 }; /* SHA-256 in hexadecimal, and the end */

/* The sum of a file; algorithm "sha256" or "md5". ERROR_FILE when it cannot be read. */
MUST_CHECK bool checksum_file(const char *path, const char *algorithm, char text[CHECKSUM_TEXT],
                              struct error *error);

/* Has the file these sums? NULL: that one does not matter. false without an error: it has not, and
 * `found` holds the sum that differs. */
MUST_CHECK bool checksum_matches(const char *path, const char *sha256, const char *md5,
                                 char found[CHECKSUM_TEXT], struct error *error);

#endif
