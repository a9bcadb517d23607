// SPDX-License-Identifier: BSD-3-Clause
#include "dataset_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

#include "options/options.h"
#include "temporary.h"
#include "test.h"

struct options options;
struct dataset dataset;
struct comm *dataset_comm;

void dataset_begin(const char *settings)
{
    settings_set(&options, settings);
    dataset_close(&dataset);
}

void dataset_begin_folder(const char *settings)
{
    static int folders;
    char name[32];
    dataset_begin(settings);
    snprintf(name, sizeof name, "root%d", ++folders);
    snprintf(options.data.root, sizeof options.data.root, "%s", temporary_directory(name));
}

static char path[2048];

const char *root_path(const char *format, ...)
{
    const int length = snprintf(path, sizeof path, "%s/", options.data.root);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path + length, sizeof path - (size_t)length, format, arguments);
    va_end(arguments);
    return path;
}

/* A new file is written faster than an old one is replaced: some file systems flush the latter. */
void root_write(const char *name, const void *content, size_t bytes)
{
    root_path("%s", name);
    for (char *slash = path + strlen(options.data.root); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    unlink(path);
    FILE *file = fopen(path, "we");
    assert_true(file != NULL && fwrite(content, 1, bytes, file) == bytes && fclose(file) == 0);
}

void arrays_begin(const char *root, const char *x, const char *y)
{
    dataset_begin("data.format=arrays");
    snprintf(options.data.root, sizeof options.data.root, "%s", temporary_path(root));
    snprintf(options.data.x, sizeof options.data.x, "%s", x);
    snprintf(options.data.y, sizeof options.data.y, "%s", y);
}

void split_opens(const char *settings, enum data_split split, int64_t count)
{
    error_clear(&error);
    settings_apply(&options, settings);
    dataset_close(&dataset);
    assert_ok(dataset_open(&dataset, &options, split, dataset_comm, &error), &error);
    if (count >= 0)
        assert_int_equal(dataset.count, count);
}

void split_fails(const char *settings, enum data_split split, const char *part)
{
    error_clear(&error);
    settings_apply(&options, settings);
    dataset_close(&dataset);
    if (dataset_open(&dataset, &options, split, dataset_comm, &error))
        fail_msg("no error where \"%s\" is expected", part);
    assert_error(&error, error.kind, part);
}

void record_is_named(int64_t record, const char *part)
{
    char name[4096];
    dataset_name(&dataset, record, name, sizeof name);
    assert_has(name, part);
}
