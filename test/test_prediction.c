/* The lines of `predict`, also with class names that need quoting in CSV and JSON. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "app/prediction.h"

static float probabilities[] = {0.25f, 0.75f};

/* The caller frees the result. */
static char *text_of(void (*write)(FILE *, const struct prediction_line *), const char *class_name)
{
    const struct prediction_line line = {.record = 7,
                                         .label = 0,
                                         .predicted = 1,
                                         .class_name = class_name,
                                         .classes = 2,
                                         .probabilities = probabilities};
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    assert_non_null(stream);
    write(stream, &line);
    assert_int_equal(fclose(stream), 0);
    return text;
}

static void csv_names_are_quoted_where_needed(void **state)
{
    (void)state;
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
        char *text = text_of(prediction_write_csv, names[i][0]);
        assert_string_equal(text, expected);
        free(text);
    }
}

static void json_names_come_back(void **state)
{
    (void)state;
    /* The last name is not UTF-8. */
    static const char *const names[][2] = {{"cat", "cat"},
                                           {"5\" disk", "5\" disk"},
                                           {"back\\slash", "back\\slash"},
                                           {"two\nlines\t\001", "two\nlines\t\001"},
                                           {"k\303\244se", "k\303\244se"},
                                           {"k\344se", "k?se"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        json_error_t error;
        char *text = text_of(prediction_write_json, names[i][0]);
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
    }
}

static void what_is_not_finite_is_unknown(void **state)
{
    (void)state;
    probabilities[0] = NAN;
    char *text = text_of(prediction_write_csv, "cat");
    assert_string_equal(text, "7,0,1,cat,,0.75\n");
    free(text);
    text = text_of(prediction_write_json, "cat");
    assert_string_equal(text, "{\"record\":7,\"label\":0,\"predicted\":1,\"class\":\"cat\","
                              "\"probabilities\":[null,0.75]}\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(csv_names_are_quoted_where_needed),
                                       cmocka_unit_test(json_names_come_back),
                                       cmocka_unit_test(what_is_not_finite_is_unknown)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
