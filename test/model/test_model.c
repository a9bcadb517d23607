// SPDX-License-Identifier: BSD-3-Clause
/* Whole models against PyTorch and timm (test/vectors/make_models.py): logits, loss, all gradients,
 * and the weights after several steps of each optimizer and schedule. GPUs are compared with the
 * CPU by test_vit_device and test_convnet_device. */
#include "config/options.h"
#include "model/model.h"
#include "settings.h"
#include "test.h"
#include "train/optimizer.h"
#include "vit_fixture.h"

struct tolerance {
    double relative; /* relative to the largest expected value of the tensor */
    double absolute;
};

/* Compare a tensor; return 1 and print its name if it differs. */
static int check_values(const char *name, const float *found, const float *expected, int64_t count,
                        struct tolerance tolerance)
{
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < count; i++) {
        double distance = fabs((double)found[i] - (double)expected[i]);
        if (!(distance <= worst)) /* also for NaN */
            worst = distance;
        largest = fmax(largest, fabs((double)expected[i]));
    }
    if (worst <= tolerance.relative * largest + tolerance.absolute)
        return 0;
    print_error("%s differs by %g where values go up to %g\n", name, worst, largest);
    return 1;
}

/* Compare all tensors of the model with PREFIX/NAME of the file; return the number of differences.
 */
static int check_tensors(struct vit_fixture *fixture, const struct vector_file *file,
                         const char *prefix,
                         float *(*read)(struct vit_fixture *fixture, int unit, int tensor),
                         struct tolerance tolerance)
{
    int wrong = 0;
    for (int u = 0; u < fixture->model->unit_count; u++)
        for (int t = 0; t < fixture->model->units[u].tensor_count; t++) {
            const struct unit_tensor *tensor = &fixture->model->units[u].tensors[t];
            char name[TENSOR_NAME + 64];
            int64_t count;
            snprintf(name, sizeof name, "%s/%s", prefix, tensor->name);
            const float *expected = vector_file_floats(file, name, &count);
            assert_int_equal(count, tensor->count);
            float *found = read(fixture, u, t);
            wrong += check_values(name, found, expected, count, tolerance);
            free(found);
        }
    return wrong;
}

/* Open the model of a file with its weights and its batch. */
static struct vector_file *open_case(struct vit_fixture *fixture, const char *name,
                                     enum data_type compute, const char *const *assignments)
{
    struct vector_file *file = vector_file_open(name);
    int64_t batch = vector_file_size(file, "images", 0);
    if (vector_file_text(file, "convnet") != NULL) {
        struct convnet_shape shape = vit_fixture_convnet_shape(file);
        vit_fixture_open_convnet(fixture, NULL, &shape, compute, batch, assignments);
    } else {
        struct vit_shape shape = vit_fixture_shape(file);
        vit_fixture_open(fixture, &shape, compute, batch, assignments);
    }
    vit_fixture_load(fixture, file, "weight");
    vit_fixture_set_batch(fixture, vector_file_floats(file, "images", NULL),
                          vector_file_integers(file, "labels", NULL));
    return file;
}

static void close_case(struct vit_fixture *fixture, struct vector_file *file)
{
    vit_fixture_close(fixture);
    vector_file_close(file);
}

static double smoothing_of(const struct vector_file *file)
{
    return strtod(vector_file_text(file, "smoothing"), NULL);
}

static int check_forward(struct vit_fixture *fixture, const struct vector_file *file,
                         struct tolerance tolerance)
{
    int64_t count;
    /* Batch norm differs between training and evaluation. */
    bool other = fixture->training && vector_file_has(file, "logits_training");
    const float *expected = vector_file_floats(file, other ? "logits_training" : "logits", &count);
    const float *expected_loss = vector_file_floats(file, other ? "loss_training" : "loss", NULL);
    vit_fixture_zero(fixture);
    vit_fixture_run(fixture, 0, fixture->batch, smoothing_of(file), false);
    float *logits = vit_fixture_logits(fixture, fixture->batch);
    int wrong = check_values("logits", logits, expected, count, tolerance);
    free(logits);
    float loss = (float)(vit_fixture_loss(fixture) / (double)fixture->batch);
    return wrong + check_values("loss", &loss, expected_loss, 1, tolerance);
}

static void check_model(const char *name, enum data_type compute, struct tolerance tolerance)
{
    struct vit_fixture fixture;
    struct vector_file *file = open_case(&fixture, name, compute, NULL);
    int wrong = 0;
    vit_fixture_set_training(&fixture, false);
    wrong += check_forward(&fixture, file, tolerance);
    vit_fixture_set_training(&fixture, true);
    wrong += check_forward(&fixture, file, tolerance);
    vit_fixture_train(&fixture, smoothing_of(file));
    wrong += check_tensors(&fixture, file, "gradient", vit_fixture_gradient, tolerance);
    close_case(&fixture, file);
    assert_int_equal(wrong, 0);
}

static const char *const model_files[] = {
    "model_token.safetensors",
    "model_mean.safetensors",
    "model_mean_token.safetensors",
    "model_cifar.safetensors",
    "model_odd.safetensors",
    "model_rules.safetensors",
    /* Models with the parts of newer ViTs. */
    "model_layer_scale.safetensors",
    "model_registers.safetensors",
    "model_register_positions.safetensors",
    "model_sincos.safetensors",
    "model_map.safetensors",
    "model_swiglu.safetensors",
    "model_rotary.safetensors",
    "model_wide.safetensors",
    "model_wide_rotary.safetensors",
    "model_dense.safetensors",
    "model_dense_rotary.safetensors",
};
enum { MODEL_FILES = sizeof model_files / sizeof model_files[0] };

TEST(test_fp32_model)
{
    for (int i = 0; i < MODEL_FILES; i++)
        check_model(model_files[i], TYPE_FP32, (struct tolerance){1e-5, 2e-7});
}

/* Fixed positions are those of big_vision before any weights are loaded. */
TEST(test_fixed_positions)
{
    struct vit_fixture fixture;
    struct vector_file *file = vector_file_open("model_sincos.safetensors");
    struct vit_shape shape = vit_fixture_shape(file);
    vit_fixture_open(&fixture, &shape, TYPE_FP32, 1, NULL);
    const struct unit_tensor *tensor = &fixture.model->units[0].tensors[0];
    assert_string_equal(tensor->name, "pos_embed");
    float *found = vit_fixture_weight(&fixture, 0, 0);
    int wrong =
        check_values(tensor->name, found, vector_file_floats(file, "weight/pos_embed", NULL),
                     tensor->count, (struct tolerance){0, 1e-6});
    free(found);
    close_case(&fixture, file);
    assert_int_equal(wrong, 0);
}

static const char *const convnet_files[] = {
    "convnet_cnn_a.safetensors", "convnet_lenet.safetensors",      "convnet_cifar.safetensors",
    "convnet_basic.safetensors", "convnet_bottleneck.safetensors", "convnet_cnn_c.safetensors",
    "convnet_dense.safetensors",
};
enum { CONVNET_FILES = sizeof convnet_files / sizeof convnet_files[0] };

TEST(test_fp32_convnet)
{
    for (int i = 0; i < CONVNET_FILES; i++)
        check_model(convnet_files[i], TYPE_FP32, (struct tolerance){5e-5, 2e-6});
}

/* bf16 has 8 bits: each operation rounds to 1/256. */
TEST(test_bf16_model)
{
    for (int i = 0; i < MODEL_FILES; i++)
        check_model(model_files[i], TYPE_BF16, (struct tolerance){5e-2, 5e-3});
}

/* Compute a step's gradients from train.accumulate micro-batches. */
static void train_pieces(struct vit_fixture *fixture, double smoothing)
{
    int64_t pieces = fixture->options.train.accumulate, count = fixture->batch / pieces;
    vit_fixture_zero(fixture);
    for (int64_t piece = 0; piece < pieces; piece++) {
        fixture->running_weight = flat_running_weight(pieces, pieces, piece);
        vit_fixture_run(fixture, piece * count, count, smoothing, true);
    }
    flat_norm(&fixture->flat);
}

/* Run updates with the learning rates of the schedule. */
static void train_steps(struct vit_fixture *fixture, double smoothing, int64_t steps)
{
    struct optimizer optimizer;
    struct schedule schedule;
    optimizer_open(&optimizer, &fixture->options);
    schedule_open(&schedule, &fixture->options, fixture->options.optim.lr, 1, steps);
    for (int64_t step = 0; step < steps; step++) {
        train_pieces(fixture, smoothing);
        optimizer_set_momentum(&optimizer, &schedule, step);
        const struct step_params place =
            optimizer_params(&optimizer, schedule_rate(&schedule, step), step);
        vit_fixture_set_place(fixture, &place);
        optimizer_step(&optimizer, &fixture->flat, fixture->place, NULL);
    }
}

/* The settings and expectations of a test. */
struct rule {
    const char *file, *prefix;
    int64_t steps;
    const char *assignments[10];
};

static int check_rule(const struct rule *rule, enum data_type compute, struct tolerance tolerance)
{
    struct vit_fixture fixture;
    struct vector_file *file = open_case(&fixture, rule->file, compute, rule->assignments);
    train_steps(&fixture, smoothing_of(file), rule->steps);
    int wrong = check_tensors(&fixture, file, rule->prefix, vit_fixture_weight, tolerance);
    close_case(&fixture, file);
    return wrong;
}

/* An update changes a weight by about the learning rate, 1e-3: errors of 0.2 % of that are
 * detected. */
static const struct tolerance step_tolerance = {1e-6, 2e-6};

#define ADAMW "optim.name=adamw", "optim.lr=1e-3", "optim.weight_decay=0.05", "train.clip_norm=0.5"
#define ROUGH_EPSILON "optim.eps=1e-4"
#define SGD "optim.name=sgd", "optim.lr=0.1", "train.clip_norm=0.5"

static const struct rule optimizer_rules[] = {
    {"model_token.safetensors", "after_adamw", 3, {ADAMW, ROUGH_EPSILON}},
    {"model_mean.safetensors", "after_adamw", 3, {ADAMW, ROUGH_EPSILON}},
    {"model_mean_token.safetensors", "after_adamw_default", 3, {ADAMW}},
    {"model_cifar.safetensors", "after_adamw", 3, {ADAMW, ROUGH_EPSILON}},
    {"model_odd.safetensors", "after_adamw", 3, {ADAMW, ROUGH_EPSILON}},
    {"model_rules.safetensors", "after_adamw", 3, {ADAMW, ROUGH_EPSILON}},
    {"model_registers.safetensors", "after_adamw", 3, {ADAMW, ROUGH_EPSILON}},
    {"model_sincos.safetensors", "after_adamw", 3, {ADAMW, ROUGH_EPSILON}},
    {"model_dense.safetensors", "after_adamw", 3, {ADAMW, ROUGH_EPSILON}},
    {"model_rules.safetensors", "after_adam", 3, {ADAMW, ROUGH_EPSILON, "optim.name=adam"}},
    {"model_rules.safetensors", "after_sgd", 3, {SGD, "optim.weight_decay=0.05"}},
    {"model_rules.safetensors",
     "after_nesterov",
     3,
     {SGD, "optim.weight_decay=0.05", "optim.momentum=0.9", "optim.nesterov=on"}},
    {"model_rules.safetensors", "after_rmsprop", 3, {ADAMW, ROUGH_EPSILON, "optim.name=rmsprop"}},
    {"model_rules.safetensors",
     "after_rmsprop_momentum",
     3,
     {ADAMW, ROUGH_EPSILON, "optim.name=rmsprop", "optim.momentum=0.9"}},
    {"model_rules.safetensors",
     "after_layer_decay",
     3,
     {ADAMW, ROUGH_EPSILON, "optim.layer_decay=0.75", "optim.no_decay=on"}},
    {"model_rules.safetensors", "after_freeze", 3, {ADAMW, ROUGH_EPSILON, "optim.freeze=stem"}},
    /* A schedule that moves rate and momentum. test_schedule has the others. */
    {"model_rules.safetensors",
     "schedule_onecycle",
     6,
     {SGD, "optim.momentum=0.9", "optim.weight_decay=0", "schedule.name=onecycle"}},
};

#define CONVNET_SGD                                                                                \
    "optim.name=sgd", "optim.lr=1e-2", "optim.momentum=0.9", "optim.weight_decay=0.05",            \
        "train.clip_norm=0"

static const struct rule convnet_rules[] = {
    {"convnet_cifar.safetensors",
     "after_adamw",
     3,
     {"optim.name=adamw", "optim.lr=1e-3", "optim.weight_decay=0.05", ROUGH_EPSILON}},
    {"convnet_cifar.safetensors", "after_pieces", 2, {CONVNET_SGD, "train.accumulate=3"}},
    /* Frozen norms use their running statistics, below and above trained layers. */
    {"convnet_cifar.safetensors",
     "after_freeze",
     2,
     {CONVNET_SGD, "optim.freeze=stem,layer1.0,layer2.0.bn2"}},
};

TEST(test_optimizers)
{
    int wrong = 0;
    for (size_t i = 0; i < sizeof optimizer_rules / sizeof optimizer_rules[0]; i++)
        wrong += check_rule(&optimizer_rules[i], TYPE_FP32, step_tolerance);
    assert_int_equal(wrong, 0);
}

TEST(test_convnet_steps)
{
    int wrong = 0;
    for (size_t i = 0; i < sizeof convnet_rules / sizeof convnet_rules[0]; i++)
        wrong += check_rule(&convnet_rules[i], TYPE_FP32, (struct tolerance){1e-5, 1e-5});
    assert_int_equal(wrong, 0);
}

/* Master weights are fp32, so that small updates add up in bf16 training. */
TEST(test_bf16_steps)
{
    assert_int_equal(check_rule(&optimizer_rules[0], TYPE_BF16, (struct tolerance){0, 2.5e-3}), 0);
}

TEST(test_moving_average)
{
    const char *const assignments[] = {ADAMW, ROUGH_EPSILON, "optim.ema=0.9", NULL};
    struct vit_fixture fixture;
    struct vector_file *file =
        open_case(&fixture, "model_rules.safetensors", TYPE_FP32, assignments);
    train_steps(&fixture, smoothing_of(file), 3);
    int wrong = check_tensors(&fixture, file, "after_adamw", vit_fixture_weight, step_tolerance);
    wrong += check_tensors(&fixture, file, "average", vit_fixture_average,
                           (struct tolerance){1e-6, 1e-6});
    close_case(&fixture, file);
    assert_int_equal(wrong, 0);
}

/* Numbers of parameters and normalisation of images: those of timm, torchvision, and of the
 * reference for vit_cifar, cnn_a and cnn_b. */
#define HALF                                                                                       \
    {                                                                                              \
        0.5, 0.5, 0.5                                                                              \
    }
#define IMAGENET                                                                                   \
    {0.485, 0.456, 0.406},                                                                         \
    {                                                                                              \
        0.229, 0.224, 0.225                                                                        \
    }
static const struct {
    const char *name;
    int64_t parameters, parameters_10_classes;
    double mean[3], std[3];
} registry[] = {
    {"vit_cifar", 2690506, 2690506, HALF, HALF},
    {"vit_tiny_patch16_224", 5717416, 5526346, HALF, HALF},
    {"vit_tiny_patch16_384", 5790376, 5599306, HALF, HALF},
    {"vit_small_patch16_224", 22050664, 21669514, HALF, HALF},
    {"vit_small_patch16_384", 22196584, 21815434, HALF, HALF},
    {"vit_small_patch32_224", 22878952, 22497802, HALF, HALF},
    {"vit_small_patch32_384", 22915432, 22534282, HALF, HALF},
    {"vit_base_patch16_224", 86567656, 85806346, HALF, HALF},
    {"vit_base_patch16_384", 86859496, 86098186, HALF, HALF},
    {"vit_base_patch32_224", 88224232, 87462922, HALF, HALF},
    {"vit_base_patch32_384", 88297192, 87535882, HALF, HALF},
    {"vit_large_patch14_224", 304203752, 303189002, HALF, HALF},
    {"vit_large_patch16_224", 304326632, 303311882, HALF, HALF},
    {"vit_large_patch16_384", 304715752, 303701002, HALF, HALF},
    {"vit_large_patch32_224", 306535400, 305520650, HALF, HALF},
    {"vit_large_patch32_384", 306632680, 305617930, HALF, HALF},
    {"vit_huge_patch14_224", 632045800, 630777610, HALF, HALF},
    {"vit_small_patch16_sincos", 22049896, 21668746, HALF, HALF},
    {"deit3_small_patch16_224", 22059496, 21678346, IMAGENET},
    {"deit3_small_patch16_384", 22205416, 21824266, IMAGENET},
    {"deit3_medium_patch16_224", 38849512, 38341642, IMAGENET},
    {"deit3_base_patch16_224", 86585320, 85824010, IMAGENET},
    {"deit3_base_patch16_384", 86877160, 86115850, IMAGENET},
    {"deit3_large_patch16_224", 304374760, 303360010, IMAGENET},
    {"deit3_large_patch16_384", 304763880, 303749130, IMAGENET},
    {"deit3_huge_patch14_224", 632126440, 630858250, IMAGENET},
    {"vit_small_patch14_dinov2", 22441192, 22060042, IMAGENET},
    {"vit_base_patch14_dinov2", 87348712, 86587402, IMAGENET},
    {"vit_large_patch14_dinov2", 305392616, 304377866, IMAGENET},
    {"vit_giant_patch14_dinov2", 1138016232, 1136494602, IMAGENET},
    {"vit_small_patch14_reg4_dinov2", 22442344, 22061194, IMAGENET},
    {"vit_base_patch14_reg4_dinov2", 87351016, 86589706, IMAGENET},
    {"vit_large_patch14_reg4_dinov2", 305395688, 304380938, IMAGENET},
    {"vit_giant_patch14_reg4_dinov2", 1138020840, 1136499210, IMAGENET},
    {"vit_small_patch16_dinov3", 21971944, 21590794, IMAGENET},
    {"vit_base_patch16_dinov3", 86410216, 85648906, IMAGENET},
    {"vit_large_patch16_dinov3", 304104424, 303089674, IMAGENET},
    {"vit_base_patch32_siglip_256", 95321320, 94560010, HALF, HALF},
    {"vit_base_patch16_siglip_224", 93653224, 92891914, HALF, HALF},
    {"vit_base_patch16_siglip_256", 93699304, 92937994, HALF, HALF},
    {"vit_base_patch16_siglip_384", 93945064, 93183754, HALF, HALF},
    {"vit_base_patch16_siglip_512", 94289128, 93527818, HALF, HALF},
    {"vit_large_patch16_siglip_256", 316981224, 315966474, HALF, HALF},
    {"vit_large_patch16_siglip_384", 317308904, 316294154, HALF, HALF},
    {"vit_large_patch16_siglip_512", 317767656, 316752906, HALF, HALF},
    {"vit_so400m_patch14_siglip_224", 428833704, 427692234, HALF, HALF},
    {"vit_so400m_patch14_siglip_378", 429378600, 428237130, HALF, HALF},
    {"vit_so400m_patch16_siglip_256", 429041064, 427899594, HALF, HALF},
    {"vit_so400m_patch16_siglip_384", 429409704, 428268234, HALF, HALF},
    {"vit_so400m_patch16_siglip_512", 429925800, 428784330, HALF, HALF},
    {"cnn_a", 9986, 9986, HALF, HALF},
    {"cnn_a_lenet", 58742, 58742, HALF, HALF},
    {"cnn_c", 1972826, 1972826, HALF, HALF},
    {"linear", 21, 210, {0, 0, 0}, {1, 1, 1}},
    {"cnn_b", 11173962, 11173962, HALF, HALF},
    {"resnet18", 11689512, 11181642, IMAGENET},
    {"resnet34", 21797672, 21289802, IMAGENET},
    {"resnet50", 25557032, 23528522, IMAGENET},
    {"resnet101", 44549160, 42520650, IMAGENET},
    {"resnet152", 60192808, 58164298, IMAGENET},
};

static int64_t parameters_of(const char *name, const char *assignment, const double **mean,
                             const double **std)
{
    struct options options;
    struct error error = {0};
    char words[128];
    snprintf(words, sizeof words, "model.name=%s %s", name, assignment);
    settings_set(&options, words);
    struct model *model = model_open(&options, NULL, TYPE_FP32, &error);
    assert_non_null(model);
    int64_t count = model_parameter_count(model);
    *mean = model->entry->mean;
    *std = model->entry->std;
    model_close(model);
    return count;
}

TEST(test_registry)
{
    const double *mean, *std;
    size_t names = 0;
    while (model_names()[names] != NULL)
        names++;
    assert_int_equal(names, sizeof registry / sizeof registry[0]);
    for (size_t i = 0; i < names; i++) {
        assert_string_equal(model_names()[i], registry[i].name);
        assert_int_equal(parameters_of(registry[i].name, "", &mean, &std), registry[i].parameters);
        for (int c = 0; c < 3; c++) {
            assert_true(mean[c] == registry[i].mean[c]);
            assert_true(std[c] == registry[i].std[c]);
        }
        assert_int_equal(parameters_of(registry[i].name, "model.classes=10", &mean, &std),
                         registry[i].parameters_10_classes);
    }
}

/* Every ViT and ResNet, such as cnn_b, can have a dense head; other models refuse it. */
TEST(test_dense_heads)
{
    static struct options options;
    for (const char *const *name = model_names(); *name != NULL; name++) {
        struct error error = {0};
        options_default(&options);
        snprintf(options.model.name, sizeof options.model.name, "%s", *name);
        options.model.head = HEAD_DENSE;
        options.model.classes = 3;
        struct model *model = model_open(&options, NULL, TYPE_FP32, &error);
        if (!model_is_vit(*name) && strncmp(*name, "resnet", 6) != 0 &&
            strcmp(*name, "cnn_b") != 0) {
            assert_error(&error, ERROR_USAGE, "does not support");
            continue;
        }
        assert_non_null(model);
        assert_int_equal(model_output_count(model), 3 * model->image.height * model->image.width);
        const struct unit *head = &model->units[model->unit_count - 1];
        assert_string_equal(head->tensors[head->tensor_count - 1].name, "dense.bias");
        model_close(model);
    }
}

/* The model of groups.txt in use. */
struct grouped {
    char name[64], option[64];
    struct model *model;
    int found; /* tensors compared so far */
};

/* Check that each parameter was compared. */
static void grouped_close(struct grouped *grouped)
{
    int parameters = 0;
    if (grouped->model == NULL)
        return;
    for (int u = 0; u < grouped->model->unit_count; u++)
        for (int t = 0; t < grouped->model->units[u].tensor_count; t++)
            parameters += grouped->model->units[u].tensors[t].kind == TENSOR_PARAMETER;
    assert_int_equal(grouped->found, parameters);
    model_close(grouped->model);
}

static void grouped_open(struct grouped *grouped, const char *name, const char *option)
{
    static struct options options;
    struct error error = {0};
    char words[256];
    snprintf(words, sizeof words,
             "model.name=%s %s optim.layer_decay=0.75 optim.no_decay=on optim.name=muon", name,
             option);
    settings_set(&options, words);
    snprintf(grouped->name, sizeof grouped->name, "%s", name);
    snprintf(grouped->option, sizeof grouped->option, "%s", option);
    grouped->found = 0;
    grouped->model = model_open(&options, NULL, TYPE_FP32, &error);
    assert_non_null(grouped->model);
}

static const struct unit_tensor *tensor_named(const struct model *model, const char *name)
{
    for (int u = 0; u < model->unit_count; u++)
        for (int t = 0; t < model->units[u].tensor_count; t++)
            if (strcmp(model->units[u].tensors[t].name, name) == 0)
                return &model->units[u].tensors[t];
    fail_msg("no tensor %s", name);
    return NULL;
}

/* Rates and weight decay of each parameter are those of timm.optim.param_groups_layer_decay, and
 * Muon orthogonalizes the updates of the same tensors as timm's. */
TEST(test_groups)
{
    struct grouped grouped = {.model = NULL};
    const char *folder = getenv("srcdir");
    char path[1024], model[64], option[64], name[TENSOR_NAME];
    double scale;
    int decays, orthogonal;
    snprintf(path, sizeof path, "%s/test/vectors/groups.txt", folder != NULL ? folder : ".");
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fscanf(file, "%63s %63s %63s %lf %d %d", model, option, name, &scale, &decays,
                  &orthogonal) == 6) {
        if (strcmp(model, grouped.name) != 0 || strcmp(option, grouped.option) != 0) {
            grouped_close(&grouped);
            grouped_open(&grouped, model, option);
        }
        const struct unit_tensor *tensor = tensor_named(grouped.model, name);
        grouped.found++;
        if (fabs(tensor->rate_scale / scale - 1) > 1e-8 || tensor->decay != (decays != 0))
            fail_msg("%s of %s %s: rate scale %g, decay %d; timm has %g, %d", name, model, option,
                     tensor->rate_scale, tensor->decay, scale, decays);
        if (tensor->matrix != (orthogonal != 0))
            fail_msg("%s of %s %s: matrix %d", name, model, option, tensor->matrix);
    }
    assert_true(feof(file) && grouped.model != NULL);
    fclose(file);
    grouped_close(&grouped);
}

TEST_MAIN()
