// SPDX-License-Identifier: BSD-3-Clause
/* Endings of names, and printed sizes. */
#include "core/text.h"

#include <sys/resource.h>

#include "test.h"

TEST(a_name_ends_so_or_not)
{
    assert_true(text_ends_with("runs/a/step-4.h5", ".h5"));
    assert_true(text_ends_with("a.h5.part", ".h5.part"));
    assert_true(text_ends_with("a.tar.gz", ".gz"));
    assert_false(text_ends_with("a.h5.part", ".h5"));
    assert_false(text_ends_with("a.H5", ".h5"));
    assert_false(text_ends_with("ah5", ".h5"));
    assert_false(text_ends_with(".h5", ".h5"));
    assert_false(text_ends_with("5", ".h5"));
    assert_false(text_ends_with("", ".h5"));
}

TEST(a_colon_before_the_first_slash_is_of_a_remote)
{
    assert_true(text_is_remote("s3:bucket/path"));
    assert_true(text_is_remote(":local:/path"));
    assert_false(text_is_remote("./a:b.h5"));
    assert_false(text_is_remote("runs/a"));
}

TEST(memory_is_shown_in_mib)
{
    assert_true(mib(0) == 0);
    assert_true(mib((size_t)3 << 20) == 3);
    assert_true(mib(512 << 10) == 0.5);
}

TEST(the_limit_on_files_is_named)
{
    char text[80] = "a.png: Too many open files; close some",
         all[80] = "Too many open files in system";
    char expected[80], small[20] = "Too many open files";
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    snprintf(expected, sizeof expected,
             "a.png: Too many open files: the limit is %llu (ulimit -n); close some",
             (unsigned long long)limit.rlim_cur);
    for (int n = 0; n < 2; n++) {
        text_add_file_limit(text, sizeof text);
        assert_string_equal(text, expected);
    }
    text_add_file_limit(all, sizeof all);
    assert_string_equal(all, "Too many open files in system");
    text_add_file_limit(small, sizeof small);
    assert_string_equal(small, "Too many open files");
}

TEST_MAIN()
