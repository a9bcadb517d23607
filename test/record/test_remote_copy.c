// SPDX-License-Identifier: BSD-3-Clause
/* output.upload with a program `rclone` of the test, which writes its words to a file. */
#include "record/metrics.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "temporary.h"
#include "test.h"

/* Install a program `rclone` that writes its first words, then does `action`. */
static void rclone_install(const char *action)
{
    char text[2048];
    snprintf(text, sizeof text,
             "#!/bin/sh\nfor word; do case $word in --[!f]*) ;; *) echo \"$word\";; esac; "
             "done >>'%s'\n%s\n",
             temporary_path("words"), action);
    unlink(temporary_path("words"));
    assert_int_equal(chmod(temporary_write("bin/rclone", text), 0755), 0);
}

static void links_set(const char *last, const char *best)
{
    unlink(temporary_path("run/checkpoints/last.h5"));
    unlink(temporary_path("run/checkpoints/best.h5"));
    assert_int_equal(symlink(last, temporary_path("run/checkpoints/last.h5")), 0);
    assert_int_equal(symlink(best, temporary_path("run/checkpoints/best.h5")), 0);
}

/* Upload at the start and at the end; between them the last checkpoint changes. Return the log. */
static char *log_of_upload(double seconds)
{
    unlink(temporary_path("log"));
    assert_true(log_to_file(temporary_path("log"), &error));
    links_set("step-1.h5", "step-1.h5");
    struct remote_copy *upload = remote_copy_open(temporary_path("run"), "disk:runs/");
    remote_copy_follow(upload, 0);
    links_set("step-2.h5", "step-2.h5");
    remote_copy_close(upload, seconds);
    return temporary_text("log");
}

TEST(the_newest_checkpoints_are_sent_and_superseded_ones_deleted)
{
    rclone_install("");
    OWNED char *log = log_of_upload(60), *words = temporary_text("words");
    const char *first = strstr(words, "+ /checkpoints/step-1.h5");
    const char *second = strstr(words, "+ /checkpoints/step-2.h5");
    const char *deletion = strstr(words, "deletefile\ndisk:runs/run/checkpoints/step-1.h5\n");
    assert_true(first != NULL && second > first && deletion > second);
    assert_null(strstr(deletion + 1, "deletefile\ndisk:runs/run/checkpoints/step-2.h5"));
    assert_has(log, "disk:runs/run");
}

TEST(a_failure_is_a_warning_with_the_last_message_without_signatures)
{
    rclone_install("cat >&2 <<END\n2026/11/26 18:22:17 ERROR : first\n"
                   "2026/11/26 18:22:18 ERROR : Put \"http://host/key?X-Signature=abc\": refused\n"
                   "2026/11/26 18:22:18 NOTICE:   1 B / 1 B, 100%, 0 B/s, ETA 3s\nEND\nexit 1");
    OWNED char *log = log_of_upload(60);
    assert_has(log, "output.upload: ERROR : Put \"http://host/key\": refused");
    assert_has(log, "rclone copy --links");
    assert_null(strstr(log, "X-Signature"));
    assert_null(strstr(strstr(log, "the run continues") + 1, "the run continues"));
}

TEST(a_copy_that_hangs_is_ended)
{
    assert_int_equal(mkfifo(temporary_path("never"), 0600), 0);
    char action[1024];
    snprintf(action, sizeof action, "read line <'%s'", temporary_path("never"));
    rclone_install(action);
    OWNED char *log = log_of_upload(0.1);
    assert_has(log, "out of time");
}

TEST(a_missing_program_is_named)
{
    unlink(temporary_path("bin/rclone"));
    setenv("PATH", temporary_path("bin"), 1);
    OWNED char *log = log_of_upload(60);
    assert_has(log, "install rclone");
}

static void set_up(void)
{
    char path[4096];
    temporary_open();
    temporary_directory("run/checkpoints");
    snprintf(path, sizeof path, "%s:%s", temporary_path("bin"), getenv("PATH"));
    setenv("PATH", path, 1);
    log_open(0, LOG_INFO);
}

TEST_MAIN(.setup = set_up, .teardown = temporary_close)
