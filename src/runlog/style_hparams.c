/* hparams.yaml, as PyTorch Lightning's loggers leave it beside their events: how many parameters
 * there are, and all that the run was told, by the deck's names. What YAML's readers take for
 * numbers and truth values is written as such, all else in quotes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"
#include "core/atomic_file.h"
#include "runlog/style.h"

struct hparams {
    FILE *file;
    const char *section; /* with which the option before began */
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

static void option_put(void *user, const char *name, const char *value)
{
    struct hparams *hparams = user;
    const size_t dot = strcspn(name, ".");
    if (strncmp(hparams->section, name, dot + 1) != 0)
        fprintf(hparams->file, "%.*s:\n", (int)dot, name);
    hparams->section = name;
    fprintf(hparams->file, "  %s: ", name + dot + 1);
    value_put(hparams->file, value);
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
    options_visit(run->options, option_put, &(struct hparams){.file = file.stream, .section = ""});
    fprintf(file.stream, "model/params/total: %lld\n", (long long)total);
    fprintf(file.stream, "model/params/trainable: %lld\n", (long long)trained);
    fprintf(file.stream, "model/params/non_trainable: %lld\n", (long long)(total - trained));
    return atomic_file_commit(&file, error);
}
