/* Downloads a file and verifies it. During the download there are FILE.part and FILE.part.from,
 * which has the URL and the version of the partial document; a later call resumes only the same
 * document. */
#include "fetch/download.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/folder.h"
#include "core/log.h"
#include "core/text.h"
#include "data/checksum.h"
#include "data/directory.h"
#include "fetch/transfer.h"

enum { PATH_SIZE = 4096 };
enum { FRUITLESS_TRIES = 5, FIRST_DELAY_MS = 250 }; /* a try that received bytes is not fruitless */
enum { RESTARTS = 3 }; /* limit for servers that interrupt downloads and cannot resume */

struct fetch {
    struct transfer transfer;
    const char *path, *sha256, *md5;
    char part[PATH_SIZE], from[PATH_SIZE];
};

/* Create the folders above a file. */
static bool make_directories(const char *path, struct error *error)
{
    char parent[PATH_SIZE];
    snprintf(parent, sizeof parent, "%s", path);
    char *slash = strrchr(parent, '/');
    if (slash == NULL || slash == parent)
        return true;
    *slash = '\0';
    return folder_make(parent, "choose another fetch.dir", error);
}

static bool write_origin(const struct transfer *transfer, struct error *error)
{
    char from[PATH_SIZE + 8];
    snprintf(from, sizeof from, "%s.from", transfer->part);
    FILE *file = fopen(from, "w");
    if (file == NULL)
        return error_set(error, ERROR_FILE, "%s: %s; set fetch.dir", from, strerror(errno));
    char url[FETCH_URL];
    snprintf(url, sizeof url, "%s", transfer->url);
    text_mask_password(url);
    fprintf(file, "%s\n%s\n", url, transfer->validator);
    if (fclose(file) != 0)
        return error_set(error, ERROR_FILE, "%s: %s; free some space or set fetch.dir", from,
                         strerror(errno));
    return true;
}

static bool read_line(FILE *file, char *line, int size)
{
    if (fgets(line, size, file) == NULL)
        return false;
    line[strcspn(line, "\n")] = '\0';
    return true;
}

/* True if the partial file of an earlier call is of this document. */
static bool read_origin(struct fetch *fetch)
{
    char url[FETCH_URL + 1];
    FILE *file = fopen(fetch->from, "r");
    if (file == NULL)
        return false;
    char wanted[FETCH_URL];
    snprintf(wanted, sizeof wanted, "%s", fetch->transfer.url);
    text_mask_password(wanted);
    bool same = read_line(file, url, sizeof url) && strcmp(url, wanted) == 0 &&
                read_line(file, fetch->transfer.validator, sizeof fetch->transfer.validator);
    fclose(file);
    return same;
}

static void drop_part(struct fetch *fetch)
{
    unlink(fetch->part);
    unlink(fetch->from);
    fetch->transfer.validator[0] = '\0';
}

/* True if the partial file is complete and has the known hashes. */
static bool check_part(struct fetch *fetch, struct error *error)
{
    char found[CHECKSUM_TEXT];
    const char *sha256 = fetch->sha256;
    if (sha256 == NULL && fetch->md5 == NULL && fetch->transfer.sha256[0] != '\0')
        sha256 = fetch->transfer.sha256;
    if (checksum_matches(fetch->part, sha256, fetch->md5, found, error))
        return true;
    return error_set(error, ERROR_NETWORK,
                     "%s: wrong content: its hash is %s, not %s; start again or set fetch.url to "
                     "another address",
                     fetch->transfer.url, found, sha256 != NULL ? sha256 : fetch->md5);
}

static void pause_before_retry(int fruitless)
{
    long milliseconds = (long)FIRST_DELAY_MS << (fruitless > 0 ? fruitless - 1 : 0);
    const struct timespec delay = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&delay, NULL);
}

/* Download the whole document to the partial file; *resumed: it has bytes of an earlier try or
 * call. */
static bool download(struct fetch *fetch, bool *resumed, struct error *error)
{
    int fruitless = 0, restarts = 0;
    for (bool first = true;; first = false) {
        struct stat status;
        bool going_on = stat(fetch->part, &status) == 0 && status.st_size > 0;
        *resumed = *resumed || going_on;
        if (first && going_on)
            log_info("%s: resuming after %lld bytes", fetch->transfer.name,
                     (long long)status.st_size);
        switch (transfer_run(&fetch->transfer, error)) {
        case TRANSFER_DONE:
            return true;
        case TRANSFER_FAILED:
            return false;
        case TRANSFER_RESTART:
            drop_part(fetch);
            if (!going_on || ++restarts > RESTARTS)
                return error_set(error, ERROR_NETWORK,
                                 "%s: the server interrupts the download and cannot resume it; set "
                                 "fetch.url to another address",
                                 fetch->transfer.url);
            *resumed = false;
            continue;
        case TRANSFER_RETRY:
            break;
        }
        fruitless = fetch->transfer.received > 0 ? 0 : fruitless + 1;
        if (fruitless == FRUITLESS_TRIES)
            return false;
        log_debug("%s; trying again", error->text);
        error_clear(error);
        pause_before_retry(fruitless);
    }
}

static bool download_and_check(struct fetch *fetch, struct error *error)
{
    bool resumed = false;
    if (!download(fetch, &resumed, error))
        return false;
    if (check_part(fetch, error))
        return true;
    drop_part(fetch);
    if (!resumed || error->kind != ERROR_NETWORK)
        return false;
    log_warn("%s: the parts do not match, downloading it again", fetch->transfer.name);
    error_clear(error);
    resumed = false;
    if (!download(fetch, &resumed, error))
        return false;
    if (check_part(fetch, error))
        return true;
    drop_part(fetch);
    return false;
}

void fetch_complete_url(const char *url, const char *name, char complete[FETCH_URL])
{
    size_t length = strlen(url);
    bool is_folder = length > 0 && url[length - 1] == '/';
    snprintf(complete, FETCH_URL, "%s%s", url, is_folder ? name : "");
}

/* True if the file exists with its hashes. */
static bool is_whole(const struct fetch *fetch)
{
    char found[CHECKSUM_TEXT];
    struct error unreadable = {0};
    return access(fetch->path, R_OK) == 0 &&
           checksum_matches(fetch->path, fetch->sha256, fetch->md5, found, &unreadable);
}

bool fetch_file(const char *url, const char *path, const char *sha256, const char *md5,
                struct error *error)
{
    const char *slash = strrchr(path, '/');
    struct fetch fetch = {.path = path, .sha256 = sha256, .md5 = md5};
    if (strlen(path) + 16 > sizeof fetch.part || strlen(url) + 1 > FETCH_URL)
        return error_set(error, ERROR_USAGE, "%s to %s: the path is too long", url, path);
    if (is_whole(&fetch)) {
        log_info("%s already exists", path);
        return true;
    }
    snprintf(fetch.part, sizeof fetch.part, "%s.part", path);
    snprintf(fetch.from, sizeof fetch.from, "%s.part.from", path);
    fetch.transfer = (struct transfer){.url = url,
                                       .part = fetch.part,
                                       .name = slash != NULL ? slash + 1 : path,
                                       .begun = write_origin};
    if (!make_directories(path, error))
        return false;
    if (!read_origin(&fetch) && sha256 == NULL && md5 == NULL)
        drop_part(&fetch);
    log_info("downloading %s", url);
    if (!download_and_check(&fetch, error))
        return false;
    if (rename(fetch.part, path) != 0)
        return error_set(error, ERROR_FILE, "cannot rename %s.part: %s", path, strerror(errno));
    unlink(fetch.from);
    return true;
}
