// SPDX-License-Identifier: BSD-3-Clause
/* Options: defaults, values of each kind, decks, the command line, the resolved deck, messages
 * about mistakes, and damaged decks. */

#include <glob.h>
#include <unistd.h>

#include "mutate.h"
#include "options/option.h"
#include "options/options.h"
#include "temporary.h"
#include "test.h"

/* The tests run in the temporary directory. */
static void enter_folder(void)
{
    assert_int_equal(chdir(temporary_open()), 0);
}

static void leave_folder(void)
{
    temporary_close();
    assert_int_equal(chdir("/"), 0);
}

/* Sets one option on top of the defaults. */
static struct options with(const char *assignment)
{
    struct options options;
    options_default(&options);
    assert_ok(options_set(assignment, &options, &error), &error);
    return options;
}

/* Fail unless the assignment is refused with a message that has this part, and the options stay as
 * they were. */
static void refuses(const char *assignment, const char *part)
{
    struct options options, before;
    error_clear(&error);
    options_default(&options);
    options_default(&before);
    assert_false(options_set(assignment, &options, &error));
    assert_error(&error, ERROR_USAGE, part);
    assert_memory_equal(&options, &before, sizeof options);
}

static void check_value(const struct options *options, const char *name, const char *expected)
{
    char text[OPTION_TEXT];
    options_value_text(options, name, text, sizeof text);
    assert_string_equal(text, expected);
}

TEST(values_of_each_kind)
{
    static const char *const values[][2] = {{"train.batch=1", "1"},
                                            {"run.threads=auto", "auto"},
                                            {"model.dim= 192 ", "192"},
                                            {"optim.lr=1e-3", "0.001"},
                                            {"optim.lr=.5", "0.5"},
                                            {"model.dropout=0", "0"},
                                            {"model.dropout=AUTO", "auto"},
                                            {"train.max_seconds=90", "90"},
                                            {"train.max_seconds=90s", "90"},
                                            {"train.max_seconds=1.5m", "90"},
                                            {"train.max_seconds=2h", "7200"},
                                            {"bench.max=4096", "4KiB"},
                                            {"bench.max=64KiB", "64KiB"},
                                            {"bench.max=1.5MiB", "1536KiB"},
                                            {"bench.max=3GiB", "3GiB"},
                                            {"run.dir=/a b/c=d", "/a b/c=d"},
                                            {"data.root=", ""},
                                            {"optim.name=RMSprop", "rmsprop"},
                                            {"model.pool=mean", "mean"},
                                            {"model.class_token=auto", "auto"},
                                            {"model.class_token=0", "off"},
                                            {"model.class_token=True", "on"},
                                            {"data.drop_last=yes", "on"},
                                            {"data.drop_last=OFF", "off"},
                                            {"data.shuffle=no", "off"},
                                            {"data.shuffle=1", "on"},
                                            {"data.val=0.125", "0.125"},
                                            {"data.val=2019-07..,2018", "2019-07..,2018"},
                                            {"augment.mean=0.5, 0.25,-1", "0.5,0.25,-1"}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char name[64];
        const struct options options = with(values[i][0]);
        snprintf(name, sizeof name, "%.*s", (int)strcspn(values[i][0], "="), values[i][0]);
        check_value(&options, name, values[i][1]);
    }
    assert_int_equal(with("optim.name=RMSprop").optim.name, OPTIMIZER_RMSPROP);
    assert_true(with("train.max_seconds=1.5m").train.max_seconds == 90);
    assert_true(with("bench.max=3GiB").bench.max == (int64_t)3 << 30);
    /* A choice that may also be a number: a later word replaces the number. */
    struct options options = with("data.val=0.125");
    assert_true(options.data.val == VALIDATION_FRACTION && options.data.val_fraction == 0.125);
    assert_true(options_set("data.val=..2019", &options, &error));
    assert_true(options.data.val == VALIDATION_PERIODS && options.data.val_fraction == 0);
    assert_string_equal(options.data.val_periods, "..2019");
    assert_true(options_set("data.val=Reference", &options, &error));
    const struct options other = with("data.val=reference");
    assert_memory_equal(&options, &other, sizeof options);
}

/* The message repeats the assignment. */
TEST(bad_values_are_refused)
{
    static const char *const bad[] = {
        "train.batch=0",        "train.batch=8x",      "train.batch=8.5",
        "train.batch=",         "optim.lr=nan",        "train.batch=99999999999999999999999",
        "optim.lr=inf",         "optim.lr=0x1p3",      "optim.lr=1e999",
        "optim.lr=-1",          "optim.ema=1",         "debug.fraction=0",
        "model.dropout=-0.5",   "optim.eps=-1",        "schedule.div_factor=0",
        "bench.max=1.3KiB",     "bench.max=3",         "bench.max=3MB",
        "train.max_seconds=3d", "data.shuffle=maybe",  "run.backend=gpu",
        "optim.betas=0.9",      "optim.betas=0.9;0.9", "optim.betas=0.9,0.9,0.9",
        "augment.std=0",        "run.dir=a #b",        "data.val=0",
        "data.val=1",           "data.val=0.1x",       "data.val=tset",
        "data.val=201",         "data.val=..",         "data.val=2019 to 2020"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refuses(bad[i], bad[i]);
    refuses("train.batch=0", "must be a whole number from 1 to 1000000");
}

TEST(unknown_keys_get_the_nearest)
{
    static const char *const keys[][2] = {
        {"train.bacth=1", "train.batch?"}, {"optm.lr=1", "optim.lr?"},
        {"train.lr=1", "optim.lr?"},       {"batch=1", "train.batch?"},
        {"epohcs=1", "train.epochs?"},     {"zzz.qqqqqq=1", "zzz.qqqqqq; `vittrain --help`"},
        {"=1", "`vittrain --help`"},       {"train.batch", "section.key=value"},
        {"train.batch+=1", "train.batch"}, {"fetch.dir=here", "tools/fetch.sh"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        refuses(keys[i][0], keys[i][1]);
}

TEST(deck_is_read)
{
    struct options options;
    options_default(&options);
    assert_true(options_read_text("\xef\xbb\xbf# a deck\n"
                                  "\n"
                                  "[train]\n"
                                  "batch = 32   ; per rank\n"
                                  "epochs: 3    # few\r\n"
                                  "  # an indented remark\n"
                                  "\t\n"
                                  "[run]\n"
                                  "dir = /a\n"
                                  "dir += /b#c\n"
                                  "[train]\n"
                                  "batch = 16",
                                  "deck.ini", &options, &error));
    assert_int_equal(options.train.batch, 16);
    assert_int_equal(options.train.epochs, 3);
    assert_string_equal(options.run.dir, "/a/b#c");
    assert_true(options_read_text("", "empty.ini", &options, &error));
    /* Removed options of decks that version 0.2 stored */
    assert_true(options_read_text("[fetch]\ndir = data\n[sweep]\nmethod = tpe\n", "stored.ini",
                                  &options, &error));
}

TEST(bad_decks_are_refused_with_their_line)
{
    char text[OPTION_TEXT + 40] = "[run]\ndir = ";
    memset(text + strlen(text), 'x', OPTION_TEXT);
    const char *const decks[][2] = {
        {"[train]\nbatch = 0\n", "deck.ini:2: train.batch=0"},
        {"[train]\n\nbacth = 1\n", "deck.ini:3: no option train.bacth"},
        {"batch = 1\n", "deck.ini:1: batch"},
        {"[train]\nbatch\n", "deck.ini:2: "},
        {"[train] batch = 1\n", "deck.ini:1: "},
        {"[train\nbatch = 1\n", "deck.ini:1: "},
        {"[train]\nbatch = 1\n  epochs = 2\n", "deck.ini:3: "},
        {"[optim]\nmuon_factors = original\n", "deck.ini:2: option optim.muon_factors"},
        {text, "deck.ini:2: run.dir"}};
    for (size_t i = 0; i < sizeof decks / sizeof *decks; i++) {
        struct options options;
        error_clear(&error);
        options_default(&options);
        assert_false(options_read_text(decks[i][0], "deck.ini", &options, &error));
        assert_error(&error, ERROR_USAGE, decks[i][1]);
    }
}

/* Parse the words of a command line after the program, which have spaces between them. */
static bool parse(const char *words, struct options *options, struct command_line *line)
{
    static char text[512];
    char *argv[16] = {"vittrain"}, *rest = text;
    int argc = 1;
    snprintf(text, sizeof text, "%s", words);
    for (char *word; argc < 15 && (word = strsep(&rest, " ")) != NULL && *word != '\0';)
        argv[argc++] = word;
    error_clear(&error);
    return options_parse(argc, argv, options, line, &error);
}

/* Parse and check a command line. Return false with the error. */
static bool accepts(const char *words, struct options *options)
{
    struct command_line line;
    return parse(words, options, &line) && options_check_line(&line, options, &error);
}

static void check_accepts(const char *words)
{
    struct options options;
    if (!accepts(words, &options))
        fail_msg("%s: %s", words, error.text);
}

/* A command line that must be refused with one line that has this part. */
static void check_refuses(const char *words, const char *part)
{
    struct options options;
    assert_false(accepts(words, &options));
    assert_error(&error, ERROR_USAGE, part);
}

TEST(batch_and_global_batch_clear_each_other)
{
    static const struct {
        const char *words;
        int64_t batch, global_batch;
    } cases[] = {{"global.ini", 64, 32},
                 {"global.ini train.batch=16", 16, 0},
                 {"global.ini rank.ini", 8, 0},
                 {"rank.ini global.ini", 64, 32},
                 {"rank.ini train.global_batch=9", 64, 9},
                 {"rank.ini train.global_batch=0", 8, 0},
                 {"train.global_batch=9 train.global_batch=0 train.batch=3", 3, 0}};
    static struct options options, again;
    temporary_write("global.ini", "[train]\nglobal_batch = 32\n");
    temporary_write("rank.ini", "[train]\nbatch = 8\n");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_ok(accepts(cases[i].words, &options), &error);
        assert_int_equal(options.train.batch, cases[i].batch);
        assert_int_equal(options.train.global_batch, cases[i].global_batch);
        OWNED char *deck = options_to_run_deck(&options);
        const bool global = cases[i].global_batch > 0;
        assert_true((strstr(deck, "\nbatch = ") == NULL) == global);
        assert_true((strstr(deck, "\nglobal_batch = ") != NULL) == global);
        options_default(&again);
        assert_true(options_read_text(deck, "resolved", &again, &error));
        assert_memory_equal(&again.train, &options.train, sizeof options.train);
    }
}

TEST(command_line_is_sorted)
{
    static struct options options;
    struct command_line line;
    temporary_write("a.ini", "[train]\nbatch = 8\nsteps = 5\n");
    temporary_write("b.ini", "[train]\nbatch = 9\n");
    assert_true(parse("eval x/y=z.h5 a.ini train.steps=7 b.ini -", &options, &line));
    assert_string_equal(line.command, "eval");
    assert_int_equal(line.operand_count, 2);
    assert_string_equal(line.operand[0], "x/y=z.h5");
    assert_string_equal(line.operand[1], "-");
    assert_int_equal(options.train.batch, 9);
    assert_int_equal(options.train.steps, 7);
    options_default(&options);
    options.train.epochs = 77;
    assert_true(options_apply(&line, &options, &error));
    assert_int_equal(options.train.batch, 9);
    assert_int_equal(options.train.epochs, 77);
    assert_true(parse("predict 1 2 3 4 5 6 7 8 9", &options, &line));
    assert_int_equal(line.operand_count, 9);
    assert_string_equal(line.operand[8], "9");
    temporary_write("vittrain.ini", "[train]\nbatch = 11\n");
    assert_true(parse("", &options, &line));
    assert_string_equal(line.command, "train");
    assert_int_equal(options.train.batch, 11);
    assert_true(parse("b.ini", &options, &line));
    assert_int_equal(options.train.batch, 9);
    assert_int_equal(unlink("vittrain.ini"), 0);
}

TEST(wrong_lines_are_refused)
{
    static const char *const wrong[][2] = {
        {"--train.batch=3", "write train.batch=3 "},
        {"none.ini", "none.ini: cannot read the deck: No such file"},
        {"folder.ini", "folder.ini: cannot read the deck: it is not a regular file"},
        {"zero.ini", "zero.ini:2: the deck is not a text file"},
        {"train.global_batch=9 train.batch=4", "train.batch (per rank) and train.global"},
        {"both.ini", "both.ini:3: train.batch (per rank) and train.global_batch"},
        {"augment.erase_scale=0.3,0.2", "augment.erase_scale"},
        {"augment.erase_ratio=3,2", "augment.erase_ratio"},
        {"train.epochs=0", "train.epochs=0"},
        {"train.global_batch=4 train.accumulate=8", "train.accumulate=8"},
        {"schedule.name=plateau train.eval_every=0", "schedule.name=plateau needs evaluations"},
        {"train.early_stop=1 data.val=none", "train.early_stop needs evaluations"},
        {"schedule.name=plateau checkpoint.monitor=none", "schedule.name=plateau needs a metric"}};
    temporary_directory("folder.ini");
    temporary_file("zero.ini", "[train]\nbat\0ch = 1\n", 19);
    temporary_write("both.ini", "[train]\nbatch = 16\nglobal_batch = 32\n");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        check_refuses(wrong[i][0], wrong[i][1]);
}

/* Each condition: a setting that does not apply with the others, and another one with which it
 * does. */
TEST(options_apply_under_conditions)
{
    static const char *const cases[][3] = {
        {"model.depth=2", "model.name=resnet18", "model.name=deit3_small_patch16_224"},
        {"model.pool=mean", "model.head=dense", "model.head=class"},
        {"model.head=dense", "model.name=cnn_a", "model.name=resnet18"},
        {"model.width=8", "model.name=vit_cifar", "model.name=cnn_b"},
        {"augment.mixup=1", "model.name=linear", "model.name=cnn_a"},
        {"eval.flip=on", "model.head=dense", "model.name=cnn_a"},
        {"data.root=x", "data.format=synthetic", "data.format=arrays"},
        {"data.samples=9", "data.format=imagefolder", "data.format=synthetic"},
        {"data.image=64", "data.format=synthetic data.task=regression", "data.format=synthetic"},
        {"data.task=regression", "data.format=cifar10", "data.format=arrays"},
        {"data.x=u", "data.format=synthetic", "data.format=arrays"},
        {"data.allow_empty=on", "data.format=webdataset", "data.format=imagefolder"},
        {"data.check=full", "data.format=arrays", "data.format=webdataset"},
        {"data.val_from=end", "data.val=test", "data.val=0.1"},
        {"augment.noise=1", "data.format=cifar10", "data.format=synthetic data.values=float32"},
        {"augment.erase_scale=0.1,0.3", "augment.erase=0", "augment.erase=auto"},
        {"augment.rand_magnitude=5", "augment.rand_augment=0", "augment.rand_augment=2"},
        {"augment.crop_scale=0.5,1", "data.format=cifar10", "augment.recipe=photos"},
        {"augment.crop_scale=0.5,1", "data.format=imagefolder augment.recipe=cifar",
         "data.format=imagefolder"},
        {"augment.crop_scale=0.5,1", "augment.random_resized_crop=off augment.recipe=photos",
         "augment.random_resized_crop=on"},
        {"train.grain=16", "train.exact=off", "train.exact=layout train.global_batch=32"},
        {"train.check_action=continue", "train.check_every=0",
         "train.exact=layout train.global_batch=32 train.check_every=2"},
        {"train.loss_scale=1024", "train.precision=fp32", "train.precision=fp16"},
        {"optim.lr_batch=9", "optim.lr_scale=none", "optim.lr_scale=sqrt"},
        {"optim.momentum=0.9", "optim.name=lion", "optim.name=rmsprop"},
        {"optim.nesterov=on", "optim.name=sgd", "optim.name=sgd optim.momentum=0.9"},
        {"optim.betas=0.9,0.99", "optim.name=sgd", "optim.name=lamb"},
        {"optim.eps=1e-8", "optim.name=lion", "optim.name=rmsprop"},
        {"optim.alpha=0.5", "optim.name=adam", "optim.name=rmsprop"},
        {"optim.trust_coeff=0.01", "optim.name=lamb", "optim.name=lars"},
        {"optim.trust_clip=on", "optim.name=adamw", "optim.name=lamb"},
        {"optim.muon_exclude=head", "optim.name=lars", "optim.name=muon"},
        {"schedule.min_lr=1", "schedule.name=step", "schedule.name=cosine"},
        {"schedule.gamma=0.5", "schedule.name=cosine", "schedule.name=step"},
        {"schedule.pct_start=0.5", "schedule.name=step", "schedule.name=onecycle"},
        {"schedule.patience=3", "schedule.name=step", "schedule.name=plateau"},
        {"schedule.end_factor=0.5", "schedule.name=step", "schedule.name=linear"},
        {"mesh.shard=2", "mesh.strategy=ddp", "mesh.strategy=zero1"},
        {"mesh.stall_warning=3", "mesh.heartbeat_timeout=0", "mesh.heartbeat_timeout=9"},
        {"output.tensorboard_tags=course", "output.tensorboard=off", "output.tensorboard=on"},
        {"output.upload_wait=3", "output.upload=", "output.upload=a:b"},
        {"cuda.tf32=on", "run.backend=cpu", "run.backend=auto"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[256], name[64];
        snprintf(words, sizeof words, "%s %s", cases[i][0], cases[i][1]);
        snprintf(name, sizeof name, "%s applies only with", cases[i][0]);
        check_refuses(words, strchr(cases[i][0], '-') != NULL ? "applies only with" : name);
        snprintf(words, sizeof words, "%s %s", cases[i][0], cases[i][2]);
        check_accepts(words);
    }
}

/* Options of a deck are not errors if they are defaults, if they applied until a later word changed
 * that, or if the deck is a resolved one. They then have their defaults. */
TEST(decks_may_have_options_that_do_not_apply)
{
    static struct options options;
    temporary_write("a.ini", "[optim]\nname = sgd\nbetas = 0.8,0.9\n");
    check_refuses("a.ini", "a.ini: optim.betas=0.8,0.9 applies only with");
    check_accepts("a.ini optim.name=adam");
    temporary_write("a.ini", "[optim]\nbetas = 0.8,0.9\n[data]\nsamples = 1024\n");
    check_accepts("a.ini");
    assert_true(accepts("a.ini optim.name=sgd", &options));
    assert_int_equal(options.optim.betas.count, 0);
    options.optim.betas = (struct option_list){.count = 2, .value = {0.8, 0.9}};
    OWNED char *deck = options_to_run_deck(&options);
    temporary_write("resolved.ini", deck);
    check_accepts("resolved.ini");
}

TEST(decks_of_the_source_are_accepted)
{
    static const char *const additions[] = {
        "", " model.name=resnet18", " optim.name=lion model.name=vit_cifar data.format=synthetic"};
    char pattern[512], words[1024];
    glob_t decks;
    snprintf(pattern, sizeof pattern, "%s/input/*.ini", getenv("TEST_SOURCE"));
    assert_int_equal(glob(pattern, 0, NULL, &decks), 0);
    for (size_t i = 0; i < decks.gl_pathc; i++)
        for (size_t j = 0; j < sizeof additions / sizeof *additions; j++) {
            snprintf(words, sizeof words, "%s%s", decks.gl_pathv[i], additions[j]);
            check_accepts(words);
        }
    globfree(&decks);
}

TEST(resolved_deck_reads_back)
{
    static struct options options, again;
    options_default(&options);
    options.optim.lr = 0.1 + 0.2;
    options.train.max_seconds = 1.0 / 3;
    options.run.seed = INT64_C(9007199254740992);
    options.model.qkv_bias = SWITCH_ON;
    options.augment.mean = (struct option_list){.count = 3, .value = {0.1, 0.2, 0.3}};
    options.data.shuffle = false;
    options.data.val = VALIDATION_PERIODS;
    snprintf(options.data.val_periods, sizeof options.data.val_periods, "2019-07-01T12..2020");
    for (int i = 0; i < OPTION_TEXT - 1; i++)
        options.run.dir[i] = i % 50 == 0 ? '/' : i % 7 == 3 ? ' ' : 'x';
    OWNED char *text = options_to_run_deck(&options);
    assert_null(strstr(text, "\n[find]\n")); /* not options of a run */
    options_default(&again);
    assert_ok(options_read_text(text, "resolved", &again, &error), &error);
    assert_memory_equal(&options, &again, sizeof options);
}

static void change_append(void *user, const struct option_change *change)
{
    static const char *const effects[] = {"", "learning", "none", "model", "command"};
    char *text = user;
    snprintf(text + strlen(text), 512 - strlen(text), "%s %s -> %s (%s); ", change->name,
             change->before, change->now, effects[change->effect]);
}

TEST(changes_between_attempts)
{
    struct options before, now;
    char text[512] = "";
    options_default(&before);
    now = before;
    option_changes(&before, &now, change_append, text);
    assert_string_equal(text, "");
    settings_apply(&now, "train.epochs=20 mesh.strategy=fsdp");
    settings_apply(&now, "find.steps=9"); /* not an option of a run */
    assert_true(option_changes_nothing(&before, &now));
    settings_apply(&now, "optim.lr=1e-5 model.heads=3 train.global_batch=32");
    assert_false(option_changes_nothing(&before, &now));
    option_changes(&before, &now, change_append, text);
    assert_string_equal(
        text, "model.heads auto -> 3 (model); train.epochs 10 -> 20 (none); "
              "train.batch 64 -> unset (learning); train.global_batch unset -> 32 (learning); "
              "optim.lr 0.0003 -> 1e-05 (learning); mesh.strategy ddp -> fsdp (none); ");
    /* Version 0.2 ignored options that do not apply. */
    now = before;
    settings_apply(&before, "optim.eps=1e-3 optim.name=lion");
    settings_apply(&now, "optim.name=lion");
    assert_true(option_changes_nothing(&before, &now));
    settings_apply(&before, "optim.name=adam");
    assert_false(option_changes_nothing(&before, &now));
}

/* ---- Damaged decks: the same ones each time */

enum { DAMAGED_DECKS = 500 };

/* The reader returns, reports errors in one line, and leaves options that can be written and read
 * again. */
TEST(damaged_decks_do_no_harm)
{
    static struct options options, again;
    options_default(&options);
    OWNED char *whole = options_to_run_deck(&options);
    const size_t size = 2 * strlen(whole);
    OWNED char *text = allocate(size, 1);
    int refused = 0;
    for (uint32_t number = 0; number < DAMAGED_DECKS; number++) {
        error_clear(&error);
        strcpy(text, whole);
        text[mutate(text, strlen(text), size - 1, number)] = '\0';
        options_default(&options);
        if (!options_read_text(text, "fuzz.ini", &options, &error)) {
            refused++;
            assert_int_equal(error.kind, ERROR_USAGE);
            assert_true(strncmp(error.text, "fuzz.ini:", 9) == 0);
            assert_null(strchr(error.text, '\n'));
        }
        OWNED char *resolved = options_to_run_deck(&options);
        struct error second = {0};
        options_default(&again);
        if (!options_read_text(resolved, "again.ini", &again, &second))
            fail_msg("deck %u: %s", number, second.text);
        assert_memory_equal(&options, &again, sizeof options);
    }
    assert_in_range(refused, DAMAGED_DECKS / 4, DAMAGED_DECKS - 1);
}

TEST_MAIN(.setup = enter_folder, .teardown = leave_folder)
