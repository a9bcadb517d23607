/* Downloads: a file into `.part`, resumed where it broke off, checked, renamed. */
#ifndef VITTRAIN_FETCH_DOWNLOAD_H
#define VITTRAIN_FETCH_DOWNLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"

enum { FETCH_URL = 2048 };

/* A mirror's address: a url that ends in '/' is completed with the file's name. */
void fetch_complete_url(const char *url, const char *name, char complete[FETCH_URL]);

/* Downloads url to path, making the directories above it. sha256 (hex), md5 (hex) or NULL: not
 * checked (but against the sum that the server itself may give). Does nothing when the file is
 * there and whole. A download that broke off, in this call or an earlier one, goes on from where it
 * stands. Retries; shows progress. Errors: ERROR_NETWORK, ERROR_FILE. */
MUST_CHECK bool fetch_file(const char *url, const char *path, const char *sha256, const char *md5,
                           struct error *error);

/* A data set that comes as a .tar.gz. */
struct fetch_member {
    const char *name;
    int64_t bytes;
    const char *sha256;
};

struct fetch_archive {
    const char *url, *md5;             /* the official archive */
    const char *folder;                /* where the files go, below the directory given */
    const struct fetch_member *member; /* the files that are taken out of it, and no others */
    int member_count;
};

/* Gets the archive from its official home, or from `url` when that is not NULL (a mirror may have
 * packed it otherwise, so there only the files' own sums count), and unpacks it into `directory`.
 * Does nothing when all files are there and whole. */
MUST_CHECK bool fetch_archive(const struct fetch_archive *archive, const char *url,
                              const char *directory, struct error *error);

/* CIFAR-10's binary files into `directory` (a `cifar-10-batches-bin` below it), from `url` or the
 * official home when NULL; archive and every file are checked against the published sums. */
MUST_CHECK bool fetch_cifar10(const char *url, const char *directory, struct error *error);

/* Weights of a registry model as safetensors: directory/NAME.safetensors. `url` NULL: its home. A
 * model without published weights:
 * ERROR_USAGE. */
MUST_CHECK bool fetch_weights(const char *model, const char *url, const char *directory,
                              struct error *error);

#endif
