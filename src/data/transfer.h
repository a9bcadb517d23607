/* One try at getting a URL into a file, by libcurl. What to do after a try that did not get there is
 * the caller's business (fetch.c). */
#ifndef VITTRAIN_DATA_TRANSFER_H
#define VITTRAIN_DATA_TRANSFER_H

#include <stdbool.h>
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

/* Appends to the file from its present end (an empty or missing file: from the beginning). `error` is
 * set when the outcome is RETRY or FAILED. */
enum transfer_outcome transfer_run(struct transfer *transfer, struct error *error);

#endif
