// SPDX-License-Identifier: BSD-3-Clause
/* Finds tar shards as WebDataset names them. */
#include "data/tar_shards.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/option_types.h"
#include "core/text.h"
#include "data/data_root.h"
#include "data/listing.h"

enum { SHARDS_MOST = 1 << 20 };

static const char root_advice[] = "set data.root to the folder of the shards or to their names";

static const struct {
    const char *word;
    enum data_split split;
} split_words[] = {{"train", SPLIT_TRAIN},           {"training", SPLIT_TRAIN},
                   {"val", SPLIT_VALIDATION},        {"valid", SPLIT_VALIDATION},
                   {"validation", SPLIT_VALIDATION}, {"test", SPLIT_TEST}};

enum { SPLIT_WORDS = sizeof split_words / sizeof split_words[0] };

/* Find the first word of a name that means a split. A word is a sequence of letters. */
static bool split_of_name(const char *name, size_t length, enum data_split *split)
{
    for (size_t begin = 0, end; begin < length; begin = end + 1) {
        for (end = begin; end < length && isalpha((unsigned char)name[end]);)
            end++;
        for (int i = 0; i < SPLIT_WORDS; i++)
            if (strlen(split_words[i].word) == end - begin &&
                strncmp(split_words[i].word, name + begin, end - begin) == 0) {
                *split = split_words[i].split;
                return true;
            }
    }
    return false;
}

static enum data_split split_of_path(const char *path)
{
    enum data_split split = SPLIT_TRAIN;
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    if (split_of_name(name, strlen(name), &split) || slash == NULL)
        return split;
    const char *folder = slash;
    while (folder > path && folder[-1] != '/')
        folder--;
    split_of_name(folder, (size_t)(slash - folder), &split);
    return split;
}

/* The array grows to each power of two. */
static bool add(struct tar_shards *shards, const char *path, struct error *error)
{
    const size_t count = (size_t)shards->count;
    if (count >= SHARDS_MOST)
        return error_set(error, ERROR_DATA, "data.root: more than %d shards", SHARDS_MOST);
    if ((count & (count - 1)) == 0) {
        const size_t wanted = count == 0 ? 1 : 2 * count;
        struct tar_shard *larger = realloc(shards->shard, wanted * sizeof *larger);
        if (larger == NULL)
            return error_set(error, ERROR_MEMORY, "no memory for a list of %zu shards", wanted);
        shards->shard = larger;
    }
    char *copy = strdup(path);
    if (copy == NULL)
        return error_set(error, ERROR_MEMORY, "no memory for the name %s", path);
    shards->shard[shards->count++] =
        (struct tar_shard){.path = copy, .split = split_of_path(path), .descriptor = -1};
    return true;
}

static bool is_shard(const char *name)
{
    return name[0] != '.' && text_ends_with(name, ".tar");
}

/* Add all *.tar of a folder; a folder that does not exist is empty. */
static bool add_folder(struct tar_shards *shards, const char *folder, struct error *error)
{
    char path[LISTING_PATH];
    struct listing found = {0};
    bool good = !listing_is_folder(folder) || listing_read(folder, NULL, &found, is_shard, error);
    for (size_t i = 0; good && i < found.count; i++)
        good = listing_join(path, sizeof path, folder, found.names[i], error) &&
               add(shards, path, error);
    listing_free(&found);
    return good;
}

static bool add_root(struct tar_shards *shards, const char *root, struct error *error)
{
    char path[LISTING_PATH];
    const int64_t before = shards->count;
    bool good = add_folder(shards, root, error);
    for (int i = 0; good && i < SPLIT_WORDS; i++) {
        snprintf(path, sizeof path, "%s/%s", root, split_words[i].word);
        good = add_folder(shards, path, error);
    }
    return good &&
           (shards->count > before ||
            data_root_unexpected(root, "no shards (*.tar or train/*.tar)", root_advice, error));
}

/* Add the files that match a name with wildcards; without wildcards, the file. */
static bool add_matches(struct tar_shards *shards, const char *pattern, struct error *error)
{
    glob_t found = {0};
    if (strpbrk(pattern, "*?[") == NULL)
        return add(shards, pattern, error);
    const int status = glob(pattern, GLOB_ERR, NULL, &found);
    bool good = status == 0 || error_set(error, ERROR_DATA, "data.root: no file matches %s%s",
                                         pattern, status == GLOB_NOMATCH ? "" : ": cannot search");
    for (size_t i = 0; good && i < found.gl_pathc; i++)
        good = add(shards, found.gl_pathv[i], error);
    globfree(&found);
    return good;
}

/* Return the brace that closes the one at `open`, or NULL. */
static const char *closing_brace(const char *open)
{
    int depth = 0;
    for (const char *at = open; *at != '\0'; at++) {
        depth += (*at == '{') - (*at == '}');
        if (depth == 0)
            return at;
    }
    return NULL;
}

static bool expand(struct tar_shards *shards, const char *pattern, struct error *error);

/* Expand a pattern in which text replaces the braces from `open` to `close`. */
static bool expand_with(struct tar_shards *shards, const char *pattern, const char *open,
                        const char *close, const char *text, size_t length, struct error *error)
{
    char path[LISTING_PATH];
    const int used = snprintf(path, sizeof path, "%.*s%.*s%s", (int)(open - pattern), pattern,
                              (int)length, text, close + 1);
    if (used < 0 || (size_t)used >= sizeof path)
        return error_set(error, ERROR_USAGE, "data.root=%s: too long", pattern);
    return expand(shards, path, error);
}

/* Expand {000..146}: numbers have as many digits as the longer limit if one begins with 0. */
static bool expand_range(struct tar_shards *shards, const char *pattern, const char *open,
                         const char *close, bool *is_range, struct error *error)
{
    long first, last;
    int first_end = 0, last_end = 0;
    char text[32];
    *is_range = sscanf(open, "{%9ld%n..%9ld%n", &first, &first_end, &last, &last_end) == 2 &&
                open + last_end == close && isdigit((unsigned char)open[1]) &&
                isdigit((unsigned char)open[first_end + 2]);
    if (!*is_range)
        return true;
    const int first_digits = first_end - 1, last_digits = last_end - first_end - 2;
    const bool padded = open[1] == '0' || open[first_end + 2] == '0';
    const int digits = !padded ? 1 : first_digits > last_digits ? first_digits : last_digits;
    if (first > last)
        return error_set(error, ERROR_USAGE, "data.root=%s: a range that ends before it begins",
                         pattern);
    bool good = true;
    for (long i = first; good && i <= last; i++) {
        const int length = snprintf(text, sizeof text, "%0*ld", digits, i);
        good = expand_with(shards, pattern, open, close, text, (size_t)length, error);
    }
    return good;
}

/* Expand the first pair of braces; the rest by recursion. */
static bool expand(struct tar_shards *shards, const char *pattern, struct error *error)
{
    const char *open = strchr(pattern, '{');
    if (open == NULL)
        return add_matches(shards, pattern, error);
    const char *close = closing_brace(open);
    if (close == NULL)
        return error_set(error, ERROR_USAGE, "data.root=%s: a brace is not closed", pattern);
    bool is_range;
    if (!expand_range(shards, pattern, open, close, &is_range, error))
        return false;
    int depth = 0;
    bool good = true;
    const char *begin = open + 1;
    for (const char *at = begin; !is_range && good && at <= close; at++) {
        depth += (*at == '{') - (*at == '}');
        if ((*at == ',' && depth == 0) || at == close) {
            good = expand_with(shards, pattern, open, close, begin, (size_t)(at - begin), error);
            begin = at + 1;
        }
    }
    return good;
}

static bool add_pattern(struct tar_shards *shards, const char *pattern, struct error *error)
{
    struct stat status;
    if (strstr(pattern, "://") != NULL || strncmp(pattern, "pipe:", 5) == 0)
        return error_set(error, ERROR_USAGE,
                         "data.root=%s: shards are read from local files only: download them, or "
                         "mount the store",
                         pattern);
    if (strpbrk(pattern, "{*?[") != NULL)
        return expand(shards, pattern, error);
    if (stat(pattern, &status) == 0 && !S_ISDIR(status.st_mode))
        return add(shards, pattern, error);
    return data_root_check(pattern, root_advice, error) && add_root(shards, pattern, error);
}

static int compare(const void *left, const void *right)
{
    const struct tar_shard *a = left, *b = right;
    return a->split != b->split ? (a->split > b->split) - (a->split < b->split)
                                : strcmp(a->path, b->path);
}

bool tar_shards_find(const char *root, struct tar_shards *shards, struct error *error)
{
    char text[OPTION_TEXT];
    snprintf(text, sizeof text, "%s", root);
    for (char *pattern = text, *next; pattern != NULL; pattern = next) {
        next = strstr(pattern, "::");
        if (next != NULL) {
            *next = '\0';
            next += 2;
        }
        if (!add_pattern(shards, pattern, error))
            return false;
    }
    qsort(shards->shard, (size_t)shards->count, sizeof *shards->shard, compare);
    for (int64_t i = 1; i < shards->count; i++)
        if (strcmp(shards->shard[i - 1].path, shards->shard[i].path) == 0)
            return error_set(error, ERROR_USAGE, "data.root=%s: it names %s twice", root,
                             shards->shard[i].path);
    return true;
}

struct tar_shard *tar_shards_of(const struct tar_shards *shards, enum data_split split,
                                int64_t *count)
{
    int64_t first = 0;
    while (first < shards->count && shards->shard[first].split < split)
        first++;
    for (*count = 0; first + *count < shards->count; ++*count)
        if (shards->shard[first + *count].split != split)
            break;
    return shards->shard + first;
}

/* Raise the soft limit of open files for this many more. */
static void raise_limit(int64_t files)
{
    enum { OTHER_FILES = 1024 }; /* sockets, files of the run */
    struct rlimit limit;
    const rlim_t wanted = (rlim_t)files + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    setrlimit(RLIMIT_NOFILE, &limit); /* if this fails, opening a file will */
}

static bool open_one(struct tar_shard *shard, struct error *error)
{
    struct stat status;
    /* O_NONBLOCK: opening a pipe must not block */
    shard->descriptor = open(shard->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (shard->descriptor < 0 || fstat(shard->descriptor, &status) != 0)
        return error_set(error, ERROR_DATA, "%s: %s; %s", shard->path, strerror(errno),
                         errno == EMFILE ? "raise it, or use fewer, larger shards"
                                         : "check data.root");
    if (!S_ISREG(status.st_mode))
        return error_set(error, ERROR_DATA, "%s: is not a regular file", shard->path);
    shard->bytes = status.st_size;
    shard->seconds = status.st_mtim.tv_sec;
    shard->nanoseconds = status.st_mtim.tv_nsec;
    return true;
}

bool tar_shards_open(struct tar_shard *shards, int64_t count, struct error *error)
{
    bool good = true;
    raise_limit(count);
    for (int64_t i = 0; good && i < count; i++)
        good = shards[i].descriptor >= 0 || open_one(&shards[i], error);
    return good;
}

bool tar_shards_check(const struct tar_shard *shards, int64_t count, struct error *error)
{
    struct stat status;
    for (int64_t i = 0; i < count; i++)
        if (fstat(shards[i].descriptor, &status) != 0 || status.st_size != shards[i].bytes ||
            status.st_mtim.tv_sec != shards[i].seconds ||
            status.st_mtim.tv_nsec != shards[i].nanoseconds)
            return error_set(error, ERROR_DATA,
                             "%s was changed while its headers were read; start again when it is "
                             "complete",
                             shards[i].path);
    return true;
}

void tar_shards_close(struct tar_shard *shards, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (shards[i].descriptor >= 0)
            close(shards[i].descriptor);
        free(shards[i].records);
        shards[i].descriptor = -1;
        shards[i].records = NULL;
        shards[i].count = 0;
    }
}

void tar_shards_free(struct tar_shards *shards)
{
    tar_shards_close(shards->shard, shards->count);
    for (int64_t i = 0; i < shards->count; i++)
        free(shards->shard[i].path);
    free(shards->shard);
    *shards = (struct tar_shards){0};
}
