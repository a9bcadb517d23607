// SPDX-License-Identifier: BSD-3-Clause
/* The lines of `predict`, also with class names that need quoting in CSV and JSON. */
#include <jansson.h>

#include "base/text.h"
#include "commands/prediction.h"

#include "test.h"

static float probabilities[] = {0.25f, 0.75f};

/* Return what `write` writes for a sample of the second class, whose name is class_name. The caller
 * frees the result. */
static char *text_of(void (*write)(FILE *, const struct prediction_line *), const char *class_name,
                     const char *file)
{
    struct text_stream text;
    char first[] = "first", name[80];
    char *const names[] = {first, name};
    const struct prediction_line line = {.file = file,
                                         .record = 7,
                                         .label = 0,
                                         .predicted = 1,
                                         .class_name = names,
                                         .named = 2,
                                         .classes = 2,
                                         .probabilities = probabilities};
    snprintf(name, sizeof name, "%s", class_name);
    write(text_stream_open(&text), &line);
    return text_stream_close(&text);
}

TEST(csv_names_are_quoted_where_needed)
{
    static const char *const names[][2] = {{"cat", "cat"},
                                           {"", ""},
                                           {"tench, Tinca tinca", "\"tench, Tinca tinca\""},
                                           {"5\" disk", "\"5\"\" disk\""},
                                           {"two\nlines", "\"two\nlines\""},
                                           {"a\rb", "\"a\rb\""}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char expected[80];
        snprintf(expected, sizeof expected, "7,0,1,%s,0.25,0.75\n", names[i][1]);
        char *text = text_of(prediction_write_csv, names[i][0], NULL);
        assert_string_equal(text, expected);
        free(text);
        snprintf(expected, sizeof expected, "%s,1,cat,0.25,0.75\n", names[i][1]);
        text = text_of(prediction_write_csv, "cat", names[i][0]);
        assert_string_equal(text, expected);
        free(text);
    }
}

TEST(json_names_come_back)
{
    /* The last name is not UTF-8. */
    static const char *const names[][2] = {{"back\\slash", "back\\slash"},
                                           {"5\" two\nlines\t\001", "5\" two\nlines\t\001"},
                                           {"k\303\244se", "k\303\244se"},
                                           {"k\344se", "k?se"}};
    for (size_t i = 0; i < 2 * sizeof names / sizeof names[0]; i++) {
        json_error_t error;
        const char *const *name = names[i / 2];
        const bool is_file = i % 2 == 1;
        char *text =
            text_of(prediction_write_json, is_file ? "cat" : name[0], is_file ? name[0] : NULL);
        json_t *object = json_loads(text, 0, &error);
        if (object == NULL)
            fail_msg("%s: %s", error.text, text);
        assert_string_equal(json_string_value(json_object_get(object, is_file ? "file" : "class")),
                            name[1]);
        assert_int_equal(json_integer_value(json_object_get(object, "record")), is_file ? 0 : 7);
        assert_int_equal(json_integer_value(json_object_get(object, "predicted")), 1);
        const json_t *shares = json_object_get(object, "probabilities");
        assert_int_equal(json_array_size(shares), 2);
        assert_true(json_number_value(json_array_get(shares, 1)) == 0.75);
        json_decref(object);
        free(text);
    }
}

TEST(what_is_not_finite_is_unknown)
{
    probabilities[0] = NAN;
    char *text = text_of(prediction_write_csv, "cat", NULL);
    assert_string_equal(text, "7,0,1,cat,,0.75\n");
    free(text);
    text = text_of(prediction_write_json, "cat", NULL);
    assert_string_equal(text, "{\"record\":7,\"label\":0,\"predicted\":1,\"class\":\"cat\","
                              "\"probabilities\":[null,0.75]}\n");
    free(text);
}

/* The first classes in descending order; names without control characters. */
TEST(the_table_has_the_first_classes)
{
    char cat[] = "cat", hostile[] = "a\033[2J\302\233b\177\tk\303\244se";
    char *const names[] = {cat, hostile};
    const float shares[] = {0.125f, 0.5f, NAN, 0.25f, 0.125f, 0};
    const struct prediction_line line = {.file = "two\nlines",
                                         .class_name = names,
                                         .named = 2,
                                         .classes = 6,
                                         .probabilities = shares};
    struct prediction_line few = line;
    struct text_stream text;
    prediction_write_table(text_stream_open(&text), &line);
    few.classes = few.named = 1;
    few.probabilities = shares + 2;
    prediction_write_table(text.stream, &few);
    char *table = text_stream_close(&text);
    assert_string_equal(table, "two lines\n   50.00 %  a [2J  b  k\303\244se\n"
                               "   25.00 %  class 3\n   12.50 %  cat\n   12.50 %  class 4\n"
                               "    0.00 %  class 5\ntwo lines\n  unknown   cat\n");
    free(table);
}

TEST_MAIN()
