// SPDX-License-Identifier: BSD-3-Clause
// system
/* The child process that parses HDF5 files: it fails, exceeds its limits, or sends changed
 * descriptions. Each is one error line. test_checkpoint_damage has the malicious files. */
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hdf5/hdf5_reader.h"
#include "hdf5/hdf5_writer.h"
#include "model_fixture.h"
#include "temporary.h"

static const struct fixture_shape small = {.width = 4, .side = 1, .classes = 2, .hidden = 3};
static char checkpoint[512];
static const char *itself; /* this program */

static void write_checkpoint(void)
{
    FIXTURE(fixture, 1, &small, 1, false);
    error_clear(&error);
    assert_ok(fixture_write(&fixture, WRITERS_ALL, 9, &error), &error);
}

static bool read_checkpoint(const char *path)
{
    struct checkpoint_contents contents;
    error_clear(&error);
    bool good = checkpoint_file_read(path, &contents, &error);
    checkpoint_contents_free(&contents);
    return good;
}

/* Assert that the file is refused with one line of this kind that names it and contains `words`. */
static void refused(enum error_kind kind, const char *words)
{
    assert_false(read_checkpoint(checkpoint));
    assert_error(&error, kind, checkpoint);
    assert_has(error.text, words);
}

TEST(test_good_files)
{
    struct options options;
    assert_true(read_checkpoint(checkpoint));
    options_default(&options);
    assert_false(
        checkpoint_deck_parse("[model]\nclasses = 1000000000\n", "a.h5", &options, &error));
    assert_error(&error, ERROR_CHECKPOINT, "model.classes");
}

/* A link to a pipe, which would block if it was opened. Only a process that has not read
 * files with HDF5 can make it: the reader removes such links from HDF5. */
TEST(test_external_link)
{
    const char *pipe = temporary_path("pipe");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    hid_t file = H5Fopen(checkpoint, H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(H5Ldelete(file, "units", H5P_DEFAULT) >= 0);
    assert_true(H5Lcreate_external(pipe, "/units", file, "units", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    assert_true(H5Fclose(file) >= 0);
    refused(ERROR_CHECKPOINT, "link");
    write_checkpoint();
}

/* Use a shell script as the child. */
static void set_script(const char *commands)
{
    static char script[4096];
    snprintf(script, sizeof script, "%s", temporary_path("child.sh"));
    FILE *file = fopen(script, "w");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\n%s\n", commands);
    assert_int_equal(fchmod(fileno(file), 0700), 0);
    assert_int_equal(fclose(file), 0);
    hdf5_child_set_program(script);
}

/* A child that cannot work: the program is missing, crashes or is killed. */
TEST(test_child_that_fails)
{
    hdf5_child_set_program("./not-there");
    assert_false(read_checkpoint(checkpoint));
    assert_error(&error, ERROR_MEMORY, "No such file");
    hdf5_child_set_program("/bin/false");
    refused(ERROR_MEMORY, "exit code 1");
    hdf5_child_set_program("/bin/true");
    refused(ERROR_CHECKPOINT, "exit code 0");
    set_script("kill -SEGV $$");
    refused(ERROR_CHECKPOINT, "signal 11");
    set_script("kill -KILL $$");
    refused(ERROR_MEMORY, "signal 9");
    set_script("kill -ALRM $$");
    refused(ERROR_MEMORY, "did not end within");
    set_script("ulimit -v 100000; exec ./vittrain \"$@\"");
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    refused(ERROR_MEMORY, "exit code");
#endif
    hdf5_child_set_program("./vittrain");
}

/* mpirun forwards some signals to the child, too. */
TEST(test_forwarded_signals)
{
    set_script("kill -USR1 $$; kill -USR2 $$; kill -TERM $$; exec ./vittrain \"$@\"");
    assert_true(read_checkpoint(checkpoint));
    hdf5_child_set_program("./vittrain");
}

/* For test_limits. That on its CPU time is lower here, so that the test is short. */
static int child_limits(void)
{
    struct rlimit core;
    if (!hdf5_child_limit(1))
        return 6;
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    if (mmap(NULL, (size_t)2 << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
        return 7;
#endif
    if (getrlimit(RLIMIT_CORE, &core) != 0 || core.rlim_cur != 0 || alarm(60) == 0)
        return 8;
    for (;;)
        continue;
}

TEST(test_limits)
{
    char command[1024];
    snprintf(command, sizeof command, "exec %s --limits", itself);
    set_script(command);
    refused(ERROR_CHECKPOINT, "CPU time");
    hdf5_child_set_program("./vittrain");
}

/* A child that HDF5 has corrupted can send any description. */
TEST(test_changed_descriptions)
{
    static const char *const values[] = {"0",  "-1",  "9223372036854775807", "1e300", "null", "[]",
                                         "{}", "\"\""};
    char command[2048], path[512];
    int refusals = 0, tried = 0;
    snprintf(path, sizeof path, "%s", temporary_path("description"));
    snprintf(command, sizeof command, "cat '%s'", path);
    set_script(command);
    char *text = hdf5_describe(checkpoint, "");
    for (const char *at = text; (at = strpbrk(at, ":,")) != NULL;) {
        at++;
        const char *end = at + strcspn(at, ",]}");
        for (int n = 0; n < 2; n++, tried++) {
            const char *value = values[tried % (int)(sizeof values / sizeof *values)];
            const size_t bytes = (size_t)(at - text) + strlen(value) + strlen(end);
            FILE *file = fopen(path, "w");
            fprintf(file, "%016zx%.*s%s%s", bytes + (tried % 10 == 9), (int)(at - text), text,
                    value, end);
            fclose(file);
            const bool good = read_checkpoint(checkpoint);
            assert_true(good || error.kind == ERROR_CHECKPOINT);
            refusals += !good;
        }
    }
    free(text);
    assert_in_range(refusals, tried / 8, tried - 1);
    hdf5_child_set_program("./vittrain");
}

/* ---- */

/* AddressSanitizer turns a crash into an exit code; in the child it must be a signal. */
static void sanitizer_aborts(void)
{
    const char *given = getenv("ASAN_OPTIONS");
    char settings[1024];
    snprintf(settings, sizeof settings, "%s:abort_on_error=1", given != NULL ? given : "");
    setenv("ASAN_OPTIONS", settings, 1);
}

static void files_make(void)
{
    temporary_setup();
    sanitizer_aborts();
    hdf5_child_set_program("./vittrain");
    fixture_folder_make();
    snprintf(checkpoint, sizeof checkpoint, "%s", folder_step(9));
    write_checkpoint();
}

static void files_remove(void)
{
    fixture_folder_remove();
    temporary_close();
}

int main(int argc, char **argv)
{
    itself = argv[0];
    if (argc > 1 && strcmp(argv[1], "--limits") == 0)
        return child_limits();
    fixture_world_open(&argc, &argv);
    const int failed = TESTS_RUN(.setup = files_make, .teardown = files_remove);
    comm_world_close(world);
    return failed;
}
