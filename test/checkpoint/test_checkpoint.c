// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3 4
// joined
/* Round trips of checkpoints, bit for bit, between any meshes and writers; finding the newest valid
 * one; links and pruning; probing for a shared folder. */
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "hdf5/hdf5_reader.h"
#include "model_fixture.h"
#include "options/options.h"

static const struct fixture_shape usual;

static const struct training_state some_state = {
    .step = 1234,
    .epoch = 3,
    .epoch_step = 17,
    .global_batch = 64,
    .seed = 0x7edcba9876543210,
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
    .finished = 1,
};

static struct options fake;

static struct checkpoint_target target_of(enum writers_choice writers)
{
    return (struct checkpoint_target){.directory = folder, .writers = writers, .options = &fake};
}

static bool write_state(const struct fixture *fixture, const struct checkpoint_target *target,
                        const struct training_state *state)
{
    const struct checkpoint_order order = {.options = &fixture->options, .state = state};
    return fixture_checkpoint(fixture, target, &order, &error);
}

static void write_step(struct fixture *fixture, enum writers_choice writers, int64_t step)
{
    assert_ok(fixture_write(fixture, writers, step, &error), &error);
}

/* ---- round trips ---- */

static void write_on_one_read_on_other(int from_shard, int to_shard, enum writers_choice writers,
                                       const struct fixture_shape *shape, int moments,
                                       bool averaged)
{
    FIXTURE(from, from_shard, shape, moments, averaged);
    FIXTURE(to, to_shard, shape, moments, averaged);
    write_step(&from, writers, 7);
    fixture_assert_read(&to, folder_step(7), false, 7);
}

TEST(test_vectors_of_every_optimizer)
{
    for (int moments = 0; moments <= 2; moments++)
        for (int averaged = 0; averaged <= 1; averaged++)
            write_on_one_read_on_other(1, world->size, WRITERS_ALL, &usual, moments, averaged);
}

TEST(test_units_of_several_pieces)
{
    static const struct fixture_shape large = {.hidden = 50003};
    write_on_one_read_on_other(1, world->size, WRITERS_ALL, &large, 1, false);
    write_on_one_read_on_other(world->size, 1, WRITERS_NODE0, &large, 1, false);
}

/* Write a file with every mesh of the first ranks, by all ranks and by node 0 in turn, and read it
 * with every mesh. */
TEST(test_any_mesh_reads_what_any_mesh_wrote)
{
    int written = 0;
    for (int turn = 0; turn < 2; turn++)
        for (int ranks = 1; ranks <= world->size; ranks++)
            for (int shard = 1; shard <= ranks; shard++) {
                struct fixture fixture;
                const bool takes_part = world->rank < ranks;
                if (ranks % shard != 0)
                    continue;
                struct comm *comm = world->backend->split(world, takes_part, world->rank);
                written += turn == 0;
                if (takes_part) {
                    fixture_open_on(&fixture, comm, shard, &usual, 2, true);
                    if (turn == 0)
                        write_step(&fixture, written % 2 ? WRITERS_NODE0 : WRITERS_ALL, written);
                    for (int step = 1; turn == 1 && step <= written; step++)
                        fixture_assert_read(&fixture, folder_step(step), false, step);
                    fixture_close(&fixture);
                }
                comm->backend->close(comm);
                comm_barrier(world);
            }
}

TEST(test_state_and_deck)
{
    static const char metadata[] = "{\"architecture\":\"fake\"}", data[] = "{\"classes\":[]}";
    struct checkpoint_contents contents;
    struct checkpoint_target target = target_of(WRITERS_ALL);
    struct training_state written = some_state, read = {.step = 0};
    char path[128], *deck = options_to_run_deck(&fake);
    written.best_metric = NAN;
    snprintf(path, sizeof path, "%s", folder_step(written.step));
    FIXTURE(fixture, 1, &usual, 0, false);
    const struct checkpoint_order order = {
        .options = &fake, .state = &written, .metadata = metadata, .data = data};
    assert_true(fixture_checkpoint(&fixture, &target, &order, &error));
    assert_true(checkpoint_read(path, &target, &fixture.flat, &read, false, &error));
    assert_memory_equal(&read, &written, sizeof read);
    assert_true(checkpoint_contents_read(path, world, 0, &contents, &error));
    assert_memory_equal(&contents.state, &written, sizeof written);
    assert_int_equal(contents.format, CHECKPOINT_FORMAT);
    assert_string_equal(contents.text[TEXT_DECK], deck);
    assert_string_equal(contents.text[TEXT_METADATA], metadata);
    assert_string_equal(contents.text[TEXT_DATA], data);
    checkpoint_contents_free(&contents);
    free(deck);
}

TEST(test_weights_only)
{
    struct checkpoint_target target = target_of(WRITERS_ALL);
    FIXTURE(averaged, 1, &usual, 2, true);
    FIXTURE(plain, 1, &usual, 2, false);
    FIXTURE(evaluated, 1, &usual, 0, true);
    write_step(&averaged, WRITERS_ALL, 1);
    fixture_assert_read(&evaluated, folder_step(1), true, 1);
    write_step(&plain, WRITERS_ALL, 2);
    assert_ok(checkpoint_read(folder_step(2), &target, &evaluated.flat, NULL, true, &error),
              &error);
    assert_int_equal(fixture_wrong(&evaluated, 2, FLAT_AVERAGE, FLAT_MASTER), 0);
}

/* Reading for training fails if moments or the EMA are missing, and changes nothing. */
TEST(test_other_optimizer)
{
    struct checkpoint_target target = target_of(WRITERS_ALL);
    struct training_state state;
    FIXTURE(from, 1, &usual, 1, false);
    FIXTURE(more, 1, &usual, 2, false);
    FIXTURE(averaged, 1, &usual, 1, true);
    write_step(&from, WRITERS_ALL, 1);
    fixture_fill(&more, 5);
    assert_false(checkpoint_read(folder_step(1), &target, &more.flat, &state, false, &error));
    assert_error(&error, ERROR_CHECKPOINT, "1 moments");
    assert_int_equal(fixture_all_wrong(&more, 5), 0);
    error_clear(&error);
    assert_false(checkpoint_read(folder_step(1), &target, &averaged.flat, &state, false, &error));
    assert_has(error.text, "optim.ema=0");
}

/* ---- thousands of ranks ---- */

/* Divide ViT-B with two moments: one writer for about each MiB of a vector. */
TEST(test_8192_ranks)
{
    enum { UNITS = 14 };
    static const struct {
        int shards, pieces, snapshot; /* as many writers as pieces */
    } meshes[] = {{1, 328, 4626144}, {8192, 342, 3272832}, {8, 296, 3553920}};
    for (int n = 0; n < 3; n++) {
        const int shards = meshes[n].shards;
        struct comm all = {.size = 8192}, replica = {.size = 8192 / shards},
                    shard = {.size = shards};
        struct mesh mesh = {.world = &all, .replica = &replica, .shard = &shard};
        struct unit units[UNITS] = {0};
        struct flat_buffer buffers[UNITS];
        const struct flat_model flat = {
            .mesh = &mesh, .buffers = buffers, .count = UNITS, .moments = 2};
        for (int u = 0; u < UNITS; u++) {
            units[u].count = u == 0 ? 742656 : u + 1 < UNITS ? 7087872 : 770536;
            buffers[u].unit = &units[u];
            buffers[u].shard_count = flat_shard_count(units[u].count, shards);
        }
        const struct checkpoint_division division = checkpoint_divide(&flat);
        assert_int_equal(division.pieces, meshes[n].pieces);
        assert_int_equal(division.writers, meshes[n].pieces);
        assert_int_equal(division.snapshot_bytes, meshes[n].snapshot);
    }
}

/* ---- the folder ---- */

/* Flip a bit of the vectors, or cut the file. */
static void damage(const char *path, bool cut)
{
    comm_barrier(world);
    if (world->rank == 0) {
        FILE *file = fopen(path, "r+b");
        assert_non_null(file);
        fseek(file, -50000, SEEK_END);
        int byte = fgetc(file);
        fseek(file, -1, SEEK_CUR);
        fputc(byte ^ 4, file);
        fclose(file);
        assert_true(!cut || truncate(path, 100000) == 0);
    }
    comm_barrier(world);
}

/* Find the newest valid checkpoint. Return its step; -1: none. Rank 0 asserts that it logged this
 * number of ignored files. */
static int64_t find(const struct checkpoint_target *target, int ignored)
{
    error_clear(&error);
    char path[128], log[128];
    snprintf(log, sizeof log, "%s.log", folder);
    if (world->rank == 0) {
        assert_ok(log_to_file(log, &error), &error);
        assert_int_equal(truncate(log, 0), 0); /* earlier lines */
    }
    log_open(world->rank, LOG_WARN);
    const bool found = checkpoint_find(target, world, path, sizeof path, &error);
    log_open(world->rank, LOG_QUIET);
    assert_string_equal(error.text, "");
    if (world->rank == 0) {
        log_close();
        OWNED char *text = text_file_read(log, NULL);
        assert_int_equal(text_count(text, "ignored: "), ignored);
        unlink(log);
    }
    return found ? checkpoint_name_step(path) : -1;
}

static void pass_over_what_is_bad(enum writers_choice writers)
{
    struct checkpoint_target target = target_of(writers);
    struct options other = fake;
    fixture_remove(folder);
    assert_int_equal(find(&target, 0), -1); /* the folder does not exist */
    fixture_directory(folder, sizeof folder);
    assert_int_equal(find(&target, 0), -1);
    FIXTURE(fixture, 1, &usual, 1, false);
    for (int64_t step = 10; step <= 40; step += 10)
        write_step(&fixture, writers, step);
    assert_int_equal(find(&target, 0), 40);
    damage(folder_step(40), false);
    damage(folder_step(30), true);
    folder_write("step-00000050.h5.part", "", 0);
    folder_write("step-00000060.h5", "no checkpoint", 13);
    assert_int_equal(find(&target, 3), 20);
    snprintf(other.model.name, sizeof other.model.name, "other");
    target.options = &other;
    assert_int_equal(find(&target, 5), -1);
}

/* Rank 0 only, as in a run. */
static void publish(int64_t step, bool best, int64_t best_step, int64_t keep)
{
    comm_barrier(world);
    if (world->rank == 0)
        assert_ok(checkpoint_publish(folder, step, best, best_step, keep, &error), &error);
    comm_barrier(world);
}

TEST(find_passes_over_what_is_bad)
{
    pass_over_what_is_bad(WRITERS_ALL);
    pass_over_what_is_bad(WRITERS_NODE0);
}

static void assert_link(const char *name, int64_t step)
{
    char text[128] = "";
    assert_true(readlink(folder_path(name), text, sizeof text - 1) > 0);
    assert_string_equal(text, text_base_name(folder_step(step)));
    comm_barrier(world);
}

/* Of the steps 1 to 5, the files of those in `steps` exist. */
static void assert_steps(const char *steps)
{
    for (int step = 1; step <= 5; step++)
        assert_int_equal(folder_has(text_base_name(folder_step(step))),
                         strchr(steps, '0' + step) != NULL);
}

TEST(test_links_and_surplus)
{
    FIXTURE(fixture, 1, &usual, 0, false);
    for (int64_t step = 1; step <= 5; step++) {
        write_step(&fixture, WRITERS_ALL, step);
        publish(step, step == 1, 1, 0);
    }
    assert_link("last.h5", 5);
    folder_write("step-00000006.h5.part", "", 0);
    publish(5, false, 2, 2);
    assert_steps("1245"); /* 2: the best step; 1: that of the link */
    assert_false(folder_has("step-00000006.h5.part"));
    fixture_assert_read(&fixture, folder_path("best.h5"), false, 1);
    publish(5, false, 0, 0);
    assert_steps("1245");
    /* A run was killed after it renamed step 4, before it made the links. */
    folder_write("last.h5.part", "", 0);
    if (world->rank == 0)
        assert_ok(checkpoint_links_restore(folder, 4, 2, &error), &error);
    comm_barrier(world);
    assert_link("best.h5", 2);
    assert_link("last.h5", 4);
    assert_false(folder_has("last.h5.part"));
    publish(5, true, 5, 1);
    assert_link("best.h5", 5);
    assert_link("last.h5", 5);
    assert_steps("5");
}

/* ---- probing: every rank is a node ---- */

static const struct comm_backend *real_backend;

static struct comm *split_alone(struct comm *comm)
{
    return real_backend->split(comm, comm->rank, 0);
}

/* The folder is shared, or (own) each rank has one. Return the decision. */
static enum writers_choice probe(bool own, enum writers_choice asked)
{
    enum writers_choice decided = WRITERS_AUTO;
    struct comm_backend alone = *world->backend;
    char path[128];
    snprintf(path, sizeof path, own ? "%s-%d" : "%s", folder, world->rank);
    alone.split_node = split_alone;
    real_backend = world->backend;
    world->backend = &alone;
    error_clear(&error);
    mkdir(path, 0777);
    error_defer(checkpoint_probe(path, world, asked, &decided, &error));
    world->backend = real_backend;
    comm_barrier(world);
    assert_true(!own || rmdir(path) == 0); /* probing left no files */
    return decided;
}

TEST(test_probe)
{
    const bool alone = world->size == 1;
    assert_int_equal(probe(false, WRITERS_AUTO), WRITERS_ALL);
    assert_int_equal(probe(false, WRITERS_ALL), WRITERS_ALL);
    assert_int_equal(probe(false, WRITERS_NODE0), WRITERS_NODE0);
    assert_int_equal(probe(true, WRITERS_AUTO), alone ? WRITERS_ALL : WRITERS_NODE0);
    assert_string_equal(error.text, "");
    probe(true, WRITERS_ALL);
    assert_int_equal(error.kind, alone ? ERROR_NONE : ERROR_USAGE);
    error_clear(&error);
    enum writers_choice decided;
    assert_false(checkpoint_probe("/nowhere", world, WRITERS_AUTO, &decided, &error));
    assert_error(&error, ERROR_FILE, "/nowhere/.probe-");
}

/* A file that this machine cannot check is not passed over for an older one. */
TEST(test_unchecked_files)
{
    char found[128];
    struct checkpoint_target target = {.directory = folder};
    FIXTURE(fixture, world->size, &usual, 2, false);
    write_step(&fixture, WRITERS_ALL, 1);
    hdf5_child_set_program("./not-there");
    assert_false(checkpoint_find(&target, world, found, sizeof found, &error));
    hdf5_child_set_program(NULL);
    assert_int_equal(error.kind, ERROR_MEMORY);

    struct checkpoint_contents contents;
    struct rlimit limit, before;
    error_clear(&error);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = before;
    limit.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_false(checkpoint_file_read(folder_step(1), &contents, &error));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(error.kind, ERROR_MEMORY);
}

/* Only rank 0 has the folder. */
TEST(test_private_folders)
{
    struct training_state read;
    char path[128], found[128];
    struct checkpoint_target target = {.directory = world->rank == 0 ? folder : "not-there",
                                       .writers = WRITERS_NODE0};
    snprintf(path, sizeof path, "%s", folder_step(some_state.step));
    FIXTURE(fixture, world->size, &usual, 2, false);
    fixture_fill(&fixture, 9);
    assert_true(write_state(&fixture, &target, &some_state));
    assert_true(checkpoint_find(&target, world, found, sizeof found, &error));
    assert_string_equal(found, path);
    fixture_fill(&fixture, 10);
    assert_true(checkpoint_read(world->rank == 0 ? path : "not-there", &target, &fixture.flat,
                                &read, false, &error));
    assert_memory_equal(&read, &some_state, sizeof read);
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
    struct checkpoint_target target = target_of(WRITERS_ALL);
    char own[128];
    snprintf(own, sizeof own, "%s-%d", folder, world->rank);
    if (world->rank != 0) {
        mkdir(own, 0777);
        target.directory = own;
    }
    fixture_open(&fixture, 1, &usual, 0, false);
    bool good = write_state(&fixture, &target, &some_state);
    assert_int_equal(good, world->size == 1);
    assert_int_equal(error.kind, world->size == 1 ? ERROR_NONE : ERROR_FILE);
    assert_int_equal(folder_has("step-00001234.h5"), world->size == 1);
    assert_false(folder_has("step-00001234.h5.part"));
    fixture_close(&fixture);
    if (world->rank != 0)
        rmdir(own);
}

static void make_folder(void)
{
    options_default(&fake);
    snprintf(fake.model.name, sizeof fake.model.name, "fake");
    fixture_folder_make();
}

TEST_MAIN_WORLD(.before = make_folder, .after = fixture_folder_remove)
