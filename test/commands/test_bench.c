// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3
/* `bench comm` on any number of ranks: every implementation is measured and correct, the CSV has
 * the common columns. Wrong results are counted and give an exit code: MPI_Allgather is replaced by
 * one that can lose data or fail (MPI's profiling interface). */
#include "commands/bench.h"

#include <mpi.h>
#include <unistd.h>

#include "commands/app.h"
#include "model_fixture.h"
#include "options/options.h"
#include "temporary.h"

static bool loses_data, fails;

int MPI_Allgather(const void *from, int from_count, MPI_Datatype from_type, void *to, int to_count,
                  MPI_Datatype to_type, MPI_Comm comm)
{
    if (fails)
        return MPI_ERR_OTHER;
    return loses_data ? MPI_SUCCESS
                      : PMPI_Allgather(from, from_count, from_type, to, to_count, to_type, comm);
}

/* Return the exit code of `bench OPERAND SETTING...`. */
static int bench(const char *operand, const char *settings)
{
    static struct options options;
    error_clear(&error);
    struct command_line line = {.operand = &operand, .operand_count = operand != NULL};
    settings_set(&options, settings);
    command_bench.run(&options, &line, world, &error);
    return (int)error.kind;
}

#define SMALL "bench.max=1KiB bench.seconds=0 "

/* Count the rows of the file with this metric and value (NULL: any). */
static int count_rows(const char *path, const char *metric, const char *value)
{
    FILE *file = fopen(path, "r");
    char line[512], wanted[128];
    int rows = 0;
    assert_non_null(file);
    snprintf(wanted, sizeof wanted, ",%s,%s%s", metric, value != NULL ? value : "",
             value != NULL ? "," : "");
    while (fgets(line, sizeof line, file) != NULL)
        rows += strstr(line, wanted) != NULL;
    fclose(file);
    return rows;
}

TEST(every_way_is_measured_and_right)
{
    const char *path = temporary_path("all.csv");
    char settings[600], more[640];
    snprintf(settings, sizeof settings, SMALL "bench.output=%s", path);
    snprintf(more, sizeof more, "%s mesh.transport=ring", settings);
    assert_int_equal(bench("comm", settings), ERROR_NONE);
    if (world->rank == 0) {
        /* 4 collectives x 4 sizes (8, 64, 512, 1024 bytes), each by ring, shared and MPI. */
        int rows = 4 * 4 * (world->size > 1 ? 3 : 2);
        assert_int_equal(count_rows(path, "time", NULL), rows);
        assert_int_equal(count_rows(path, "bus bandwidth", NULL), rows);
        assert_int_equal(count_rows(path, "wrong elements", "0"), rows);
        assert_int_equal(count_rows(path, "metric", "value"), 1); /* one header */
    }
    assert_int_equal(bench("comm", more), ERROR_NONE); /* rows are added to a table */
    if (world->rank == 0)
        assert_int_equal(count_rows(path, "time", NULL),
                         4 * 4 * (world->size > 1 ? 3 : 2) + 4 * 4 * 2);
    if (world->rank == 0)
        temporary_write("all.csv", "epoch,loss\n1,2\n");
    assert_int_equal(bench("comm", more), ERROR_FILE); /* with other columns: it is not changed */
    if (world->rank == 0) {
        OWNED char *text = temporary_text("all.csv");
        assert_string_equal(text, "epoch,loss\n1,2\n");
    }
}

TEST(wrong_results_are_an_error)
{
    if (world->size == 1)
        return; /* one rank exchanges no data */
    loses_data = true;
    int code = bench("comm", SMALL);
    loses_data = false;
    assert_int_equal(code, ERROR_INTERNAL);
}

static void bench_fails(void *settings)
{
    error_on_abort(NULL);
    fails = true;
    _exit(bench("comm", settings));
}

/* The benchmark aborts, so it runs in a child. A single rank has one thread, so fork is safe. */
TEST(what_fails_in_mpi_ends_the_job)
{
    char settings[] = SMALL, output[1 << 14];
    if (world->size > 1)
        return;
    assert_int_equal(child_run(bench_fails, settings, output, sizeof output), ERROR_INTERNAL);
    assert_has(output, "internal error: rank 0 on ");
    assert_has(output, "MPI_All");
}

TEST_MAIN_WORLD(.setup = temporary_setup, .teardown = temporary_close)
