/* One try to download a URL with libcurl. The caller (download.c) decides about retries. */
#ifndef VITTRAIN_FETCH_TRANSFER_H
#define VITTRAIN_FETCH_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"
#include "data/checksum.h"

enum transfer_outcome {
    TRANSFER_DONE,    /* the file is complete */
    TRANSFER_RESTART, /* the file is useless: start again without it */
    TRANSFER_RETRY,   /* interrupted; may be resumed */
    TRANSFER_FAILED   /* permanent failure */
};

enum { TRANSFER_VALIDATOR = 256 };

/* A download to the file `part`. */
struct transfer {
    const char *url;
    const char *part;
    const char *name; /* name in progress lines */
    /* The version of the partial document (ETag or date) as the server sent it; empty: unknown. */
    char validator[TRANSFER_VALIDATOR];
    /* Called before the first bytes of a new document are written, or NULL. */
    bool (*begun)(const struct transfer *transfer, struct error *error);
    /* SHA-256 that the server sent (Hugging Face's X-Linked-ETag), or empty. */
    char sha256[CHECKSUM_TEXT];
    int64_t received; /* bytes received in this try */
};

/* Append to the file; a missing or empty file starts the document. `error` is set for RETRY and
 * FAILED. */
enum transfer_outcome transfer_run(struct transfer *transfer, struct error *error);

/* What a transfer of any kind tells of itself: a live line on a terminal, else a line each tenth.
 */
struct transfer_progress {
    const char *name;
    int64_t had;      /* bytes from an earlier try */
    double begin;     /* clock */
    int64_t reported; /* tenths */
};

/* `now` of `total` bytes of this try. */
void transfer_progress_say(struct transfer_progress *progress, int64_t now, int64_t total);

/* The value of a header line of libcurl's if it has this name; quotes kept, blanks around it cut
 * off. false also where it does not fit. */
bool transfer_header_value(const char *line, size_t length, const char *name, char *value,
                           size_t size);

#endif
