// SPDX-License-Identifier: BSD-3-Clause
/* Operations counted from the step's own calls against counts by hand; the simulation of two queues
 * against cases computed by hand; machine files and their errors. */
#include "plan/plan.h"

#include "base/log.h"
#include "options/options.h"
#include "temporary.h"
#include "test.h"

static void near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-9 * fmax(1, fabs(expected))))
        fail_msg("%.12g, not %.12g", value, expected);
}

/* Count the operations of a step on one rank; the session is valid until the next call. */
static void step_predict_one(const char *settings, struct step_prediction *prediction,
                             struct session *session)
{
    static struct plan plan;
    static struct options options;
    settings_set(&options, settings);
    settings_apply(&options, "data.format=synthetic run.threads=1 run.backend=cpu");
    assert_ok(plan_open(&plan, &options, 1, 1, &error) && plan_session(&plan, session, &error),
              &error);
    *prediction = plan_predict(&plan, NULL, session);
}

static double flops_of(const struct unit_prediction *part)
{
    return part->flops[STEP_DATA] + part->flops[STEP_FORWARD] + part->flops[STEP_BACKWARD] +
           part->flops[STEP_UPDATE];
}

/* FLOPs of a forward pass of ViT-B/32, by hand: 49 patches, 50 tokens, width 768. The last block
 * computes only what the class token needs. */
enum { DIM = 768, PATCHES = 49, TOKENS = 50 };
static const double stem = 2.0 * PATCHES * DIM * (3 * 32 * 32);
static const double block =
    2.0 * TOKENS * DIM * (3 * DIM + DIM + 8 * DIM) + 4.0 * TOKENS * TOKENS * DIM;
static const double last_block =
    2.0 * DIM * (TOKENS * 3 * DIM + DIM + 8 * DIM) + 4.0 * 1 * TOKENS * DIM;
static const double head = 2.0 * DIM * 10;

TEST(vit_base_is_as_counted_by_hand)
{
    struct step_prediction prediction;
    struct session session;
    step_predict_one("model.name=vit_base_patch32_224 data.classes=10 data.image=224 train.batch=3",
                     &prediction, &session);
    assert_int_equal(prediction.units, 14);
    near(prediction.unit[0].flops[STEP_FORWARD], 3 * stem);
    near(prediction.unit[0].flops[STEP_BACKWARD], 3 * stem);
    for (int u = 1; u < 12; u++) {
        near(prediction.unit[u].flops[STEP_FORWARD], 3 * block);
        near(prediction.unit[u].flops[STEP_BACKWARD], 3 * 2 * block);
    }
    near(prediction.unit[12].flops[STEP_FORWARD], 3 * last_block);
    near(prediction.unit[12].flops[STEP_BACKWARD], 3 * 2 * last_block);
    near(prediction.unit[13].flops[STEP_FORWARD], 3 * head);
    near(flops_of(&prediction.unit[14]), 0);
    /* 4.4 GMAC, as in the literature; flops_per_image includes what the last block skips. */
    double whole = stem + 12 * block + head;
    assert_true(whole / 2 > 4.36e9 && whole / 2 < 4.42e9);
    near(session.model->flops_per_image, 2 * stem + 3 * (12 * block + head));
    near(flops_of(&prediction.step),
         3 * (session.model->flops_per_image - 3 * (block - last_block)));
    assert_int_equal(model_parameter_count(session.model, false), 87462922);
    step_prediction_close(&prediction);
    session_close(&session);
}

/* If no token is skipped, the sum over units equals the model's count. */
TEST(units_add_up_to_the_models_count)
{
    static const char *const settings[] = {
        "model.name=vit_cifar model.pool=mean train.batch=4 train.accumulate=2",
        "model.name=vit_cifar model.pool=mean model.depth=2 train.batch=4 mesh.strategy=fsdp",
        "model.name=cnn_a train.batch=5", "model.name=cnn_b train.batch=2",
        "model.name=resnet18 data.classes=1000 data.image=64 train.batch=1"};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        struct step_prediction prediction;
        struct session session;
        double sum = 0;
        step_predict_one(settings[i], &prediction, &session);
        for (int u = 0; u <= prediction.units; u++)
            sum += flops_of(&prediction.unit[u]);
        near(sum, flops_of(&prediction.step));
        near(sum, session.model->flops_per_image *
                      (double)(session.batch * session.options.train.accumulate));
        step_prediction_close(&prediction);
        session_close(&session);
    }
}

/* The recomputation of a block skips its last matrix product. The last block is not recomputed. */
TEST(recomputation_counts)
{
    struct step_prediction kept, anew;
    struct session session;
    double dim = 192, tokens = 65, hidden = 768, batch = 4;
    double once = 2 * tokens * dim * (4 * dim + 2 * hidden) + 4 * tokens * tokens * dim;
    double more = batch * 5 * (once - 2 * tokens * dim * hidden);
    step_predict_one("model.name=vit_cifar model.pool=mean train.batch=4", &kept, &session);
    session_close(&session);
    step_predict_one("model.name=vit_cifar model.pool=mean train.batch=4 "
                     "train.checkpoint_activations=block",
                     &anew, &session);
    near(anew.step.flops[STEP_FORWARD], kept.step.flops[STEP_FORWARD]);
    near(anew.step.flops[STEP_BACKWARD] - kept.step.flops[STEP_BACKWARD], more);
    step_prediction_close(&kept);
    step_prediction_close(&anew);
    session_close(&session);
}

/* A machine with 1 FLOP/s and 1 byte/s, without latency. */
static struct machine slow_machine(void)
{
    struct machine machine = {
        .node_ranks = 2, .nodes = 1, .threads = 1, .alone = 1, .memory_bandwidth = 1e12};
    const struct network network = {
        .bandwidth = 1, .members = 2, .share = 1, .compute_speed = 1, .send_speed = 1};
    machine.flops[TYPE_FP32] = 1;
    machine.inside = machine.between = network;
    return machine;
}

/* Build a script from words: cN computes for N seconds, sN starts a collective of N seconds, wI
 * waits for collective I. */
static void script_write(struct step_script *script, const char *words)
{
    char text[128];
    *script = (struct step_script){.event = calloc(32, sizeof *script->event)};
    assert_non_null(script->event);
    snprintf(text, sizeof text, "%s", words);
    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " ")) {
        struct script_event *event = &script->event[script->count++];
        int number = atoi(word + 1);
        *event = (struct script_event){.phase = STEP_FORWARD, .unit = 0};
        event->kind = word[0] == 'c' ? EVENT_OPERATION : word[0] == 's' ? EVENT_START : EVENT_WAIT;
        if (event->kind == EVENT_OPERATION)
            event->counted = (struct counted){
                .operation = OPERATION_linear_forward, .flops = number, .size = {1, 1, 1}};
        else if (event->kind == EVENT_START)
            /* Two ranks gather N bytes in N seconds. */
            event->collective = (struct collective){.action = ACTION_GATHER, .bytes = number};
        else
            event->number = number;
        if (event->kind == EVENT_START)
            event->number = script->collectives++;
    }
}

static void simulated(const char *words, const struct machine *machine, double seconds,
                      double exposed, double slowed)
{
    struct step_script script;
    struct step_prediction prediction;
    const struct mesh_shape mesh = mesh_shape(2, 2, 2);
    script_write(&script, words);
    step_predict(&prediction, &script, 1, machine, &mesh);
    assert_ok(prediction.lacks.kind == ERROR_NONE, &prediction.lacks);
    near(prediction.seconds, seconds);
    near(prediction.step.exposed, exposed);
    near(prediction.unit[0].exposed, exposed);
    near(prediction.slowed, slowed);
    step_prediction_close(&prediction);
    step_script_close(&script);
}

TEST(two_queues)
{
    struct machine machine = slow_machine();
    simulated("c2 s3 w0", &machine, 5, 3, 0);          /* no overlap */
    simulated("s1 c2 w0 c1", &machine, 3, 0, 0);       /* hidden */
    simulated("s3 c1 s3 c1 w1 w0", &machine, 6, 4, 0); /* limited by the network */
    simulated("s3 s1 c1 w1", &machine, 4, 3, 0);       /* one after another, in order */
    simulated("c1 s2 c1", &machine, 2, 0, 0);          /* no wait */
    simulated("", &machine, 0, 0, 0);
    /* FSDP gathers one unit ahead. */
    simulated("s2 w0 s2 c3 w1 s2 c3 w2 c3", &machine, 11, 2, 0);
    simulated("s5 w0 s5 c3 w1 s5 c3 w2 c3", &machine, 18, 9, 0);
    /* During two seconds of communication computation runs at half speed. */
    machine.inside.compute_speed = 0.5;
    simulated("s2 c3 w0", &machine, 4, 0, 1);
    /* Communication runs at half speed beside computation: after 3 s, 1.5 s of 2 s are done. */
    machine.inside.compute_speed = 1;
    machine.inside.send_speed = 0.5;
    simulated("s2 c3 w0", &machine, 3.5, 0.5, 0);
}

TEST(groups_lie_on_nodes)
{
    static const struct {
        int ranks, node_ranks, shard;
        struct group_shape shards, replicas;
    } cases[] = {
        {1, 8, 1, {1, 1, 1}, {1, 1, 1}},   {8, 8, 1, {1, 1, 1}, {8, 1, 1}},
        {16, 8, 1, {1, 1, 1}, {8, 2, 1}},  {16, 8, 16, {8, 2, 1}, {1, 1, 1}},
        {16, 8, 8, {8, 1, 1}, {1, 2, 8}},  {16, 8, 4, {4, 1, 1}, {2, 2, 4}},
        {64, 8, 16, {8, 2, 1}, {1, 4, 8}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mesh_shape mesh = mesh_shape(cases[i].ranks, cases[i].node_ranks, cases[i].shard);
        assert_memory_equal(&mesh.shard, &cases[i].shards, sizeof mesh.shard);
        assert_memory_equal(&mesh.replica, &cases[i].replicas, sizeof mesh.replica);
    }
}

TEST(collectives_by_hand)
{
    static const struct {
        enum collective_action action; /* of 8 bytes */
        struct group_shape shape;
        double share;
        bool tree;
        double seconds;
    } cases[] = {
        /* A ring of four: 2 * 8 * 3 / 4 bytes in six messages; 3 * 8 bytes in three. */
        {ACTION_SUM, {4, 1, 1}, 1, false, 12.0 / 4 + 600},
        {ACTION_GATHER, {4, 1, 1}, 1, false, 24.0 / 4 + 300},
        {ACTION_SUM, {4, 1, 1}, 1, true, 12.0 / 4 + 400},
        /* Reduce-scatter and all-gather inside nodes, 6 bytes and 3 messages each; 8 bytes between
         * two nodes. */
        {ACTION_SUM, {4, 2, 1}, 1, false, 2 * (6.0 / 4 + 300) + 8 + 2000},
        /* The blocks of four ranks to the other node, then all eight in a ring inside nodes. */
        {ACTION_GATHER, {4, 2, 1}, 1, false, 32 + 1000 + 48.0 / 4 + 300},
        /* Four ranks send to the four ranks of the other node, and each to three of its own. */
        {ACTION_ALL_TO_ALL, {4, 2, 1}, 1, false, 128 + 1000 + 24.0 / 4 + 300},
        /* Four groups share the link. */
        {ACTION_SUM, {1, 2, 4}, 1, false, 4 * 8 + 2000},
        {ACTION_SUM, {1, 2, 4}, 0.5, false, 2 * 4 * 8 + 2000},
        /* NCCL on eight nodes: a tree; one ring of 32 ranks, with 7 messages between and 24 inside
         * nodes; PAT. */
        {ACTION_SUM, {4, 8, 1}, 1, true, 2 * (6.0 / 4 + 300) + 14 + 6000},
        {ACTION_GATHER, {4, 8, 1}, 1, true, 224 + 7000 + 192.0 / 4 + 2400},
        {ACTION_SCATTER, {1, 8, 1}, 1, true, 56 + 3000 + 8 * 2.8e-6},
        {ACTION_ALL_TO_ALL, {1, 8, 1}, 1, true, 56 + 7000}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct machine machine = slow_machine();
        const struct collective collective = {.action = cases[i].action, .bytes = 8};
        machine.inside.bandwidth = 4;
        machine.inside.latency = 100;
        machine.inside.tree = machine.between.tree = cases[i].tree;
        machine.between.latency = 1000;
        machine.between.share = cases[i].share;
        near(machine_collective_seconds(&machine, &collective, &cases[i].shape), cases[i].seconds);
    }
}

/* Measured points are met; interpolation between two points, and beyond them. */
TEST(measured_points)
{
    struct machine machine = slow_machine();
    struct measured *speed = &machine.speed[TYPE_FP32][OPERATION_linear_forward];
    struct measured *duration = &machine.inside.measured[ACTION_GATHER];
    struct counted product = {
        .operation = OPERATION_linear_forward, .flops = 1000, .size = {64, 64, 64}};
    const struct group_shape node = {2, 1, 1};
    struct collective gather = {.action = ACTION_GATHER, .bytes = 100};
    near(machine_operation_seconds(&machine, &product, 2), 1000);
    *speed = (struct measured){.count = 2, .point = {{{64, 64, 64}, 10}, {{1024, 64, 64}, 40}}};
    near(machine_operation_seconds(&machine, &product, 2), 100);
    product.size[0] = 256; /* equally far from both */
    near(machine_operation_seconds(&machine, &product, 2), 50);
    machine.launch = 1;
    machine.alone = 2;
    near(machine_operation_seconds(&machine, &product, 2), 51);
    near(machine_operation_seconds(&machine, &product, 1), 26);
    *duration = (struct measured){.count = 2, .point = {{{100}, 1}, {{10000}, 100}}};
    near(machine_collective_seconds(&machine, &gather, &node), 1);
    gather.bytes = 10;
    near(machine_collective_seconds(&machine, &gather, &node), 1);
    gather.bytes = 1000;
    near(machine_collective_seconds(&machine, &gather, &node), 10);
    gather.bytes = 20000;
    near(machine_collective_seconds(&machine, &gather, &node), 200);
}

static bool machine_from(const char *text, struct machine *machine)
{
    error_clear(&error);
    return machine_read(machine, temporary_write("cluster.ini", text), false, &error);
}

TEST(wrong_machine_files)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"[compute]\nfp32_flops = 1e12\n", "cluster.ini: [compute] memory_bandwidth is missing"},
        {"[compute]\nmemory_bandwidth = 1e9\n", "cluster.ini has no speed of matrix products"},
        {"[compute]\nmemory_bandwidth = fast\n", "cluster.ini:2: compute.memory_bandwidth=fast"},
        {"[compute]\nmemory_bandwidth = -1\n", "is not a number from"},
        {"[machine]\nnode_ranks = 1.5\n", "is not a whole number from 1"},
        {"[machine]\nnode_ranks = 4 ranks\n", "is not a whole number from 1"},
        {"[between]\nshare = 2\n", "cluster.ini:2: between.share=2"},
        {"[between]\nshape = star\n", "is neither ring nor tree"},
        {"[inside]\nspeed = 2\n", "cluster.ini:2: inside.speed: unknown key"},
        {"[fp64]\nlinear_forward = 1x1x1 2\n", "unknown key"},
        {"[fp32]\nlinear_forward = 1x1 2\n", "is not three sizes and a speed"},
        {"[fp32]\nlinear_forward = 1x1x1 0\n", "is not three sizes and a speed"},
        {"[fp32]\nlinear_forward = 1x1x1 2 3\n", "is not three sizes and a speed"},
        {"[inside]\nall_gather = 100\n", "is not bytes and seconds"},
        {"[inside]\nall_gather = 100 1\nall_gather = 100 1\n", "cluster.ini:3: inside.all_gather"},
        {"hello\n", "cluster.ini:1: neither [section] nor key = value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static struct machine machine;
        assert_false(machine_from(cases[i].text, &machine));
        assert_error(&error, ERROR_USAGE, cases[i].message);
    }
    static struct machine machine; /* more points than fit */
    char text[4096] = "[fp32]\n";
    for (int i = 0; i <= MACHINE_POINTS; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "copy = %dx1x1 5\n", i + 1);
    assert_false(machine_from(text, &machine));
    assert_error(&error, ERROR_USAGE, "fp32.copy");
}

TEST(missing_speeds_are_errors)
{
    static const struct {
        int node_ranks;
        double inside, between; /* bandwidths */
        enum data_type type;
        const char *message;
    } cases[] = {{2, 0, 1, TYPE_FP32, "speed of a network"},
                 {1, 0, 0, TYPE_FP32, "speed of a network"},
                 {1, 0, 1, TYPE_BF16, "matrix products in bf16"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct machine machine = slow_machine();
        struct step_script script;
        struct step_prediction prediction;
        const struct mesh_shape mesh = mesh_shape(2, cases[i].node_ranks, 2);
        machine.inside.bandwidth = cases[i].inside;
        machine.between.bandwidth = cases[i].between;
        script_write(&script, "s1 c1 w0");
        script.event[1].counted.type = cases[i].type;
        step_predict(&prediction, &script, 1, &machine, &mesh);
        assert_error(&prediction.lacks, ERROR_USAGE, cases[i].message);
        step_prediction_close(&prediction);
        step_script_close(&script);
    }
}

int main(void)
{
    log_open(0, LOG_WARN);
    return TESTS_RUN(.setup = temporary_setup, .teardown = temporary_close);
}
