// SPDX-License-Identifier: BSD-3-Clause
/* Whole models against PyTorch and timm (test/vectors/make_models.py): logits, loss, all gradients,
 * and the weights after several steps of each optimizer and schedule. GPUs are compared with the
 * CPU by test_model_device. */
#include "model/model.h"
#include "options/options.h"
#include "test.h"
#include "train/optimizer.h"
#include "vit_fixture.h"

struct tolerance {
    double relative; /* relative to the largest expected value of the tensor */
    double absolute;
};

static void check_values(const char *name, const float *found, const float *expected, int64_t count,
                         struct tolerance tolerance)
{
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < count; i++) {
        double distance = fabs((double)found[i] - (double)expected[i]);
        if (!(distance <= worst)) /* also for NaN */
            worst = distance;
        largest = fmax(largest, fabs((double)expected[i]));
    }
    if (!(worst <= tolerance.relative * largest + tolerance.absolute))
        fail_msg("%s differs by %g where values go up to %g", name, worst, largest);
}

/* Compare all tensors of the model with PREFIX/NAME of the file. */
static void check_tensors(struct vit_fixture *fixture, const struct vector_file *file,
                          const char *prefix,
                          float *(*read)(struct vit_fixture *fixture, int unit, int tensor),
                          struct tolerance tolerance)
{
    for (int u = 0; u < fixture->model->unit_count; u++)
        for (int t = 0; t < fixture->model->units[u].tensor_count; t++) {
            const struct unit_tensor *tensor = &fixture->model->units[u].tensors[t];
            char name[TENSOR_NAME + 64];
            int64_t count;
            snprintf(name, sizeof name, "%s/%s", prefix, tensor->name);
            const float *expected = vector_file_floats(file, name, &count);
            assert_int_equal(count, tensor->count);
            OWNED float *found = read(fixture, u, t);
            check_values(name, found, expected, count, tolerance);
        }
}

/* Open the model of a file with its weights and its batch. */
static struct vector_file *open_case(struct vit_fixture *fixture, const char *name,
                                     enum data_type compute, const char *words)
{
    struct vector_file *file = vector_file_open(name);
    int64_t batch = vector_file_size(file, "images", 0);
    if (vector_file_text(file, "convnet") != NULL) {
        struct convnet_shape shape = vit_fixture_convnet_shape(file);
        vit_fixture_open_convnet(fixture, NULL, &shape, compute, batch, words);
    } else {
        struct vit_shape shape = vit_fixture_shape(file);
        vit_fixture_open(fixture, &shape, compute, batch, words);
    }
    vit_fixture_load(fixture, file, "weight");
    vit_fixture_set_batch(fixture, vector_file_floats(file, "images", NULL),
                          vector_file_integers(file, "labels", NULL));
    return file;
}

static void close_case(struct vit_fixture *fixture, struct vector_file *file)
{
    vit_fixture_close(fixture);
    vector_file_close(&file);
}

static double smoothing_of(const struct vector_file *file)
{
    return strtod(vector_file_text(file, "smoothing"), NULL);
}

static void check_forward(struct vit_fixture *fixture, const struct vector_file *file,
                          struct tolerance tolerance)
{
    int64_t count;
    /* Batch norm differs between training and evaluation. */
    bool other = fixture->training && vector_file_has(file, "logits_training");
    const float *expected = vector_file_floats(file, other ? "logits_training" : "logits", &count);
    const float *expected_loss = vector_file_floats(file, other ? "loss_training" : "loss", NULL);
    vit_fixture_zero(fixture);
    vit_fixture_run(fixture, 0, fixture->batch, smoothing_of(file), false);
    OWNED float *logits = vit_fixture_logits(fixture, fixture->batch);
    check_values("logits", logits, expected, count, tolerance);
    float loss = (float)(vit_fixture_loss(fixture) / (double)fixture->batch);
    check_values("loss", &loss, expected_loss, 1, tolerance);
}

static void check_model(const char *name, enum data_type compute, struct tolerance tolerance)
{
    struct vit_fixture fixture;
    struct vector_file *file = open_case(&fixture, name, compute, "");
    vit_fixture_set_training(&fixture, false);
    check_forward(&fixture, file, tolerance);
    vit_fixture_set_training(&fixture, true);
    check_forward(&fixture, file, tolerance);
    vit_fixture_train(&fixture, smoothing_of(file));
    check_tensors(&fixture, file, "gradient", vit_fixture_gradient, tolerance);
    close_case(&fixture, file);
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
    vit_fixture_open(&fixture, &shape, TYPE_FP32, 1, "");
    const struct unit_tensor *tensor = &fixture.model->units[0].tensors[0];
    assert_string_equal(tensor->name, "pos_embed");
    OWNED float *found = vit_fixture_weight(&fixture, 0, 0);
    check_values(tensor->name, found, vector_file_floats(file, "weight/pos_embed", NULL),
                 tensor->count, (struct tolerance){0, 1e-6});
    close_case(&fixture, file);
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
    const char *words;
};

static void check_rule(const struct rule *rule, enum data_type compute, struct tolerance tolerance)
{
    struct vit_fixture fixture;
    struct vector_file *file = open_case(&fixture, rule->file, compute, rule->words);
    train_steps(&fixture, smoothing_of(file), rule->steps);
    check_tensors(&fixture, file, rule->prefix, vit_fixture_weight, tolerance);
    if (fixture.options.optim.ema > 0)
        check_tensors(&fixture, file, "average", vit_fixture_average,
                      (struct tolerance){1e-6, 1e-6});
    close_case(&fixture, file);
}

/* An update changes a weight by about the learning rate, 1e-3: errors of 0.2 % of that are
 * detected. */
static const struct tolerance step_tolerance = {1e-6, 2e-6};

#define RULES "model_rules.safetensors"
#define CONVNET "convnet_cifar.safetensors"
#define ADAMW "optim.name=adamw optim.lr=1e-3 optim.weight_decay=0.05 train.clip_norm=0.5"
#define ROUGH ADAMW " optim.eps=1e-4"
#define SGD "optim.name=sgd optim.lr=0.1 train.clip_norm=0.5"
#define NESTEROV SGD " optim.weight_decay=0.05 optim.momentum=0.9 optim.nesterov=on"
#define ONECYCLE SGD " optim.momentum=0.9 optim.weight_decay=0 schedule.name=onecycle"
#define CONVNET_ADAMW "optim.name=adamw optim.lr=1e-3 optim.weight_decay=0.05 optim.eps=1e-4"
#define CONVNET_SGD                                                                                \
    "optim.name=sgd optim.lr=1e-2 optim.momentum=0.9 optim.weight_decay=0.05 train.clip_norm=0"

static const struct rule optimizer_rules[] = {
    {"model_token.safetensors", "after_adamw", 3, ROUGH},
    {"model_mean.safetensors", "after_adamw", 3, ROUGH},
    {"model_mean_token.safetensors", "after_adamw_default", 3, ADAMW},
    {"model_cifar.safetensors", "after_adamw", 3, ROUGH},
    {"model_odd.safetensors", "after_adamw", 3, ROUGH},
    {"model_registers.safetensors", "after_adamw", 3, ROUGH},
    {"model_sincos.safetensors", "after_adamw", 3, ROUGH},
    {"model_dense.safetensors", "after_adamw", 3, ROUGH},
    {RULES, "after_adamw", 3, ROUGH " optim.ema=0.9"},
    {RULES, "after_adam", 3, ROUGH " optim.name=adam"},
    {RULES, "after_sgd", 3, SGD " optim.weight_decay=0.05"},
    {RULES, "after_nesterov", 3, NESTEROV},
    {RULES, "after_rmsprop", 3, ROUGH " optim.name=rmsprop"},
    {RULES, "after_rmsprop_momentum", 3, ROUGH " optim.name=rmsprop optim.momentum=0.9"},
    {RULES, "after_layer_decay", 3, ROUGH " optim.layer_decay=0.75 optim.no_decay=on"},
    {RULES, "after_freeze", 3, ROUGH " optim.freeze=stem"},
    /* A schedule that moves rate and momentum. test_schedule has the others. */
    {RULES, "schedule_onecycle", 6, ONECYCLE},
};

static const struct rule convnet_rules[] = {
    {CONVNET, "after_adamw", 3, CONVNET_ADAMW},
    {CONVNET, "after_pieces", 2, CONVNET_SGD " train.accumulate=3"},
    /* Frozen norms use their running statistics, below and above trained layers. */
    {CONVNET, "after_freeze", 2, CONVNET_SGD " optim.freeze=stem,layer1.0,layer2.0.bn2"},
};

TEST(test_optimizers)
{
    for (size_t i = 0; i < sizeof optimizer_rules / sizeof optimizer_rules[0]; i++)
        check_rule(&optimizer_rules[i], TYPE_FP32, step_tolerance);
}

TEST(test_convnet_steps)
{
    for (size_t i = 0; i < sizeof convnet_rules / sizeof convnet_rules[0]; i++)
        check_rule(&convnet_rules[i], TYPE_FP32, (struct tolerance){1e-5, 1e-5});
}

/* Master weights are fp32, so that small updates add up in bf16 training. */
TEST(test_bf16_steps)
{
    check_rule(&optimizer_rules[0], TYPE_BF16, (struct tolerance){0, 2.5e-3});
}

/* Open a vector file of text. */
static FILE *text_vectors(const char *name)
{
    const char *folder = getenv("srcdir");
    char path[1024];
    snprintf(path, sizeof path, "%s/test/vectors/%s", folder != NULL ? folder : ".", name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    return file;
}

static struct model *model_of(const char *words)
{
    static struct options options;
    settings_set(&options, words);
    struct model *model = model_open(&options, NULL, TYPE_FP32, &error);
    assert_non_null(model);
    return model;
}

/* Numbers of parameters, with 10 classes too, and normalisation of images: those of timm,
 * torchvision, and of the reference for vit_cifar, cnn_a and cnn_b. */
TEST(test_registry)
{
    static const struct {
        const char *name;
        double mean[3], std[3];
    } kinds[] = {{"half", {0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}},
                 {"imagenet", {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}},
                 {"none", {0, 0, 0}, {1, 1, 1}}};
    char name[64], kind[16], words[128];
    long long parameters[2]; /* of the model's classes, of 10 */
    const char *const *names = model_names();
    FILE *file = text_vectors("registry.txt");
    for (; fscanf(file, "%63s %lld %lld %15s", name, &parameters[0], &parameters[1], kind) == 4;
         names++) {
        assert_string_equal(*names, name);
        int k = 0;
        while (strcmp(kinds[k].name, kind) != 0)
            k++;
        for (int ten = 0; ten < 2; ten++) {
            snprintf(words, sizeof words, "model.name=%s %s", name, ten ? "model.classes=10" : "");
            struct model *model = model_of(words);
            assert_int_equal(model_parameter_count(model, false), parameters[ten]);
            assert_memory_equal(model->entry->mean, kinds[k].mean, sizeof kinds[k].mean);
            assert_memory_equal(model->entry->std, kinds[k].std, sizeof kinds[k].std);
            model_close(model);
        }
    }
    assert_null(*names);
    fclose(file);
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
    struct model *model = NULL;
    char name[64], option[64], tensor_name[TENSOR_NAME], words[256], opened[256] = "";
    double scale;
    int decays, orthogonal, found = 0, parameters = 0;
    FILE *file = text_vectors("groups.txt");
    for (; fscanf(file, "%63s %63s %63s %lf %d %d", name, option, tensor_name, &scale, &decays,
                  &orthogonal) == 6;
         found++) {
        snprintf(words, sizeof words,
                 "model.name=%s %s optim.layer_decay=0.75 optim.no_decay=on optim.name=muon", name,
                 option);
        if (strcmp(words, opened) != 0) {
            model_close(model);
            model = model_of(words);
            memcpy(opened, words, sizeof opened);
            for (int u = 0; u < model->unit_count; u++)
                for (int t = 0; t < model->units[u].tensor_count; t++)
                    parameters += model->units[u].tensors[t].kind == TENSOR_PARAMETER;
        }
        const struct unit_tensor *tensor = tensor_named(model, tensor_name);
        if (fabs(tensor->rate_scale / scale - 1) > 1e-8 || tensor->decay != (decays != 0))
            fail_msg("%s of %s %s: rate scale %g, decay %d; timm has %g, %d", tensor_name, name,
                     option, tensor->rate_scale, tensor->decay, scale, decays);
        if (tensor->matrix != (orthogonal != 0))
            fail_msg("%s of %s %s: matrix %d", tensor_name, name, option, tensor->matrix);
    }
    assert_true(feof(file) && parameters > 0);
    assert_int_equal(found, parameters);
    fclose(file);
    model_close(model);
}

TEST_MAIN()
