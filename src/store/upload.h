/* One file into an object store: in one piece, or in parts that an interrupted upload goes on with;
 * compared with what the store has in the end. */
#ifndef VITTRAIN_STORE_UPLOAD_H
#define VITTRAIN_STORE_UPLOAD_H

#include "store/state.h"

/* What a file was when it was sent. */
struct store_identity {
    int64_t bytes, modified, inode; /* modified: nanoseconds since 1970 */
};

struct store_sending {
    struct store *store;
    struct store_state *state;
    bool tells; /* lines of progress */
};

/* Bytes of a part: 16 MiB, or more where 10,000 parts would not do. */
int64_t store_part_bytes(int64_t bytes);

/* "s3://bucket/key". */
void store_object_name(const struct store *store, const char *key, char name[STORE_URL]);

/* Sends the file as it is when it is opened, which it stays for this: a file that is replaced or
 * removed meanwhile is sent as it was; of one that grows the beginning. `sent` gets what it was.
 * Where the store has it already nothing is sent. MISSING: there is no such file (any more). */
enum store_outcome store_upload_file(struct store_sending *sending, const char *path,
                                     const char *key, struct store_identity *sent,
                                     struct error *error);

/* Seconds, bytes and so on of a file that is there; false: it is not, or it is no plain file. */
bool store_identify(const char *path, struct store_identity *identity);

/* The CRC32C of the first `bytes` of a file, in hexadecimal; false: it is shorter, or unreadable.
 */
bool store_file_crc32c(int file, int64_t bytes, char text[16]);

#endif
