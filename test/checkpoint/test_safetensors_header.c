// SPDX-License-Identifier: BSD-3-Clause
/* Invalid headers of safetensors files. First each error with its message; then headers with one
 * changed byte or a cut: what is accepted must be consistent. */
#include "checkpoint/safetensors.h"
#include "test.h"

enum { DATA = 64 };

static const char good_header[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
    "\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[24,32]},"
    "\"c\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[32,40]},"
    "\"e\":{\"dtype\":\"F16\",\"shape\":[3,0],\"data_offsets\":[40,40]},"
    "\"d\":{\"dtype\":\"I64\",\"shape\":[1,3],\"data_offsets\":[40,64]}}";

/* Assert that the tensors of an accepted header fill the data without overlaps. */
static void assert_consistent(const struct safetensors_header *header, int64_t data_bytes)
{
    int64_t next = 0;
    for (int64_t n = 0; n < header->count; n++) {
        const struct safetensors_entry *entry = &header->entry[n];
        int64_t count = 1;
        for (int d = 0; d < entry->dimensions; d++)
            count *= entry->shape[d];
        assert_int_equal(entry->count, count);
        assert_int_equal(entry->begin, next);
        assert_ptr_equal(safetensors_find(header, entry->name), entry);
        next += count * entry->element;
    }
    assert_int_equal(next, data_bytes);
}

static bool parse(const char *text, size_t length, int64_t data_bytes, struct error *error)
{
    struct safetensors_header header;
    error_clear(error);
    bool good = safetensors_header_parse(text, length, data_bytes, "FILE", &header, error);
    assert_int_equal(good, error->kind == ERROR_NONE);
    if (good)
        assert_consistent(&header, data_bytes);
    else
        assert_null(strchr(error->text, '\n'));
    safetensors_header_free(&header);
    return good;
}

TEST(test_good_header)
{
    struct error error;
    assert_true(parse(good_header, strlen(good_header), DATA, &error));
    assert_true(parse("{}", 2, 0, &error));
    assert_true(parse("{}      ", 8, 0, &error));
}

TEST(test_lies)
{
    static const struct {
        const char *header, *what;
    } lies[] = {
        {"", "not JSON"},
        {"{", "not JSON"},
        {"[]", "not a JSON object"},
        {"{\"a\":{},\"a\":{}}", "not JSON (duplicate object key"},
        {"{\"a\":1}", "'a' has a missing or unknown dtype"},
        {"{\"a\":{}}", "missing or unknown dtype"},
        {"{\"a\":{\"dtype\":4}}", "missing or unknown dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1]}}", "shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296]}}", "shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1]}}", "shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999]}}", "not JSON"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[16],\"data_offsets\":[0]}}", "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[16],\"data_offsets\":[64,0]}}", "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[16],\"data_offsets\":[-64,0]}}", "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[16],\"data_offsets\":[0,65]}}", "beyond the end"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[15],\"data_offsets\":[0,64]}}", "do not agree"},
        {"{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}",
         "do not agree"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[60],\"data_offsets\":[4,64]}}", "gap"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[60],\"data_offsets\":[0,60]}}", "4 bytes follow"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[40],\"data_offsets\":[0,40]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[25],\"data_offsets\":[39,64]}}",
         "'b' overlaps"},
    };
    struct error error;
    for (size_t n = 0; n < sizeof lies / sizeof *lies; n++) {
        assert_false(parse(lies[n].header, strlen(lies[n].header), DATA, &error));
        assert_has(error.text, lies[n].what);
        assert_error(&error, ERROR_CHECKPOINT, "FILE");
    }
}

TEST(test_deep_nesting)
{
    enum { DEPTH = 100000 };
    struct error error;
    char *text = malloc(DEPTH);
    assert_non_null(text);
    memset(text, '[', DEPTH);
    assert_false(parse(text, DEPTH, DATA, &error));
    free(text);
}

/* Each byte is replaced by each of these, and the text is cut at each length. The memory has the
 * exact size, so that a sanitizer finds accesses beyond it. */
TEST(test_changed_headers)
{
    static const char useful[] = "{}[]:,\"09-.eF\\ \xff"; /* and 0 */
    const size_t length = strlen(good_header);
    char *text = malloc(length);
    struct error error;
    size_t accepted = 0;
    assert_non_null(text);
    for (size_t place = 0; place < length; place++) {
        memcpy(text, good_header, length);
        for (size_t n = 0; n < sizeof useful; n++) {
            text[place] = useful[n];
            accepted += parse(text, length, DATA, &error);
        }
        char *cut = malloc(place > 0 ? place : 1);
        assert_non_null(cut);
        memcpy(cut, good_header, place);
        assert_false(parse(cut, place, DATA, &error));
        free(cut);
    }
    assert_in_range(accepted, 1, length * sizeof useful / 2);
    free(text);
}

TEST_MAIN()
