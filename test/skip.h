// SPDX-License-Identifier: BSD-3-Clause
/* A skipped test with a reason, which cmocka's skip() lacks. */
#ifndef VITTRAIN_TEST_SKIP_H
#define VITTRAIN_TEST_SKIP_H

#include <stdio.h>

/* Skip the calling test. test/run_test.sh moves the reason into the line of the result. */
#define SKIP_BECAUSE(reason)                                                                       \
    do {                                                                                           \
        printf("# skipped: %s\n", reason);                                                         \
        skip();                                                                                    \
    } while (0)

#endif
