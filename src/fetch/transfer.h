/* One try at getting a URL into a file, by libcurl. What to do after a try that did not get there
 * is the caller's business (fetch.c). */
#ifndef VITTRAIN_FETCH_TRANSFER_H
#define VITTRAIN_FETCH_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"
#include "data/checksum.h"

enum transfer_outcome {
    TRANSFER_DONE,    /* all of it is in the file */
    TRANSFER_RESTART, /* what is in the file is of no use: begin again without it */
    TRANSFER_RETRY,   /* broken off, may go on from where it stands */
    TRANSFER_FAILED   /* no use in trying again */
};

enum { TRANSFER_VALIDATOR = 256 };

/* A download into the file `part`. */
struct transfer {
    const char *url;
    const char *part;
    const char *name; /* for progress lines */
    /* The version of the document whose beginning is in the file (ETag or date), as the server told
     * when it was begun; empty: unknown. */
    char validator[TRANSFER_VALIDATOR];
    /* Called when the first bytes of a new document are about to be written, or NULL. */
    bool (*begun)(const struct transfer *transfer, struct error *error);
    /* The sum that the server gives for the document (Hugging Face's X-Linked-ETag), or empty. */
    char sha256[CHECKSUM_TEXT];
    int64_t received; /* bytes that this try brought */
};

/* Appends to the file from its present end (an empty or missing file: from the beginning). `error`
 * is set when the outcome is RETRY or FAILED. */
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
