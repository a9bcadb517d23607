/* A small JSON file, written anew at each change. */
#include "store/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <jansson.h>

#include "core/atomic_file.h"
#include "core/log.h"

struct store_state {
    char path[FILE_PATH];
    int lock;
    json_t *begun; /* object -> { id, bytes, part_bytes, modified, crc32c } */
    json_t *sent;  /* object -> true */
    bool lost;     /* it cannot be saved, which was said */
};

static json_t *take_member(json_t *root, const char *name)
{
    json_t *member = json_object_get(root, name);
    return json_is_object(member) ? json_incref(member) : json_object();
}

struct store_state *store_state_open(const char *folder, struct error *error)
{
    char lock[FILE_PATH];
    struct store_state *state = calloc(1, sizeof *state);
    ENSURE(state != NULL, "no memory for the state of uploads");
    snprintf(state->path, sizeof state->path, "%s/.upload.json", folder);
    snprintf(lock, sizeof lock, "%s/.upload.lock", folder);
    state->lock = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (state->lock < 0)
        error_set(error, ERROR_FILE,
                  "%s: %s; make the folder writable: what was sent is kept there", lock,
                  strerror(errno));
    else if (flock(state->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        error_set(error, ERROR_USAGE, "%s is being sent by another process: wait for its end",
                  folder);
    if (error->kind != ERROR_NONE) {
        store_state_close(state);
        return NULL;
    }
    json_t *root = json_load_file(state->path, 0, NULL);
    state->begun = take_member(root, "uploads");
    state->sent = take_member(root, "checkpoints");
    json_decref(root);
    return state;
}

void store_state_close(struct store_state *state)
{
    if (state == NULL)
        return;
    if (state->lock >= 0)
        close(state->lock);
    json_decref(state->begun);
    json_decref(state->sent);
    free(state);
}

static void save(struct store_state *state)
{
    struct error error = {.kind = ERROR_NONE};
    json_t *root = json_pack("{s:O,s:O}", "uploads", state->begun, "checkpoints", state->sent);
    char *text = json_dumps(root, JSON_INDENT(1) | JSON_SORT_KEYS);
    ENSURE(text != NULL, "no memory for the state of uploads");
    json_decref(root);
    if (!atomic_file_write(state->path, text, &error) && !state->lost) {
        log_warn("upload: %s: an upload that breaks off will begin anew", error.text);
        state->lost = true;
    }
    free(text);
}

/* ---- uploads under way ---- */

static void read_begun(const json_t *entry, struct store_begun *begun)
{
    const char *id = json_string_value(json_object_get(entry, "id"));
    const char *crc32c = json_string_value(json_object_get(entry, "crc32c"));
    snprintf(begun->id, sizeof begun->id, "%s", id != NULL ? id : "");
    snprintf(begun->crc32c, sizeof begun->crc32c, "%s", crc32c != NULL ? crc32c : "");
    begun->bytes = json_integer_value(json_object_get(entry, "bytes"));
    begun->part_bytes = json_integer_value(json_object_get(entry, "part_bytes"));
    begun->modified = json_integer_value(json_object_get(entry, "modified"));
}

bool store_state_begun(const struct store_state *state, const char *object,
                       struct store_begun *begun)
{
    const json_t *entry = json_object_get(state->begun, object);
    if (entry == NULL)
        return false;
    read_begun(entry, begun);
    return true;
}

void store_state_begin(struct store_state *state, const char *object,
                       const struct store_begun *begun)
{
    json_t *entry = json_pack("{s:s,s:I,s:I,s:I,s:s}", "id", begun->id, "bytes",
                              (json_int_t)begun->bytes, "part_bytes", (json_int_t)begun->part_bytes,
                              "modified", (json_int_t)begun->modified, "crc32c", begun->crc32c);
    if (json_object_set_new(state->begun, object, entry) == 0)
        save(state);
}

void store_state_end(struct store_state *state, const char *object)
{
    if (json_object_del(state->begun, object) == 0)
        save(state);
}

/* ---- what is no longer wanted ---- */

static const char *first_stale(json_t *list, const char *prefix, const char *const *wanted,
                               int count, const json_t **entry)
{
    const char *object;
    json_t *value;
    json_object_foreach(list, object, value)
    {
        bool stale = strncmp(object, prefix, strlen(prefix)) == 0;
        for (int n = 0; n < count && stale; n++)
            stale = strcmp(object, wanted[n]) != 0;
        *entry = value;
        if (stale)
            return object;
    }
    return NULL;
}

bool store_state_stale(const struct store_state *state, const char *prefix,
                       const char *const *wanted, int count, char object[STORE_URL],
                       struct store_begun *begun)
{
    const json_t *entry;
    const char *found = first_stale(state->begun, prefix, wanted, count, &entry);
    if (found == NULL)
        return false;
    snprintf(object, STORE_URL, "%s", found);
    read_begun(entry, begun);
    return true;
}

void store_state_add_sent(struct store_state *state, const char *object)
{
    if (json_object_get(state->sent, object) == NULL &&
        json_object_set_new(state->sent, object, json_true()) == 0)
        save(state);
}

void store_state_remove_sent(struct store_state *state, const char *object)
{
    if (json_object_del(state->sent, object) == 0)
        save(state);
}

bool store_state_stale_sent(const struct store_state *state, const char *prefix,
                            const char *const *wanted, int count, char object[STORE_URL])
{
    const json_t *entry;
    const char *found = first_stale(state->sent, prefix, wanted, count, &entry);
    if (found != NULL)
        snprintf(object, STORE_URL, "%s", found);
    return found != NULL;
}
