/* Signatures of object stores against those that AWS has published: the suite of Signature Version
 * 4 (as far as it is not about normalised paths, which S3 does not have) and the examples of the S3
 * API Reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "store/sign.h"

enum { PAIRS = 8 };

struct vector {
    const char *name, *method, *path; /* the path as meant */
    struct store_pair query[PAIRS], header[PAIRS];
    const char *payload;
    const char *signature;
};

static int count_of(const struct store_pair *pairs)
{
    int count = 0;
    while (count < PAIRS && pairs[count].name != NULL)
        count++;
    return count;
}

static void check(const struct vector *vector, const struct store_signing *constant)
{
    char path[512], sha256[STORE_SHA256], authorization[STORE_AUTHORIZATION];
    struct store_signing signing = *constant;
    assert_true(store_encode(vector->path, true, path, sizeof path));
    store_sha256(vector->payload, strlen(vector->payload), sha256);
    signing.method = vector->method;
    signing.path = path;
    signing.query = vector->query;
    signing.query_count = count_of(vector->query);
    signing.header = vector->header;
    signing.header_count = count_of(vector->header);
    signing.payload_sha256 = sha256;
    assert_true(store_sign(&signing, authorization));
    const char *signature = strstr(authorization, "Signature=");
    assert_non_null(signature);
    if (strcmp(signature + 10, vector->signature) != 0)
        fail_msg("%s: %s", vector->name, authorization);
}

#define SUITE_HEADERS                                                                              \
    {"host", "example.amazonaws.com"},                                                             \
    {                                                                                              \
        "x-amz-date", "20150830T123600Z"                                                           \
    }

static const struct vector suite[] = {
    {"get-vanilla",
     "GET",
     "/",
     {{0}},
     {SUITE_HEADERS},
     "",
     "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
    {"get-unreserved",
     "GET",
     "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
     {{0}},
     {SUITE_HEADERS},
     "",
     "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
    {"get-vanilla-query-order-key-case",
     "GET",
     "/",
     {{"Param2", "value2"}, {"Param1", "value1"}},
     {SUITE_HEADERS},
     "",
     "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
    {"get-vanilla-query-order-value",
     "GET",
     "/",
     {{"Param1", "value2"}, {"Param1", "value1"}},
     {SUITE_HEADERS},
     "",
     "5772eed61e12b33fae39ee5e7012498b51d56abc0abb7c60486157bd471c4694"},
    {"get-vanilla-utf8-query",
     "GET",
     "/",
     {{"\xe1\x88\xb4", "bar"}},
     {SUITE_HEADERS},
     "",
     "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"},
    {"get-header-value-order",
     "GET",
     "/",
     {{0}},
     {SUITE_HEADERS, {"my-header1", "value4,value1,value3,value2"}},
     "",
     "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01"},
    {"get-header-key-duplicate",
     "GET",
     "/",
     {{0}},
     {SUITE_HEADERS, {"my-header1", "value2,value2,value1"}},
     "",
     "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea"},
    {"get-header-value-trim",
     "GET",
     "/",
     {{0}},
     {{"my-header2", "\"a   b   c\""}, SUITE_HEADERS, {"my-header1", " value1"}},
     "",
     "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
    {"post-x-www-form-urlencoded",
     "POST",
     "/",
     {{0}},
     {SUITE_HEADERS, {"content-type", "application/x-www-form-urlencoded"}},
     "Param1=value1",
     "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"},
    {"session token",
     "GET",
     "/",
     {{0}},
     {SUITE_HEADERS,
      {"x-amz-security-token", "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267"}},
     "",
     "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8"},
};

static void test_suite(void **state)
{
    (void)state;
    const struct store_signing constant = {.date = "20150830T123600Z",
                                           .region = "us-east-1",
                                           .service = "service",
                                           .access_key = "AKIDEXAMPLE",
                                           .secret_key =
                                               "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"};
    for (size_t n = 0; n < sizeof suite / sizeof suite[0]; n++)
        check(&suite[n], &constant);
}

#define S3_HEADERS                                                                                 \
    {"host", "examplebucket.s3.amazonaws.com"},                                                    \
    {                                                                                              \
        "x-amz-date", "20130524T000000Z"                                                           \
    }
#define NOTHING_SHA256                                                                             \
    {                                                                                              \
        "x-amz-content-sha256", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" \
    }

static const struct vector examples[] = {
    {"GET Object",
     "GET",
     "/test.txt",
     {{0}},
     {S3_HEADERS, NOTHING_SHA256, {"range", "bytes=0-9"}},
     "",
     "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
    {"PUT Object",
     "PUT",
     "/test$file.text",
     {{0}},
     {S3_HEADERS,
      {"x-amz-content-sha256", "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"},
      {"date", "Fri, 24 May 2013 00:00:00 GMT"},
      {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
     "Welcome to Amazon S3.",
     "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
    {"GET Bucket Lifecycle",
     "GET",
     "/",
     {{"lifecycle", ""}},
     {S3_HEADERS, NOTHING_SHA256},
     "",
     "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
    {"List Objects",
     "GET",
     "/",
     {{"prefix", "J"}, {"max-keys", "2"}},
     {S3_HEADERS, NOTHING_SHA256},
     "",
     "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
};

static void test_examples(void **state)
{
    (void)state;
    const struct store_signing constant = {.date = "20130524T000000Z",
                                           .region = "us-east-1",
                                           .service = "s3",
                                           .access_key = "AKIAIOSFODNN7EXAMPLE",
                                           .secret_key =
                                               "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
    for (size_t n = 0; n < sizeof examples / sizeof examples[0]; n++)
        check(&examples[n], &constant);
}

/* A name that another one begins with comes first, though '-' and digits sort before '='. */
static void test_query(void **state)
{
    (void)state;
    static const struct store_pair query[] = {
        {"part-number", "2"}, {"part", "1"}, {"part1", "3"}, {"a b", "x/y+z"}, {"uploads", ""}};
    char text[256];
    assert_true(store_encode_query(query, 5, text, sizeof text));
    assert_string_equal(text, "a%20b=x%2Fy%2Bz&part=1&part-number=2&part1=3&uploads=");
    assert_false(store_encode_query(query, 5, text, 20));
}

static void test_too_long(void **state)
{
    (void)state;
    char text[8], token[40000], authorization[STORE_AUTHORIZATION];
    assert_true(store_encode("a b/c", true, text, 8 * sizeof text[0]));
    assert_string_equal(text, "a%20b/c");
    assert_false(store_encode("a b/cd", true, text, sizeof text));
    memset(token, 'x', sizeof token - 1);
    token[sizeof token - 1] = '\0';
    const struct store_pair header[] = {{"x-amz-security-token", token}};
    const struct store_signing signing = {.method = "GET",
                                          .path = "/",
                                          .header = header,
                                          .header_count = 1,
                                          .payload_sha256 = "",
                                          .date = "20130524T000000Z",
                                          .region = "us-east-1",
                                          .service = "s3",
                                          .access_key = "A",
                                          .secret_key = "B"};
    assert_false(store_sign(&signing, authorization));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_suite),
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_query),
        cmocka_unit_test(test_too_long),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
