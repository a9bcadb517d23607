// SPDX-License-Identifier: BSD-3-Clause
/* Convolutions by cuDNN's graph API. The first call with a shape selects an engine for each part
 * that is needed (convolution_engine.h) and stores its execution plan; later calls look it up. */
#include "convolution_engine.h"
#include "cuda.h"

#include <stdlib.h>
#include <string.h>

/* Engines in use; the bytes of their problems are compared. */
struct engine_entry {
    struct engine_problem problem;
    struct engine engine;
};

struct engines {
    cudnnHandle_t handle;
    struct engine_entry *entries;
    int count;
    size_t room;
};

/* Return the engine of a problem, which may be new; valid until the next call. */
static struct engine *engines_find(struct cuda_device *cuda, const struct engine_problem *problem)
{
    struct engines *engines = cuda->engines;
    if (engines == NULL) {
        engines = cuda->engines = (struct engines *)allocate(1, sizeof *engines);
        GRAPH_CHECK(cudnnCreate(&engines->handle));
    }
    for (int i = 0; i < engines->count; i++)
        if (memcmp(&engines->entries[i].problem, problem, sizeof *problem) == 0)
            return &engines->entries[i].engine;
    engines->entries = (struct engine_entry *)allocate_more(
        engines->entries, &engines->room, (size_t)engines->count, sizeof *engines->entries);
    struct engine_entry *entry = &engines->entries[engines->count++];
    memcpy(&entry->problem, problem, sizeof *problem); /* padding included */
    entry->engine = {};
    return &entry->engine;
}

void engines_close(struct engines *engines)
{
    if (engines == NULL)
        return;
    for (int i = 0; i < engines->count; i++)
        engine_close(&engines->entries[i].engine);
    GRAPH_CHECK(cudnnDestroy(engines->handle));
    free(engines->entries);
    free(engines);
}

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
    struct engine *engine = engines_find(cuda, problem);
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
