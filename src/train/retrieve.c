/* From the store into the run's folder. The others wait for rank 0 as long as that takes. */
#include "train/retrieve.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/options.h"
#include "core/durable.h"
#include "core/folder.h"
#include "core/log.h"
#include "core/text.h"
#include "store/download.h"

/* Rank 0's, while it retrieves. */
struct source {
    struct trainer *trainer;
    struct store *store;
    struct store_url url;
};

bool retrieve_is_object(const char *url)
{
    return text_ends_with(url, ".h5") || text_ends_with(url, ".safetensors");
}

static bool source_open(struct source *source, struct trainer *trainer, const char *url,
                        const char *option, struct error *error)
{
    *source = (struct source){.trainer = trainer};
    if (!store_url_read(url, option, &source->url, error))
        return false;
    size_t length = strlen(source->url.key);
    while (length > 0 && source->url.key[length - 1] == '/')
        source->url.key[--length] = '\0';
    source->store = store_open(source->url.bucket, error);
    return source->store != NULL;
}

/* A key below the address. */
static void below(const struct source *source, const char *name, char key[STORE_KEY])
{
    snprintf(key, STORE_KEY, "%.768s%s%.255s", source->url.key,
             source->url.key[0] != '\0' ? "/" : "", name);
}

static const char *base_name(const char *key)
{
    const char *slash = strrchr(key, '/');
    return slash != NULL ? slash + 1 : key;
}

/* ---- one object ---- */

/* FOLDER/best.txt holds the name of the best checkpoint: its key. False: there is no such thing. */
static bool follow(const struct source *source, const char *pointer, char key[STORE_KEY])
{
    char name[256];
    struct error ignored = {.kind = ERROR_NONE};
    if (store_get_text(source->store, pointer, name, sizeof name, &ignored) != STORE_DONE)
        return false;
    name[strcspn(name, "\r\n")] = '\0';
    int folder = (int)(base_name(pointer) - pointer);
    return name[0] != '\0' && strchr(name, '/') == NULL &&
           snprintf(key, STORE_KEY, "%.*s%s", folder, pointer, name) < STORE_KEY;
}

static void find_object(const struct source *source, char key[STORE_KEY])
{
    char pointer[STORE_KEY];
    const char *name = base_name(source->url.key);
    snprintf(key, STORE_KEY, "%s", source->url.key);
    if (strcmp(name, "best.h5") == 0 || strcmp(name, "last.h5") == 0) {
        snprintf(pointer, sizeof pointer, "%.*stxt", (int)strlen(key) - 2, key);
        follow(source, pointer, key);
        return;
    }
    if (retrieve_is_object(key))
        return;
    below(source, "checkpoints/best.txt", pointer);
    if (!follow(source, pointer, key))
        below(source, "weights.safetensors", key);
}

static void get_object(struct source *source, char *path, size_t size, struct error *error)
{
    char key[STORE_KEY], folder[OPTION_TEXT + 32];
    find_object(source, key);
    snprintf(folder, sizeof folder, "%s/retrieved", source->trainer->folder.path);
    if (snprintf(path, size, "%s/%s", folder, base_name(key)) >= (int)size)
        error_set(error, ERROR_USAGE, "%s/%s: too long a name", folder, base_name(key));
    else if (folder_make(folder, "choose another run.dir", error))
        store_download(source->store, key, path, error);
}

bool retrieve_object(struct trainer *trainer, const char *url, const char *option, char *path,
                     size_t size, struct error *error)
{
    struct comm *world = trainer->world;
    double timeout = comm_timeout();
    comm_set_timeout(0);
    memset(path, 0, size);
    if (world->rank == 0) {
        struct source source;
        if (source_open(&source, trainer, url, option, error))
            get_object(&source, path, size, error);
        store_close(source.store);
    }
    bool good = comm_agree(world, error);
    comm_broadcast(world, path, (int64_t)size, COMM_BYTE, 0);
    comm_set_timeout(timeout);
    return good;
}

/* ---- the newest checkpoint ---- */

enum { CANDIDATES = 64 };

struct candidates {
    int64_t step[CANDIDATES];
    char key[CANDIDATES][STORE_KEY];
    int count;
    int64_t above; /* only steps above this */
};

static int64_t step_of(const char *name)
{
    long long step = -1;
    int end = 0;
    if (sscanf(base_name(name), "step-%lld.h5%n", &step, &end) == 1 && end > 0 &&
        base_name(name)[end] == '\0')
        return step;
    return -1;
}

/* Kept in the order of their steps, newest first; of too many the oldest are left out. */
static bool take_candidate(const char *key, int64_t bytes, void *user)
{
    (void)bytes;
    struct candidates *candidates = user;
    int64_t step = step_of(key);
    int place = 0;
    while (place < candidates->count && candidates->step[place] > step)
        place++;
    if (step <= candidates->above || place == CANDIDATES)
        return true;
    int last = candidates->count < CANDIDATES ? candidates->count : CANDIDATES - 1;
    for (int n = last; n > place; n--) {
        candidates->step[n] = candidates->step[n - 1];
        memcpy(candidates->key[n], candidates->key[n - 1], STORE_KEY);
    }
    candidates->step[place] = step;
    snprintf(candidates->key[place], STORE_KEY, "%s", key);
    candidates->count = last + 1;
    return true;
}

/* A store that cannot be reached ends a run that has nothing else to go on from: to begin anew
 * would not be what was asked for. */
static void list_candidates(struct source *source, struct candidates *candidates,
                            struct error *error)
{
    static const char *const places[] = {"checkpoints/step-", "step-"};
    struct error trouble = {.kind = ERROR_NONE};
    for (int n = 0; n < 2; n++) {
        char prefix[STORE_KEY];
        below(source, places[n], prefix);
        enum store_outcome outcome =
            store_list(source->store, prefix, take_candidate, candidates, &trouble);
        if (outcome == STORE_DONE)
            continue;
        if (outcome == STORE_LATER && candidates->above >= 0)
            log_warn("%s: going on from the run's own folder", trouble.text);
        else
            error_set(error, trouble.kind, "checkpoint.resume: %s", trouble.text);
        return;
    }
}

/* Collective. Gets one; false: it is no good, and no error if another may be. */
static bool try_candidate(struct source *source, struct trainer *trainer, const char *key,
                          int64_t step, struct error *error)
{
    struct error trouble = {.kind = ERROR_NONE};
    char path[PATH_MAX];
    if (trainer->world->rank == 0) {
        snprintf(path, sizeof path, "%s/%s", trainer->folder.checkpoints, base_name(key));
        enum store_outcome outcome = store_download(source->store, key, path, &trouble);
        if (outcome == STORE_REFUSED)
            *error = trouble;
        else if (outcome != STORE_DONE)
            log_warn("passed over: %s", trouble.text);
    }
    return comm_agree(trainer->world, error) && trainer_find_local(trainer, error) &&
           step_of(trainer->resume_path) >= step;
}

/* ---- the log book ---- */

static bool is_of_log_book(const char *name)
{
    return strchr(name, '/') == NULL && strcmp(name, "deck.ini") != 0 &&
           strcmp(name, "result.json") != 0 && !text_ends_with(name, ".safetensors");
}

/* The log of earlier parts goes in front of this one's, which is open already. */
static void join_logs(const char *earlier, const char *path)
{
    char chunk[4096];
    size_t got;
    struct error ignored = {.kind = ERROR_NONE};
    FILE *to = fopen(earlier, "ae"), *from = fopen(path, "re");
    bool good = to != NULL && from != NULL;
    while (good && (got = fread(chunk, 1, sizeof chunk, from)) > 0)
        good = fwrite(chunk, 1, got, to) == got;
    if (from != NULL)
        fclose(from);
    good = (to == NULL || fclose(to) == 0) && good;
    if (good && rename(earlier, path) == 0)
        error_defer(log_to_file(path, &ignored));
    else
        unlink(earlier);
}

static bool get_log_file(const char *key, int64_t bytes, void *user)
{
    (void)bytes;
    struct source *source = user;
    const char *folder = source->trainer->folder.path;
    size_t prefix = strlen(source->url.key);
    const char *name = key + prefix + (prefix > 0 ? 1 : 0);
    char path[PATH_MAX], part[PATH_MAX + 16];
    struct error trouble = {.kind = ERROR_NONE};
    if (strlen(key) <= prefix || !is_of_log_book(name) ||
        snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return true;
    bool is_log = strcmp(name, "train.log") == 0;
    snprintf(part, sizeof part, "%s%s", path, is_log ? ".earlier" : "");
    if (!is_log && access(path, F_OK) == 0)
        return true;
    if (store_download(source->store, key, part, &trouble) != STORE_DONE)
        log_warn("%s: the run goes on without its rows of before", trouble.text);
    else if (is_log)
        join_logs(part, path);
    return true;
}

/* The listing is another store's business than what is got in between. */
static void get_log_book(struct source *source)
{
    char prefix[STORE_KEY];
    struct error trouble = {.kind = ERROR_NONE};
    struct store *lister = store_open(source->url.bucket, &trouble);
    below(source, "", prefix);
    if (lister == NULL || store_list(lister, prefix, get_log_file, source, &trouble) != STORE_DONE)
        log_warn("%s: the run goes on without its rows of before", trouble.text);
    store_close(lister);
}

/* ---- together ---- */

static bool choose(struct source *source, struct trainer *trainer, struct error *error)
{
    static struct candidates candidates;
    struct comm *world = trainer->world;
    bool held_run = trainer->folder.resuming, good = false;
    if (held_run && !trainer_find_local(trainer, error))
        return false;
    candidates.count = 0;
    candidates.above = step_of(trainer->resume_path);
    if (world->rank == 0)
        list_candidates(source, &candidates, error);
    if (!comm_agree(world, error))
        return false;
    comm_broadcast(world, &candidates, sizeof candidates, COMM_BYTE, 0);
    for (int n = 0; n < candidates.count && !good && error->kind == ERROR_NONE; n++)
        good = try_candidate(source, trainer, candidates.key[n], candidates.step[n], error);
    if (error->kind != ERROR_NONE)
        return false;
    if (good && !held_run && world->rank == 0)
        get_log_book(source);
    comm_agree(world, error); /* the others wait for that */
    if (candidates.count > 0 && trainer->resume_path[0] == '\0')
        return error_set(error, ERROR_CHECKPOINT,
                         "no checkpoint in s3://%s/%s can be gone on with (the lines above say "
                         "why): name one by checkpoint.resume",
                         source->url.bucket, source->url.key);
    if (trainer->resume_path[0] == '\0')
        log_info("nothing to go on from in %s yet: from the start",
                 trainer->options.checkpoint.resume);
    return true;
}

bool retrieve_newest(struct trainer *trainer, const char *url, struct error *error)
{
    struct source source = {.trainer = trainer};
    double timeout = comm_timeout();
    comm_set_timeout(0);
    error_defer(store_url_read(url, "checkpoint.resume", &source.url, error));
    if (trainer->world->rank == 0)
        source_open(&source, trainer, url, "checkpoint.resume", error);
    bool good = comm_agree(trainer->world, error) && choose(&source, trainer, error);
    store_close(source.store);
    comm_set_timeout(timeout);
    return good;
}
