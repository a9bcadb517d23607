// SPDX-License-Identifier: BSD-3-Clause
/* Metadata of weights: what is described is parsed and applied; texts and files from elsewhere
 * have faults; PyTorch files are recognised. */
#include "checkpoint/model_metadata.h"
#include "data/dataset.h"
#include "model/model.h"
#include "mutate.h"
#include "options/options.h"
#include "temporary.h"
#include "test.h"

static const char photo_deck[] = "[model]\nname = vit_tiny_patch16_224\nimage = 64\ndim = 96\n"
                                 "classes = 3\npool = mean\nclass_token = off\n"
                                 "[augment]\nmean = 0.4,0.5,0.1\nresize = 73\nresize_to = shorter\n"
                                 "crop = random\n[eval]\ncrop = center\n";

static void options_of(const char *deck, struct options *options)
{
    options_default(options);
    assert_ok(options_read_text(deck, "a test", options, &error), &error);
}

/* The caller frees the result. */
static char *describe(const struct options *options, char **names, int64_t count)
{
    struct model *model = model_open(options, NULL, TYPE_FP32, &error);
    if (model == NULL)
        fail_msg("%s", error.text);
    const struct dataset dataset = {.class_name = names, .classes = count};
    char *text = model_metadata_describe(options, model, &dataset);
    model_close(model);
    return text;
}

TEST(a_described_model_is_applied)
{
    char *names[] = {"cat", "a \"quoted\", \\name", "k\303\244se"};
    struct options trained, options;
    struct model_metadata metadata;
    options_of(photo_deck, &trained);
    char *text = describe(&trained, names, 3);
    model_metadata_parse(text, &metadata);
    options_of("[model]\nname = cnn_a\nwidth = 7\n[augment]\ncrop = center\nresize = 9\n",
               &options);
    model_metadata_apply(&metadata, &options);
    trained.model.channels = 3;
    assert_memory_equal(&options.model, &trained.model, sizeof options.model);
    assert_int_equal(options.eval.resize, 73);
    assert_int_equal(options.eval.resize_to, RESIZE_SHORTER);
    assert_int_equal(options.eval.crop, CROP_CENTER);
    assert_int_equal(options.augment.crop, CROP_AUTO);
    assert_int_equal(options.augment.resize, 0);
    assert_memory_equal(&options.augment.mean, &trained.augment.mean, sizeof options.augment.mean);
    assert_int_equal(options.augment.std.count, 3); /* the model's */
    assert_true(options.augment.std.value[0] == 0.5);
    assert_int_equal(options.augment.interpolation, INTERPOLATION_BILINEAR);
    assert_true(metadata.is_own);
    assert_int_equal(metadata.class_count, 3);
    for (int i = 0; i < 3; i++)
        assert_string_equal(metadata.class_name[i], names[i]);
    model_metadata_free(&metadata);
    free(text);
}

/* The normalisation of the registry is in fp32; the text has its few digits. */
TEST(a_default_model_needs_few_words)
{
    struct options options;
    options_of("[model]\nname = vit_base_patch32_224\n", &options);
    char *text = describe(&options, NULL, 0);
    assert_null(strstr(text, "model."));
    assert_null(strstr(text, "eval."));
    assert_null(strstr(text, "label_names"));
    options_of("[model]\nname = resnet50\nhead = dense\n", &options);
    free(text);
    text = describe(&options, NULL, 0);
    assert_has(text, "\"mean\":\"[0.485,0.456,0.406]\"");
    assert_has(text, "\"input_size\":\"[3,224,224]\"");
    assert_has(text, "\"model.head\":\"dense\"");
    free(text);
}

TEST(useless_texts_give_nothing)
{
    static const char *const texts[] = {
        NULL,
        "",
        "{",
        "[]",
        "3",
        "null",
        "{\"mean\":\"[0.5,]\"}",
        "{\"mean\":\"[]\",\"std\":\"[0]\",\"num_classes\":\"-3\",\"label_names\":\"{}\"}",
        "{\"mean\":\"[1,null]\",\"std\":\"[\\\"a\\\"]\"}",
        "{\"mean\":\"[1e999]\",\"std\":\"[-1,1]\",\"input_size\":\"[3,224,0]\"}",
        "{\"input_size\":\"[3,-224,-224]\",\"num_classes\":\"1e9\",\"crop_pct\":\"0\"}",
        "{\"input_size\":\"[3,9223372036854775807,9223372036854775807]\",\"crop_pct\":\"1e-300\"}",
        "{\"model.dim\":\"-5\",\"model.depth\":\"many\",\"eval.crop\":\"left\",\"model.name\":"
        "\"x\"}",
        "{\"program\":3,\"architecture\":[],\"model.dim\":{\"a\":1},\"label_names\":\"[\"}"};
    struct options defaults;
    options_default(&defaults);
    memset(defaults.model.name, 0, sizeof defaults.model.name);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct model_metadata metadata;
        struct options options, before;
        options_of(photo_deck, &options);
        before = options;
        model_metadata_parse(texts[i], &metadata);
        model_metadata_apply(&metadata, &options);
        /* The first six texts have no members. */
        if ((metadata.fault[0].option != NULL) != (i >= 6))
            fail_msg("text %zu: fault \"%s\"", i, metadata.fault[0].text);
        if (memcmp(&options, &before, sizeof options) != 0 || metadata.statistics.mean.count != 0 ||
            metadata.statistics.std.count != 0 || metadata.class_count != 0 ||
            memcmp(&metadata.options, &defaults, sizeof defaults) != 0)
            fail_msg("text %zu was taken: %s", i, texts[i]);
        model_metadata_free(&metadata);
    }
}

TEST(invalid_values_name_field_and_option)
{
    static const struct {
        const char *member, *fault, *setting;
    } rows[] = {
        {"\"std\":\"[0,1,1]\"", "std=[0,1,1]", "augment.std=1"},
        {"\"std\":\"[-1,1,1]\"", "std=[-1,1,1]", "augment.std=1"},
        {"\"std\":\"[NaN,1,1]\"", "std=[NaN,1,1]", "augment.std=1"},
        {"\"std\":\"grey\"", "std=grey", "augment.std=1"},
        {"\"mean\":\"[1,2]\"", "mean=[1,2]", "augment.mean=0.5"},
        {"\"interpolation\":\"lanczos\"", "interpolation=lanczos",
         "augment.interpolation=bilinear"},
        {"\"label_names\":\"[\\\"a\\\",\\\"b\\\"]\"", "label_names=", "model.classes=3"},
        {"\"num_classes\":\"0\",\"label_names\":\"[\\\"a\\\"]\"",
         "label_names=", "model.classes=3"},
        {"\"num_classes\":\"many\"", "num_classes=many", "model.classes=3"},
        {"\"crop_mode\":\"border\"", "crop_mode=border", "eval.resize_to=square"},
        {"\"model.heads\":\"none\"", "model.heads=none", "model.heads=3"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512], option[64] = "";
        struct model_metadata metadata;
        struct options options;
        error_clear(&error);
        snprintf(text, sizeof text,
                 "{\"architecture\":\"vit_cifar\",\"num_classes\":\"3\","
                 "\"input_size\":\"[3,32,32]\",%s}",
                 rows[i].member);
        model_metadata_parse(text, &metadata);
        options_of("", &options);
        model_metadata_apply(&metadata, &options);
        assert_false(model_metadata_check(&metadata, "w", &options, false, &error));
        memcpy(option, rows[i].setting, strcspn(rows[i].setting, "="));
        if (strstr(error.text, rows[i].fault) == NULL || strstr(error.text, option) == NULL)
            fail_msg("row %zu: %s", i, error.text);
        error_clear(&error);
        assert_true(options_set(rows[i].setting, &options, &error));
        if (!model_metadata_check(&metadata, "w", &options, false, &error))
            fail_msg("row %zu: %s", i, error.text);
        model_metadata_free(&metadata);
    }
}

TEST(mutated_texts_are_harmless)
{
    enum { MUTATIONS = 600, ROOM = 8192 };
    char *names[] = {"cat", "dog"}, mutated[ROOM];
    struct options trained, options;
    options_of(photo_deck, &trained);
    char *text = describe(&trained, names, 2);
    for (uint32_t number = 0; number < MUTATIONS; number++) {
        struct model_metadata metadata;
        snprintf(mutated, sizeof mutated, "%s", text);
        mutated[mutate(mutated, strlen(text), ROOM - 1, number)] = '\0';
        model_metadata_parse(mutated, &metadata);
        options = trained;
        model_metadata_apply(&metadata, &options);
        assert_in_range(options.model.image, 0, 8192);
        assert_in_range(options.model.channels, 0, 32);
        assert_in_range(options.model.classes, 0, 500000);
        assert_in_range(options.model.dim, 0, 65536);
        assert_in_range(options.eval.resize, 0, 8192);
        assert_in_range(options.augment.std.count, 0, OPTION_LIST);
        for (int i = 0; i < options.augment.std.count; i++)
            assert_true(options.augment.std.value[i] > 0);
        for (int64_t i = 0; i < metadata.class_count; i++)
            assert_non_null(metadata.class_name[i]);
        model_metadata_free(&metadata);
    }
    free(text);
}

/* Write a safetensors file without tensors. */
static const char *write_weights(const char *name, const char *header)
{
    char content[1024] = {0};
    const size_t length = strlen(header);
    content[0] = (char)length;
    memcpy(content + 8, header, length);
    return temporary_file(name, content, 8 + length);
}

static void read_metadata(const char *path, struct model_metadata *metadata)
{
    error_clear(&error);
    char *text = model_metadata_text(path, &error);
    assert_string_equal(error.text, "");
    model_metadata_parse(text, metadata);
    free(text);
}

TEST(timm_files_are_described_by_their_configuration)
{
    struct model_metadata metadata;
    struct options options;
    const char *plain = "{\"__metadata__\":{\"format\":\"pt\"}}";
    read_metadata(write_weights("alone.safetensors", plain), &metadata);
    assert_string_equal(metadata.options.model.name, "");
    model_metadata_free(&metadata);
    temporary_write("config.json",
                    "{\"architecture\": \"vit_base_patch32_224\", \"num_classes\": 3, "
                    "\"pretrained_cfg\": {\"mean\": [0.1, 0.2, 0.3], "
                    "\"std\": [0.5, 0.5, 0.5], \"interpolation\": \"bicubic\", "
                    "\"input_size\": [3, 224, 224], \"crop_pct\": 0.9, "
                    "\"crop_mode\": \"center\", \"label_names\": [\"a\", \"b\", \"c\"]}}");
    read_metadata(temporary_path("alone.safetensors"), &metadata);
    options_of("", &options);
    model_metadata_apply(&metadata, &options);
    assert_string_equal(options.model.name, "vit_base_patch32_224");
    assert_int_equal(options.augment.interpolation, INTERPOLATION_BICUBIC);
    assert_int_equal(options.model.classes, 3);
    assert_int_equal(options.eval.resize, 248);
    assert_int_equal(options.eval.resize_to, RESIZE_SHORTER);
    assert_int_equal(options.eval.crop, CROP_CENTER);
    assert_true(options.augment.mean.value[2] == 0.3);
    assert_string_equal(metadata.class_name[2], "c");
    model_metadata_free(&metadata);
    /* The file's own description comes first. */
    read_metadata(
        write_weights("own.safetensors", "{\"__metadata__\":{\"architecture\":\"cnn_a\"}}"),
        &metadata);
    assert_string_equal(metadata.options.model.name, "cnn_a");
    assert_int_equal(metadata.statistics.mean.count, 0);
    model_metadata_free(&metadata);
    temporary_write("config.json", "{\"architecture\": ");
    read_metadata(temporary_path("alone.safetensors"), &metadata);
    assert_string_equal(metadata.options.model.name, "");
    model_metadata_free(&metadata);
}

static void expect(bool refused, const char *path)
{
    error_clear(&error);
    if (weights_file_check(path, &error) == refused)
        fail_msg("%s: %s", path, refused ? "accepted" : error.text);
    assert_int_equal(error.kind, refused ? ERROR_CHECKPOINT : ERROR_NONE);
    if (refused)
        assert_non_null(strstr(error.text, "save_file("));
}

TEST(files_of_pytorch_are_recognised)
{
    static const char text[] = "something else";
    expect(true, temporary_file("a.pth", text, sizeof text));
    expect(true, temporary_file("b.safetensors", "PK\3\4 and more", 13));
    expect(true, temporary_file("c", "\200\2\212\nl\374\234F\371", 9));
    expect(true, temporary_file("d.h5", "\200\4\225\0\0\0\0\0\0\0", 10));
    expect(false, temporary_file("e.bin", "\211HDF\r\n\032\n\0", 9));
    expect(false, temporary_file("f.safetensors", "\200\2\0\0\0\0\0\0{", 9));
    expect(false, temporary_file("g.pt", "{}", 2)); /* too short for any reader */
    expect(false, temporary_path("not-there.pt"));
    expect(false, temporary_directory("folder.pt"));
}

TEST_MAIN(.setup = temporary_setup, .teardown = temporary_close)
