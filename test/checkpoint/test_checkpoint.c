// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3 4
// joined
/* Round trips of checkpoints, bit for bit, between any meshes and writers; finding the newest valid
 * one; links and pruning; probing for a shared folder. Run with 1 to 4 ranks. */
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/checkpoint_read.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/model_metadata.h"
#include "checkpoint/weights_file.h"
#include "config/run_options.h"
#include "core/log.h"
#include "core/subprocess.h"
#include "model_fixture.h"
#include "test.h"

static const struct fixture_shape usual;

static const struct training_state some_state = {
    .step = 1234,
    .epoch = 3,
    .epoch_step = 17,
    .global_batch = 64,
    .seed = 0xfedcba9876543210u,
    .best_metric = 0.1,
    .best_step = 1000,
    .evaluations_without_gain = 2,
    .plateau_rate_factor = 0.01,
    .plateau_best = -INFINITY,
    .plateau_bad = 5,
    .epoch_loss_sum = 1.0 / 3,
    .epoch_top1_sum = 7,
    .epoch_top5_sum = 9,
    .epoch_samples = 1088,
    .train_seconds = 12.5,
    .without_setup_seconds = 13.5,
    .total_seconds = 14.5,
    .parts = 2,
    .loss_scale = 0.25,
    .loss_scale_good_steps = 1999,
    .skipped_steps = 12,
    .finished = true,
};

static const struct checkpoint_order some_order = {
    .name = "a.h5", .model_name = "fake", .state = &some_state, .deck_text = ""};

static struct checkpoint_target target_of(enum writers_choice writers)
{
    return (struct checkpoint_target){.directory = folder, .writers = writers, .model = "fake"};
}

static void path_of(const char *name, char *path, size_t size)
{
    snprintf(path, size, "%s/%s", folder, name);
}

static bool exists(const char *name)
{
    char path[128];
    struct stat file;
    comm_barrier(world);
    path_of(name, path, sizeof path);
    bool there = lstat(path, &file) == 0;
    comm_barrier(world);
    return there;
}

static void write_file(struct fixture *fixture, enum writers_choice writers, const char *name,
                       int64_t step)
{
    struct checkpoint_target target = target_of(writers);
    struct training_state state = some_state;
    struct error error = {.kind = ERROR_NONE};
    state.step = step;
    state.epoch = 1;
    state.epoch_step = step;
    bool good = checkpoint_write(
        &target, &fixture->flat,
        &(const struct checkpoint_order){
            .name = name, .model_name = "fake", .state = &state, .deck_text = "[run]\nseed = 1\n"},
        &error);
    assert_string_equal(error.text, "");
    assert_true(good);
}

static void read_file(struct fixture *fixture, enum writers_choice writers, const char *name,
                      bool weights_only, struct error *error)
{
    char path[128];
    struct checkpoint_target target = target_of(writers);
    struct training_state state;
    path_of(name, path, sizeof path);
    error_defer(checkpoint_read(path, &target, &fixture->flat, &state, weights_only, error));
}

/* ---- round trips ---- */

static void write_on_one_read_on_other(int from_shard, int to_shard, enum writers_choice writers,
                                       const struct fixture_shape *shape, int moments,
                                       bool averaged)
{
    struct fixture from, to;
    struct error error = {.kind = ERROR_NONE};
    fixture_open(&from, from_shard, shape, moments, averaged);
    fixture_fill(&from, 7);
    write_file(&from, writers, "a.h5", 1);
    fixture_open(&to, to_shard, shape, moments, averaged);
    fixture_fill(&to, 8);
    read_file(&to, writers, "a.h5", false, &error);
    assert_string_equal(error.text, "");
    assert_int_equal(fixture_total(fixture_all_wrong(&to, 7)), 0);
    fixture_close(&to);
    fixture_close(&from);
}

TEST(test_any_mesh_reads_what_any_mesh_wrote)
{
    for (int from = 1; from <= world->size; from++)
        for (int to = 1; to <= world->size; to++)
            if (world->size % from == 0 && world->size % to == 0) {
                write_on_one_read_on_other(from, to, WRITERS_ALL, &usual, 2, true);
                write_on_one_read_on_other(from, to, WRITERS_NODE0, &usual, 2, true);
            }
}

TEST(test_vectors_of_every_optimizer)
{
    for (int moments = 0; moments <= 2; moments++)
        for (int averaged = 0; averaged <= 1; averaged++)
            write_on_one_read_on_other(1, world->size, WRITERS_ALL, &usual, moments, averaged);
}

TEST(test_units_of_several_pieces)
{
    static const struct fixture_shape large = {.hidden = 100003};
    write_on_one_read_on_other(1, world->size, WRITERS_ALL, &large, 1, false);
    write_on_one_read_on_other(world->size, 1, WRITERS_NODE0, &large, 1, false);
}

/* Make a mesh of the first `ranks` ranks of the world. The other ranks form a mesh that is not
 * used. */
struct part {
    struct comm *comm;
    struct fixture fixture;
    bool takes_part;
};

static void part_open(struct part *part, int ranks, int shard)
{
    part->takes_part = world->rank < ranks;
    part->comm = world->backend->split(world, part->takes_part, world->rank);
    if (part->takes_part)
        fixture_open_on(&part->fixture, part->comm, shard, &usual, 2, true);
}

static void part_close(struct part *part)
{
    if (part->takes_part)
        fixture_close(&part->fixture);
    part->comm->backend->close(part->comm);
}

/* Write a file with every mesh and read it with every other one. */
static void read_on_every_mesh(int from)
{
    char name[32];
    snprintf(name, sizeof name, "%d.h5", from);
    for (int ranks = 1; ranks <= world->size; ranks++)
        for (int shard = 1; shard <= ranks; shard++) {
            struct part part;
            struct error error = {.kind = ERROR_NONE};
            if (ranks % shard != 0)
                continue;
            part_open(&part, ranks, shard);
            if (part.takes_part) {
                fixture_fill(&part.fixture, 1000);
                read_file(&part.fixture, WRITERS_ALL, name, false, &error);
                assert_string_equal(error.text, "");
                assert_int_equal(fixture_all_wrong(&part.fixture, (uint32_t)from), 0);
            }
            part_close(&part);
        }
}

TEST(test_another_number_of_ranks)
{
    int number = 0;
    for (int ranks = 1; ranks <= world->size; ranks++)
        for (int shard = 1; shard <= ranks; shard++) {
            struct part part;
            char name[32];
            if (ranks % shard != 0)
                continue;
            snprintf(name, sizeof name, "%d.h5", ++number);
            part_open(&part, ranks, shard);
            if (part.takes_part) {
                fixture_fill(&part.fixture, (uint32_t)number);
                write_file(&part.fixture, WRITERS_ALL, name, number);
            }
            part_close(&part);
            comm_barrier(world);
            read_on_every_mesh(number);
        }
}

static void assert_same_state(const struct training_state *a, const struct training_state *b)
{
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->epoch, b->epoch);
    assert_int_equal(a->epoch_step, b->epoch_step);
    assert_int_equal(a->global_batch, b->global_batch);
    assert_true(a->seed == b->seed);
    assert_memory_equal(&a->best_metric, &b->best_metric, sizeof a->best_metric);
    assert_int_equal(a->best_step, b->best_step);
    assert_int_equal(a->evaluations_without_gain, b->evaluations_without_gain);
    assert_true(a->plateau_rate_factor == b->plateau_rate_factor);
    assert_true(a->plateau_best == b->plateau_best);
    assert_int_equal(a->plateau_bad, b->plateau_bad);
    assert_true(a->epoch_loss_sum == b->epoch_loss_sum);
    assert_true(a->epoch_top1_sum == b->epoch_top1_sum);
    assert_true(a->epoch_top5_sum == b->epoch_top5_sum);
    assert_true(a->epoch_samples == b->epoch_samples);
    assert_true(a->train_seconds == b->train_seconds);
    assert_true(a->without_setup_seconds == b->without_setup_seconds);
    assert_true(a->total_seconds == b->total_seconds);
    assert_int_equal(a->parts, b->parts);
    assert_true(a->loss_scale == b->loss_scale);
    assert_int_equal(a->loss_scale_good_steps, b->loss_scale_good_steps);
    assert_int_equal(a->skipped_steps, b->skipped_steps);
    assert_int_equal(a->finished, b->finished);
}

TEST(test_state_and_deck)
{
    static const char deck[] = "[run]\nname = a\n[model]\nname = fake\n";
    static const char metadata[] = "{\"architecture\":\"fake\"}", data[] = "{\"classes\":[]}";
    struct checkpoint_contents contents;
    struct error error = {.kind = ERROR_NONE};
    struct checkpoint_target target = target_of(WRITERS_ALL);
    struct training_state written = some_state, read = {.step = 0};
    char path[128], *text;
    written.best_metric = NAN;
    path_of("a.h5", path, sizeof path);
    FIXTURE(fixture, 1, &usual, 0, false);
    assert_true(checkpoint_write(&target, &fixture.flat,
                                 &(const struct checkpoint_order){.name = "a.h5",
                                                                  .model_name = "fake",
                                                                  .state = &written,
                                                                  .deck_text = deck,
                                                                  .metadata = metadata,
                                                                  .data = data},
                                 &error));
    assert_true(checkpoint_read(path, &target, &fixture.flat, &read, false, &error));
    assert_same_state(&read, &written);
    assert_true(checkpoint_read_deck(path, world, &text, &error));
    assert_string_equal(text, deck);
    free(text);
    if (world->rank == 0) {
        assert_true(model_metadata_read_text(path, &text, &error));
        assert_string_equal(text, metadata);
        free(text);
        assert_true(checkpoint_file_read(path, &contents, &error));
        assert_int_equal(contents.format, CHECKPOINT_FORMAT);
        assert_string_equal(contents.data, data);
        checkpoint_contents_free(&contents);
    }
}

TEST(test_weights_only)
{
    struct fixture trained, evaluated;
    struct error error = {.kind = ERROR_NONE};
    fixture_open(&trained, 1, &usual, 2, true);
    fixture_fill(&trained, 1);
    write_file(&trained, WRITERS_ALL, "with.h5", 1);
    fixture_open(&evaluated, 1, &usual, 0, true);
    read_file(&evaluated, WRITERS_ALL, "with.h5", true, &error);
    assert_string_equal(error.text, "");
    assert_int_equal(fixture_total(fixture_all_wrong(&evaluated, 1)), 0);
    fixture_close(&trained);
    fixture_open(&trained, 1, &usual, 2, false);
    fixture_fill(&trained, 2);
    write_file(&trained, WRITERS_ALL, "without.h5", 1);
    read_file(&evaluated, WRITERS_ALL, "without.h5", true, &error);
    assert_string_equal(error.text, "");
    assert_int_equal(fixture_wrong(&evaluated, 2, FLAT_AVERAGE, FLAT_MASTER), 0);
    fixture_close(&evaluated);
    fixture_close(&trained);
}

/* Reading for training fails if moments or the EMA are missing, and changes nothing. */
TEST(test_other_optimizer)
{
    struct fixture from, to;
    struct error error = {.kind = ERROR_NONE};
    fixture_open(&from, 1, &usual, 1, false);
    write_file(&from, WRITERS_ALL, "a.h5", 1);
    fixture_open(&to, 1, &usual, 2, false);
    fixture_fill(&to, 5);
    read_file(&to, WRITERS_ALL, "a.h5", false, &error);
    assert_error(&error, ERROR_CHECKPOINT, "holds 1 moments");
    assert_int_equal(fixture_all_wrong(&to, 5), 0);
    fixture_close(&to);
    fixture_open(&to, 1, &usual, 1, true);
    error_clear(&error);
    read_file(&to, WRITERS_ALL, "a.h5", false, &error);
    assert_has(error.text, "optim.ema=0");
    fixture_close(&to);
    fixture_close(&from);
}

/* ---- the folder ---- */

static void damage(const char *name, long place)
{
    char path[128];
    path_of(name, path, sizeof path);
    comm_barrier(world);
    if (world->rank == 0) {
        FILE *file = fopen(path, "r+b");
        assert_non_null(file);
        fseek(file, place, place < 0 ? SEEK_END : SEEK_SET);
        int byte = fgetc(file);
        fseek(file, -1, SEEK_CUR);
        fputc(byte ^ 4, file);
        fclose(file);
    }
    comm_barrier(world);
}

static bool find(const struct checkpoint_target *target, char *path, char *report)
{
    struct error error = {.kind = ERROR_NONE};
    bool found = checkpoint_find(target, world, path, 128, report, 8192, &error);
    assert_string_equal(error.text, "");
    return found;
}

static void leave_text(const char *name, const char *text)
{
    char path[128];
    path_of(name, path, sizeof path);
    if (world->rank == 0) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(text, file);
        fclose(file);
    }
    comm_barrier(world);
}

static void pass_over_what_is_bad(enum writers_choice writers)
{
    struct checkpoint_target target = target_of(writers);
    char path[128], report[8192], cut[128];
    fixture_remove(folder);
    assert_false(find(&target, path, report)); /* the folder does not exist */
    fixture_directory(folder, sizeof folder);
    assert_false(find(&target, path, report));
    assert_string_equal(report, "");
    FIXTURE(fixture, 1, &usual, 1, false);
    for (int64_t step = 10; step <= 40; step += 10) {
        char name[64];
        snprintf(name, sizeof name, "step-%08lld.h5", (long long)step);
        write_file(&fixture, writers, name, step);
    }
    assert_true(find(&target, path, report));
    assert_has(path, "step-00000040.h5");
    assert_string_equal(report, "");
    damage("step-00000040.h5", -50000);
    path_of("step-00000030.h5", cut, sizeof cut);
    if (world->rank == 0)
        assert_int_equal(truncate(cut, 100000), 0);
    leave_text("step-00000050.h5.part", "");
    leave_text("step-00000060.h5", "no checkpoint");
    assert_true(find(&target, path, report));
    assert_has(path, "step-00000020.h5");
    assert_has(report, "step-00000040.h5 is damaged");
    assert_has(report, "step-00000030.h5");
    assert_has(report, "step-00000050.h5.part: it was not written completely");
    assert_has(report, "step-00000060.h5");
    int lines = 0;
    for (const char *c = report; *c != '\0'; c++)
        lines += *c == '\n';
    assert_int_equal(lines, 4);
    target.model = "other";
    assert_false(find(&target, path, report));
    assert_has(report, "step-00000020.h5: it is of model fake, this run's is other");
}

/* Rank 0 only, as in a run. */
static void publish(const char *name, bool best, int64_t best_step, int64_t keep)
{
    struct error error = {.kind = ERROR_NONE};
    comm_barrier(world);
    if (world->rank == 0)
        error_defer(checkpoint_publish(folder, name, best, best_step, keep, &error));
    assert_string_equal(error.text, "");
}

TEST(find_passes_over_what_is_bad)
{
    pass_over_what_is_bad(WRITERS_ALL);
}

TEST(find_passes_over_what_is_bad_by_node0)
{
    pass_over_what_is_bad(WRITERS_NODE0);
}

static void assert_links(const char *best, const char *last)
{
    char path[128], text[128] = "";
    path_of("best.h5", path, sizeof path);
    assert_true(readlink(path, text, sizeof text - 1) > 0);
    assert_string_equal(text, best);
    path_of("last.h5", path, sizeof path);
    assert_true(readlink(path, text, sizeof text - 1) > 0);
    assert_string_equal(text, last);
    comm_barrier(world);
}

/* A run was killed after it renamed step 3, before it made the links. */
TEST(links_follow_the_state)
{
    struct error error = {.kind = ERROR_NONE};
    FIXTURE(fixture, 1, &usual, 0, false);
    write_file(&fixture, WRITERS_ALL, "step-00000001.h5", 1);
    publish("step-00000001.h5", true, 1, 0);
    for (int64_t step = 2; step <= 4; step++) {
        char name[32];
        snprintf(name, sizeof name, "step-%08lld.h5", (long long)step);
        write_file(&fixture, WRITERS_ALL, name, step);
    }
    leave_text("last.h5.part", "");
    assert_links("step-00000001.h5", "step-00000001.h5");
    if (world->rank == 0)
        error_defer(checkpoint_links_restore(folder, 3, 2, &error));
    comm_barrier(world);
    assert_string_equal(error.text, "");
    assert_links("step-00000002.h5", "step-00000003.h5");
    assert_false(exists("last.h5.part"));
    assert_true(exists("step-00000001.h5"));
    assert_false(checkpoint_links_restore("/dev/null", 3, 2, &error));
    char path[WEIGHTS_PATH];
    path_of("last.h5", path, sizeof path);
    if (world->rank == 0)
        weights_file_hold(path);
    publish("step-00000004.h5", true, 4, 1); /* step 3 is read, step 2 is not */
    comm_barrier(world);
    assert_links("step-00000004.h5", "step-00000004.h5");
    assert_false(exists("step-00000002.h5"));
    assert_true(exists("step-00000003.h5"));
    if (world->rank == 0)
        assert_non_null(strstr(path, "/step-00000003.h5"));
}

TEST(test_links_and_surplus)
{
    struct error error = {.kind = ERROR_NONE};
    char path[128], text[128] = "";
    FIXTURE(fixture, 1, &usual, 0, false);
    for (int64_t step = 1; step <= 5; step++) {
        snprintf(text, sizeof text, "step-%08lld.h5", (long long)step);
        write_file(&fixture, WRITERS_ALL, text, step);
        publish(text, step == 1, 1, 0);
    }
    comm_barrier(world);
    path_of("last.h5", path, sizeof path);
    memset(text, 0, sizeof text);
    assert_int_equal(readlink(path, text, sizeof text - 1), 16);
    assert_string_equal(text, "step-00000005.h5");
    comm_barrier(world);
    leave_text("step-00000006.h5.part", "");
    publish("step-00000005.h5", false, 2, 2);
    assert_true(exists("step-00000005.h5"));
    assert_true(exists("step-00000004.h5"));
    assert_false(exists("step-00000003.h5"));
    assert_true(exists("step-00000002.h5")); /* the best step */
    assert_true(exists("step-00000001.h5"));
    assert_true(exists("best.h5"));
    assert_false(exists("step-00000006.h5.part"));
    read_file(&fixture, WRITERS_ALL, "best.h5", false, &error);
    assert_string_equal(error.text, "");
    publish("step-00000005.h5", false, 0, 0);
    assert_true(exists("step-00000004.h5"));
    assert_false(checkpoint_publish("not-there", "a", false, 0, 0, &error));
    assert_int_equal(error.kind, ERROR_FILE);
}

/* ---- probing: every rank is a node ---- */

static const struct comm_backend *real_backend;

static struct comm *split_alone(struct comm *comm)
{
    return real_backend->split(comm, comm->rank, 0);
}

static enum writers_choice probe(const char *directory, enum writers_choice asked,
                                 struct error *error)
{
    enum writers_choice decided = WRITERS_AUTO;
    struct comm_backend alone = *world->backend;
    alone.split_node = split_alone;
    real_backend = world->backend;
    world->backend = &alone;
    error_defer(checkpoint_probe(directory, world, asked, &decided, error));
    world->backend = real_backend;
    return decided;
}

TEST(test_probe_of_a_shared_folder)
{
    struct error error = {.kind = ERROR_NONE};
    assert_int_equal(probe(folder, WRITERS_AUTO, &error), WRITERS_ALL);
    assert_int_equal(probe(folder, WRITERS_ALL, &error), WRITERS_ALL);
    assert_int_equal(probe(folder, WRITERS_NODE0, &error), WRITERS_NODE0);
    assert_string_equal(error.text, "");
    comm_barrier(world);
    assert_true(world->rank != 0 || rmdir(folder) == 0); /* probing left no files */
    comm_barrier(world);
    probe(folder, WRITERS_AUTO, &error);
    assert_int_equal(error.kind, ERROR_FILE);
    if (world->rank == 0)
        mkdir(folder, 0777);
    comm_barrier(world);
}

TEST(test_probe_of_private_folders)
{
    struct error error = {.kind = ERROR_NONE};
    char own[128];
    snprintf(own, sizeof own, "%s-%d", folder, world->rank);
    mkdir(own, 0777);
    enum writers_choice expected = world->size == 1 ? WRITERS_ALL : WRITERS_NODE0;
    assert_int_equal(probe(own, WRITERS_AUTO, &error), expected);
    assert_string_equal(error.text, "");
    probe(own, WRITERS_ALL, &error);
    assert_int_equal(error.kind, world->size == 1 ? ERROR_NONE : ERROR_USAGE);
    if (world->rank != 0)
        rmdir(own); /* the folder may be missing on other nodes */
    error_clear(&error);
    assert_int_equal(probe(own, WRITERS_AUTO, &error), expected);
    assert_string_equal(error.text, "");
    if (world->rank == 0)
        assert_int_equal(rmdir(own), 0);
}

/* A file that this machine cannot check is not passed over for an older one. */
TEST(test_unchecked_files)
{
    struct error error = {.kind = ERROR_NONE};
    char found[128], report[1024];
    struct checkpoint_target target = {.directory = folder};
    FIXTURE(fixture, world->size, &usual, 2, false);
    assert_true(checkpoint_write(&target, &fixture.flat, &some_order, &error));
    subprocess_set_program("./not-there");
    assert_false(
        checkpoint_find(&target, world, found, sizeof found, report, sizeof report, &error));
    subprocess_set_program(NULL);
    assert_int_equal(error.kind, ERROR_MEMORY);
    assert_string_equal(report, "");

    struct checkpoint_contents contents;
    struct rlimit limit, before;
    path_of("a.h5", found, sizeof found);
    error_clear(&error);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = before;
    limit.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_false(checkpoint_file_read(found, &contents, &error));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(error.kind, ERROR_MEMORY);
}

/* Only rank 0 has the folder; the other ranks have no path. */
TEST(test_private_folders)
{
    struct error error = {.kind = ERROR_NONE};
    struct training_state read;
    char path[128], found[128], report[1024];
    struct checkpoint_target target = {.directory = world->rank == 0 ? folder : NULL,
                                       .writers = WRITERS_NODE0};
    path_of("a.h5", path, sizeof path);
    FIXTURE(fixture, world->size, &usual, 2, false);
    fixture_fill(&fixture, 9);
    assert_true(checkpoint_write(&target, &fixture.flat, &some_order, &error));
    assert_true(
        checkpoint_find(&target, world, found, sizeof found, report, sizeof report, &error));
    assert_string_equal(found, path);
    fixture_fill(&fixture, 10);
    assert_true(checkpoint_read(world->rank == 0 ? path : "not-there", &target, &fixture.flat,
                                &read, false, &error));
    assert_same_state(&read, &some_state);
    assert_int_equal(fixture_total(fixture_all_wrong(&fixture, 9)), 0);
    for (int shared = 0; shared <= 1; shared++) { /* WRITERS_AUTO when reading */
        target.writers = WRITERS_AUTO;
        fixture_fill(&fixture, 11);
        assert_true(checkpoint_read(shared || world->rank == 0 ? path : "not-there", &target,
                                    &fixture.flat, &read, false, &error));
        assert_int_equal(fixture_total(fixture_all_wrong(&fixture, 9)), 0);
    }
}

/* WRITERS_ALL with a folder that is not shared is an error and does not hang. */
TEST(test_private_folders_by_mistake)
{
    struct fixture fixture;
    struct error error = {.kind = ERROR_NONE};
    struct checkpoint_target target = target_of(WRITERS_ALL);
    char own[128];
    snprintf(own, sizeof own, "%s-%d", folder, world->rank);
    if (world->rank != 0) {
        mkdir(own, 0777);
        target.directory = own;
    }
    fixture_open(&fixture, 1, &usual, 0, false);
    bool good = checkpoint_write(&target, &fixture.flat, &some_order, &error);
    assert_int_equal(good, world->size == 1);
    assert_int_equal(error.kind, world->size == 1 ? ERROR_NONE : ERROR_FILE);
    assert_int_equal(exists("a.h5"), world->size == 1);
    assert_false(exists("a.h5.part"));
    fixture_close(&fixture);
    if (world->rank != 0)
        rmdir(own);
}

TEST_MAIN_WORLD(.before = fixture_folder_make, .after = fixture_folder_remove)
