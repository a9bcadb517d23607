// SPDX-License-Identifier: BSD-3-Clause
/* The lines of `predict`, also with class names that need quoting in CSV and JSON. */
#include <jansson.h>

#include "commands/prediction.h"

#include "test.h"

static float probabilities[] = {0.25f, 0.75f};

/* The caller frees the result. */
static char *text_of(void (*write)(FILE *, const struct prediction_line *), const char *class_name,
                     const char *file)
{
    char first[] = "first", name[80];
    char *const names[] = {first, name};
    const struct prediction_line line = {.file = file,
                                         .record = 7,
                                         .label = 0,
                                         .predicted = 1,
                                         .class_name = names,
                                         .named = class_name != NULL ? 2 : 0,
                                         .classes = 2,
                                         .probabilities = probabilities};
    snprintf(name, sizeof name, "%s", class_name != NULL ? class_name : "");
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    assert_non_null(stream);
    write(stream, &line);
    assert_int_equal(fclose(stream), 0);
    return text;
}

TEST(csv_names_are_quoted_where_needed)
{
    static const char *const names[][2] = {{"cat", "cat"},
                                           {"", ""},
                                           {"tench, Tinca tinca", "\"tench, Tinca tinca\""},
                                           {"5\" disk", "\"5\"\" disk\""},
                                           {"two\nlines", "\"two\nlines\""},
                                           {"a\rb", "\"a\rb\""},
                                           {"\"", "\"\"\"\""}};
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
    static const char *const names[][2] = {{"cat", "cat"},
                                           {"5\" disk", "5\" disk"},
                                           {"back\\slash", "back\\slash"},
                                           {"two\nlines\t\001", "two\nlines\t\001"},
                                           {"k\303\244se", "k\303\244se"},
                                           {"k\344se", "k?se"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        json_error_t error;
        char *text = text_of(prediction_write_json, names[i][0], NULL);
        json_t *object = json_loads(text, 0, &error);
        if (object == NULL)
            fail_msg("%s: %s", error.text, text);
        assert_string_equal(json_string_value(json_object_get(object, "class")), names[i][1]);
        assert_int_equal(json_integer_value(json_object_get(object, "record")), 7);
        assert_int_equal(json_integer_value(json_object_get(object, "predicted")), 1);
        const json_t *shares = json_object_get(object, "probabilities");
        assert_int_equal(json_array_size(shares), 2);
        assert_true(json_number_value(json_array_get(shares, 1)) == 0.75);
        json_decref(object);
        free(text);
        text = text_of(prediction_write_json, "cat", names[i][0]);
        object = json_loads(text, 0, &error);
        assert_string_equal(json_string_value(json_object_get(object, "file")), names[i][1]);
        assert_null(json_object_get(object, "record"));
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

static void table_has(const char *expected, const char *file, char *const *names, int64_t named,
                      const float *shares, int64_t classes, int64_t top)
{
    const struct prediction_line line = {.file = file,
                                         .class_name = names,
                                         .named = named,
                                         .classes = classes,
                                         .probabilities = shares};
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    assert_non_null(stream);
    prediction_write_table(stream, &line, top);
    assert_int_equal(fclose(stream), 0);
    assert_string_equal(text, expected);
    free(text);
}

TEST(the_table_has_the_first_classes)
{
    char cat[] = "cat", dog[] = "dog", hostile[] = "a\033[2J\302\233b\177\tk\303\244se";
    char *const names[] = {cat, dog, hostile};
    const float shares[] = {0.125f, 0.125f, 0.75f, NAN};
    table_has("a.jpg\n   75.00 %  a\\x1b[2J\\u009bb\\x7f\\tk\303\244se\n   12.50 %  cat\n", "a.jpg",
              names, 3, shares, 4, 2);
    table_has("two\\nlines\n   75.00 %  class 2\n   12.50 %  class 0\n   12.50 %  class 1\n"
              "  unknown   class 3\n",
              "two\nlines", NULL, 0, shares, 4, 5);
    table_has("\n   12.50 %  cat\n", "", names, 1, shares, 1, 5);
}

TEST_MAIN()
