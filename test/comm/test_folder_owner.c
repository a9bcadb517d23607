// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3
// joined
/* Detects which ranks share a directory. Nodes with local disks are simulated: each rank is a node
 * with its own directory. */
#include <dirent.h>
#include <unistd.h>

#include "base/file.h"
#include "comm/comm.h"
#include "rank_tests.h"
#include "temporary.h"

static struct error error;

TEST(test_owner)
{
    char path[2048];
    int owner = -1;
    snprintf(path, sizeof path, "%s/made/for/all", shared_folder);
    assert_ok(folder_make(path, "choose another", &error), &error);
    assert_ok(folder_owner(world, path, &owner, &error), &error);
    assert_int_equal(owner, 0);
    comm_barrier(world);
    DIR *listing = opendir(path);
    assert_non_null(listing);
    for (const struct dirent *entry; (entry = readdir(listing)) != NULL;)
        assert_int_equal(entry->d_name[0], '.'); /* no file is left */
    closedir(listing);
    comm_barrier(world);
    if (world->rank == 0)
        assert_int_equal(rmdir(path), 0);
}

static const struct comm_backend *real_backend;

static struct comm *split_alone(struct comm *comm)
{
    return real_backend->split(comm, comm->rank, 0);
}

/* Every second node has a local disk, the others share one. */
TEST(test_private_disks)
{
    char path[2048];
    int owner = -1;
    bool private_disk = world->rank % 2 == 1;
    snprintf(path, sizeof path, "%s/disk%d", shared_folder, private_disk ? world->rank : 0);
    struct comm_backend alone = *world->backend;
    alone.split_node = split_alone;
    real_backend = world->backend;
    world->backend = &alone;
    assert_ok(folder_make(path, "choose another", &error), &error);
    bool good = folder_owner(world, path, &owner, &error);
    world->backend = real_backend;
    assert_ok(good, &error);
    assert_int_equal(owner, private_disk ? world->rank : 0);
}

TEST(test_not_a_directory)
{
    char path[2048];
    int owner = -1;
    snprintf(path, sizeof path, "%s/file", shared_folder);
    if (world->rank == 0) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fclose(file);
    }
    comm_barrier(world);
    strcat(path, "/below");
    error_clear(&error);
    assert_false(folder_owner(world, path, &owner, &error));
    assert_error(&error, ERROR_FILE, "/file/below");
    assert_true(comm_same(world, error.text, strlen(error.text)));
}

/* The reason is that of the failed mkdir, not of a later check. */
TEST(test_reason)
{
    char path[2048];
    snprintf(path, sizeof path, "%s/link", shared_folder);
    if (world->rank == 0)
        assert_int_equal(symlink("nowhere", path), 0);
    comm_barrier(world);
    error_clear(&error);
    assert_false(folder_make(path, "go elsewhere", &error));
    assert_error(&error, ERROR_FILE, "/link");
    assert_has(error.text, "Not a directory; go elsewhere");
    error_clear(&error);
    assert_false(folder_make("", "go elsewhere", &error));
    assert_has(error.text, "No such file");
    error_clear(&error);
    memset(path, 'x', 300);
    path[300] = '\0';
    assert_false(folder_make(path, "go elsewhere", &error));
    assert_has(error.text, "File name too long");
}

TEST(test_names)
{
    char path[2048];
    unsigned seen = 0;
    DIR *entries = NULL;
    snprintf(path, sizeof path, "%s/names", shared_folder);
    if (world->rank == 0) {
        temporary_write("names/0", "");
        temporary_write("names/.1", "");
        temporary_directory("names/2");
    }
    comm_barrier(world);
    for (const char *name; (name = folder_next(&entries, path)) != NULL;) {
        const unsigned one = 1U << (name[strlen(name) - 1] - '0');
        assert_true(one <= 4 && (seen & one) == 0);
        seen |= one;
    }
    assert_int_equal(seen, 7);
    assert_null(entries);
    strcat(path, "/0"); /* a file */
    assert_null(folder_next(&entries, path));
}

/* Without the home folder there is no cache folder: a home folder is never created. */
TEST(test_cache)
{
    char path[2048], home[2048];
    unsetenv("XDG_CACHE_HOME");
    assert_int_equal(setenv("HOME", shared_folder, 1), 0);
    folder_cache(path, sizeof path);
    snprintf(home, sizeof home, "%s/.cache/vittrain", shared_folder);
    assert_string_equal(path, home);
    snprintf(home, sizeof home, "%s/no-home", shared_folder);
    assert_int_equal(setenv("HOME", home, 1), 0);
    folder_cache(path, sizeof path);
    assert_string_equal(path, "");
}

TEST_MAIN_WORLD(.setup = shared_folder_make, .teardown = shared_folder_remove)
