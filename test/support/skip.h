// SPDX-License-Identifier: BSD-3-Clause
/* Skip a test with a reason; cmocka's skip() has no argument for it. */
#ifndef VITTRAIN_TEST_SKIP_H
#define VITTRAIN_TEST_SKIP_H

#include <stdio.h>

/* Skip the calling test. test/support/run_test.sh appends the reason to the test's result line. */
#define SKIP_BECAUSE(reason)                                                                       \
    do {                                                                                           \
        printf("# skipped: %s\n", reason);                                                         \
        skip();                                                                                    \
    } while (0)

#endif
