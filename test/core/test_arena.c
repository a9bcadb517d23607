// SPDX-License-Identifier: BSD-3-Clause
/* The arena: measuring and taking give the same layout, rewinding lays one thing over another, and
 * what was not measured cannot be taken. */
#include "core/arena.h"

#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

struct layout {
    void *weights, *train, *evaluation, *sums;
};

static struct layout lay_out(struct arena *arena)
{
    struct layout layout;
    layout.weights = arena_take(arena, MEMORY_WEIGHTS, 1000);
    const size_t mark = arena_mark(arena);
    layout.train = arena_take(arena, MEMORY_ACTIVATIONS, 5000);
    arena_rewind(arena, mark);
    layout.evaluation = arena_take(arena, MEMORY_ACTIVATIONS, 300);
    layout.sums = arena_take(arena, MEMORY_BUFFERS, 1);
    return layout;
}

TEST(takes_what_was_measured)
{
    struct arena arena;
    arena_measure(&arena);
    assert_true(arena_is_measuring(&arena));
    struct layout layout = lay_out(&arena);
    assert_null(layout.weights);
    assert_null(layout.sums);
    assert_int_equal(arena.peak, 1024 + 5120);
    assert_int_equal(arena.used, 1024 + 512 + 256);
    assert_int_equal(arena.by_class[MEMORY_WEIGHTS], 1024);
    assert_int_equal(arena.by_class[MEMORY_ACTIVATIONS], 5120);
    assert_int_equal(arena.by_class[MEMORY_BUFFERS], 0);

    const size_t size = arena.peak;
    unsigned char *memory = aligned_alloc(ARENA_ALIGNMENT, size);
    assert_non_null(memory);
    arena_begin(&arena, memory, size);
    assert_false(arena_is_measuring(&arena));
    layout = lay_out(&arena);
    assert_ptr_equal(layout.weights, memory);
    assert_ptr_equal(layout.train, memory + 1024);
    assert_ptr_equal(layout.evaluation, layout.train);
    assert_ptr_equal(layout.sums, memory + 1024 + 512);
    assert_int_equal(arena.peak, size);
    free(memory);
}

TEST(nothing_takes_nothing)
{
    unsigned char memory[1];
    struct arena arena;
    arena_begin(&arena, memory, 0);
    assert_null(arena_take(&arena, MEMORY_BUFFERS, 0));
    assert_int_equal(arena.used, 0);
}

static void take_too_much(struct arena *arena)
{
    arena_take(arena, MEMORY_GRADIENTS, 257);
}

static void rewind_forward(struct arena *arena)
{
    arena_rewind(arena, 1);
}

static void take_more_than_there_are_addresses(struct arena *arena)
{
    arena_take(arena, MEMORY_GRADIENTS, SIZE_MAX - 100);
}

/* True if the mistake ends the process through ENSURE. */
static int ends_the_job(void (*mistake)(struct arena *arena))
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        static unsigned char memory[256];
        struct arena arena;
        if (freopen("/dev/null", "w", stderr) == NULL)
            _exit(98);
        arena_begin(&arena, memory, sizeof memory);
        mistake(&arena);
        _exit(99);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

TEST(mistakes_end_the_job)
{
    assert_true(ends_the_job(take_too_much));
    assert_true(ends_the_job(rewind_forward));
    assert_true(ends_the_job(take_more_than_there_are_addresses));
}

TEST_MAIN()
