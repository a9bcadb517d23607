// SPDX-License-Identifier: BSD-3-Clause
/* Convolutions by cuDNN's graph API. The first call with a shape selects an engine for each part
 * that is needed (convolution_engine.h) and stores its execution plan; later calls look it up. */
#include "convolution_engine.h"
#include "cuda.h"

#include <stdlib.h>
#include <string.h>

struct plan {
    enum data_type type;
    bool tf32;
    struct convolution_shape shape;
    size_t limit; /* bytes of workspace that engines may use */
    struct engine engines[CONVOLUTION_PARTS];
};

struct convolutions {
    cudnnHandle_t handle;
    struct plan *plans;
    int count, capacity;
};

/* Engines use 32-bit indices. */
int64_t convolutions_numbers(void)
{
    return INT32_MAX;
}

static struct convolutions *convolutions_of(struct cuda_device *cuda)
{
    if (cuda->convolutions != NULL)
        return cuda->convolutions;
    struct convolutions *made = (struct convolutions *)calloc(1, sizeof *made);
    ENSURE(made != NULL, "no memory for convolutions");
    GRAPH_CHECK(cudnnCreate(&made->handle));
    cuda->convolutions = made;
    return made;
}

void convolutions_close(struct convolutions *convolutions)
{
    if (convolutions == NULL)
        return;
    for (int i = 0; i < convolutions->count; i++)
        for (int part = 0; part < CONVOLUTION_PARTS; part++)
            engine_close(&convolutions->plans[i].engines[part]);
    GRAPH_CHECK(cudnnDestroy(convolutions->handle));
    free(convolutions->plans);
    free(convolutions);
}

static struct plan *plan_add(struct convolutions *convolutions)
{
    if (convolutions->count == convolutions->capacity) {
        convolutions->capacity = convolutions->capacity > 0 ? 2 * convolutions->capacity : 64;
        convolutions->plans = (struct plan *)realloc(
            convolutions->plans, (size_t)convolutions->capacity * sizeof(struct plan));
        ENSURE(convolutions->plans != NULL, "no memory for convolutions");
    }
    return &convolutions->plans[convolutions->count++];
}

/* limit: workspace of a plan created here. */
static struct plan *plan_find(struct cuda_device *cuda, enum data_type type,
                              const struct convolution_shape *shape, size_t limit)
{
    struct convolutions *convolutions = convolutions_of(cuda);
    bool tf32 = type == TYPE_FP32 && cuda->tf32;
    for (int i = 0; i < convolutions->count; i++) {
        struct plan *plan = &convolutions->plans[i];
        if (plan->type == type && plan->tf32 == tf32 &&
            memcmp(&plan->shape, shape, sizeof *shape) == 0)
            return plan;
    }
    struct plan *plan = plan_add(convolutions);
    *plan = {};
    plan->type = type;
    plan->tf32 = tf32;
    plan->shape = *shape;
    plan->limit = limit;
    return plan;
}

static struct engine_problem problem_of(const struct plan *plan, enum convolution_part part)
{
    struct engine_problem problem = {};
    problem.part = part;
    problem.type = plan->type;
    problem.tf32 = plan->tf32;
    problem.shape = plan->shape;
    return problem;
}

static const struct engine *engine_of(cudnnHandle_t handle, struct plan *plan,
                                      enum convolution_part part)
{
    struct engine *engine = &plan->engines[part];
    struct engine_device device = {};
    device.handle = handle;
    if (engine->plan == NULL) {
        const struct engine_problem problem = problem_of(plan, part);
        char name[256];
        engine_problem_name(&problem, name, sizeof name);
        ENSURE(engine_select(&device, &problem, plan->limit, engine),
               "cuDNN %zu has no deterministic engine for a %s", cudnnGetVersion(), name);
    }
    return engine;
}

size_t convolutions_bytes(struct cuda_device *cuda, enum data_type type,
                          const struct convolution_shape *shape)
{
    struct plan *plan = plan_find(cuda, type, shape, engine_workspace_limit(type, shape));
    size_t most = ENGINE_WORKSPACE;
    for (int part = 0; part < CONVOLUTION_PARTS; part++) {
        size_t bytes =
            engine_of(cuda->convolutions->handle, plan, (enum convolution_part)part)->bytes;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void alignment_check(const void *pointer)
{
    ENSURE((uintptr_t)pointer % ENGINE_ALIGNMENT == 0, "a tensor of a convolution is not aligned");
}

/* A shape that was not passed to convolutions_bytes is a smaller batch of one that was. */
void convolution_run(struct stream *stream, const struct convolution *convolution)
{
    struct plan *plan =
        plan_find(stream->cuda, convolution->type, &convolution->shape, ENGINE_WORKSPACE);
    cudnnHandle_t handle = stream->cuda->convolutions->handle;
    const struct engine *engine = engine_of(handle, plan, convolution->part);
    const struct engine_problem problem = problem_of(plan, convolution->part);
    alignment_check(convolution->x);
    alignment_check(convolution->filter);
    alignment_check(convolution->y);
    ENGINE_CHECK(&problem, cudnnSetStream(handle, stream->handle));
    engine_run(handle, &problem, engine, convolution);
}
