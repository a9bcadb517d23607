/* hparams.yaml, as PyTorch Lightning's loggers leave it beside their events: how many parameters
 * there are, and all that the run was told, by the deck's names. What YAML's readers take for
 * numbers and truth values is written as such, all else in quotes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/atomic_file.h"
#include "train/style.h"

struct hparams {
    const struct options *options;
    FILE *file;
    char section[64], key[128]; /* of the pair before */
};

/* YAML 1.1 knows no number with an exponent and without a point: 1e-05 is 1.0e-05. */
static void number_put(FILE *file, const char *text)
{
    size_t digits = strcspn(text, "e");
    bool whole = text[digits] == 'e' && memchr(text, '.', digits) == NULL;
    fprintf(file, "%.*s%s%s\n", (int)digits, text, whole ? ".0" : "", text + digits);
}

static void value_put(FILE *file, const char *text)
{
    char *end;
    double number = strtod(text, &end);
    if (strcmp(text, "on") == 0 || strcmp(text, "off") == 0) {
        fprintf(file, "%s\n", strcmp(text, "on") == 0 ? "true" : "false");
    } else if (end != text && *end == '\0' && number - number == 0 && strpbrk(text, "xX") == NULL) {
        number_put(file, text);
    } else {
        fputc('\'', file);
        for (const char *c = text; *c != '\0'; c++)
            fprintf(file, *c == '\'' ? "''" : "%c", *c);
        fputs("'\n", file);
    }
}

/* A long text comes in several pairs. */
static bool pair_put(void *user, const char *where, const char *name, const char *value,
                     struct error *error)
{
    struct hparams *hparams = user;
    char key[sizeof hparams->key], text[OPTION_TEXT];
    (void)where, (void)value, (void)error;
    snprintf(key, sizeof key, "%.*s", (int)strcspn(name, "+ "), name);
    const int dot = (int)strcspn(key, ".");
    if (strcmp(key, hparams->key) == 0)
        return true;
    strcpy(hparams->key, key);
    if (strncmp(hparams->section, key, (size_t)dot + 1) != 0) {
        snprintf(hparams->section, sizeof hparams->section, "%.*s", dot + 1, key);
        fprintf(hparams->file, "%.*s:\n", dot, key);
    }
    options_value_text(hparams->options, key, text, sizeof text);
    fprintf(hparams->file, "  %s: ", key + dot + 1);
    value_put(hparams->file, text);
    return true;
}

static bool options_put(const struct options *options, FILE *file, struct error *error)
{
    struct hparams hparams = {.options = options, .file = file};
    char *deck = options_to_text(options);
    FILE *pairs = fmemopen(deck, strlen(deck), "r");
    ENSURE(pairs != NULL, "no memory to read the deck");
    bool good = deck_read_pairs(pairs, "the deck", pair_put, &hparams, error);
    fclose(pairs);
    free(deck);
    return good;
}

bool style_hparams_write(const struct style_run *run, struct error *error)
{
    const int64_t total = model_parameter_count(run->model);
    const int64_t trained = model_trainable_count(run->model);
    char path[FILE_PATH];
    struct atomic_file file = {0};
    snprintf(path, sizeof path, "%s/hparams.yaml", run->folder);
    if (!atomic_file_open(&file, path, error))
        return false;
    if (!options_put(run->options, file.stream, error)) {
        atomic_file_discard(&file);
        return false;
    }
    fprintf(file.stream, "model/params/total: %lld\n", (long long)total);
    fprintf(file.stream, "model/params/trainable: %lld\n", (long long)trained);
    fprintf(file.stream, "model/params/non_trainable: %lld\n", (long long)(total - trained));
    return atomic_file_commit(&file, error);
}
