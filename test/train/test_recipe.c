// SPDX-License-Identifier: BSD-3-Clause
/* Recipes for images: what `auto` becomes for each model and kind of data, and that options with a
 * value and the decks of input/ keep theirs.
 *
 *   test_recipe MODEL FILE [section.key=value ...]
 * writes the pixels of an evaluation of an image file by the model's recipe to standard output:
 * [3, image, image] bytes. test/python/check_evaluation.py compares them with timm's. */
#include "train/session.h"

#include "checkpoint/model_metadata.h"
#include "data/crop.h"
#include "data/dataset.h"
#include "model/model.h"
#include "options/options.h"
#include "test.h"

static const struct dataset files = {.encoded = true, .channels = 3, .classes = 10};
static const struct dataset pixels = {.channels = 3, .height = 32, .width = 32, .classes = 10};

static struct options options;
static const struct model_metadata *weights; /* of model.init */

static void resolve(const struct dataset *dataset)
{
    assert_ok(options_check(&options, &error) &&
                  options_resolve(&options, dataset, weights, &error),
              &error);
}

/* Each word of `expected` is key=value of the resolved options. */
static void check(const char *expected)
{
    char copy[1024], value[OPTION_TEXT];
    snprintf(copy, sizeof copy, "%s", expected);
    for (char *rest, *word = strtok_r(copy, " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        options_value_text(&options, word, value, sizeof value);
        if (strcmp(value, equals + 1) != 0)
            fail_msg("%s=%s, not %s", word, value, equals + 1);
    }
}

static void expect(const char *settings, const struct dataset *dataset, const char *expected)
{
    settings_set(&options, settings);
    resolve(dataset);
    check(expected);
}

static const char photos[] =
    "augment.recipe=photos augment.random_resized_crop=on augment.flip=0.5 augment.rotate=0 "
    "augment.translate=0 augment.erase=0 eval.resize_to=shorter eval.crop=center";
static const char cifar[] =
    "augment.recipe=cifar augment.random_resized_crop=off augment.crop=none "
    "augment.resize_to=square augment.interpolation=bilinear augment.flip=0.5 augment.rotate=15 "
    "augment.translate=0.1 augment.erase=0.5 augment.mean=auto eval.resize=auto eval.crop=auto";

TEST(photographs_get_timms_recipe)
{
    expect("model.name=vit_tiny_patch16_224", &files, photos);
    check("augment.interpolation=bicubic augment.mean=0.5,0.5,0.5 augment.std=0.5,0.5,0.5 "
          "eval.resize=248");
    expect("model.name=vit_base_patch32_224 model.image=384", &files, photos);
    check("eval.resize=426"); /* floor(384 / 0.9) */
    expect("model.name=resnet50", &files, photos);
    check("augment.interpolation=bilinear augment.mean=0.485,0.456,0.406 "
          "augment.std=0.229,0.224,0.225 eval.resize=256");
    expect("model.name=cnn_b model.image=64", &files, photos);
    check("eval.resize=73");
}

TEST(small_models_get_that_of_cifar)
{
    expect("", &pixels, cifar);
    expect("", &files, cifar);
    expect("model.name=cnn_a", &pixels, cifar);
    expect("model.name=resnet18 model.image=63", &files, cifar);
    expect("model.name=resnet18 augment.resize=32", &files, "augment.recipe=cifar");
}

TEST(stored_pixels_are_only_resized)
{
    expect(
        "model.name=vit_tiny_patch16_224", &pixels,
        "augment.recipe=plain augment.random_resized_crop=off augment.crop=none augment.rotate=0 "
        "augment.translate=0 augment.erase=0 augment.interpolation=bilinear augment.mean=auto "
        "eval.resize=auto eval.resize_to=auto eval.crop=auto");
    assert_false(crop_is_active(&options, false));
}

TEST(values_that_are_set_remain)
{
    expect("model.name=resnet18 augment.random_resized_crop=off augment.rotate=5 "
           "augment.mean=0.1,0.2,0.3",
           &files,
           "augment.recipe=photos augment.random_resized_crop=off augment.rotate=5 "
           "augment.mean=0.1,0.2,0.3 eval.resize=auto eval.crop=auto");
    expect("model.name=resnet18 augment.resize=256 augment.crop=center", &files,
           "augment.random_resized_crop=off augment.crop=center augment.resize_to=square "
           "eval.resize=auto eval.resize_to=auto eval.crop=auto");
    expect("model.name=resnet18 eval.resize=240 augment.interpolation=bicubic", &files,
           "augment.random_resized_crop=on eval.resize=240 eval.resize_to=shorter eval.crop=center "
           "augment.interpolation=bicubic");
    expect("model.name=resnet18 eval.crop=none", &files,
           "augment.random_resized_crop=on eval.resize=auto eval.resize_to=auto eval.crop=none");
    expect("model.name=resnet18 augment.recipe=cifar", &files,
           "augment.rotate=15 augment.random_resized_crop=off eval.crop=auto");
    expect("augment.recipe=photos", &pixels, photos);
    check("eval.resize=36");
}

/* timm's metadata of weights that were trained with other pixels than the architecture's usual. */
TEST(weights_bring_their_preprocessing)
{
    static const char timm[] =
        "{\"architecture\":\"resnet18\",\"input_size\":\"[3,224,224]\",\"mean\":\"[0.1,0.2,0.3]\","
        "\"std\":\"[0.4,0.5,0.6]\",\"interpolation\":\"bicubic\",\"crop_pct\":\"0.95\"}";
    struct model_metadata metadata;
    model_metadata_parse(timm, &metadata);
    weights = &metadata;
    expect("model.name=resnet18", &files, photos);
    check("augment.mean=0.1,0.2,0.3 augment.std=0.4,0.5,0.6 augment.interpolation=bicubic "
          "eval.resize=235");
    expect("model.name=resnet18 model.image=448", &files, "eval.resize=470");
    expect("model.name=resnet18 augment.mean=0.5 augment.interpolation=bilinear eval.resize=300",
           &files, "augment.mean=0.5 augment.interpolation=bilinear eval.resize=300");
    expect("model.name=resnet18", &pixels,
           "augment.mean=0.1,0.2,0.3 augment.interpolation=bilinear eval.resize=auto");
    weights = NULL;
    model_metadata_free(&metadata);
}

/* A resolved deck keeps its meaning, also one of an earlier version, without augment.recipe. */
TEST(resolved_decks_are_stable)
{
    expect("model.name=vit_tiny_patch16_224", &files, photos);
    const struct options once = options;
    resolve(&files);
    assert_memory_equal(&once, &options, sizeof options);
    settings_apply(&options, "model.image=384 eval.resize=auto");
    resolve(&files);
    check("eval.resize=426 eval.crop=center");
    expect("model.name=resnet18 augment.random_resized_crop=on augment.crop=none "
           "augment.resize_to=square augment.rotate=0 augment.translate=0 augment.erase=0",
           &files, "augment.random_resized_crop=on eval.resize=auto eval.crop=auto");
    expect("model.name=resnet18 augment.random_resized_crop=off augment.crop=none "
           "augment.resize_to=square augment.rotate=15 augment.translate=0.1 augment.erase=0.5",
           &files, "augment.random_resized_crop=off augment.rotate=15 eval.crop=auto");
}

/* Decks that were made before recipes existed keep their crops. */
TEST(decks_keep_their_results)
{
    static const struct {
        const char *deck, *augment;
        bool encoded;
        int64_t image, resize; /* resize: of evaluations */
        int resize_to, take;
        bool random; /* random resized crop in training; else training crops as evaluations do */
    } decks[] = {
        {"vit_cifar", "augment.rotate=15 augment.translate=0.1 augment.erase=0.5", false, 32, 32,
         RESIZE_SQUARE, CROP_NONE, false},
        {"resnet152_cinic10", "augment.rotate=0 augment.translate=0 augment.erase=0", true, 32, 32,
         RESIZE_SQUARE, CROP_NONE, false},
        {"resnet18_imagenet", "augment.rotate=0 augment.mean=0.485,0.456,0.406", true, 224, 256,
         RESIZE_SHORTER, CROP_CENTER, true},
        {"resnet18_imagenet_course", "augment.rotate=0 augment.mean=0.485,0.456,0.406", true, 224,
         256, RESIZE_SQUARE, CROP_CENTER, false},
    };
    for (size_t i = 0; i < sizeof decks / sizeof decks[0]; i++) {
        char path[1024];
        const int64_t image = decks[i].image;
        snprintf(path, sizeof path, "%s/input/%s.ini", getenv("TEST_SOURCE"), decks[i].deck);
        options_default(&options);
        assert_ok(options_read_file(path, &options, &error), &error);
        resolve(decks[i].encoded ? &files : &pixels);
        check(decks[i].augment);
        for (int training = 0; training < 2; training++) {
            const bool random = training && decks[i].random;
            struct crop crop;
            assert_true(crop_open(&crop, &options, decks[i].encoded,
                                  (struct image_size){image, image}, training, &error));
            assert_int_equal(crop.active, decks[i].encoded);
            assert_int_equal(crop.random_resized, random);
            assert_int_equal(crop.filter, FILTER_BILINEAR);
            assert_true(crop.scaled_decode);
            assert_int_equal(crop.take, random ? CROP_NONE : decks[i].take);
            assert_int_equal(crop.resize_to, random ? RESIZE_SQUARE : decks[i].resize_to);
            assert_int_equal(crop.resize.height, random ? image : decks[i].resize);
            assert_int_equal(crop.resize.width, crop.resize.height);
        }
    }
}

/* ---- Pixels of one file. */

static bool file_read(const char *path, struct byte_buffer *bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || !byte_buffer_reserve(bytes, 64 << 20, &error))
        return false;
    bytes->count = fread(bytes->data, 1, bytes->capacity, file);
    fclose(file);
    return bytes->count < bytes->capacity;
}

static bool pixels_make(char **words)
{
    struct byte_buffer bytes = {0};
    struct crop_scratch scratch = {0};
    struct crop crop;
    options_default(&options);
    snprintf(options.model.name, sizeof options.model.name, "%s", words[0]);
    for (char **word = words + 2; *word != NULL; word++)
        if (!options_set(*word, &options, &error))
            return false;
    struct model *model = model_open(&options, NULL, TYPE_FP32, &error);
    if (model == NULL || !options_resolve(&options, &files, NULL, &error) ||
        !crop_open(&crop, &options, true, model->image, false, &error) ||
        !file_read(words[1], &bytes))
        return false;
    const size_t count = (size_t)(3 * model->image.height * model->image.width);
    OWNED uint8_t *planes = allocate(count, 1);
    bool good = crop_file(&crop, 0, 0, bytes.data, bytes.count, &scratch, planes, &error) &&
                fwrite(planes, 1, count, stdout) == count;
    free(bytes.data);
    crop_scratch_free(&scratch);
    model_close(model);
    return good;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return TESTS_RUN();
    if (pixels_make(argv + 1))
        return 0;
    fprintf(stderr, "%s\n", error.text);
    return 1;
}
