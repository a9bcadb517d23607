// SPDX-License-Identifier: BSD-3-Clause
/* Convolutions by cuDNN's graph API. The first call with a shape selects an engine for each part
 * that is needed (convolution_engine.h) and stores its execution plan; later calls look it up. */
#include "convolution_engine.h"
#include "cuda.h"

#include <string.h>

/* Engines use 32-bit indices. */
int64_t convolutions_numbers(void)
{
    return INT32_MAX;
}

/* Return a problem whose bytes can be compared. */
static struct engine_problem problem_of(const struct cuda_device *cuda, enum convolution_part part,
                                        enum data_type type, const struct convolution_shape *shape)
{
    struct engine_problem problem;
    memset(&problem, 0, sizeof problem);
    problem.part = part;
    problem.type = type;
    problem.tf32 = type == TYPE_FP32 && cuda->tf32;
    problem.shape = *shape;
    return problem;
}

/* limit: bytes of workspace of an engine that is selected here. */
static const struct engine *engine_of(struct cuda_device *cuda,
                                      const struct engine_problem *problem, size_t limit)
{
    struct engine *engine = &engines_find(&cuda->engines, problem, sizeof *problem)->engine;
    if (engine->plan == NULL) {
        const struct engine_device device = {cuda->engines->handle, NULL};
        char name[256];
        engine_problem_name(problem, name, sizeof name);
        ENSURE(engine_select(&device, problem, limit, engine),
               "cuDNN %zu has no deterministic engine for a %s", cudnnGetVersion(), name);
    }
    return engine;
}

size_t convolutions_bytes(struct cuda_device *cuda, enum data_type type,
                          const struct convolution_shape *shape)
{
    size_t most = ENGINE_WORKSPACE;
    for (int part = 0; part < CONVOLUTION_PARTS; part++) {
        const struct engine_problem problem =
            problem_of(cuda, (enum convolution_part)part, type, shape);
        size_t bytes = engine_of(cuda, &problem, engine_workspace_limit(type, shape))->bytes;
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
    struct cuda_device *cuda = stream->cuda;
    const struct engine_problem problem =
        problem_of(cuda, convolution->part, convolution->type, &convolution->shape);
    const struct engine *engine = engine_of(cuda, &problem, ENGINE_WORKSPACE);
    cudnnHandle_t handle = cuda->engines->handle;
    alignment_check(convolution->x);
    alignment_check(convolution->filter);
    alignment_check(convolution->y);
    ENGINE_CHECK(&problem, cudnnSetStream(handle, stream->handle));
    engine_run(handle, &problem, engine, convolution);
}
