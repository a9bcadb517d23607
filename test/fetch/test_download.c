// SPDX-License-Identifier: BSD-3-Clause
/* Downloads from a server on this machine: complete, interrupted, resumed, with wrong content; data
 * sets unpacked from valid and hostile archives. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <archive.h>
#include <archive_entry.h>

#include "core/log.h"
#include "temporary.h"
#include "test.h"
#include "tools/fetch/download.h"
#include "web_server.h"

enum { BYTES = 5000 };

static unsigned char content[BYTES];
static char sha256[CHECKSUM_TEXT], md5[CHECKSUM_TEXT], etag[CHECKSUM_TEXT + 2];
static char target[1024];
static struct error error;

static int set_up(void **state)
{
    (void)state;
    error_clear(&error);
    remove(temporary_path("served/requests"));
    snprintf(target, sizeof target, "%s", temporary_path("here/data.bin"));
    char name[1200];
    static const char *const endings[] = {"", ".part", ".part.from"};
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s%s", target, endings[i]);
        remove(name);
    }
    return 0;
}

static bool is_there(const char *ending)
{
    char name[1200];
    snprintf(name, sizeof name, "%s%s", target, ending);
    return access(name, F_OK) == 0;
}

/* Return the requests that the server received, one per line. */
static const char *requests(void)
{
    static char text[4096];
    FILE *file = fopen(temporary_path("served/requests"), "r");
    size_t length = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
    text[length] = '\0';
    if (file != NULL)
        fclose(file);
    return text;
}

static void expect_success(bool good)
{
    assert_ok(good, &error);
    unsigned char found[BYTES + 1];
    FILE *file = fopen(target, "rb");
    assert_non_null(file);
    assert_int_equal(fread(found, 1, sizeof found, file), BYTES);
    fclose(file);
    assert_memory_equal(found, content, BYTES);
    assert_false(is_there(".part"));
    assert_false(is_there(".part.from"));
}

static void expect_failure(bool good, enum error_kind kind, const char *words)
{
    assert_false(good);
    assert_error(&error, kind, words);
    assert_false(is_there(""));
}

/* Leaves what an earlier call that broke off would have left. */
static void leave_part(const unsigned char *bytes, size_t count, const char *url,
                       const char *validator)
{
    char from[2048];
    temporary_directory("here");
    temporary_file("here/data.bin.part", bytes, count);
    int length = snprintf(from, sizeof from, "%s\n%s\n", url, validator);
    if (url != NULL)
        temporary_file("here/data.bin.part.from", from, (size_t)length);
}

TEST(test_whole)
{
    expect_success(fetch_file(web_server_url("range/data.bin"), target, sha256, md5, &error));
    assert_string_equal(requests(), "/range/data.bin -\n");
    expect_success(fetch_file(web_server_url("range/data.bin"), target, sha256, md5, &error));
    expect_success(fetch_file(web_server_url("range/data.bin"), target, NULL, NULL, &error));
    assert_string_equal(requests(), "/range/data.bin -\n");
    assert_int_equal(truncate(target, 100), 0); /* there, but not whole */
    expect_success(fetch_file(web_server_url("range/data.bin"), target, sha256, NULL, &error));
}

TEST(test_cut_connections)
{
    expect_success(fetch_file(web_server_url("cut/2000/data.bin"), target, NULL, md5, &error));
    assert_string_equal(requests(), "/cut/2000/data.bin -\n/cut/2000/data.bin bytes=2000-\n"
                                    "/cut/2000/data.bin bytes=4000-\n");
}

TEST(test_going_on)
{
    leave_part(content, 1234, web_server_url("range/data.bin"), etag);
    expect_success(fetch_file(web_server_url("range/data.bin"), target, NULL, NULL, &error));
    assert_string_equal(requests(), "/range/data.bin bytes=1234-\n");
    remove(target);
    leave_part(content, 1234, NULL, NULL); /* of unknown origin, but there is a sum to check by */
    expect_success(fetch_file(web_server_url("range/data.bin"), target, sha256, NULL, &error));
    assert_non_null(strstr(requests(), "bytes=1234-\n/range/data.bin bytes=1234-\n"));
}

/* The part is of another address, of another version, or the server knows no ranges. */
TEST(test_not_going_on)
{
    unsigned char other[1234] = {0};
    leave_part(other, sizeof other, "http://elsewhere/data.bin", "");
    expect_success(fetch_file(web_server_url("range/data.bin"), target, NULL, NULL, &error));
    assert_string_equal(requests(), "/range/data.bin -\n");
    remove(target);
    leave_part(other, sizeof other, web_server_url("range/data.bin"), "\"another version\"");
    expect_success(fetch_file(web_server_url("range/data.bin"), target, NULL, NULL, &error));
    remove(target);
    leave_part(other, sizeof other, web_server_url("plain/data.bin"), "");
    expect_success(fetch_file(web_server_url("plain/data.bin"), target, NULL, NULL, &error));
    assert_non_null(strstr(requests(), "/plain/data.bin bytes=1234-\n/plain/data.bin -\n"));
    remove(target);
    unsigned char longer[BYTES + 10] = {0};
    leave_part(longer, sizeof longer, web_server_url("range/data.bin"), etag);
    expect_success(fetch_file(web_server_url("range/data.bin"), target, NULL, NULL, &error));
}

/* The beginning was of something else: found by the sum, and got again as a whole. */
TEST(test_parts_that_do_not_fit)
{
    unsigned char other[1234] = {0};
    leave_part(other, sizeof other, web_server_url("range/data.bin"), etag);
    expect_success(fetch_file(web_server_url("range/data.bin"), target, sha256, NULL, &error));
    assert_string_equal(requests(), "/range/data.bin bytes=1234-\n/range/data.bin -\n");
}

TEST(test_wrong_sum)
{
    static const char wrong[] = "00000000000000000000000000000000";
    const char *url = web_server_url("range/data.bin");
    expect_failure(fetch_file(url, target, NULL, wrong, &error), ERROR_NETWORK, md5);
    assert_false(is_there(".part"));
    error_clear(&error);
    char wrong_twice[CHECKSUM_TEXT];
    snprintf(wrong_twice, sizeof wrong_twice, "%s%s", wrong, wrong);
    expect_failure(fetch_file(url, target, wrong_twice, NULL, &error), ERROR_NETWORK, sha256);
    assert_string_equal(requests(), "/range/data.bin -\n/range/data.bin -\n");
}

TEST(test_sum_of_the_server)
{
    char rest[256];
    snprintf(rest, sizeof rest, "linked/%s/data.bin", sha256);
    expect_success(fetch_file(web_server_url(rest), target, NULL, NULL, &error));
    remove(target);
    rest[10] = rest[10] == '0' ? '1' : '0';
    expect_failure(fetch_file(web_server_url(rest), target, NULL, NULL, &error), ERROR_NETWORK,
                   sha256);
}

TEST(test_refusals)
{
    expect_failure(fetch_file(web_server_url("range/none.bin"), target, NULL, NULL, &error),
                   ERROR_NETWORK, "HTTP 404");
    assert_string_equal(requests(), "/range/none.bin -\n");
    error_clear(&error);
    expect_failure(fetch_file("nonsense://x/data.bin", target, NULL, NULL, &error), ERROR_NETWORK,
                   "nonsense");
    error_clear(&error);
    expect_success(fetch_file(web_server_url("busy/2/data.bin"), target, NULL, NULL, &error));
    assert_string_equal(requests(), "/range/none.bin -\n/busy/2/data.bin -\n/busy/2/data.bin -\n"
                                    "/busy/2/data.bin -\n");
}

/* It breaks off each time and cannot go on: no endless loop. */
TEST(test_torn)
{
    expect_failure(fetch_file(web_server_url("torn/2000/data.bin"), target, NULL, md5, &error),
                   ERROR_NETWORK, "cannot resume it");
}

/* Nobody listens there; a few tries, then an end. */
TEST(test_no_server)
{
    expect_failure(fetch_file("http://127.0.0.1:1/data.bin", target, NULL, NULL, &error),
                   ERROR_NETWORK, "127.0.0.1");
}

TEST(test_file_url)
{
    char url[2048];
    snprintf(url, sizeof url, "file://%s", temporary_path("served/data.bin"));
    expect_success(fetch_file(url, target, sha256, NULL, &error));
    remove(target);
    leave_part(content, 1234, url, "");
    expect_success(fetch_file(url, target, NULL, NULL, &error));
    remove(target);
    snprintf(url, sizeof url, "file://%s", temporary_path("served/none.bin"));
    expect_failure(fetch_file(url, target, NULL, NULL, &error), ERROR_NETWORK, "none.bin");
}

TEST(test_unwritable)
{
    const char *url = web_server_url("range/data.bin");
    temporary_file("file", "", 0);
    expect_failure(fetch_file(url, temporary_path("file/below/data.bin"), NULL, NULL, &error),
                   ERROR_FILE, "file");
    error_clear(&error);
    temporary_directory("here/data.bin.part");
    expect_failure(fetch_file(url, target, NULL, md5, &error), ERROR_FILE, "data.bin.part");
    char part[1200];
    snprintf(part, sizeof part, "%s.part", target);
    assert_int_equal(rmdir(part), 0);
}

/* A limit on the size of files simulates a full disk. The received part is kept, and the download
 * resumes. */
TEST(test_no_room)
{
    struct rlimit before, small;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 3000;
    setrlimit(RLIMIT_FSIZE, &small);
    bool good = fetch_file(web_server_url("range/data.bin"), target, sha256, NULL, &error);
    setrlimit(RLIMIT_FSIZE, &before);
    expect_failure(good, ERROR_FILE, "data.bin.part");
    assert_true(is_there(".part"));
    error_clear(&error);
    expect_success(fetch_file(web_server_url("range/data.bin"), target, sha256, NULL, &error));
    assert_string_equal(requests(), "/range/data.bin -\n/range/data.bin bytes=3000-\n");
}

/* ---- archives */

static const char first_text[] = "the first file", second_text[] = "the second one";
static struct fetch_member members[2];
static char member_sum[2][CHECKSUM_TEXT];
static const struct fetch_archive archive = {.url = "http://127.0.0.1:1/set.tar.gz",
                                             .md5 = "0",
                                             .folder = "folder",
                                             .member = members,
                                             .member_count = 2};

static void add_entry(struct archive *writer, const char *name, const char *text,
                      const char *link_to)
{
    struct archive_entry *entry = archive_entry_new();
    archive_entry_set_pathname(entry, name);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_filetype(entry, link_to != NULL ? AE_IFLNK : AE_IFREG);
    if (link_to != NULL)
        archive_entry_set_symlink(entry, link_to);
    archive_entry_set_size(entry, (int64_t)strlen(text));
    assert_int_equal(archive_write_header(writer, entry), ARCHIVE_OK);
    archive_write_data(writer, text, strlen(text));
    archive_entry_free(entry);
}

/* served/set.tar.gz with a hostile beginning and these two files (NULL: left out). */
static void make_archive(const char *first, const char *second)
{
    struct archive *writer = archive_write_new();
    archive_write_add_filter_gzip(writer);
    archive_write_set_format_ustar(writer);
    assert_int_equal(archive_write_open_filename(writer, temporary_path("served/set.tar.gz")),
                     ARCHIVE_OK);
    add_entry(writer, "../evil", "climbs up", NULL);
    add_entry(writer, "folder/first", "", "../evil");
    add_entry(writer, "folder/unknown", "not asked for", NULL);
    if (first != NULL)
        add_entry(writer, "folder/first", first, NULL);
    if (second != NULL)
        add_entry(writer, "../../folder/second", second, NULL);
    assert_int_equal(archive_write_close(writer), ARCHIVE_OK);
    archive_write_free(writer);
}

static int set_up_archive(void **state)
{
    static const char *const left[] = {"unpacked/folder/first", "unpacked/folder/second",
                                       "unpacked/set.tar.gz"};
    for (int i = 0; i < 3; i++)
        remove(temporary_path(left[i]));
    for (int i = 0; i < 2; i++) {
        static const char *const names[] = {"first", "second"};
        const char *text = i == 0 ? first_text : second_text;
        temporary_write("member", text);
        error_defer(checksum_file(temporary_path("member"), "sha256", member_sum[i], &error));
        members[i] = (struct fetch_member){names[i], (int64_t)strlen(text), member_sum[i]};
    }
    return set_up(state);
}

static bool unpack(const char *rest)
{
    char directory[1024];
    snprintf(directory, sizeof directory, "%s", temporary_path("unpacked"));
    error_clear(&error);
    return fetch_archive(&archive, web_server_url(rest), directory, &error);
}

static void expect_bad_archive(const char *words)
{
    expect_failure(unpack("range/set.tar.gz"), ERROR_NETWORK, words);
    assert_int_not_equal(access(temporary_path("unpacked/set.tar.gz"), F_OK), 0);
    assert_int_not_equal(access(temporary_path("unpacked/folder/second"), F_OK), 0);
    assert_int_not_equal(access(temporary_path("unpacked/folder/second.part"), F_OK), 0);
}

TEST_WITH(test_archive, set_up_archive, NULL)
{
    make_archive(first_text, second_text);
    if (!unpack("range/")) /* completed with the archive's name */
        fail_msg("%s", error.text);
    struct stat status;
    assert_int_equal(lstat(temporary_path("unpacked/folder/first"), &status), 0);
    assert_true(S_ISREG(status.st_mode) && status.st_size == (off_t)strlen(first_text));
    assert_int_equal(access(temporary_path("unpacked/folder/second"), F_OK), 0);
    assert_int_not_equal(access(temporary_path("unpacked/folder/unknown"), F_OK), 0);
    assert_int_not_equal(access(temporary_path("unpacked/set.tar.gz"), F_OK), 0);
    assert_int_not_equal(access(temporary_path("evil"), F_OK), 0);
    assert_int_not_equal(access(temporary_path("unpacked/evil"), F_OK), 0);
    assert_true(unpack("range/set.tar.gz"));
    assert_string_equal(requests(), "/range/set.tar.gz -\n");
    temporary_file("unpacked/folder/second", "damaged later.", 14);
    assert_true(unpack("range/set.tar.gz"));
    assert_string_equal(requests(), "/range/set.tar.gz -\n/range/set.tar.gz -\n");
}

TEST_WITH(test_bad_archives, set_up_archive, NULL)
{
    make_archive(first_text, "the second 0ne");
    expect_bad_archive("SHA-256");
    make_archive(first_text, "the second one and more");
    expect_bad_archive("second: is too large");
    make_archive(first_text, "the");
    expect_bad_archive("second: is too small");
    make_archive(first_text, NULL);
    expect_bad_archive("second: is missing");
    make_archive(first_text, second_text);
    assert_int_equal(truncate(temporary_path("served/set.tar.gz"), 150), 0);
    expect_bad_archive("set.tar.gz");
    temporary_file("served/set.tar.gz", content, BYTES);
    expect_bad_archive("set.tar.gz");
}

TEST_WITH(test_weights, set_up_archive, NULL)
{
    static const char tiny[] = "\x02\0\0\0\0\0\0\0{}", page[] = "<html>sign in first</html>";
    const char *url = web_server_url("range/");
    char directory[1024];
    snprintf(directory, sizeof directory, "%s", temporary_path("weights"));
    temporary_file("served/vit_tiny_patch16_224.safetensors", tiny, sizeof tiny - 1);
    assert_true(fetch_weights("vit_tiny_patch16_224", url, directory, &error));
    assert_int_equal(access(temporary_path("weights/vit_tiny_patch16_224.safetensors"), F_OK), 0);
    temporary_file("served/vit_base_patch32_224.safetensors", page, sizeof page - 1);
    expect_failure(fetch_weights("vit_base_patch32_224", url, directory, &error), ERROR_NETWORK,
                   "not a safetensors");
    assert_int_not_equal(access(temporary_path("weights/vit_base_patch32_224.safetensors"), F_OK),
                         0);
    error_clear(&error);
    expect_failure(fetch_weights("vit_cifar", NULL, directory, &error), ERROR_USAGE,
                   "no published weights");
}

static int open_all(void **state)
{
    (void)state;
    for (int i = 0; i < BYTES; i++)
        content[i] = (unsigned char)(i * 7 + i / 256);
    temporary_file("served/data.bin", content, BYTES);
    error_defer(checksum_file(temporary_path("served/data.bin"), "sha256", sha256, &error));
    error_defer(checksum_file(temporary_path("served/data.bin"), "md5", md5, &error));
    snprintf(etag, sizeof etag, "\"%s\"", md5);
    return 0;
}

int main(void)
{
    log_open(0, LOG_WARN);
    temporary_open();
    temporary_directory("served");
    if (!web_server_open(temporary_path("served"))) {
        printf("1..0 # SKIP needs python3\n");
        temporary_close();
        return 0;
    }
    unsetenv("http_proxy"); /* the server is on this machine */
    unsetenv("all_proxy");
    unsetenv("ALL_PROXY");
    int failed = TESTS_RUN(.setup = open_all, .before = set_up);
    web_server_close();
    temporary_close();
    return failed;
}
