/* A pass: look what there is, send what has changed since it was sent, smallest first. */
#include "store/run_upload.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/text.h"

/* Sending a file of the log book takes at most a twentieth of the time. */
enum { REST = 20, LONGEST_NAME = 256, PREFIX = STORE_KEY - LONGEST_NAME - 1 };
enum { LAST, BEST, LINKS };
static const char *const link_names[LINKS] = {"last", "best"};

struct item {
    char name[LONGEST_NAME]; /* below the folder, and below the prefix */
    bool checkpoint, there;  /* there: seen by the newest look */
    struct store_identity now, sent;
    bool was_sent, tried; /* tried: in this pass */
    double due;           /* clock */
};

struct store_run {
    struct store_run_setup setup;
    char folder[STORE_PATH], url[STORE_URL], prefix[PREFIX];
    struct store_sending sending;
    struct item *item;
    int count;
    char target[LINKS][LONGEST_NAME]; /* names of checkpoints that the links lead to; empty: none */
    char told[LINKS][LONGEST_NAME];   /* as they stand in the store, as far as we wrote them */
    bool cannot_remove;
    int files;
    int64_t bytes;
};

/* ---- opening ---- */

/* The folder's own name, where the address ends in a slash (or is a bucket alone). */
static bool complete(struct store_run *run, const struct store_url *url, struct error *error)
{
    size_t length = strlen(url->key);
    bool whole = length > 0 && url->key[length - 1] != '/';
    char *path = realpath(run->folder, NULL);
    if (path == NULL)
        return error_set(error, ERROR_FILE, "%s: %s; name the folder of a run", run->folder,
                         strerror(errno));
    int used = snprintf(run->prefix, sizeof run->prefix, "%s%s", url->key,
                        whole ? "" : strrchr(path, '/') + 1);
    free(path);
    return (used > 0 && used < (int)sizeof run->prefix) ||
           error_set(error, ERROR_USAGE, "%s: too long a name", run->setup.url);
}

struct store_run *store_run_open(const struct store_run_setup *setup, struct error *error)
{
    struct store_url url;
    struct store_run *run = calloc(1, sizeof *run);
    ENSURE(run != NULL, "no memory for uploads");
    run->setup = *setup;
    snprintf(run->folder, sizeof run->folder, "%s", setup->folder);
    if (store_url_read(setup->url, setup->option, &url, error) && complete(run, &url, error)) {
        run->sending.tells = setup->tells;
        run->sending.store = store_open(url.bucket, error);
        if (run->sending.store != NULL) {
            run->sending.store->rate = setup->rate;
            store_object_name(run->sending.store, run->prefix, run->url);
            run->sending.state = store_state_open(run->folder, error);
        }
    }
    if (error->kind == ERROR_NONE)
        return run;
    store_run_close(run);
    return NULL;
}

void store_run_close(struct store_run *run)
{
    if (run == NULL)
        return;
    store_state_close(run->sending.state);
    store_close(run->sending.store);
    free(run->item);
    free(run);
}

const char *store_run_url(const struct store_run *run)
{
    return run->url;
}

const char *store_run_folder(const struct store_run *run)
{
    return run->folder;
}

struct store *store_run_store(const struct store_run *run)
{
    return run->sending.store;
}

static void make_key(const struct store_run *run, const char *name, char key[STORE_KEY])
{
    snprintf(key, STORE_KEY, "%s/%.255s", run->prefix, name);
}

enum store_outcome store_run_check(struct store_run *run, struct error *error)
{
    char key[STORE_KEY];
    make_key(run, ".check", key);
    return store_check(run->sending.store, key, error);
}

/* ---- looking ---- */

static struct item *find_item(struct store_run *run, const char *name)
{
    for (int n = 0; n < run->count; n++)
        if (strcmp(run->item[n].name, name) == 0)
            return &run->item[n];
    struct item *grown = realloc(run->item, (size_t)(run->count + 1) * sizeof *grown);
    ENSURE(grown != NULL, "no memory for the list of a run's files");
    run->item = grown;
    grown[run->count] = (struct item){.there = false};
    snprintf(grown[run->count].name, LONGEST_NAME, "%s", name);
    return &grown[run->count++];
}

static void look_at(struct store_run *run, const char *name, bool checkpoint)
{
    char path[STORE_PATH + LONGEST_NAME];
    struct store_identity identity;
    snprintf(path, sizeof path, "%s/%s", run->folder, name);
    if (strlen(name) >= LONGEST_NAME || !store_identify(path, &identity))
        return;
    struct item *item = find_item(run, name);
    item->now = identity;
    item->there = true;
    item->checkpoint = checkpoint;
}

/* Not of the log book: what is hidden, half written, or the memory of a process that died. */
static bool is_left_out(const char *name)
{
    return name[0] == '.' || text_ends_with(name, ".part") || strcmp(name, "core") == 0 ||
           strncmp(name, "core.", 5) == 0;
}

static void look_for_links(struct store_run *run)
{
    char path[STORE_PATH + 64], name[LONGEST_NAME];
    for (int n = 0; n < LINKS; n++) {
        snprintf(path, sizeof path, "%s/checkpoints/%s.h5", run->folder, link_names[n]);
        ssize_t length = readlink(path, run->target[n], LONGEST_NAME - 16);
        run->target[n][length > 0 ? length : 0] = '\0';
        if (length <= 0 || strchr(run->target[n], '/') != NULL)
            continue;
        snprintf(name, sizeof name, "checkpoints/%.200s", run->target[n]);
        look_at(run, name, true);
    }
}

static int smallest_first(const void *a, const void *b)
{
    const struct item *left = a, *right = b;
    if (left->now.bytes != right->now.bytes)
        return left->now.bytes < right->now.bytes ? -1 : 1;
    return strcmp(left->name, right->name);
}

static bool look(struct store_run *run, struct error *error)
{
    for (int n = 0; n < run->count; n++)
        run->item[n].there = false;
    DIR *entries = opendir(run->folder);
    if (entries == NULL)
        return error_set(error, ERROR_FILE, "cannot read the folder %s: %s", run->folder,
                         strerror(errno));
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;)
        if (!is_left_out(entry->d_name))
            look_at(run, entry->d_name, false);
    closedir(entries);
    look_for_links(run);
    if (run->count > 0)
        qsort(run->item, (size_t)run->count, sizeof *run->item, smallest_first);
    return true;
}

static bool is_sent(const struct item *item)
{
    return item->was_sent && item->now.bytes == item->sent.bytes &&
           item->now.modified == item->sent.modified && item->now.inode == item->sent.inode;
}

static bool is_due(const struct item *item, bool all)
{
    return item->there && !is_sent(item) && (all || item->checkpoint || clock_now() >= item->due);
}

/* ---- sending ---- */

static void say_sent(const struct store_run *run, const struct item *item, double seconds)
{
    char taken[32];
    clock_format(seconds, taken, sizeof taken);
    if (item->checkpoint || run->setup.tells)
        log_info("upload: %s is in the store (%.1f MiB, %s)", item->name,
                 mib((size_t)item->sent.bytes), taken);
    else
        log_debug("upload: %s is in the store (%s)", item->name, taken);
}

static enum store_outcome send_item(struct store_run *run, struct item *item, struct error *error)
{
    char path[STORE_PATH + LONGEST_NAME], key[STORE_KEY], object[STORE_URL];
    double begin = clock_now();
    snprintf(path, sizeof path, "%s/%s", run->folder, item->name);
    make_key(run, item->name, key);
    enum store_outcome outcome = store_upload_file(&run->sending, path, key, &item->sent, error);
    double seconds = clock_now() - begin;
    double rest = REST * seconds;
    item->due = begin + (rest > run->setup.every_seconds ? rest : run->setup.every_seconds);
    if (outcome != STORE_DONE)
        return outcome;
    item->was_sent = true;
    run->files++;
    run->bytes += item->sent.bytes;
    say_sent(run, item, seconds);
    if (item->checkpoint) {
        store_object_name(run->sending.store, key, object);
        store_state_add_sent(run->sending.state, object);
    }
    return STORE_DONE;
}

static bool target_is_sent(struct store_run *run, int link)
{
    char name[LONGEST_NAME];
    snprintf(name, sizeof name, "checkpoints/%.200s", run->target[link]);
    for (int n = 0; n < run->count; n++)
        if (strcmp(run->item[n].name, name) == 0)
            return run->item[n].there && is_sent(&run->item[n]);
    return false;
}

/* What the links lead to, once that is in the store. */
static enum store_outcome tell_links(struct store_run *run, struct error *error)
{
    for (int n = 0; n < LINKS; n++) {
        char name[64], key[STORE_KEY], text[LONGEST_NAME + 1];
        if (run->target[n][0] == '\0' || strcmp(run->target[n], run->told[n]) == 0 ||
            !target_is_sent(run, n))
            continue;
        snprintf(name, sizeof name, "checkpoints/%s.txt", link_names[n]);
        snprintf(text, sizeof text, "%s\n", run->target[n]);
        make_key(run, name, key);
        enum store_outcome outcome = store_put_text(run->sending.store, key, text, error);
        if (outcome != STORE_DONE)
            return outcome;
        snprintf(run->told[n], LONGEST_NAME, "%s", run->target[n]);
    }
    return STORE_DONE;
}

/* ---- what is superseded ---- */

/* The names of the objects that the links lead to. */
static int wanted_objects(const struct store_run *run, char object[LINKS][STORE_URL],
                          const char *wanted[LINKS])
{
    int count = 0;
    for (int n = 0; n < LINKS; n++) {
        char name[LONGEST_NAME + 16], key[STORE_KEY];
        if (run->target[n][0] == '\0')
            continue;
        snprintf(name, sizeof name, "checkpoints/%s", run->target[n]);
        make_key(run, name, key);
        store_object_name(run->sending.store, key, object[count]);
        wanted[count] = object[count];
        count++;
    }
    return count;
}

/* The key of an object's whole name. */
static const char *key_of(const struct store_run *run, const char *object)
{
    return object + strlen("s3://") + strlen(run->sending.store->bucket) + 1;
}

/* Uploads of checkpoints that are no longer wanted: what of them is in the store costs money. */
static void give_up_stale(struct store_run *run)
{
    char object[LINKS][STORE_URL], prefix[STORE_URL + 16], stale[STORE_URL];
    const char *wanted[LINKS];
    struct store_begun begun;
    int count = wanted_objects(run, object, wanted);
    snprintf(prefix, sizeof prefix, "%s/checkpoints/", run->url);
    while (store_state_stale(run->sending.state, prefix, wanted, count, stale, &begun)) {
        store_upload_abort(run->sending.store, key_of(run, stale), begun.id);
        store_state_end(run->sending.state, stale);
    }
}

static bool links_are_told(const struct store_run *run)
{
    for (int n = 0; n < LINKS; n++)
        if (strcmp(run->target[n], run->told[n]) != 0)
            return false;
    return run->target[LAST][0] != '\0';
}

static void remove_superseded(struct store_run *run)
{
    char object[LINKS][STORE_URL], prefix[STORE_URL + 16], stale[STORE_URL];
    const char *wanted[LINKS];
    struct error error = {.kind = ERROR_NONE};
    int count = wanted_objects(run, object, wanted);
    snprintf(prefix, sizeof prefix, "%s/checkpoints/", run->url);
    while (!run->cannot_remove && links_are_told(run) &&
           store_state_stale_sent(run->sending.state, prefix, wanted, count, stale)) {
        enum store_outcome outcome = store_delete(run->sending.store, key_of(run, stale), &error);
        if (outcome == STORE_REFUSED) {
            log_warn("upload: superseded checkpoints stay in the store: %s", error.text);
            run->cannot_remove = true;
        }
        if (outcome != STORE_DONE && outcome != STORE_MISSING)
            return;
        store_state_remove_sent(run->sending.state, stale);
    }
}

/* ---- the pass ---- */

static struct item *next_item(struct store_run *run, bool all)
{
    for (int n = 0; n < run->count; n++)
        if (!run->item[n].tried && is_due(&run->item[n], all))
            return &run->item[n];
    return NULL;
}

/* One file; of a checkpoint also its name. */
static enum store_outcome take_item(struct store_run *run, struct item *item, struct error *error)
{
    item->tried = true;
    enum store_outcome outcome = send_item(run, item, error);
    if (outcome == STORE_MISSING) { /* removed: there is a newer one */
        item->there = false;
        error_clear(error);
        return STORE_DONE;
    }
    if (outcome == STORE_DONE && item->checkpoint)
        outcome = tell_links(run, error);
    return outcome;
}

/* After each file it is looked anew what there is. */
enum store_outcome store_run_pass(struct store_run *run, bool all, struct error *error)
{
    enum store_outcome worst = STORE_DONE;
    if (!look(run, error))
        return STORE_REFUSED;
    for (int n = 0; n < run->count; n++)
        run->item[n].tried = false;
    give_up_stale(run);
    for (struct item *item; (item = next_item(run, all)) != NULL;) {
        struct error failure = {.kind = ERROR_NONE};
        enum store_outcome outcome = take_item(run, item, &failure);
        if (outcome != STORE_DONE && error->kind == ERROR_NONE)
            *error = failure;
        if (outcome == STORE_REFUSED)
            worst = STORE_REFUSED;
        else if (outcome != STORE_DONE)
            return outcome;
        if (!look(run, error))
            return STORE_REFUSED;
    }
    enum store_outcome told = tell_links(run, error);
    if (told != STORE_DONE)
        return told;
    remove_superseded(run);
    return worst;
}

void store_run_sent(const struct store_run *run, int *files, int64_t *bytes)
{
    *files = run->files;
    *bytes = run->bytes;
}

int store_run_missing(struct store_run *run, char *names, size_t size, int64_t *bytes)
{
    struct error ignored = {.kind = ERROR_NONE};
    int count = 0;
    size_t used = 0;
    names[0] = '\0';
    *bytes = 0;
    look(run, &ignored);
    for (int n = 0; n < run->count; n++) {
        const struct item *item = &run->item[n];
        bool grew = item->was_sent && !item->checkpoint && item->now.inode == item->sent.inode &&
                    strcmp(item->name, "train.log") == 0; /* by the lines about this */
        if (!item->there || is_sent(item) || grew)
            continue;
        count++;
        *bytes += item->now.bytes;
        if (used < size)
            used += (size_t)snprintf(names + used, size - used, "%s%s", used > 0 ? ", " : "",
                                     item->name);
    }
    return count;
}
