// SPDX-License-Identifier: BSD-3-Clause
#include "temporary.h"

#include <limits.h>

#include "base/file.h"
#include "test.h"

static char root[PATH_MAX / 2];
static char path[PATH_MAX];

const char *temporary_open(void)
{
    const char *parent = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/vittrain-test-XXXXXX", parent != NULL ? parent : "/tmp");
    assert_non_null(mkdtemp(root));
    return root;
}

void temporary_close(void)
{
    folder_remove(root);
}

void temporary_setup(void)
{
    temporary_open();
}

const char *temporary_path(const char *name)
{
    int length = snprintf(path, sizeof path, "%s/%s", root, name);
    assert_true(length > 0 && (size_t)length < sizeof path);
    return path;
}

const char *temporary_directory(const char *name)
{
    assert_ok(folder_make(temporary_path(name), "", &error), &error);
    return path;
}

const char *temporary_file(const char *name, const void *content, size_t bytes)
{
    FILE *file = fopen(temporary_path(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(content, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    return path;
}

const char *temporary_write(const char *name, const char *text)
{
    const char *slash = strrchr(name, '/');
    OWNED char *folder = allocate_text("%.*s", slash != NULL ? (int)(slash - name) : 0, name);
    temporary_directory(folder);
    return temporary_file(name, text, strlen(text));
}

char *temporary_text(const char *name)
{
    char *text = text_file_read(temporary_path(name), NULL);
    assert_non_null(text);
    return text;
}
