/* Credentials from the environment and from the files of AWS's tools. Their lines may be longer
 * than inih reads (a session's token is), and blocks in them are set in, so they are read here. */
#include "store/credentials.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_NAME = 4096, SECTION = 256 };

const char *store_environment(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* ---- files */

static void trim(char **begin)
{
    *begin += strspn(*begin, " \t");
    size_t length = strlen(*begin);
    while (length > 0 && strchr(" \t\r\n", (*begin)[length - 1]) != NULL)
        (*begin)[--length] = '\0';
}

/* "[profile NAME]" of a config file or "[NAME]" is the section NAME. */
static void section_name(char *line, char name[SECTION])
{
    line[strcspn(line, "]")] = '\0';
    char *begin = line + 1;
    trim(&begin);
    if (strncmp(begin, "profile ", 8) == 0) {
        begin += 8;
        trim(&begin);
    }
    snprintf(name, SECTION, "%s", begin);
}

/* "key = value", or, set in, the same in the block of the line before: "block.key". */
static bool line_has(char *line, const char *wanted, char block[SECTION], char *value, size_t size)
{
    char name[2 * SECTION];
    bool set_in = line[0] == ' ' || line[0] == '\t';
    char *equals = strchr(line, '=');
    if (equals == NULL)
        return false;
    *equals = '\0';
    char *key = line, *text = equals + 1;
    trim(&key);
    trim(&text);
    if (!set_in)
        snprintf(block, SECTION, "%s", text[0] == '\0' ? key : "");
    if (set_in)
        snprintf(name, sizeof name, "%s.%.255s", block, key);
    else
        snprintf(name, sizeof name, "%.255s", key);
    return strcmp(name, wanted) == 0 && text[0] != '\0' &&
           snprintf(value, size, "%s", text) < (int)size;
}

static bool file_value(const char *path, const char *section, const char *name, char *value,
                       size_t size)
{
    char current[SECTION] = "", block[SECTION] = "", *line = NULL;
    size_t room = 0;
    bool found = false;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    while (!found && getline(&line, &room, file) >= 0) {
        char *begin = line;
        trim(&begin);
        if (begin[0] == '#' || begin[0] == ';' || begin[0] == '\0')
            continue;
        if (begin[0] == '[')
            section_name(begin, current);
        else if (strcmp(current, section) == 0)
            found = line_has(line, name, block, value, size);
    }
    free(line);
    fclose(file);
    return found;
}

/* A file of AWS's tools: where a variable says, else in the home folder. */
static void file_name(const char *variable, const char *usual, char path[FILE_NAME])
{
    const char *named = store_environment(variable), *home = store_environment("HOME");
    if (named != NULL)
        snprintf(path, FILE_NAME, "%s", named);
    else
        snprintf(path, FILE_NAME, "%s/.aws/%s", home != NULL ? home : "", usual);
}

static const char *profile_name(void)
{
    const char *name = store_environment("AWS_PROFILE");
    if (name == NULL)
        name = store_environment("AWS_DEFAULT_PROFILE");
    return name != NULL ? name : "default";
}

bool store_profile_value(const char *name, char *value, size_t size)
{
    char path[FILE_NAME];
    file_name("AWS_CONFIG_FILE", "config", path);
    return file_value(path, profile_name(), name, value, size);
}

/* ---- the places in their order */

static bool copy_text(char *to, size_t size, const char *from, const char *what,
                      struct error *error)
{
    return snprintf(to, size, "%s", from) < (int)size ||
           error_set(error, ERROR_NETWORK, "%s is longer than any that we know of: check it", what);
}

static bool from_environment(struct store_credentials *credentials, struct error *error)
{
    const char *id = store_environment("AWS_ACCESS_KEY_ID");
    const char *secret = store_environment("AWS_SECRET_ACCESS_KEY");
    const char *token = store_environment("AWS_SESSION_TOKEN");
    if (id == NULL && secret == NULL)
        return false;
    if (id == NULL || secret == NULL)
        return error_set(error, ERROR_NETWORK,
                         "%s is set and %s is not: set both (or neither, and use a profile)",
                         id != NULL ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
                         id != NULL ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID");
    snprintf(credentials->origin, sizeof credentials->origin, "the environment");
    return copy_text(credentials->access_key, sizeof credentials->access_key, id,
                     "AWS_ACCESS_KEY_ID", error) &&
           copy_text(credentials->secret_key, sizeof credentials->secret_key, secret,
                     "AWS_SECRET_ACCESS_KEY", error) &&
           copy_text(credentials->token, sizeof credentials->token, token != NULL ? token : "",
                     "AWS_SESSION_TOKEN", error);
}

static bool from_file(struct store_credentials *credentials, const char *path, struct error *error)
{
    const char *profile = profile_name();
    bool has_id = file_value(path, profile, "aws_access_key_id", credentials->access_key,
                             sizeof credentials->access_key);
    bool has_secret = file_value(path, profile, "aws_secret_access_key", credentials->secret_key,
                                 sizeof credentials->secret_key);
    if (!has_id && !has_secret)
        return false;
    if (!has_id || !has_secret)
        return error_set(error, ERROR_NETWORK, "%s: profile %s has no %s: add it", path, profile,
                         has_id ? "aws_secret_access_key" : "aws_access_key_id");
    if (!file_value(path, profile, "aws_session_token", credentials->token,
                    sizeof credentials->token))
        credentials->token[0] = '\0';
    snprintf(credentials->origin, sizeof credentials->origin, "%s, profile %s", path, profile);
    return true;
}

/* Profiles of other kinds (single sign-on, roles to be taken on, helper programs) are AWS's tools'
 * business: they can be asked for what comes out. */
static void say_missing(struct error *error)
{
    static const char *const others[] = {"role_arn", "sso_session", "sso_start_url",
                                         "credential_process", "web_identity_token_file"};
    char value[FILE_NAME];
    for (size_t n = 0; n < sizeof others / sizeof others[0]; n++)
        if (store_profile_value(others[n], value, sizeof value)) {
            error_set(error, ERROR_NETWORK,
                      "profile %s has %s and no keys of its own: get some by `eval \"$(aws "
                      "configure export-credentials --format env)\"`",
                      profile_name(), others[n]);
            return;
        }
    error_set(error, ERROR_NETWORK,
              "no credentials for the object store: set AWS_ACCESS_KEY_ID and "
              "AWS_SECRET_ACCESS_KEY where rank 0 runs, or AWS_PROFILE, or give the machine a role "
              "(profile %s has none)",
              profile_name());
}

bool store_credentials_find(struct store_credentials *credentials, struct error *error)
{
    char path[FILE_NAME];
    *credentials = (struct store_credentials){.expires = 0};
    if (from_environment(credentials, error) || error->kind != ERROR_NONE)
        return error->kind == ERROR_NONE;
    file_name("AWS_SHARED_CREDENTIALS_FILE", "credentials", path);
    if (from_file(credentials, path, error) || error->kind != ERROR_NONE)
        return error->kind == ERROR_NONE;
    file_name("AWS_CONFIG_FILE", "config", path);
    if (from_file(credentials, path, error) || error->kind != ERROR_NONE)
        return error->kind == ERROR_NONE;
    if (store_role_credentials(credentials, error))
        return true;
    if (error->kind == ERROR_NONE)
        say_missing(error);
    return false;
}
