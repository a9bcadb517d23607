/* Objects of a store as files: in ranges, which a download that broke off goes on with, and
 * compared with the sums that the store has. */
#ifndef VITTRAIN_STORE_DOWNLOAD_H
#define VITTRAIN_STORE_DOWNLOAD_H

#include "store/object.h"

/* Gets an object into PATH by way of PATH.part; the folder must be there. Does nothing where PATH
 * is that object already. Sums that are compared: the CRC32C that uploads of ours keep with an
 * object, else the store's CRC32C or SHA-256 of the whole, else an ETag that is an MD5; an object
 * without any of them is only compared in size. One whose sum is wrong is got once more. */
enum store_outcome store_download(struct store *store, const char *key, const char *path,
                                  struct error *error);

#endif
