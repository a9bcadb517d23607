// SPDX-License-Identifier: BSD-3-Clause
/* Programs of several ranks. The main function in rank_main.c opens `world` and runs the tests of
 * each source file of the program, or of those that its arguments name (test_comm). */
#ifndef VITTRAIN_TEST_RANK_TESTS_H
#define VITTRAIN_TEST_RANK_TESTS_H

#include "comm/comm.h"
#include "test.h"

extern struct comm *world;

/* Ends a source file. Arguments: those of TEST_MAIN. */
#define TEST_MAIN_WORLD(...)                                                                       \
    __attribute__((constructor)) static void tests_add(void)                                       \
    {                                                                                              \
        static const struct test_group group = {.list = &test_list, __VA_ARGS__};                  \
        rank_tests_add(__FILE__, &group);                                                          \
    }

/* Set-up and teardown: the folder of temporary.h on rank 0, whose path all ranks have. */
extern char shared_folder[256];
void shared_folder_make(void);
void shared_folder_remove(void);

void rank_tests_add(const char *file, const struct test_group *group);

/* Open `world`; log errors only. Ends the program on failure. */
void fixture_world_open(int *argc, char ***argv);

#endif
