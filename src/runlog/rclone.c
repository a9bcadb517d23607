// SPDX-License-Identifier: BSD-3-Clause
/* Starts rclone with posix_spawn and reads its output until it ends. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pipe2 */
#endif
#include "runlog/rclone.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/output_file.h"
#include "core/text.h"

extern char **environ;

enum { WORDS = 40, OPERANDS = 6, SETTINGS = 6, LOG_TAIL = 8192, REASON = 512, PIPE_MOST = 65536 };
enum { VERSION_MAJOR = 1, VERSION_MINOR = 53 }; /* the oldest version with all flags used below */
static const double kill_seconds = 3, progress_seconds = 10;

/* ---- paths */

bool rclone_is_remote(const char *path)
{
    size_t name = strcspn(path, ":/");
    return path[name] == ':';
}

bool rclone_is_file(const char *path)
{
    return text_ends_with(path, ".h5") || text_ends_with(path, ".safetensors");
}

bool rclone_check(const char *path, const char *option, struct error *error)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-. ";
    char version[RCLONE_VERSION];
    size_t name = strspn(path, letters);
    bool is_s3 = strncmp(path, "s3://", 5) == 0;
    /* Connection strings (":sftp,pass=...:") are refused: they may hold a password. */
    bool valid = is_s3 ? path[5] != '\0' && path[5] != '/'
                       : name > 0 && path[0] != '-' && path[name] == ':' &&
                             strncmp(path + name, "://", 3) != 0;
    if (!valid)
        return error_set(error, ERROR_USAGE,
                         "%s=%s is not a remote path: give s3://BUCKET/PATH, or REMOTE:PATH with a "
                         "remote of `rclone config`",
                         option, path);
    if (strlen(path) > RCLONE_PATH - 512)
        return error_set(error, ERROR_USAGE, "%s: the path is too long", option);
    return rclone_version(version, error);
}

void rclone_join(const char *remote, const char *name, char path[RCLONE_PATH])
{
    size_t length = strlen(remote);
    bool joined = length > 0 && (remote[length - 1] == '/' || remote[length - 1] == ':');
    snprintf(path, RCLONE_PATH, "%s%s%s", remote, joined ? "" : "/", name);
}

/* ---- the child */

struct child {
    pid_t pid;
    int log, output;                     /* read ends of its stderr and stdout */
    char setting[SETTINGS][RCLONE_PATH]; /* environment entries */
    char tail[LOG_TAIL];                 /* the end of its stderr */
    size_t tail_used, output_used;
    double progress_at; /* clock: when progress was last logged */
    bool timed_out, overflowed;
};

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* The environment of the child; the caller frees the array. For s3:// paths, rclone's S3 backend
 * gets its settings from AWS's variables; variables of rclone (RCLONE_S3_*) take precedence. */
static char **environment_make(struct child *child, bool is_s3)
{
    const char *endpoint = variable("AWS_ENDPOINT_URL_S3"), *region = variable("AWS_REGION");
    if (endpoint == NULL)
        endpoint = variable("AWS_ENDPOINT_URL");
    if (region == NULL)
        region = variable("AWS_DEFAULT_REGION");
    const struct {
        const char *name, *value;
    } settings[SETTINGS] = {
        {"RCLONE_S3_PROVIDER", endpoint != NULL ? "Other" : "AWS"},
        {"RCLONE_S3_ENV_AUTH", "true"},
        {"RCLONE_S3_NO_CHECK_BUCKET", "true"}, /* never create a bucket */
        {"RCLONE_S3_ENDPOINT", endpoint},
        {"RCLONE_S3_REGION", region},
        {"RCLONE_CA_CERT", variable("AWS_CA_BUNDLE")},
    };
    size_t count = 0, used = 0;
    while (environ[count] != NULL)
        count++;
    char **list = malloc((count + SETTINGS + 1) * sizeof *list);
    ENSURE(list != NULL, "no memory for the environment of rclone");
    /* AWS's SDK fails on AWS_CA_BUNDLE inside rclone. */
    for (size_t n = 0; n < count; n++)
        if (!is_s3 || strncmp(environ[n], "AWS_CA_BUNDLE=", 14) != 0)
            list[used++] = environ[n];
    for (int n = 0; n < SETTINGS && is_s3; n++) {
        if (settings[n].value == NULL || variable(settings[n].name) != NULL)
            continue;
        snprintf(child->setting[n], RCLONE_PATH, "%s=%s", settings[n].name, settings[n].value);
        list[used++] = child->setting[n];
    }
    list[used] = NULL;
    return list;
}

/* Returns 0 or an errno. The child stays in this process group, so that launchers signal it, too.
 */
static int child_start(struct child *child, const char *const *words, bool is_s3, const char *input)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, log[2] = {-1, -1};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(log, O_CLOEXEC) != 0) {
        int failure = errno;
        for (int n = 0; n < 2; n++) {
            close(in[n]);
            close(out[n]);
            close(log[n]);
        }
        return failure;
    }
    size_t length = input != NULL ? strlen(input) : 0;
    int failure = length > PIPE_MOST ? E2BIG : 0; /* a full pipe without a reader blocks */
    if (length > 0 && failure == 0 && write(in[1], input, length) != (ssize_t)length)
        failure = EIO;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, log[1], STDERR_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    char **environment = environment_make(child, is_s3);
    if (failure == 0)
        failure = posix_spawnp(&child->pid, words[0], &files, &attributes, (char *const *)words,
                               environment);
    free(environment);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    close(in[0]);
    close(in[1]);
    close(out[1]);
    close(log[1]);
    child->output = out[0];
    child->log = log[0];
    if (failure != 0) {
        close(child->output);
        close(child->log);
    }
    return failure;
}

/* Logs the newest statistics ("1.2 GiB / 3 GiB, 40%, 50 MiB/s, ETA 30s"). */
static void progress_log(struct child *child, const char *label)
{
    char *end = strstr(child->tail, ", ETA"), *next;
    while (end != NULL && (next = strstr(end + 1, ", ETA")) != NULL)
        end = next;
    if (label == NULL || end == NULL)
        return;
    char *begin = end;
    while (begin > child->tail && begin[-1] != '\n' && strncmp(begin, "NOTICE:", 7) != 0)
        begin--;
    begin += strcspn(begin, ":") + 1;
    begin += strspn(begin, " ");
    log_progress("%s: %.*s", label, (int)(end - begin), begin);
    if (!log_is_terminal() && clock_now() >= child->progress_at + progress_seconds) {
        log_info("%s: %.*s", label, (int)(end - begin), begin);
        child->progress_at = clock_now();
    }
}

/* Reads one of the pipes; false at its end. Of the log, the last part is kept. */
static bool child_read(struct child *child, bool is_log, char *output, size_t size)
{
    char chunk[4096];
    ssize_t length = read(is_log ? child->log : child->output, chunk, sizeof chunk);
    if (length < 0 && errno == EINTR)
        return true;
    if (length <= 0)
        return false;
    if (is_log) {
        if (child->tail_used + (size_t)length >= LOG_TAIL) {
            child->tail_used = LOG_TAIL / 2 - 1;
            memmove(child->tail, child->tail + LOG_TAIL / 2, child->tail_used);
        }
        memcpy(child->tail + child->tail_used, chunk, (size_t)length);
        child->tail_used += (size_t)length;
        child->tail[child->tail_used] = '\0';
    } else if (output != NULL) {
        child->overflowed = child->output_used + (size_t)length >= size;
        if (child->overflowed)
            return true;
        memcpy(output + child->output_used, chunk, (size_t)length);
        child->output_used += (size_t)length;
        output[child->output_used] = '\0';
    }
    return true;
}

/* Reads until the child ends, or ends it: first SIGTERM, by which rclone aborts a multipart upload,
 * then SIGKILL. Returns the status of waitpid. */
static int child_wait(struct child *child, struct rclone *rclone, char *output, size_t size)
{
    const double start = clock_now();
    double stopped = 0;
    struct pollfd ends[2] = {{.fd = child->log, .events = POLLIN},
                             {.fd = child->output, .events = POLLIN}};
    child->progress_at = start;
    while (ends[0].fd >= 0 || ends[1].fd >= 0) {
        poll(ends, 2, 100);
        for (int n = 0; n < 2; n++)
            if (ends[n].revents != 0 && !child_read(child, n == 0, output, size))
                ends[n].fd = -1;
        progress_log(child, rclone->label);
        child->timed_out = rclone->seconds > 0 && clock_now() > start + rclone->seconds;
        bool stop = child->timed_out || child->overflowed || atomic_load(&rclone->cancelled);
        if (stop && stopped == 0) {
            kill(child->pid, SIGTERM);
            stopped = clock_now();
        }
        if (stopped > 0 && clock_now() > stopped + kill_seconds) {
            kill(child->pid, SIGKILL);
            break;
        }
    }
    int status = -1;
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    close(child->log);
    close(child->output);
    if (rclone->label != NULL)
        log_progress_end();
    return status;
}

/* ---- results */

/* Known failures by a part of rclone's message; the first match counts. */
static const struct failure {
    const char *part;
    enum rclone_outcome outcome;
    const char *advice;
} failures[] = {
    {"NoCredentialProviders", RCLONE_REFUSED,
     "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"},
    {"SignatureDoesNotMatch", RCLONE_REFUSED, "check access key and secret key"},
    {"InvalidAccessKeyId", RCLONE_REFUSED, "check access key and secret key"},
    {"ExpiredToken", RCLONE_REFUSED, "renew the credentials"},
    {"AccessDenied", RCLONE_REFUSED, "give these credentials the permissions in docs/store.md"},
    {"status code: 403", RCLONE_REFUSED, "give these credentials the permissions in docs/store.md"},
    {"NoSuchBucket", RCLONE_REFUSED, "create the bucket"},
    {"didn't find section in config", RCLONE_REFUSED,
     "name a remote that `rclone listremotes` prints"},
    {"doesn't exist", RCLONE_MISSING, "check the path"},
    {"not found", RCLONE_MISSING, "check the path"},
    {"status code: 404", RCLONE_MISSING, "check the path"},
    {"RequestError", RCLONE_LATER, "check network and server"},
    {"connection re", RCLONE_LATER, "check network and server"}, /* refused, reset */
    {"no such host", RCLONE_LATER, "check network and server"},
    {"unreachable", RCLONE_LATER, "check network and server"},
    {"imeout", RCLONE_LATER, "check network and server"},
    {"timed out", RCLONE_LATER, "check network and server"},
    {"EOF", RCLONE_LATER, "check network and server"},
    {"broken pipe", RCLONE_LATER, "check network and server"},
    {"corrupted on transfer", RCLONE_LATER, "check network and server"},
    {"status code: 5", RCLONE_LATER, "check network and server"},
    {"Error: 5", RCLONE_LATER, "check network and server"},
    {"SlowDown", RCLONE_LATER, "check network and server"},
    {"Too Many Requests", RCLONE_LATER, "check network and server"},
    {"", RCLONE_REFUSED, "try the same with rclone itself"},
};

/* The cause in rclone's last message, without queries of URLs, which hold signatures. */
static void reason_find(const char *log, char reason[REASON])
{
    static const char *const marks[] = {"Failed to ", "Fatal error: ", "ERROR : "};
    const char *begin = NULL;
    for (size_t n = 0; n < sizeof marks / sizeof marks[0] && begin == NULL; n++)
        for (const char *at = log; (at = strstr(at, marks[n])) != NULL; at++)
            begin = at;
    if (begin == NULL)
        begin = strlen(log) > REASON / 2 ? log + strlen(log) - REASON / 2 : log;
    size_t used = 0;
    bool in_url = false, in_query = false;
    for (; *begin != '\0' && used < REASON - 1; begin++) {
        bool ends = strchr(" \t\n\"<>", *begin) != NULL;
        in_url = !ends && (in_url || strncmp(begin, "://", 3) == 0);
        in_query = !ends && (in_query || (in_url && *begin == '?'));
        if (!in_query && !(strchr(" \t\n", *begin) != NULL && used > 0 && reason[used - 1] == ' '))
            reason[used++] = (char)(strchr("\t\n", *begin) != NULL ? ' ' : *begin);
    }
    while (used > 0 && strchr(" ,:.", reason[used - 1]) != NULL)
        used--;
    reason[used] = '\0';
}

static enum rclone_outcome outcome_find(const struct child *child, int status, double seconds,
                                        struct error *error)
{
    char reason[REASON];
    if (child->overflowed) {
        error_set(error, ERROR_NETWORK,
                  "rclone: the listing is too long; use a folder with fewer files");
        return RCLONE_REFUSED;
    }
    if (child->timed_out) {
        error_set(error, ERROR_NETWORK, "rclone: no result within %.0f s; check network and server",
                  seconds);
        return RCLONE_LATER;
    }
    reason_find(child->tail, reason);
    const struct failure *failure = failures;
    while (strstr(reason, failure->part) == NULL)
        failure++;
    bool exited = WIFEXITED(status), missing = false;
    if (exited)
        missing = WEXITSTATUS(status) == 3 || WEXITSTATUS(status) == 4; /* folder, file not found */
    error_set(error, ERROR_NETWORK, "rclone: %s%s; %s", exited ? "" : "killed by a signal: ",
              reason[0] != '\0' ? reason : "failed without a message",
              missing ? "check the path" : failure->advice);
    return missing ? RCLONE_MISSING : exited ? failure->outcome : RCLONE_LATER;
}

enum rclone_outcome rclone_run(struct rclone *rclone, const char *const *words, const char *input,
                               char *output, size_t size, struct error *error)
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
    const char *all[WORDS] = {"rclone"};
    char rate[64], path[OPERANDS][RCLONE_PATH];
    struct child child = {.pid = -1};
    bool is_s3 = false;
    int count = 1;
    if (output != NULL)
        output[0] = '\0';
    for (int n = 0; words[n] != NULL; n++) {
        ENSURE(n < OPERANDS, "too many words for rclone");
        bool url = strncmp(words[n], "s3://", 5) == 0;
        if (url)
            snprintf(path[n], RCLONE_PATH, ":s3:%s", words[n] + 5);
        all[count++] = url ? path[n] : words[n];
        is_s3 = is_s3 || url;
    }
    for (size_t n = 0; n < sizeof flags / sizeof flags[0]; n++)
        all[count++] = flags[n];
    if (rclone->rate > 0) {
        snprintf(rate, sizeof rate, "--bwlimit=%" PRId64 "B", rclone->rate);
        all[count++] = rate;
    }
    int failure = child_start(&child, all, is_s3, input);
    if (failure != 0) {
        error_set(error, ERROR_NETWORK,
                  "cannot start rclone: %s; install it (Debian package rclone, or rclone.org)",
                  strerror(failure));
        return RCLONE_REFUSED;
    }
    int status = child_wait(&child, rclone, output, size);
    if (atomic_load(&rclone->cancelled))
        return RCLONE_CANCELLED;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && !child.overflowed)
        return RCLONE_DONE;
    return outcome_find(&child, status, rclone->seconds, error);
}

bool rclone_version(char version[RCLONE_VERSION], struct error *error)
{
    struct rclone rclone = {.seconds = 8};
    char output[4096];
    int major = 0, minor = 0;
    if (rclone_run(&rclone, (const char *[]){"version", NULL}, NULL, output, sizeof output,
                   error) != RCLONE_DONE)
        return false;
    bool known = sscanf(output, "rclone v%63[0-9.]", version) == 1 &&
                 sscanf(version, "%d.%d", &major, &minor) == 2;
    if (!known)
        snprintf(version, RCLONE_VERSION, "unknown");
    if (known && (major > VERSION_MAJOR || (major == VERSION_MAJOR && minor >= VERSION_MINOR)))
        return true;
    return error_set(error, ERROR_NETWORK,
                     "rclone is too old: version %s; install %d.%d or newer (rclone.org)", version,
                     VERSION_MAJOR, VERSION_MINOR);
}

enum rclone_outcome rclone_get(struct rclone *rclone, const char *remote, const char *path,
                               struct error *error)
{
    char part[RCLONE_PATH];
    snprintf(part, sizeof part, "%s.part", path);
    output_file_remove_link(path);
    output_file_remove_link(part);
    rename(path, part); /* rclone does not copy what is equal in size and time */
    enum rclone_outcome outcome =
        rclone_run(rclone, (const char *[]){"copyto", remote, part, NULL}, NULL, NULL, 0, error);
    if (outcome != RCLONE_DONE) {
        if (outcome != RCLONE_CANCELLED)
            unlink(part);
        return outcome;
    }
    if (rename(part, path) == 0)
        return RCLONE_DONE;
    /* rclone takes a missing object for an empty folder. */
    bool missing = errno == ENOENT;
    error_set(error, missing ? ERROR_NETWORK : ERROR_FILE, "cannot get %s: %s; %s", remote,
              missing ? "no such file" : strerror(errno),
              missing ? "check the path" : "make the folder writable");
    return missing ? RCLONE_MISSING : RCLONE_REFUSED;
}
