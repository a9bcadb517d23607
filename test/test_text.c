/* Endings of names, and printed sizes. */
#include "core/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void a_name_ends_so_or_not(void **state)
{
    (void)state;
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

static void memory_is_shown_in_mib(void **state)
{
    (void)state;
    assert_true(mib(0) == 0);
    assert_true(mib((size_t)3 << 20) == 3);
    assert_true(mib(512 << 10) == 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_ends_so_or_not),
        cmocka_unit_test(memory_is_shown_in_mib),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
