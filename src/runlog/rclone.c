// SPDX-License-Identifier: BSD-3-Clause
#include "runlog/rclone.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/child.h"
#include "core/log.h"
#include "core/output_file.h"
#include "core/text.h"

extern char **environ;

enum { WORDS = 40, SETTINGS = 7, LOG_TAIL = 8192, REASON = 512 };
enum { FOLDER_NOT_FOUND = 3, FILE_NOT_FOUND = 4 }; /* exit codes of rclone */

bool rclone_is_remote(const char *path)
{
    return path[strcspn(path, ":/")] == ':';
}

bool rclone_is_file(const char *path)
{
    return text_ends_with(path, ".h5") || text_ends_with(path, ".safetensors");
}

bool rclone_check(const char *path, const char *option, struct error *error)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-. ";
    size_t name = strspn(path, letters);
    /* Connection strings (":sftp,pass=...:") are refused: they may hold a password. */
    bool valid = strncmp(path, "s3://", 5) == 0 ? path[5] != '\0' && path[5] != '/'
                                                : name > 0 && path[0] != '-' && path[name] == ':' &&
                                                      strncmp(path + name, "://", 3) != 0;
    return (valid && strlen(path) < RCLONE_PATH - 512) ||
           error_set(error, ERROR_USAGE,
                     "%s=%s is not a remote path: give s3://BUCKET/PATH, or REMOTE:PATH with a "
                     "remote of `rclone config`",
                     option, path);
}

void rclone_join(const char *remote, const char *name, char path[RCLONE_PATH])
{
    size_t length = strlen(remote);
    bool joined = length > 0 && (remote[length - 1] == '/' || remote[length - 1] == ':');
    snprintf(path, RCLONE_PATH, "%s%s%s", remote, joined ? "" : "/", name);
}

/* ---- the child */

/* The first of two variables that is set. */
static const char *variable(const char *name, const char *other)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : other != NULL ? variable(other, NULL) : NULL;
}

/* The environment of the child; the caller frees the array. It defines the remote `s3` for paths
 * s3://BUCKET/PATH. The backend gets its settings from AWS's variables; variables of rclone
 * (RCLONE_S3_*) take precedence. */
static char **environment_make(char setting[SETTINGS][RCLONE_PATH], bool is_s3)
{
    const char *endpoint = variable("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL");
    const struct {
        const char *name, *value;
    } settings[SETTINGS] = {
        {"RCLONE_CONFIG_S3_TYPE", "s3"},
        {"RCLONE_S3_PROVIDER", endpoint != NULL ? "Other" : "AWS"},
        {"RCLONE_S3_ENV_AUTH", "true"},
        {"RCLONE_S3_NO_CHECK_BUCKET", "true"}, /* never create a bucket */
        {"RCLONE_S3_ENDPOINT", endpoint},
        {"RCLONE_S3_REGION", variable("AWS_REGION", "AWS_DEFAULT_REGION")},
        {"RCLONE_CA_CERT", variable("AWS_CA_BUNDLE", NULL)},
    };
    size_t count = 0, used = 0;
    while (environ[count] != NULL)
        count++;
    char **list = allocate(count + SETTINGS + 1, sizeof *list);
    /* AWS's SDK fails on AWS_CA_BUNDLE inside rclone. */
    for (size_t n = 0; n < count; n++)
        if (!is_s3 || strncmp(environ[n], "AWS_CA_BUNDLE=", 14) != 0)
            list[used++] = environ[n];
    for (int n = 0; n < SETTINGS && is_s3; n++)
        if (settings[n].value != NULL && variable(settings[n].name, NULL) == NULL) {
            snprintf(setting[n], RCLONE_PATH, "%s=%s", settings[n].name, settings[n].value);
            list[used++] = setting[n];
        }
    return list;
}

/* Show the newest statistics ("1.2 GiB / 3 GiB, 40%, 50 MiB/s, ETA 30s"). False: cancelled. */
static bool child_watch(const struct child *child, void *self)
{
    struct rclone *rclone = self;
    const char *newest = NULL;
    for (const char *at = child->log; (at = strstr(at, "NOTICE:")) != NULL;)
        newest = at += strlen("NOTICE:");
    if (newest != NULL && rclone->label != NULL)
        log_progress("%s: %.*s", rclone->label, (int)strcspn(newest, "\n"), newest);
    return !atomic_load(&rclone->cancelled);
}

/* ---- commands */

/* Copy rclone's last message: the last line with a date that is no statistics, and the lines after
 * it. Queries of URLs are left out, since they hold signatures. */
static void reason_find(const char *log, char reason[REASON])
{
    const char *begin = log;
    size_t used = 0;
    bool in_query = false;
    for (const char *line = log; line != NULL; line = strchr(line, '\n')) {
        line += line[0] == '\n';
        if (isdigit((unsigned char)line[0]) && strlen(line) > 20 &&
            strncmp(line + 20, "NOTICE", 6) != 0)
            begin = line + 20; /* "2026/11/26 18:22:18 " */
    }
    for (; *begin != '\0' && used < REASON - 1; begin++) {
        const bool blank = isspace((unsigned char)*begin);
        in_query = !blank && *begin != '"' && (in_query || *begin == '?');
        if (!in_query && !(blank && used > 0 && reason[used - 1] == ' '))
            reason[used++] = blank ? ' ' : *begin;
    }
    while (used > 0 && strchr(" .", reason[used - 1]) != NULL)
        used--;
    reason[used] = '\0';
}

static enum rclone_outcome outcome_find(const struct child *child, struct error *error)
{
    char reason[REASON];
    const int code = WIFEXITED(child->status) ? WEXITSTATUS(child->status) : -1;
    reason_find(child->log, reason);
    if (child->late)
        snprintf(reason, sizeof reason, "no result within %.0f s", child->seconds);
    else if (reason[0] == '\0')
        snprintf(reason, sizeof reason, "failed without a message (exit code %d)", code);
    error_set(error, ERROR_NETWORK, "rclone: %s; see docs/store.md", reason);
    if (code == FOLDER_NOT_FOUND || code == FILE_NOT_FOUND)
        return RCLONE_MISSING;
    /* Go's text for a connection that cannot be opened; the exit code does not show it. */
    return child->late || strstr(reason, "dial ") != NULL ? RCLONE_UNREACHABLE : RCLONE_FAILED;
}

/* Make the words of a command with the flags of all commands. Return true if a path is of S3. */
static bool words_make(const struct rclone *rclone, const char *const *words,
                       const char *all[WORDS], char limit[32])
{
    static const char *const flags[] = {"--log-file=",
                                        "--ask-password=false",
                                        "--local-no-check-updated", /* files may grow meanwhile */
                                        "--stats=1s",
                                        "--stats-one-line",
                                        "--stats-log-level=NOTICE",
                                        "--contimeout=10s",
                                        "--timeout=30s",
                                        "--retries=2",
                                        "--retries-sleep=1s",
                                        "--low-level-retries=4"};
    bool is_s3 = false;
    int count = 0;
    all[count++] = "rclone";
    for (int n = 0; words[n] != NULL; n++) {
        ENSURE(n < WORDS - 14, "too many words for rclone");
        is_s3 = is_s3 || strncmp(words[n], "s3://", 5) == 0;
        all[count++] = words[n];
    }
    for (size_t n = 0; n < sizeof flags / sizeof flags[0]; n++)
        all[count++] = flags[n];
    snprintf(limit, 32, "--bwlimit=%" PRId64 "B", rclone->rate);
    all[count++] = rclone->rate > 0 ? limit : NULL;
    all[count] = NULL;
    return is_s3;
}

enum rclone_outcome rclone_run(struct rclone *rclone, const char *const *words, char *output,
                               size_t size, struct error *error)
{
    const char *all[WORDS];
    char limit[32], setting[SETTINGS][RCLONE_PATH], log[LOG_TAIL];
    char **environment = environment_make(setting, words_make(rclone, words, all, limit));
    struct child child = {.words = all,
                          .environment = environment,
                          .output = output,
                          .output_size = size,
                          .log = log,
                          .log_size = sizeof log,
                          .seconds = rclone->seconds,
                          .wanted = child_watch,
                          .self = rclone};
    const int failure = child_run(&child);
    free(environment);
    if (rclone->label != NULL)
        log_progress_end();
    if (failure != 0)
        error_set(error, ERROR_NETWORK,
                  "cannot start rclone: %s; install it (Debian package rclone, or rclone.org)",
                  strerror(failure));
    else if (atomic_load(&rclone->cancelled))
        return RCLONE_CANCELLED;
    else if (child.status != 0)
        return outcome_find(&child, error);
    else if (!child.truncated)
        return RCLONE_DONE;
    else
        error_set(error, ERROR_NETWORK,
                  "rclone: the output is too long; use a folder with fewer files");
    return RCLONE_FAILED;
}

bool rclone_version(char version[64], struct error *error)
{
    struct rclone rclone = {.seconds = 8};
    char output[4096];
    if (rclone_run(&rclone, (const char *[]){"version", NULL}, output, sizeof output, error) !=
        RCLONE_DONE)
        return false;
    snprintf(version, 64, "%.*s", (int)strcspn(output, "\n"), output);
    return true;
}

enum rclone_outcome rclone_get(struct rclone *rclone, const char *remote, const char *path,
                               struct error *error)
{
    output_file_remove_link(path);
    const enum rclone_outcome outcome =
        rclone_run(rclone, (const char *[]){"copyto", remote, path, NULL}, NULL, 0, error);
    if (outcome != RCLONE_DONE || access(path, F_OK) == 0)
        return outcome;
    error_set(error, ERROR_NETWORK, "cannot get %s: no such file; check the path", remote);
    return RCLONE_MISSING; /* rclone takes a missing object for an empty folder */
}
