// SPDX-License-Identifier: BSD-3-Clause
/* Selects the files and the records of a split. */
#include "data/split.h"

#include <ctype.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/allocate.h"
#include "base/base.h"
#include "base/random.h"
#include "base/text.h"
#include "data/listing.h"
#include "options/options.h"

int split_stored(const struct options *options, enum data_split split, const bool stored[3])
{
    const bool own = split == SPLIT_VALIDATION && options->data.val == VALIDATION_VAL;
    if (split == SPLIT_VALIDATION && !own)
        split = SPLIT_TEST;
    if (!stored[split] && split != SPLIT_TRAIN)
        split = SPLIT_VALIDATION;
    if (!stored[split] && options_hold_out(options))
        split = SPLIT_TRAIN;
    return stored[split] ? (int)split : -1;
}

/* Keep elements [begin, end) of a permutation of the samples, in ascending order. */
static void keep_part(struct dataset *dataset, const uint32_t *order, int64_t begin, int64_t end)
{
    const size_t kept = (size_t)(end - begin);
    uint32_t *subset = allocate(kept, sizeof *subset);
    for (size_t i = 0; i < kept; i++)
        subset[i] = dataset_record(dataset, order[(size_t)begin + i]);
    qsort(subset, kept, sizeof *subset, compare_uint32);
    free(dataset->subset);
    dataset->subset = subset;
    dataset->count = end - begin;
}

static uint32_t *order_allocate(const struct dataset *dataset)
{
    return allocate((size_t)dataset->count, sizeof(uint32_t));
}

void split_draw(struct dataset *dataset, uint64_t seed, uint32_t draw, int64_t count)
{
    OWNED uint32_t *order = order_allocate(dataset);
    random_permutation(seed, RANDOM_SPLIT, draw, (uint32_t)dataset->count, order);
    keep_part(dataset, order, 0, count);
}

void split_reference(struct dataset *dataset, uint64_t seed, enum data_split split)
{
    const int64_t training_end = dataset->count * 3 / 4;
    const int64_t validation_end = training_end + dataset->count / 12;
    const int64_t begin[] = {0, training_end, validation_end, dataset->count};
    OWNED uint32_t *order = order_allocate(dataset);
    torch_permutation(seed, (uint32_t)dataset->count, order);
    keep_part(dataset, order, begin[split], begin[split + 1]);
}

/* ---- data.val=FRACTION ---- */

/* A counting sort: begin[c + 1] is the next free index of class c, finally its end. */
void split_by_class(const struct dataset *dataset, uint32_t *samples, size_t *begin)
{
    for (int64_t i = 0; i < dataset->count; i++)
        begin[dataset_label(dataset, i) + 2]++;
    for (int64_t c = 0; c < dataset->classes; c++)
        begin[c + 1] += begin[c];
    for (int64_t i = 0; i < dataset->count; i++)
        samples[begin[dataset_label(dataset, i) + 1]++] = (uint32_t)i;
}

static size_t held_out_of(size_t count, double fraction)
{
    const size_t held = (size_t)rint((double)count * fraction);
    if (count < 2)
        return 0;
    return held < 1 ? 1 : held < count ? held : count - 1;
}

void split_stratified(struct dataset *dataset, double fraction, bool held_out)
{
    enum { FIRST_DRAW = 16 }; /* of RANDOM_SPLIT, after those of split_draw */
    OWNED uint32_t *by_class = order_allocate(dataset);
    OWNED uint32_t *order = order_allocate(dataset);
    uint32_t *kept = order;
    OWNED size_t *begin = allocate((size_t)dataset->classes + 2, sizeof *begin);
    split_by_class(dataset, by_class, begin);
    for (int64_t c = 0; c < dataset->classes; c++) {
        const uint32_t *samples = by_class + begin[c];
        const size_t in_class = begin[c + 1] - begin[c];
        const size_t held = held_out_of(in_class, fraction);
        /* Write the class's permutation after the samples that are already kept. */
        random_permutation(0, RANDOM_SPLIT, FIRST_DRAW + (uint32_t)c, (uint32_t)in_class, kept);
        const size_t first = held_out ? 0 : held, end = held_out ? held : in_class;
        for (size_t i = first; i < end; i++)
            kept[i - first] = samples[kept[i]];
        kept += end - first;
    }
    keep_part(dataset, order, 0, kept - order);
}

struct placed {
    double span[3]; /* as in dataset_format.span */
    uint32_t sample;
    bool held, shares; /* it is held out; it shares values with a sample that is */
};

static int compare_placed(const void *left, const void *right)
{
    const struct placed *a = left, *b = right;
    return a->span[0] != b->span[0] ? (a->span[0] > b->span[0]) - (a->span[0] < b->span[0])
                                    : compare_uint32(&a->sample, &b->sample);
}

/* Hold out the last samples. Return true if all samples have the same time. */
static bool end_hold(struct placed *placed, size_t count, double fraction)
{
    size_t first = count - held_out_of(count, fraction);
    /* Samples of the same time are in the same split, unless all have the same. */
    const bool is_one = placed[0].span[0] == placed[count - 1].span[0];
    while (!is_one && first > 1 && placed[first - 1].span[0] == placed[first].span[0])
        first--;
    for (size_t i = first; i < count; i++)
        placed[i].held = true;
    return is_one;
}

bool split_by_time(struct dataset *dataset, const struct options *options, bool held_out,
                   struct error *error)
{
    const size_t count = (size_t)dataset->count;
    OWNED struct placed *placed = allocate(count, sizeof *placed);
    OWNED uint32_t *order = order_allocate(dataset);
    OWNED bool *held = allocate(count, sizeof *held);
    double begin = (double)INFINITY, end = (double)-INFINITY; /* of values that are held out */
    bool is_one = false;
    size_t kept = 0;
    if (options->data.val == VALIDATION_PERIODS &&
        !dataset->format->find_periods(dataset, options->data.val_periods, held, error))
        return false;
    for (size_t i = 0; i < count; i++) {
        const uint32_t record = dataset_record(dataset, (int64_t)i);
        placed[i].sample = (uint32_t)i;
        placed[i].held = held[i];
        placed[i].span[0] = placed[i].span[1] = placed[i].span[2] = (double)record;
        if (dataset->format->span != NULL)
            dataset->format->span(dataset, record, placed[i].span);
    }
    qsort(placed, count, sizeof *placed, compare_placed);
    if (options->data.val == VALIDATION_FRACTION)
        is_one = end_hold(placed, count, options->data.val_fraction);
    for (size_t i = 0; i < count; i++) {
        end = placed[i].held ? fmax(end, placed[i].span[2]) : end;
        placed[i].shares = placed[i].span[1] <= end;
    }
    for (size_t i = count; i-- > 0;) {
        begin = placed[i].held ? fmin(begin, placed[i].span[1]) : begin;
        placed[i].shares |= placed[i].span[2] >= begin;
        if (held_out ? placed[i].held : !placed[i].held && (is_one || !placed[i].shares))
            order[kept++] = placed[i].sample;
    }
    keep_part(dataset, order, 0, (int64_t)kept);
    return true;
}

/* ---- Files. */

enum { FILES_MOST = 1 << 20 };

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

enum data_split split_of_path(const char *path)
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

static bool add_file(struct split_files *files, const char *path, struct error *error)
{
    if (files->count >= FILES_MOST)
        return error_set(error, ERROR_DATA, "data.root: more than %d %s", FILES_MOST,
                         files->kind->plural);
    files->path =
        allocate_more(files->path, &files->capacity, (size_t)files->count, sizeof *files->path);
    files->path[files->count++] = allocate_copy(path);
    return true;
}

/* Add all files of this kind in a folder; a folder that does not exist is empty. */
static bool add_folder(struct split_files *files, const char *folder, struct error *error)
{
    struct listing found = {0}, folders = {0};
    bool (*is_file)(const char *path) = files->kind->is_file;
    bool good = !listing_is_folder(folder) || listing_read(folder, &folders, &found, NULL, error);
    for (size_t i = 0; good && i < found.count + folders.count; i++) {
        const bool is_folder = i >= found.count;
        const char *name = is_folder ? folders.names[i - found.count] : found.names[i];
        OWNED char *path = allocate_text("%s/%s", folder, name);
        bool is_found = is_folder && is_file != NULL && is_file(path);
        for (const char *const *ending = files->kind->endings; *ending != NULL; ending++)
            is_found |= !is_folder && name[0] != '.' && text_ends_with(name, *ending);
        if (is_found)
            good = add_file(files, path, error);
    }
    listing_free(&found);
    listing_free(&folders);
    return good;
}

/* Add the files that match a name with wildcards; without wildcards, the file. */
static bool add_matches(struct split_files *files, const char *pattern, struct error *error)
{
    glob_t found = {0};
    if (strpbrk(pattern, "*?[") == NULL)
        return add_file(files, pattern, error);
    const int status = glob(pattern, GLOB_ERR, NULL, &found);
    bool good = status == 0 || error_set(error, ERROR_DATA, "data.root: no file matches %s%s",
                                         pattern, status == GLOB_NOMATCH ? "" : ": cannot search");
    for (size_t i = 0; good && i < found.gl_pathc; i++)
        good = add_file(files, found.gl_pathv[i], error);
    globfree(&found);
    return good;
}

/* Return the numbers of a range, FIRST..LAST, separated by commas; NULL if the text is no range, or
 * with an error. Numbers have as many digits as the longer limit if one begins with 0. */
static char *range_expand(const struct split_files *files, const char *text, struct error *error)
{
    struct text_stream list;
    long first, last;
    int middle = 0, end = 0;
    if (sscanf(text, "%9ld%n..%9ld%n", &first, &middle, &last, &end) != 2 || text[end] != '\0' ||
        !isdigit((unsigned char)text[0]) || !isdigit((unsigned char)text[middle + 2]))
        return NULL;
    if (first > last)
        error_set(error, ERROR_USAGE, "data.root: the range {%s} ends before it begins", text);
    else if (last - first >= FILES_MOST)
        error_set(error, ERROR_DATA, "data.root: more than %d %s in {%s}", FILES_MOST,
                  files->kind->plural, text);
    if (error->kind != ERROR_NONE)
        return NULL;
    const bool is_padded = text[0] == '0' || text[middle + 2] == '0';
    const int64_t digits = is_padded ? larger(middle, end - middle - 2) : 1;
    FILE *out = text_stream_open(&list);
    for (long i = first; i <= last; i++)
        fprintf(out, "%s%0*ld", i > first ? "," : "", (int)digits, i);
    return text_stream_close(&list);
}

/* Expand the first pair of braces, {a,b} or {000..146}; the rest by recursion. */
static bool expand_braces(struct split_files *files, const char *pattern, struct error *error)
{
    const char *open = strchr(pattern, '{'), *end = open;
    int depth = 0;
    if (open == NULL)
        return add_matches(files, pattern, error);
    do {
        if (*end == '\0')
            return error_set(error, ERROR_USAGE, "data.root=%s: a brace is not closed", pattern);
        depth += (*end == '{') - (*end == '}');
        end++;
    } while (depth > 0);
    OWNED char *inside = allocate_text("%.*s", (int)(end - open - 2), open + 1);
    OWNED char *range = range_expand(files, inside, error);
    if (error->kind != ERROR_NONE)
        return false;
    const char *item = range != NULL ? range : inside;
    for (const char *at = item;; at++) {
        depth += (*at == '{') - (*at == '}');
        if (*at != '\0' && (*at != ',' || depth > 0))
            continue;
        OWNED char *path = allocate_text("%.*s%.*s%s", (int)(open - pattern), pattern,
                                         (int)(at - item), item, end);
        if (!expand_braces(files, path, error))
            return false;
        if (*at == '\0')
            return true;
        item = at + 1;
    }
}

static bool add_pattern(struct split_files *files, const char *pattern, struct error *error)
{
    struct stat status;
    if (strpbrk(pattern, "{*?[") != NULL)
        return expand_braces(files, pattern, error);
    if (stat(pattern, &status) == 0 &&
        (!S_ISDIR(status.st_mode) ||
         (files->kind->is_file != NULL && files->kind->is_file(pattern))))
        return add_file(files, pattern, error);
    const int64_t before = files->count;
    bool good =
        data_root_check(pattern, files->kind->advice, error) && add_folder(files, pattern, error);
    for (int i = 0; good && i < SPLIT_WORDS; i++) {
        OWNED char *path = allocate_text("%s/%s", pattern, split_words[i].word);
        good = add_folder(files, path, error);
    }
    return good && (files->count > before || data_root_unexpected(pattern, files->kind->expected,
                                                                  files->kind->advice, error));
}

static int files_compare(const void *left, const void *right)
{
    const enum data_split a = split_of_path(*(char *const *)left);
    const enum data_split b = split_of_path(*(char *const *)right);
    return a != b ? (a > b) - (a < b) : listing_compare(left, right);
}

static bool files_find(const char *root, struct split_files *files, struct error *error)
{
    char text[OPTION_TEXT];
    snprintf(text, sizeof text, "%s", root);
    for (char *pattern = text, *next; pattern != NULL; pattern = next) {
        next = strstr(pattern, "::");
        if (next != NULL) {
            *next = '\0';
            next += 2;
        }
        if (!add_pattern(files, pattern, error))
            return false;
    }
    if (files->count > 0)
        qsort(files->path, (size_t)files->count, sizeof *files->path, files_compare);
    for (int64_t i = 1; i < files->count; i++)
        if (strcmp(files->path[i - 1], files->path[i]) == 0)
            return error_set(error, ERROR_USAGE, "data.root=%s: it names %s twice", root,
                             files->path[i]);
    return true;
}

bool split_files_find(const char *root, const struct split_file_kind *kind,
                      struct split_files *files, struct comm *comm, struct error *error)
{
    files->kind = kind;
    if (comm == NULL || comm->rank == 0)
        error_defer(files_find(root, files, error));
    if (comm != NULL ? !comm_agree(comm, error) : error->kind != ERROR_NONE)
        return false;
    comm_share_texts(comm, &files->path, &files->count);
    return true;
}

char **split_files_of(const struct split_files *files, enum data_split split, int64_t *count)
{
    int64_t first = 0;
    while (first < files->count && split_of_path(files->path[first]) < split)
        first++;
    for (*count = 0; first + *count < files->count; ++*count)
        if (split_of_path(files->path[first + *count]) != split)
            break;
    return files->path + first;
}

char **split_files_choose(const struct split_files *files, const struct options *options,
                          enum data_split split, int64_t *count, struct error *error)
{
    bool stored[3];
    for (int s = 0; s < 3; s++) {
        split_files_of(files, (enum data_split)s, count);
        stored[s] = *count > 0;
    }
    const int chosen = split_stored(options, split, stored);
    if (chosen >= 0)
        return split_files_of(files, (enum data_split)chosen, count);
    if (split == SPLIT_TRAIN)
        error_set(
            error, ERROR_DATA,
            "data.root=%s: all %lld %s are for evaluation, because they or their folders have "
            "test or val in their names: add %s for training, or rename these",
            options->data.root, (long long)files->count, files->kind->plural, files->kind->plural);
    else
        error_set(error, ERROR_DATA,
                  "data.root=%s: none of the %lld %s has %sval, valid or validation in its name: "
                  "set data.val=0.1 to hold out samples, or data.val=none, or add such %s",
                  options->data.root, (long long)files->count, files->kind->plural,
                  split == SPLIT_VALIDATION && options->data.val == VALIDATION_VAL ? "" : "test, ",
                  files->kind->plural);
    return NULL;
}

char **split_files_all(struct split_files *files, int64_t *count)
{
    qsort(files->path, (size_t)files->count, sizeof *files->path, listing_compare);
    *count = files->count;
    return files->path;
}

void split_files_free(struct split_files *files)
{
    for (int64_t i = 0; i < files->count; i++)
        free(files->path[i]);
    free(files->path);
    *files = (struct split_files){0};
}
