// SPDX-License-Identifier: BSD-3-Clause
/* Findings of doctor on simulated nodes: too many threads per CPU, different data, rows as a table
 * and as JSON. */
#include "tools/doctor/doctor.h"

#include <jansson.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

#include "temporary.h"
#include "test.h"

/* ---- rows */
TEST(the_worst_that_is_said_counts)
{
    struct doctor_row row = {.check = "x"};
    doctor_set(&row, DOCTOR_PASS, NULL, "all is well");
    assert_int_equal(row.verdict, DOCTOR_PASS);
    doctor_set(&row, DOCTOR_WARN, "mend it", "%s is odd", "a");
    doctor_set(&row, DOCTOR_WARN, "mend it", "%s is odd", "b");
    assert_string_equal(row.found, "a is odd; b is odd");
    assert_string_equal(row.advice, "mend it");
    doctor_set(&row, DOCTOR_FAIL, NULL, "broken");
    doctor_set(&row, DOCTOR_WARN, "no", "odd");
    doctor_set(&row, DOCTOR_PASS, NULL, "well");
    assert_int_equal(row.verdict, DOCTOR_FAIL);
    assert_string_equal(row.found, "broken");
    assert_string_equal(row.advice, "");
    for (int i = 0; i < 1000; i++)
        doctor_set(&row, DOCTOR_FAIL, "so many", "thing %d", i);
    assert_true(strlen(row.found) < DOCTOR_TEXT);
}

static char *printed(void (*print)(const struct doctor *, double, FILE *),
                     const struct doctor *doctor)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    assert_non_null(file);
    print(doctor, 1.25, file);
    fclose(file);
    return text;
}

TEST(rows_become_a_table_and_json)
{
    struct comm world = {.size = 8};
    static struct doctor doctor = {
        .row = {{.check = "deck"}, {.check = "data"}, {.check = "clock"}},
        .rows = 3,
        .node_count = 2};
    struct doctor_row *rows = doctor.row;
    doctor.world = &world;
    doctor_set(&rows[0], DOCTOR_PASS, NULL, "same");
    doctor_set(&rows[1], DOCTOR_FAIL, "copy \"it\"", "node\xff has others");
    char *table = printed(doctor_print_table, &doctor), *text = printed(doctor_print_json, &doctor);
    assert_has(table, "pass  deck          same\n");
    assert_has(table, "fail  data          node\xff has others\n");
    assert_has(table, "-> copy \"it\"\n");
    assert_has(table, "8 ranks on 2 nodes, 1.2 s: 1 pass, 0 warn, 1 fail, 1 skipped");
    json_t *object = json_loads(text, 0, NULL);
    assert_non_null(object);
    const json_t *row = json_array_get(json_object_get(object, "checks"), 1);
    assert_int_equal(json_integer_value(json_object_get(object, "fail")), 1);
    assert_int_equal(json_array_size(json_object_get(object, "checks")), 3);
    assert_string_equal(json_string_value(json_object_get(row, "check")), "data");
    assert_string_equal(json_string_value(json_object_get(row, "verdict")), "fail");
    assert_string_equal(json_string_value(json_object_get(row, "found")), "node? has others");
    assert_string_equal(json_string_value(json_object_get(row, "advice")), "copy \"it\"");
    json_decref(object);
    free(table);
    free(text);
}

/* ---- CPUs */
static struct doctor_facts bound(int64_t node, int64_t threads, int first, int last)
{
    struct doctor_facts facts = {.node = node, .threads = threads, .online = 8};
    for (int core = first; core <= last; core++)
        facts.cores[core / 64] |= UINT64_C(1) << (core % 64);
    return facts;
}

TEST(crowded_cpus_are_found)
{
    /* Each its own. */
    struct doctor_facts facts[4] = {bound(0, 2, 0, 1), bound(0, 2, 2, 3), bound(0, 2, 4, 5),
                                    bound(0, 2, 6, 7)};
    assert_int_equal(doctor_find_crowd(facts, 4, 0, true).threads, 2);
    assert_int_equal(doctor_find_crowd(facts, 4, 0, true).cores, 2);
    assert_int_equal(doctor_find_crowd(facts, 4, 0, false).threads, 8);
    /* Two on the same CPUs, while others are free. */
    facts[1] = facts[0];
    struct doctor_crowd crowd = doctor_find_crowd(facts, 4, 0, true);
    assert_int_equal(crowd.ranks, 2);
    assert_int_equal(crowd.threads, 4);
    assert_int_equal(crowd.cores, 2);
    /* Three that overlap only in part: 6 threads on CPUs 0 to 3. */
    facts[0] = bound(0, 2, 0, 1), facts[1] = bound(0, 2, 1, 2), facts[2] = bound(0, 2, 2, 3);
    crowd = doctor_find_crowd(facts, 4, 0, true);
    assert_int_equal(crowd.ranks, 3);
    assert_int_equal(crowd.threads, 6);
    assert_int_equal(crowd.cores, 4);
    /* On another node that is no crowd. */
    facts[1].node = facts[2].node = 1;
    assert_true(doctor_find_crowd(facts, 4, 0, true).threads <=
                doctor_find_crowd(facts, 4, 0, true).cores);
    /* Ranks that are not bound are a matter of the whole node. */
    for (int i = 0; i < 4; i++)
        facts[i] = bound(0, 4, 0, 7);
    assert_int_equal(doctor_find_crowd(facts, 4, 0, true).threads, 0);
    assert_int_equal(doctor_find_crowd(facts, 4, 0, false).threads, 16);
    assert_int_equal(doctor_find_crowd(facts, 4, 0, false).cores, 8);
}

TEST(sets_of_cpus_are_named)
{
    char text[64];
    struct doctor_facts facts = bound(0, 1, 0, 3), more = bound(0, 1, 130, 130);
    facts.cores[2] |= more.cores[2];
    facts.cores[0] |= UINT64_C(1) << 8;
    doctor_cores_text(facts.cores, text, sizeof text);
    assert_string_equal(text, "0-3,8,130");
    assert_int_equal(doctor_core_count(facts.cores), 6);
    doctor_cores_text(facts.cores, text, 5);
    assert_string_equal(text, "0-3,");
}

/* ---- files */
static void look(struct data_scan *look, const char *root)
{
    *look = (struct data_scan){.seconds = 5};
    snprintf(look->root, sizeof look->root, "%s", root);
    doctor_data_read(look);
}

TEST(data_are_compared)
{
    static struct data_scan one, other;
    static char large[3 << 20];
    char text[256], roots[2][512];
    temporary_open();
    for (int i = 0; i < 2; i++) {
        char name[64];
        const char *names[] = {"a.bin", "sub/b.bin", "sub/c.bin"};
        snprintf(name, sizeof name, "%d/sub", i);
        temporary_directory(name);
        for (int file = 0; file < 3; file++) {
            /* Made in another order on each. */
            snprintf(name, sizeof name, "%d/%s", i, names[i == 0 ? file : 2 - file]);
            temporary_file(name, large, file == 1 ? sizeof large : 100);
        }
        snprintf(name, sizeof name, "%d", i);
        snprintf(roots[i], sizeof roots[i], "%s", temporary_path(name));
    }
    look(&one, roots[0]);
    look(&other, roots[1]);
    assert_int_equal(one.files, 3);
    assert_int_equal(one.bytes, sizeof large + 200);
    assert_false(doctor_data_differs(&other, &one, text, sizeof text));
    large[50] = 1;
    temporary_file("1/a.bin", large, 100);
    large[50] = 0;
    look(&other, roots[1]);
    assert_true(doctor_data_differs(&other, &one, text, sizeof text));
    assert_has(text, "/1/a.bin differs from");
    large[sizeof large - 1] = 1; /* pieces reach the end of large files */
    temporary_file("1/a.bin", large, 100);
    temporary_file("1/sub/b.bin", large, sizeof large);
    look(&other, roots[1]);
    assert_true(doctor_data_differs(&other, &one, text, sizeof text));
    temporary_file("1/sub/c.bin", large, 101);
    look(&other, roots[1]);
    assert_true(doctor_data_differs(&other, &one, text, sizeof text));
    assert_has(text, "the first node has 3 files");
    look(&other, temporary_path("none"));
    assert_int_equal(other.error.kind, ERROR_DATA);
    other = (struct data_scan){.arrays = true, .seconds = 5};
    temporary_file("two.h5", large, 200);
    snprintf(other.root, sizeof other.root, "%s::", temporary_path("two.h5"));
    temporary_write("store.zarr/.zgroup", "{}");
    temporary_write("store.zarr/0", "00");
    strcat(other.root, temporary_path("store.zarr"));
    doctor_data_read(&other);
    assert_string_equal(other.error.text, "");
    assert_int_equal(other.files, 2);
    assert_int_equal(other.bytes, 202);
    other = (struct data_scan){.seconds = -1};
    snprintf(other.root, sizeof other.root, "%s", roots[0]);
    doctor_data_read(&other);
    assert_true(other.cut);
    assert_false(doctor_data_differs(&other, &one, text, sizeof text));
    temporary_close();
}

static void assert_row(const struct doctor_row *row, enum doctor_verdict verdict, const char *part)
{
    if (row->verdict != verdict || strstr(row->found, part) == NULL)
        fail_msg("verdict %d, %s; wanted %d, %s", row->verdict, row->found, verdict, part);
}

TEST(room_for_checkpoints)
{
    struct doctor_row much = {0}, little = {0}, none = {0};
    doctor_judge_space(&much, 1000000000, 100000000, 3, "runs");
    assert_row(&much, DOCTOR_PASS, "1 GB free for runs; 5 checkpoints of 100.00 MB take 0.5 GB");
    doctor_judge_space(&little, 400000000, 100000000, 3, "runs");
    assert_row(&little, DOCTOR_WARN, "0.4 GB free");
    doctor_judge_space(&none, 90000000, 100000000, 3, "runs");
    assert_row(&none, DOCTOR_FAIL, "0.09 GB free");
}

/* ---- time */
static void nothing(void *context)
{
    (void)context;
}

static void hang(void *gates)
{
    sem_wait((sem_t *)gates);
    sem_post((sem_t *)gates + 1);
}

TEST(what_hangs_is_left_behind)
{
    static sem_t gates[2]; /* the end is permitted; it has come */
    assert_int_equal(sem_init(&gates[0], 0, 0), 0);
    assert_int_equal(sem_init(&gates[1], 0, 0), 0);
    assert_true(doctor_bounded(nothing, NULL, 60));
    assert_false(doctor_bounded(hang, gates, 0.1));
    sem_post(&gates[0]);
    sem_wait(&gates[1]);
}

/* Prints the last words, and where nobody else ends the job, does that. */
static void words(const char *what, double seconds)
{
    fprintf(stderr, "last: %s, %g\n", what, seconds);
}

TEST(what_is_not_over_in_time_ends_the_program)
{
    int channel[2], status;
    char text[512] = "";
    size_t used = 0;
    assert_int_equal(pipe(channel), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(channel[1], STDERR_FILENO);
        doctor_watch_open(5, 0.3);
        doctor_watch_speaker(0, words);
        doctor_watch("quick", 60);
        doctor_watch("slow", 0.2);
        pause();
        _exit(0);
    }
    close(channel[1]);
    for (ssize_t got; (got = read(channel[0], text + used, sizeof text - 1 - used)) > 0;)
        used += (size_t)got;
    close(channel[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), ERROR_PEER);
    assert_has(text, "last: slow, 0.2\nvittrain: failure: rank 0 on ");
    assert_has(text, ": doctor: slow did not finish within 0 s");
}

TEST_MAIN()
