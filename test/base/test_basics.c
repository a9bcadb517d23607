// SPDX-License-Identifier: BSD-3-Clause
/* Small parts of core: CRC32C against published sums (RFC 3720, B.4); texts; sums in the tree of
 * grains, whose bits do not depend on the division into ranges; the arena, where measuring and
 * taking give the same layout; errors, of which the first is kept; and the environments of
 * launchers. */
#include <unistd.h>

#include "base/arena.h"
#include "base/base.h"
#include "base/launcher.h"
#include "base/sum_tree.h"
#include "base/text.h"
#include "test.h"

/* ---- CRC32C ---- */

/* Also in two parts. */
TEST(published_sums)
{
    static const char text[] = "123456789";
    unsigned char data[32];
    for (size_t cut = 0; cut <= 9; cut++) {
        const uint32_t first = crc32c_update(0, text, cut);
        assert_int_equal(crc32c_update(first, text + cut, 9 - cut), 0xe3069283);
    }
    memset(data, 0, sizeof data);
    assert_int_equal(crc32c_update(0, data, sizeof data), 0x8a9136aa);
    memset(data, 0xff, sizeof data);
    assert_int_equal(crc32c_update(0, data, sizeof data), 0x62a8ab43);
    for (unsigned i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)i;
    assert_int_equal(crc32c_update(0, data, sizeof data), 0x46dd794e);
}

/* ---- Text ---- */

TEST(endings_and_remote_paths)
{
    assert_true(text_ends_with("a.h5.part", ".h5.part"));
    assert_false(text_ends_with("a.h5.part", ".h5"));
    assert_false(text_ends_with(".h5", ".h5"));
    assert_false(text_ends_with("5", ".h5"));
    assert_true(text_is_remote("s3:bucket/path"));
    assert_false(text_is_remote("./a:b.h5"));
    assert_false(text_is_remote("runs/a"));
}

/* ---- The tree of grains ---- */

enum { GRAINS = 70 };

static float leaf[GRAINS], slot_value[GRAINS];

static float recursive_sum(int64_t begin, int level, int64_t total)
{
    if (level == 0)
        return leaf[begin];
    int64_t right = begin + ((int64_t)1 << (level - 1));
    float left_sum = recursive_sum(begin, level - 1, total);
    return right < total ? left_sum + recursive_sum(right, level - 1, total) : left_sum;
}

static void slots_add(void *context, int into, int from)
{
    (void)context;
    slot_value[into] += slot_value[from];
}

/* Sums the subtrees of all ranges in a pool. */
static void sum_in_ranges(int64_t total, int ranks, const int64_t *ends, float *sum)
{
    struct tree_pool pool = {.total = total};
    int slot = 0;
    int64_t begin = 0;
    for (int r = 0; r < ranks; r++) {
        struct subtree parts[TREE_PARTS];
        int count = tree_cut(begin, ends[r], total, parts);
        for (int i = 0; i < count; i++, slot++) {
            int64_t next = i + 1 < count ? parts[i + 1].begin : ends[r];
            assert_int_equal(parts[i].begin, begin);
            slot_value[slot] = recursive_sum(begin, parts[i].level, total);
            begin = next;
            tree_pool_insert(&pool, parts[i], slot, slots_add, NULL);
        }
        begin = ends[r];
    }
    assert_int_equal(pool.count, 1);
    assert_int_equal(pool.waiting[0].tree.begin, 0);
    assert_int_equal(pool.waiting[0].tree.level, tree_root_level(total));
    *sum = slot_value[pool.waiting[0].slot];
}

TEST(every_division_gives_the_same_bits)
{
    for (int i = 0; i < GRAINS; i++)
        leaf[i] = 1 / (float)(3 * i + 1);
    for (int64_t total = 1; total <= GRAINS; total++) {
        float expected = recursive_sum(0, tree_root_level(total), total), sum;
        for (int ranks = 1; ranks <= 9; ranks++) {
            int64_t ends[9];
            for (int r = 0; r < ranks; r++)
                ends[r] = total * (r + 1) / ranks;
            sum_in_ranges(total, ranks, ends, &sum);
            assert_memory_equal(&sum, &expected, sizeof sum);
        }
    }
}

/* Aligned ranges are one subtree. Others are cut as few times as possible: 5, 6-7, and, at a border
 * inside 8-15, 8-9 and 10. */
TEST(ranges_have_few_subtrees)
{
    static const struct {
        int64_t begin, end, total;
        int count;
    } cases[] = {{0, 32, 32, 1}, {16, 32, 32, 1}, {8, 16, 32, 1}, {28, 32, 32, 1},
                 {0, 13, 13, 1}, {5, 5, 13, 0},   {5, 11, 16, 4}, {0, 0, 0, 0}};
    struct subtree parts[TREE_PARTS];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(tree_cut(cases[i].begin, cases[i].end, cases[i].total, parts),
                         cases[i].count);
}

/* ---- The arena ---- */

/* First without memory, then in it. */
TEST(takes_what_was_measured)
{
    struct arena arena;
    unsigned char *memory = NULL;
    arena_measure(&arena);
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(arena_is_measuring(&arena), pass == 0);
        assert_ptr_equal(arena_take(&arena, MEMORY_WEIGHTS, 1000), memory);
        const size_t mark = arena_mark(&arena);
        assert_ptr_equal(arena_take(&arena, MEMORY_ACTIVATIONS, 5000),
                         pass == 0 ? NULL : memory + 1024);
        arena_rewind(&arena, mark);
        assert_ptr_equal(arena_take(&arena, MEMORY_ACTIVATIONS, 300),
                         pass == 0 ? NULL : memory + 1024);
        assert_ptr_equal(arena_take(&arena, MEMORY_BUFFERS, 1), pass == 0 ? NULL : memory + 1536);
        assert_null(arena_take(&arena, MEMORY_BUFFERS, 0));
        assert_int_equal(arena.peak, 1024 + 5120);
        assert_int_equal(arena.used, 1024 + 512 + 256);
        assert_int_equal(arena.by_class[MEMORY_WEIGHTS], 1024);
        assert_int_equal(arena.by_class[MEMORY_ACTIVATIONS], 5120);
        assert_int_equal(arena.by_class[MEMORY_BUFFERS], 0);
        if (pass == 0) {
            memory = aligned_alloc(ARENA_ALIGNMENT, arena.peak);
            arena_begin(&arena, memory, arena.peak);
        }
    }
    free(memory);
}

struct mistake {
    size_t taken, mark; /* bytes of 256; rewind to this position */
};

static void mistake_make(void *context)
{
    static unsigned char memory[256];
    const struct mistake *mistake = context;
    struct arena arena;
    arena_begin(&arena, memory, sizeof memory);
    arena_take(&arena, MEMORY_GRADIENTS, mistake->taken);
    arena_rewind(&arena, mistake->mark);
}

/* To take nothing is none. */
TEST(mistakes_end_the_job)
{
    static const struct mistake mistakes[] = {{0, 0}, {257, 0}, {SIZE_MAX - 100, 0}, {0, 1}};
    for (int i = 0; i < 4; i++) {
        struct mistake mistake = mistakes[i];
        char text[1024];
        assert_int_equal(child_run(mistake_make, &mistake, text, sizeof text),
                         i == 0 ? ERROR_NONE : ERROR_INTERNAL);
    }
}

/* ---- Errors ---- */

TEST(first_mistake_wins)
{
    assert_false(error_set(&error, ERROR_DATA, "%s: %d bytes", "a.bin", 3));
    assert_false(error_set(&error, ERROR_USAGE, "later"));
    assert_error(&error, ERROR_DATA, "a.bin: 3 bytes");
    error_clear(&error);
    error_set(&error, ERROR_USAGE, "later");
    assert_error(&error, ERROR_USAGE, "later");
}

TEST(message_is_one_line_that_fits)
{
    error_set(&error, ERROR_FILE, "%s: cannot write", "a\nb\rc\033[31md");
    assert_string_equal(error.text, "a b c [31md: cannot write");
    error_clear(&error);
    char path[2 * ERROR_TEXT_SIZE];
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    error_set(&error, ERROR_FILE, "%s", path);
    assert_int_equal(strlen(error.text), ERROR_TEXT_SIZE - 1);
}

static void leave_with_42(int exit_code)
{
    _exit(exit_code == ERROR_INTERNAL ? 42 : 43);
}

/* A false ENSURE, or ENSURE_MEMORY, on rank 3. */
struct promise {
    bool of_memory;
    void (*handler)(int exit_code);
};

static void promise_break(void *context)
{
    const struct promise *promise = context;
    error_identify(3, "node7");
    error_on_abort(promise->handler);
    ENSURE_MEMORY(!promise->of_memory, "no room for %d rows", 2);
    ENSURE(1 + 1 == 3, "sum is %d", 2);
}

TEST(ensure_ends_the_job)
{
    static const struct {
        struct promise promise;
        int status;
        const char *text;
    } cases[] = {{{false, NULL}, ERROR_INTERNAL, "rank 3 on node7: sum is 2 ("},
                 {{false, NULL}, ERROR_INTERNAL, "test_basics.c:"},
                 {{false, leave_with_42}, 42, "rank 3 on node7: sum is 2 ("},
                 {{true, NULL}, ERROR_MEMORY, "error: rank 3 on node7: no room for 2 rows; "},
                 {{true, leave_with_42}, 43, "no room for 2 rows"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct promise promise = cases[i].promise;
        char text[1024];
        assert_int_equal(child_run(promise_break, &promise, text, sizeof text), cases[i].status);
        assert_has(text, cases[i].text);
        assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    }
}

/* ---- Launchers ---- */

static const struct {
    const char *set; /* "NAME=VALUE NAME=VALUE" */
    int rank, size, local_size;
    bool has_ranks, waits;
} environments[] = {
    {"", -1, -1, -1, false, false},
    /* Open MPI's mpirun, alone, in a batch script of Slurm, and as the program of srun. */
    {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_RANK=3", 3, 8,
     4, true, false},
    {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_SIZE=4 SLURM_PROCID=0", 3,
     8, 4, true, false},
    {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8 SLURM_PROCID=1 SLURM_STEP_ID=0 "
     "SLURM_STEP_NUM_TASKS=2",
     3, 8, -1, true, false},
    /* MPICH's mpirun, alone and in a batch script. */
    {"PMI_RANK=5 PMI_SIZE=6 MPI_LOCALNRANKS=2", 5, 6, 2, true, true},
    {"PMI_RANK=5 PMI_SIZE=6 MPI_LOCALNRANKS=2 SLURM_PROCID=0", 5, 6, 2, true, true},
    /* srun --mpi=pmix, srun --mpi=pmi2 */
    {"PMIX_RANK=7 SLURM_PROCID=7", 7, -1, -1, true, true},
    {"PMIX_RANK=7 SLURM_PROCID=7 SLURM_STEP_NUM_TASKS=9", 7, 9, -1, true, true},
    {"PMIX_RANK=0 FLUX_TASK_RANK=0 FLUX_JOB_SIZE=1", 0, 1, -1, true, true},
    {"PMI_RANK=7 PMI_SIZE=9 SLURM_PROCID=7", 7, 9, -1, true, true},
    /* A batch script of 8 tasks; one task that srun starts in that job; two; two in a container
     * that gets only these variables. */
    {"SLURM_JOB_ID=3 SLURM_PROCID=0 SLURM_NTASKS=8", 0, -1, -1, false, true},
    {"SLURM_JOB_ID=3 SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1", 0, 1,
     -1, false, true},
    {"SLURM_JOB_ID=3 SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2", 0, 2,
     -1, true, true},
    {"SLURM_PROCID=0 SLURM_NTASKS=2", 0, 2, -1, true, true},
    {"SLURM_PROCID=1", 1, -1, -1, true, true},
    /* Launchers of MPI whose ranks have further variables if they belong to the MPI in use. */
    {"MV2_COMM_WORLD_RANK=0 MV2_COMM_WORLD_SIZE=2", 0, 2, -1, true, false},
    {"MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", 1, 2, 2, true, false},
    {"JSM_NAMESPACE_RANK=1", 1, -1, -1, true, false},
    {"PALS_RANKID=1", 1, -1, -1, true, false},
    {"ALPS_APP_PE=1", 1, -1, -1, true, false},
    /* flux run and torchrun with several processes and with one. RANK alone may mean anything. */
    {"FLUX_TASK_RANK=0 FLUX_JOB_SIZE=2", 0, 2, -1, true, false},
    {"FLUX_TASK_RANK=0 FLUX_JOB_SIZE=1", 0, 1, -1, false, false},
    {"RANK=0 WORLD_SIZE=2", 0, 2, -1, true, false},
    {"RANK=0 WORLD_SIZE=1", 0, 1, -1, false, false},
    {"RANK=1", -1, -1, -1, false, false},
};

/* Set the variables and remove all others. */
static void environment_set(const char *set)
{
    char copy[256], *rest = copy;
    clearenv();
    snprintf(copy, sizeof copy, "%s", set);
    for (char *word; (word = strsep(&rest, " ")) != NULL && *word != '\0';) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        setenv(word, value, 1);
    }
}

TEST(each_launcher_is_recognised)
{
    for (size_t i = 0; i < sizeof environments / sizeof environments[0]; i++) {
        environment_set(environments[i].set);
        assert_int_equal(launcher_rank(), environments[i].rank);
        assert_int_equal(launcher_size(), environments[i].size);
        assert_int_equal(launcher_local_size(), environments[i].local_size);
        assert_int_equal(launcher_has_ranks(), environments[i].has_ranks);
        assert_int_equal(launcher_waits(), environments[i].waits);
    }
}

TEST_MAIN()
