// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 4
/* Compare the plan with real sessions on 1 and 4 ranks: memory to the byte, bytes sent by a
 * step; the largest batch fits, and one more does not. */
#include "plan/plan.h"

#include "comm/comm.h"
#include "comm_fixture.h"
#include "model_fixture.h"
#include "options/options.h"
#include "train/step.h"

/* Settings that each strategy is tested with. */
static const char *const variants[] = {
    "train.precision=bf16",
    ("train.precision=bf16 mesh.reduce=compute train.accumulate=3 "
     "train.checkpoint_activations=block"),
    "train.precision=fp16 optim.ema=0.9 checkpoint.background=yes",
    "train.precision=fp16 mesh.reduce=compute train.accumulate=2",
    "train.precision=fp32 train.accumulate=2 optim.freeze=stem,blocks.0 optim.ema=0.9",
    "train.precision=fp32 optim.name=sgd model.pool=mean optim.freeze=blocks.1 data.val=none",
    "train.precision=bf16 model.pool=map model.class_token=off",
    "train.precision=bf16 model.mlp=swiglu checkpoint.background=yes",
    "train.precision=bf16 model.position=rotary model.registers=2",
    "train.precision=fp16 model.qk_norm=on model.image_width=16",
    "train.precision=fp32 model.name=vit_small_patch14_reg4_dinov2 "
    "train.checkpoint_activations=block",
    "train.precision=fp32 model.name=vit_small_patch16_dinov3 model.qk_norm=on",
    "train.precision=fp32 model.name=deit3_small_patch16_224",
    "train.precision=bf16 mesh.reduce=compute optim.name=muon",
    "train.precision=fp16 optim.name=muon optim.freeze=blocks.1.mlp train.accumulate=2",
    "train.precision=fp16 optim.name=lamb optim.ema=0.9 optim.no_decay=on",
    "train.precision=fp32 optim.name=lars optim.momentum=0.9 optim.freeze=blocks.1.mlp",
    "train.precision=bf16 optim.name=lion mesh.reduce=compute",
    "train.precision=fp32 train.exact=layout train.batch=24 data.samples=256",
    "train.precision=bf16 train.exact=layout train.batch=24 data.samples=256 train.accumulate=2 "
    "optim.freeze=blocks.2",
    "train.precision=fp32 data.values=float32 data.image=16 model.channels=5",
};

enum { VARIANTS = sizeof variants / sizeof variants[0] };

static void options_make(struct options *options, int strategy, const char *variant)
{
    static const char small[] = "model.dim=32 model.depth=3 model.heads=2 model.patch=8 "
                                "data.format=synthetic data.samples=64 train.batch=6 run.threads=1 "
                                "data.image=48 augment.resize=32 mesh.transport=ring ";
    settings_set(options, small);
    settings_apply(options, variant);
    options->mesh.strategy = strategy;
}

/* Count the bytes that a group's collectives send, in front of the real backend. */
struct counted_group {
    const struct comm_backend *real;
    struct comm_backend counting;
    double sent;
};

static struct counted_group shard_counted, replica_counted;

static struct counted_group *counted_of(const struct comm *comm)
{
    return comm->backend == &shard_counted.counting ? &shard_counted : &replica_counted;
}

static struct comm_request *count_start(struct comm *comm, const struct comm_call *call)
{
    struct counted_group *counted = counted_of(comm);
    const double bytes = (double)(call->count * comm_type_size(call->type)),
                 others = comm->size - 1;
    counted->sent += call->action == COMM_ALL_REDUCE   ? 2 * bytes * others / comm->size
                     : call->action == COMM_ALL_TO_ALL ? bytes * call->parts[comm->rank] * others
                                                       : bytes * others;
    return counted->real->start(comm, call);
}

static void counting_begin(struct counted_group *counted, struct comm *comm)
{
    *counted = (struct counted_group){.real = comm->backend, .counting = *comm->backend};
    counted->counting.start = count_start;
    comm->backend = &counted->counting;
}

/* Run two steps and count what the second one sends. */
static bool steps_run(struct session *session)
{
    struct step_times times = {0};
    flat_initialize(&session->flat, 1);
    flat_refresh(&session->flat);
    session_activations(session, true);
    loader_start(session->train.loader, 0, 0, sampler_steps(&session->train.sampler));
    for (int number = 0; number < 2; number++) {
        shard_counted.sent = replica_counted.sent = 0;
        if (!step_run(session, number, 1e-3, &times, &error))
            return false;
    }
    loader_stop(session->train.loader);
    return true;
}

static bool differs(double planned, double counted, const char *what, const char *variant)
{
    double gap = planned > counted ? planned - counted : counted - planned;
    if (gap <= 1e-9 * counted)
        return false;
    printf("# %s: %s: planned %.1f, counted %.1f\n", variant, what, planned, counted);
    return true;
}

/* Compare a session with its plan. */
static int plan_differs(const struct plan *plan, const struct session *session, const char *variant)
{
    struct session planned;
    const struct session_memory *wanted = &planned.memory, *memory = &session->memory;
    assert_ok(plan_session(plan, &planned, &error), &error);
    struct step_prediction prediction = plan_predict(plan, NULL, &planned);
    int wrong = wanted->loader_bytes != memory->loader_bytes ||
                wanted->snapshot_bytes != memory->snapshot_bytes ||
                planned.mesh.shard->size != session->mesh.shard->size ||
                planned.compute != session->compute;
    for (int i = 0; i < MEMORY_CLASSES; i++)
        wrong += wanted->arena.by_class[i] != memory->arena.by_class[i];
    if (wrong > 0)
        printf("# %s: other memory than planned\n", variant);
    wrong +=
        differs((double)arena_total(&wanted->arena), (double)memory->arena.peak, "arena", variant);
    const double shard = prediction.sent_shard, replica = prediction.sent_replica;
    step_prediction_close(&prediction);
    session_close(&planned);
    if (session->grains != NULL && world->rank > 0)
        return wrong; /* the plan has the bytes that rank 0 sends; others have other grains */
    wrong += differs(shard, shard_counted.sent, "shard", variant);
    return wrong + differs(replica, replica_counted.sent, "replica", variant);
}

static int plan_wrong(int strategy, const char *variant)
{
    struct options options;
    struct plan plan;
    static struct session session;
    options_make(&options, strategy, variant);
    if (strategy == STRATEGY_HSDP && world->size == 4)
        options.mesh.shard = 2;
    assert_ok(session_open(&session, &options, world, &error), &error);
    counting_begin(&shard_counted, session.mesh.shard);
    counting_begin(&replica_counted, session.mesh.replica);
    assert_ok(session_start(&session, &error) && steps_run(&session) &&
                  plan_open(&plan, &options, world->size, world->size, &error),
              &error);
    int wrong = plan_differs(&plan, &session, variant);
    session_close(&session);
    return wrong;
}

/* Each strategy with every second variant; on one rank strategies differ little. */
TEST(plans_are_what_runs_take)
{
    int wrong = 0;
    for (int strategy = 0; strategy < STRATEGIES; strategy++)
        for (int i = 0; i < VARIANTS; i++)
            if (world->size > 1 ? (i + strategy) % 2 == 0 : i % STRATEGIES == strategy)
                wrong += plan_wrong(strategy, variants[i]);
    assert_int_equal(all_wrong(wrong), 0);
}

/* With four ranks per node. */
static void imagined_open(struct plan *plan, int ranks, int strategy, const char *variant)
{
    struct options options;
    options_make(&options, strategy, variant);
    assert_ok(plan_open(plan, &options, ranks, 4, &error), &error);
}

TEST(rows_add_up_to_the_arena)
{
    for (int i = 0; i < VARIANTS; i++) {
        struct plan plan;
        struct session session;
        size_t sums[MEMORY_CLASSES] = {0};
        imagined_open(&plan, 8, STRATEGY_FSDP, variants[i]);
        assert_ok(plan_session(&plan, &session, &error), &error);
        size_t(*rows)[MEMORY_CLASSES] = session.memory.rows;
        int count = session.model->unit_count + ARENA_UNIT_ROWS;
        for (int row = 0; row < count; row++)
            for (int c = 0; c < MEMORY_CLASSES; c++)
                sums[c] += rows[row][c];
        assert_memory_equal(sums, session.memory.arena.by_class, sizeof sums);
        /* Blocks 0 and 1 are equal; gathered memory does not belong to units. */
        assert_memory_equal(rows[ARENA_UNIT_ROWS + 1], rows[ARENA_UNIT_ROWS + 2], sizeof *rows);
        assert_true(rows[ARENA_UNIT_ROWS + 1][MEMORY_ACTIVATIONS] > 0);
        assert_int_equal(rows[ARENA_UNIT_ROWS][MEMORY_GATHERED], 0);
        assert_int_equal(rows[ARENA_SHARED_ROW][MEMORY_GATHERED],
                         session.memory.arena.by_class[MEMORY_GATHERED]);
        session_close(&session);
    }
}

static size_t needs_of(struct plan *plan, int64_t batch)
{
    struct session session;
    plan->options.train.batch = batch;
    assert_ok(plan_session(plan, &session, &error), &error);
    const size_t needs = session_needs(&session);
    session_close(&session);
    return needs;
}

static int64_t largest_of(const struct plan *plan, size_t room)
{
    struct session session;
    assert_ok(plan_session(plan, &session, &error), &error);
    const int64_t largest = plan_largest_batch(plan, &session, room);
    session_close(&session);
    return largest;
}

TEST(the_largest_batch_fits_and_one_more_does_not)
{
    const size_t room = (size_t)60 << 20;
    for (int i = 0; i < VARIANTS; i++) {
        struct plan plan;
        if (strstr(variants[i], "train.exact") != NULL)
            continue; /* train.exact=layout needs train.global_batch */
        imagined_open(&plan, 4, STRATEGY_ZERO2, variants[i]);
        const int64_t largest = largest_of(&plan, room);
        assert_in_range(largest, 100, 100000);
        assert_int_equal(largest % plan.options.train.accumulate, 0);
        assert_int_equal(largest_of(&plan, (size_t)10 << 20), 0);
        assert_int_equal(largest_of(&plan, (size_t)1 << 60), 1000000);
        assert_true(needs_of(&plan, largest) <= room && needs_of(&plan, largest + 1) > room);
    }
}

/* Bytes sent in the groups of a strategy; only these members of the prediction are valid. */
static struct step_prediction sent_by(const struct plan *plan, enum strategy_choice strategy)
{
    const struct plan other = plan_with(plan, strategy, CHECKPOINT_ACTIVATIONS_NONE);
    struct session session;
    assert_ok(plan_session(&other, &session, &error), &error);
    struct step_prediction sent = plan_predict(&other, NULL, &session);
    session_close(&session);
    free(sent.unit);
    return sent;
}

/* Bytes sent between nodes, for groups on several nodes: 8 ranks, 4 per node. */
TEST(the_network_carries_what_leaves_a_node)
{
    struct plan plan;
    imagined_open(&plan, 8, STRATEGY_HSDP, "train.precision=bf16");
    struct step_prediction sent = sent_by(&plan, STRATEGY_HSDP); /* 2 x 4 */
    assert_true(sent.sent_network == sent.sent_replica && sent.sent_replica > 0);
    /* A rank forwards seven parts. The four parts of the other node cross nodes and are divided
     * among four ranks. */
    sent = sent_by(&plan, STRATEGY_FSDP);
    assert_true(sent.sent_replica == 0 && sent.sent_network * 7 == sent.sent_shard);
    sent = sent_by(&plan, STRATEGY_DDP);
    assert_true(sent.sent_shard == 0 && sent.sent_network * 7 == sent.sent_replica);
    plan.node_ranks = 8;
    sent = sent_by(&plan, STRATEGY_DDP);
    assert_true(sent.sent_network == 0 && sent.sent_replica > 0);
}

TEST_MAIN_WORLD()
