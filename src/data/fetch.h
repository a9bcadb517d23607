/* Downloads: a file into `.part`, resumed where it broke off, checked, renamed. */
#ifndef VITTRAIN_DATA_FETCH_H
#define VITTRAIN_DATA_FETCH_H

#include <stdbool.h>

#include "core/error.h"

/* Downloads url to path. sha256 (hex), md5 (hex) or NULL: not checked. Does nothing when the file is
 * there and whole. Retries; shows progress. */
bool fetch_file(const char *url, const char *path, const char *sha256, const char *md5,
                struct error *error);

/* CIFAR-10's binary files into `directory` (a `cifar-10-batches-bin` below it), from `url` or the
 * official home when NULL; archive and every file are checked against the published sums. */
bool fetch_cifar10(const char *url, const char *directory, struct error *error);

/* Weights of a registry model as safetensors: directory/NAME.safetensors. `url` NULL: its home. */
bool fetch_weights(const char *model, const char *url, const char *directory, struct error *error);

#endif
