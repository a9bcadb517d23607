/* What uploads read and compute before they ask a store anything. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "store/upload.h"
#include "store/xml.h"

/* 10,000 parts of at least 5 MiB and at most 5 GiB must do for whatever is sent, up to 5 TiB. */
static void parts_suffice(void **state)
{
    (void)state;
    static const int64_t sizes[] = {
        1, 16777216, 16777217, 167772160000, 167772160001, INT64_C(1) << 40, INT64_C(5) << 40};
    for (size_t n = 0; n < sizeof sizes / sizeof sizes[0]; n++) {
        int64_t part = store_part_bytes(sizes[n]);
        assert_true((sizes[n] + part - 1) / part <= STORE_PARTS);
        assert_true(part >= INT64_C(5) << 20 && part <= INT64_C(5) << 30);
    }
    assert_int_equal(store_part_bytes(1), 16777216);
    assert_int_equal(store_part_bytes(167772160001), 17825792);
}

static void addresses(void **state)
{
    (void)state;
    static const char *const bad[] = {"",          "bucket/key", "s3://",       "s3://ab/x",
                                      "s3:/abc/x", "s3://a c/x", "http://abc/x"};
    struct store_url url;
    struct error error = {.kind = ERROR_NONE};
    assert_true(store_url_read("s3://my.bucket-1/runs/a b/", "here", &url, &error));
    assert_string_equal(url.bucket, "my.bucket-1");
    assert_string_equal(url.key, "runs/a b/");
    assert_true(store_url_read("s3://abc", "here", &url, &error));
    assert_string_equal(url.key, "");
    for (size_t n = 0; n < sizeof bad / sizeof bad[0]; n++) {
        error_clear(&error);
        assert_false(store_url_read(bad[n], "here", &url, &error));
        assert_int_equal(error.kind, ERROR_USAGE);
    }
}

static struct xml_span span(const char *text)
{
    return (struct xml_span){text, text + strlen(text)};
}

static void elements(void **state)
{
    (void)state;
    char text[64], small[4];
    struct xml_span rest =
        span("<?xml version=\"1.0\"?>\n<List xmlns=\"http://s3\"><Parts>no</Parts>"
             "<Part><ETag>&quot;a&#38;b&#x3c;&lt;&amp;amp;&quot;</ETag></Part>"
             "<Part/><Part ><ETag>2</ETag></Part></List>");
    struct xml_span one;
    assert_true(xml_next(&rest, "Part", &one));
    assert_true(xml_text(one, "ETag", text, sizeof text));
    assert_string_equal(text, "\"a&b<<&amp;\"");
    assert_false(xml_text(one, "ETag", small, sizeof small));
    assert_string_equal(small, "");
    assert_true(xml_next(&rest, "Part", &one));
    assert_true(one.begin == one.end);
    assert_true(xml_next(&rest, "Part", &one));
    assert_true(xml_text(one, "ETag", text, sizeof text));
    assert_string_equal(text, "2");
    assert_false(xml_next(&rest, "Part", &one));
}

/* Every beginning of a reply: a connection may break anywhere. */
static void cut_replies(void **state)
{
    (void)state;
    static const char whole[] = "<E><Code>&amp;&#65;x</Code></E>";
    for (size_t length = 0; length < sizeof whole; length++) {
        char cut[sizeof whole], text[16];
        memcpy(cut, whole, length);
        bool found = xml_text((struct xml_span){cut, cut + length}, "Code", text, sizeof text);
        assert_int_equal(found, length >= strlen("<E><Code>&amp;&#65;x</Code>"));
        assert_string_equal(text, found ? "&Ax" : "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_suffice),
        cmocka_unit_test(addresses),
        cmocka_unit_test(elements),
        cmocka_unit_test(cut_replies),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
