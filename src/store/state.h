/* What a run's folder knows of its uploads, in FOLDER/.upload.json: those that were begun and not
 * ended, so that the next part of the run (or `vittrain upload`) goes on with them, and the
 * checkpoints that it has sent, so that superseded ones can be removed from the store. One process
 * at a time has it (FOLDER/.upload.lock). */
#ifndef VITTRAIN_STORE_STATE_H
#define VITTRAIN_STORE_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"
#include "store/object.h"

struct store_state;

/* An upload under way, and what it is the upload of. */
struct store_begun {
    char id[STORE_UPLOAD_ID];
    int64_t bytes, part_bytes, modified; /* modified: nanoseconds since 1970 */
    char crc32c[16];
};

/* ERROR_USAGE: another process has it. ERROR_FILE. A file that says nothing sensible is as none. */
struct store_state *store_state_open(const char *folder, struct error *error);
void store_state_close(struct store_state *state);

/* Names of objects are whole: s3://bucket/key. What cannot be saved is said once and forgotten:
 * then a later part sends again what it could have gone on with. */
bool store_state_begun(const struct store_state *state, const char *object,
                       struct store_begun *begun);
void store_state_begin(struct store_state *state, const char *object,
                       const struct store_begun *begun);
void store_state_end(struct store_state *state, const char *object);

/* The first of the uploads under way that begins with `prefix` and is not one of `wanted`. */
bool store_state_stale(const struct store_state *state, const char *prefix,
                       const char *const *wanted, int count, char object[STORE_URL],
                       struct store_begun *begun);

/* Checkpoints that are in the store by us. */
void store_state_add_sent(struct store_state *state, const char *object);
void store_state_remove_sent(struct store_state *state, const char *object);
bool store_state_stale_sent(const struct store_state *state, const char *prefix,
                            const char *const *wanted, int count, char object[STORE_URL]);

#endif
