// SPDX-License-Identifier: BSD-3-Clause
/* Selection of cuDNN's engines (cuda/convolution_engine.c) for the convolutions of the project's
 * models, with the real library and without a GPU: GPUs are described by their device properties.
 */
#include "../cuda/convolution_engine.h"
#include "model/convnet.h"
#include "options/options.h"
#include "test.h"

/* In the format of CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION. */
#define PROPERTIES(name, version, processors, shared, reserved, threads, blocks, memory, clock,    \
                   memory_clock, cache)                                                            \
    "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"                   \
    "\"regsPerBlock\":65536,\"multiProcessorCount\":" #processors ",\"warpSize\":32,"              \
    "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":" #shared ","              \
    "\"reservedSharedMemoryPerBlock\":" #reserved ",\"maxRegistersPerSM\":65536,"                  \
    "\"maxCtasPerSM\":" #blocks ",\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":" #threads ","   \
    "\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,\"totalGlobalMem\":" #memory ","  \
    "\"smClockRateKHz\":" #clock ",\"memClockRateKHz\":" #memory_clock ",\"l2CacheSize\":" #cache  \
    ",\"cudaDeviceId\":0,\"deviceVer\":" #version ",\"driverVer\":13000,"                          \
    "\"deviceName\":\"" name "\"}"

static const struct gpu {
    const char *json;
    bool bf16, tf32;
} gpus[] = {
    {PROPERTIES("NVIDIA H100 80GB HBM3", 900, 132, 232448, 1024, 2048, 32, 85029158912, 1980000,
                2619000, 52428800),
     true, true},
    {PROPERTIES("NVIDIA A100-SXM4-40GB", 800, 108, 166912, 1024, 2048, 32, 42405855232, 1410000,
                1215000, 41943040),
     true, true},
    {PROPERTIES("Tesla T4", 750, 40, 65536, 0, 1024, 16, 15835660288, 1590000, 5001000, 4194304),
     false, false},
};
enum { GPUS = sizeof gpus / sizeof gpus[0] };

/* resnet34 has the same shapes as resnet18. */
static const char *const models[] = {"cnn_b", "resnet18", "resnet50"};
enum { MODELS = sizeof models / sizeof models[0] };

static struct engine_device device_open(const char *json)
{
    struct engine_device device = {NULL, NULL};

    GRAPH_CHECK(
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &device.properties));
    GRAPH_CHECK(cudnnBackendSetAttribute(device.properties,
                                         CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                         (int64_t)strlen(json) + 1, json));
    GRAPH_CHECK(cudnnBackendFinalize(device.properties));
    return device;
}

static void device_close(const struct engine_device *device)
{
    GRAPH_CHECK(cudnnBackendDestroyDescriptor(device->properties));
}

/* True if the engine's notes, which engine_select compares with its rules, name tensor cores. */
static bool uses_tensor_cores(const struct engine *engine)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t part;
    bool uses = false;
    int64_t count;

    GRAPH_CHECK(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &part));
    GRAPH_CHECK(cudnnBackendGetAttribute(engine->config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &part));
    GRAPH_CHECK(cudnnBackendGetAttribute(part, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                         CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                                         &count, notes));
    for (int64_t i = 0; i < count; i++)
        uses |= notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    GRAPH_CHECK(cudnnBackendDestroyDescriptor(part));
    return uses;
}

static int selected; /* engines */

static void must(bool holds, const char *model, const struct engine_problem *problem,
                 const char *what)
{
    char name[256];

    engine_problem_name(problem, name, sizeof name);
    if (!holds)
        fail_msg("%s, %s: %s", model, name, what);
}

/* Select an engine in at most `limit` bytes. */
static void selection_check(const char *model, const struct engine_device *device,
                            const struct engine_problem *problem, size_t limit, bool tensor_cores)
{
    struct engine engine = {NULL, NULL, 0};

    must(engine_select(device, problem, limit, &engine), model, problem, "no engine");
    must(engine.bytes <= limit, model, problem, "too much workspace");
    const bool uses = uses_tensor_cores(&engine);
    must(problem->type != TYPE_FP32 || problem->tf32 || !uses, model, problem,
         "fp32 is rounded to TF32");
    must(uses || !tensor_cores, model, problem, "no tensor cores");
    engine_close(&engine);
    selected++;
}

/* The shape that the library computes. */
static struct convolution_shape shape_of(const struct convnet_node *node, enum data_type type,
                                         int64_t batch)
{
    const struct convolution_shape shape = convnet_convolution_shape(node, batch);
    const bool folds = node->input == 0 && convolution_folds(type, &shape);
    return folds ? convolution_folded(&shape) : shape;
}

/* A convolution in every precision of a GPU: large batches use tensor cores, smaller ones need no
 * workspace. */
static void node_check(const char *model, const struct engine_device *device,
                       const struct convnet_node *node, const struct gpu *gpu)
{
    static const struct {
        enum data_type type;
        bool tf32;
    } precisions[] = {
        {TYPE_FP32, false}, {TYPE_FP32, true}, {TYPE_BF16, false}, {TYPE_FP16, false}};

    for (size_t i = 0; i < sizeof precisions / sizeof precisions[0]; i++)
        for (int part = 0; part < CONVOLUTION_PARTS; part++) {
            struct engine_problem problem = {.part = (enum convolution_part)part,
                                             .type = precisions[i].type,
                                             .tf32 = precisions[i].tf32,
                                             .shape = shape_of(node, precisions[i].type, 256)};
            if (part == CONVOLUTION_INPUTS && node->input == 0)
                continue; /* images have no gradient */
            if ((problem.type == TYPE_BF16 && !gpu->bf16) || (problem.tf32 && !gpu->tf32))
                continue;
            selection_check(model, device, &problem,
                            engine_workspace_limit(problem.type, &problem.shape),
                            problem.type != TYPE_FP32 || problem.tf32);
            problem.shape = shape_of(node, problem.type, 7);
            selection_check(model, device, &problem, 0, false);
        }
}

/* All convolution shapes that a model passes to cuDNN. */
static void model_check(const char *name, const struct engine_device *device, const struct gpu *gpu)
{
    struct options options;
    struct device none = {.backend = NULL};
    char assignment[64];

    options_default(&options);
    snprintf(assignment, sizeof assignment, "model.name=%s", name);
    ENSURE(options_set(assignment, &options, &error), "%s", error.text);
    struct model *model = model_open(&options, &none, TYPE_FP32, &error);
    ENSURE(model != NULL, "%s", error.text);
    const struct convnet *convnet = (const struct convnet *)model;
    for (int n = 0; n < convnet->node_count; n++) {
        const struct convnet_node *node = &convnet->nodes[n];
        if (node->kind == CONVNET_CONVOLUTION && (node->kernel > 1 || node->stride > 1))
            node_check(name, device, node, gpu);
    }
    model_close(model);
}

TEST(all_convolutions_have_an_engine)
{
    for (int g = 0; g < GPUS; g++) {
        const struct engine_device device = device_open(gpus[g].json);
        for (int m = 0; m < MODELS; m++)
            model_check(models[m], &device, &gpus[g]);
        device_close(&device);
    }
    assert_true(selected > 600);
}

TEST_MAIN()
