// SPDX-License-Identifier: BSD-3-Clause
/* The main function of programs of several ranks; a program with another one does not link this
 * file. */
#include "rank_tests.h"

enum { FILES_MOST = 32 };

static struct {
    char name[64];
    const struct test_group *group;
} files[FILES_MOST];
static int file_count;

void rank_tests_add(const char *path, const struct test_group *group)
{
    const char *slash = strrchr(path, '/');
    if (file_count == FILES_MOST)
        abort();
    snprintf(files[file_count].name, sizeof files[0].name, "%s", slash != NULL ? slash + 1 : path);
    strtok(files[file_count].name, ".");
    files[file_count++].group = group;
}

static bool is_named(const char *name, char **names)
{
    for (char **word = names; *word != NULL; word++)
        if (strcmp(*word, name) == 0)
            return true;
    return *names == NULL;
}

/* After a failure the ranks may be in different collectives, so the next files are left out. */
int main(int argc, char **argv)
{
    int64_t failed = 0;
    fixture_world_open(&argc, &argv);
    for (int i = 0; i < file_count && failed == 0; i++) {
        if (!is_named(files[i].name, argv + 1))
            continue;
        if (file_count > 1)
            printf("# file %s\n", files[i].name);
        failed = tests_run(files[i].group) != 0;
        comm_all_reduce(world, &failed, 1, COMM_INT64, COMM_MAX);
    }
    comm_world_close(world);
    return (int)failed;
}
