/* Who we are to an object store, and the settings that come with it: looked for where AWS's own
 * tools look, in their order. */
#ifndef VITTRAIN_STORE_CREDENTIALS_H
#define VITTRAIN_STORE_CREDENTIALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

enum { STORE_KEY_ID = 256, STORE_TOKEN = 4096, STORE_ORIGIN = 512 };

struct store_credentials {
    char access_key[STORE_KEY_ID], secret_key[STORE_KEY_ID];
    char token[STORE_TOKEN];   /* of a session; empty: none */
    int64_t expires;           /* seconds since 1970; 0: they do not, as far as is known */
    char origin[STORE_ORIGIN]; /* where they come from, for messages */
};

/* The first that there are of: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_SESSION_TOKEN) of
 * the environment; the profile (AWS_PROFILE, else default) in the credentials file
 * (AWS_SHARED_CREDENTIALS_FILE, else ~/.aws/credentials), then in the config file (AWS_CONFIG_FILE,
 * else ~/.aws/config); the role of the container (AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or
 * _FULL_URI); the role of the instance, unless AWS_EC2_METADATA_DISABLED=true. ERROR_NETWORK: there
 * are none, or those named are not whole. */
MUST_CHECK bool store_credentials_find(struct store_credentials *credentials, struct error *error);

/* A setting of the profile in the config file ("region"), also of a block in it
 * ("s3.addressing_style"). */
bool store_profile_value(const char *name, char *value, size_t size);

/* Set and not empty? NULL if not. */
const char *store_environment(const char *name);

/* Between the files. From the container's or the instance's role; false without an error: this
 * machine has none. */
MUST_CHECK bool store_role_credentials(struct store_credentials *credentials, struct error *error);

#endif
