/* What we ask of an object store: an operation of S3 each, with tries (request.h). */
#ifndef VITTRAIN_STORE_OBJECT_H
#define VITTRAIN_STORE_OBJECT_H

#include "store/request.h"

enum { STORE_UPLOAD_ID = 1024, STORE_PARTS = 10000 };

/* What a store knows of an object. */
struct store_head {
    int64_t bytes;
    char etag[STORE_ETAG];
    char own_crc32c[16]; /* that store_put or store_upload_begin was given; empty: another's object
                          */
    char crc32c[16], sha256[48]; /* of the whole object, base64, where the store knows them */
    bool md5_etag;               /* the ETag is the object's MD5 */
};

enum store_outcome store_head(struct store *store, const char *key, struct store_head *head,
                              struct error *error);

/* The object's bytes [offset, offset + bytes) to the same place of a file; only of the version that
 * has this ETag (else STORE_MISSING: it was replaced). */
enum store_outcome store_get(struct store *store, const char *key, const char *etag, int file,
                             int64_t offset, int64_t bytes, struct error *error);

/* A small object, as text into the caller's memory; longer ones are cut off. */
enum store_outcome store_get_text(struct store *store, const char *key, char *text, size_t size,
                                  struct error *error);

/* The first `bytes` of a file as an object; crc32c (hexadecimal) is of the same bytes. What the
 * store says it got is compared with what was sent. */
enum store_outcome store_put(struct store *store, const char *key, int file, int64_t bytes,
                             const char *crc32c, struct error *error);
enum store_outcome store_put_text(struct store *store, const char *key, const char *text,
                                  struct error *error);
enum store_outcome store_delete(struct store *store, const char *key, struct error *error);

/* An object in parts, numbered from 1. crc32c of the whole, as above; may be NULL. */
struct store_part {
    char etag[STORE_ETAG];
    char crc32c[16]; /* base64, as the store told it; empty: it did not */
    int64_t bytes;   /* 0: it is not there */
};

enum store_outcome store_upload_begin(struct store *store, const char *key, const char *crc32c,
                                      char id[STORE_UPLOAD_ID], struct error *error);
enum store_outcome store_upload_part(struct store *store, const char *key, const char *id,
                                     int number, int file, int64_t offset, int64_t bytes,
                                     struct store_part *part, struct error *error);
/* The parts that are there: part[number - 1]. */
enum store_outcome store_upload_list(struct store *store, const char *key, const char *id,
                                     struct store_part *part, int count, struct error *error);
/* MISSING: there is no such upload (any more). */
enum store_outcome store_upload_end(struct store *store, const char *key, const char *id,
                                    const struct store_part *part, int count, struct error *error);
/* Gives an upload up; one that is not there is none. */
void store_upload_abort(struct store *store, const char *key, const char *id);

/* Each object whose key begins with `prefix`; in the order of their keys. `seen` false: that was
 * enough. */
typedef bool store_seen(const char *key, int64_t bytes, void *user);
enum store_outcome store_list(struct store *store, const char *prefix, store_seen *seen, void *user,
                              struct error *error);

#endif
