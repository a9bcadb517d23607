// SPDX-License-Identifier: BSD-3-Clause
/* Matrix products by oneDNN 2.6 and 3.x. A plan holds a oneDNN primitive and, for each thread, the
 * memory objects of its operands, so that running it creates nothing. */
#include "cpu/cpu_product.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/clock.h"
#include "cpu/cpu_onednn.h"

enum { OPERANDS = 4 }; /* a, b, c, scratchpad */

static const int operand_name[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                           DNNL_ARG_SCRATCHPAD};

struct product_thread {
    dnnl_stream_t stream;
    dnnl_memory_t memory[OPERANDS];
};

struct product_plan {
    struct product product;
    struct product_plan *next;
    dnnl_primitive_t primitive;
    char implementation[ONEDNN_NAME];
    bool own_scratch; /* the memory objects own scratchpads larger than PRODUCT_SCRATCH */
    struct product_thread *threads;
};

struct product_cache {
    dnnl_engine_t engine;
    int threads;
    dnnl_stream_t *streams; /* one per thread */
    struct product_plan *plans;
};

struct product_cache *product_cache_open(int threads)
{
    struct product_cache *cache = allocate(1, sizeof *cache);

    cache->threads = threads;
    cache->streams = allocate((size_t)threads, sizeof *cache->streams);
    onednn_check(dnnl_engine_create(&cache->engine, dnnl_cpu, 0), "engine");
    for (int thread = 0; thread < threads; thread++)
        onednn_check(
            dnnl_stream_create(&cache->streams[thread], cache->engine, dnnl_stream_default_flags),
            "stream");
    return cache;
}

/* Empty oneDNN's cache, which keeps the machine code of destroyed primitives: up to 8 MiB for each
 * batch size in version 3.12. A capacity of 0 empties it. */
static void machine_code_free(void)
{
    int capacity;
    onednn_check(dnnl_get_primitive_cache_capacity(&capacity), "cache capacity");
    onednn_check(dnnl_set_primitive_cache_capacity(0), "cache capacity");
    onednn_check(dnnl_set_primitive_cache_capacity(capacity), "cache capacity");
}

void product_cache_close(struct product_cache *cache)
{
    while (cache->plans != NULL) {
        struct product_plan *plan = cache->plans;
        cache->plans = plan->next;
        for (int thread = 0; thread < cache->threads; thread++)
            for (int operand = 0; operand < OPERANDS; operand++)
                dnnl_memory_destroy(plan->threads[thread].memory[operand]);
        dnnl_primitive_destroy(plan->primitive);
        free(plan->threads);
        free(plan);
    }
    for (int thread = 0; thread < cache->threads; thread++)
        dnnl_stream_destroy(cache->streams[thread]);
    dnnl_engine_destroy(cache->engine);
    machine_code_free();
    free(cache->streams);
    free(cache);
}

/* A rows x columns matrix. stride: distance between rows (transposed: between columns). */
struct matrix {
    int64_t rows, columns, stride;
    bool transposed;
    dnnl_data_type_t type;
};

/* oneDNN 3 removed operation descriptions. */
#if DNNL_VERSION_MAJOR >= 3

static dnnl_status_t describe_product(dnnl_primitive_desc_t *result, dnnl_engine_t engine,
                                      dnnl_memory_desc_t matrices[3],
                                      dnnl_primitive_attr_t attributes)
{
    return dnnl_matmul_primitive_desc_create(result, engine, matrices[0], matrices[1], NULL,
                                             matrices[2], attributes);
}

#else

static dnnl_status_t describe_product(dnnl_primitive_desc_t *result, dnnl_engine_t engine,
                                      dnnl_memory_desc_t matrices[3],
                                      dnnl_primitive_attr_t attributes)
{
    dnnl_matmul_desc_t operation;
    dnnl_status_t status =
        dnnl_matmul_desc_init(&operation, &matrices[0], &matrices[1], NULL, &matrices[2]);

    if (status != dnnl_success)
        return status;
    return dnnl_primitive_desc_create(result, &operation, attributes, engine, NULL);
}

#endif

static dnnl_memory_desc_t matrix_describe(struct matrix matrix)
{
    dnnl_memory_desc_t description;
    const dnnl_dims_t sizes = {matrix.rows, matrix.columns};
    const dnnl_dims_t strides = {matrix.transposed ? 1 : matrix.stride,
                                 matrix.transposed ? matrix.stride : 1};

    onednn_check(onednn_describe_strides(&description, 2, sizes, matrix.type, strides),
                 "memory description");
    return description;
}

/* allocation: DNNL_MEMORY_NONE or DNNL_MEMORY_ALLOCATE. */
static dnnl_memory_t memory_open(const struct product_cache *cache, description_handle description,
                                 void *allocation)
{
    dnnl_memory_t memory;

    onednn_check(dnnl_memory_create(&memory, description, cache->engine, allocation), "memory");
    return memory;
}

static dnnl_primitive_desc_t product_describe(struct product_cache *cache,
                                              const struct product *product,
                                              dnnl_memory_desc_t matrices[3])
{
    dnnl_primitive_attr_t attributes = onednn_attributes(false, product->accumulate);
    dnnl_primitive_desc_t description;
    dnnl_status_t status = describe_product(&description, cache->engine, matrices, attributes);
    ENSURE(status == dnnl_success, "oneDNN has no product %lld x %lld x %lld: status %d",
           (long long)product->m, (long long)product->n, (long long)product->k, (int)status);
    onednn_check(dnnl_primitive_attr_destroy(attributes), "attributes");
    return description;
}

static void plan_open_memory(struct product_cache *cache, struct product_plan *plan,
                             const dnnl_memory_desc_t matrices[3],
                             dnnl_primitive_desc_t description)
{
    description_handle scratchpad =
        dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);

    plan->own_scratch = dnnl_memory_desc_get_size(scratchpad) > PRODUCT_SCRATCH;
    for (int thread = 0; thread < cache->threads; thread++) {
        struct product_thread *state = &plan->threads[thread];
        state->stream = cache->streams[thread];
        for (int operand = 0; operand < OPERANDS - 1; operand++)
            state->memory[operand] =
                memory_open(cache, onednn_handle(&matrices[operand]), DNNL_MEMORY_NONE);
        state->memory[OPERANDS - 1] = memory_open(
            cache, scratchpad, plan->own_scratch ? DNNL_MEMORY_ALLOCATE : DNNL_MEMORY_NONE);
    }
}

static struct product_plan *plan_open(struct product_cache *cache, const struct product *product)
{
    const dnnl_data_type_t type = product->type == TYPE_BF16 ? dnnl_bf16 : dnnl_f32;
    dnnl_memory_desc_t matrices[3] = {
        matrix_describe((struct matrix){product->m, product->k, product->a_stride,
                                        product->a_transposed, type}),
        matrix_describe((struct matrix){product->k, product->n, product->b_stride,
                                        product->b_transposed, type}),
        matrix_describe(
            (struct matrix){product->m, product->n, product->c_stride, false, dnnl_f32})};
    struct product_plan *plan = allocate(1, sizeof *plan);

    plan->threads = allocate((size_t)cache->threads, sizeof *plan->threads);
    plan->product = *product;
    dnnl_primitive_desc_t description = product_describe(cache, product, matrices);
    onednn_implementation(description, plan->implementation);
    onednn_primitive_create(&plan->primitive, description, "product");
    plan_open_memory(cache, plan, matrices, description);
    onednn_check(dnnl_primitive_desc_destroy(description), "description");
    for (int operand = 0; operand < OPERANDS - 1; operand++)
        onednn_description_free(&matrices[operand]);
    return plan;
}

static int threads_of(const struct product *product)
{
    return product->threads > 1 ? product->threads : 1;
}

static bool product_equal(const struct product *a, const struct product *b)
{
    return a->type == b->type && a->m == b->m && a->n == b->n && a->k == b->k &&
           a->a_stride == b->a_stride && a->b_stride == b->b_stride && a->c_stride == b->c_stride &&
           a->a_transposed == b->a_transposed && a->b_transposed == b->b_transposed &&
           a->accumulate == b->accumulate && a->threads == b->threads;
}

const struct product_plan *product_plan(struct product_cache *cache, const struct product *product)
{
    for (struct product_plan *plan = cache->plans; plan != NULL; plan = plan->next)
        if (product_equal(&plan->product, product))
            return plan;
    const int threads_before = omp_get_max_threads();
    omp_set_num_threads(threads_of(product));
    struct product_plan *plan = plan_open(cache, product);
    omp_set_num_threads(threads_before);
    plan->next = cache->plans;
    cache->plans = plan;
    return plan;
}

void product_run(const struct product_plan *plan, int thread, const void *a, const void *b,
                 float *c, void *scratch)
{
    const struct product_thread *state = &plan->threads[thread];
    /* oneDNN takes operands as void *, and only reads the first two. */
    void *address[OPERANDS];
    dnnl_exec_arg_t arguments[OPERANDS];

    memcpy(&address[0], &a, sizeof a);
    memcpy(&address[1], &b, sizeof b);
    address[2] = c;
    address[3] = scratch;
    for (int operand = 0; operand < OPERANDS; operand++) {
        if (operand < OPERANDS - 1 || !plan->own_scratch)
            onednn_check(dnnl_memory_set_data_handle(state->memory[operand], address[operand]),
                         "operand");
        arguments[operand].arg = operand_name[operand];
        arguments[operand].memory = state->memory[operand];
    }
    /* Outside a parallel region oneDNN would start as many threads as it may. */
    omp_set_num_threads(threads_of(&plan->product));
    onednn_check(dnnl_primitive_execute(plan->primitive, state->stream, OPERANDS, arguments),
                 "product");
}

const char *product_implementation(const struct product_plan *plan)
{
    return plan->implementation;
}

void product_library(char *name, size_t size)
{
    const dnnl_version_t *version = dnnl_version();

    snprintf(name, size, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
}

bool product_library_check(struct error *error)
{
    char name[32];

    product_library(name, sizeof name);
    return dnnl_version()->major == DNNL_VERSION_MAJOR ||
           error_set(error, ERROR_USAGE,
                     "%s is loaded, but vittrain was built with the headers of oneDNN %d: check "
                     "LD_LIBRARY_PATH, or build again",
                     name, DNNL_VERSION_MAJOR);
}

bool product_multiplies_bf16(void)
{
#ifdef __x86_64__
    const unsigned needed = dnnl_cpu_isa_avx512_core_bf16;
    return ((unsigned)dnnl_get_effective_cpu_isa() & needed) == needed;
#else
    return false;
#endif
}

double product_rate(product_run_once *run, void *context, double operations)
{
    enum { RUNS_LEAST = 3 };
    const double cpu_seconds = 0.02, seconds = 0.25;
    const double start = clock_now(), cpu_start = clock_thread();
    double best = 0;

    for (int count = 0; count < RUNS_LEAST ||
                        (clock_thread() < cpu_start + cpu_seconds && clock_now() < start + seconds);
         count++) {
        const double begin = clock_thread();
        run(context);
        best = fmax(best, operations / (clock_thread() - begin));
    }
    return best;
}

/* A product of square matrices in memory: a, b, c and scratch. */
struct square {
    const struct product_plan *plan;
    size_t operand; /* bytes */
    char *memory;
};

static void square_run(void *context)
{
    const struct square *it = context;

    product_run(it->plan, 0, it->memory, it->memory + it->operand,
                (float *)(it->memory + 2 * it->operand), it->memory + 3 * it->operand);
}

static double rate_of_size(struct product_cache *cache, enum data_type type, int64_t size)
{
    const struct product product = {.type = type,
                                    .m = size,
                                    .n = size,
                                    .k = size,
                                    .a_stride = size,
                                    .b_stride = size,
                                    .c_stride = size,
                                    .b_transposed = true,
                                    .threads = 1};
    struct square square = {.plan = product_plan(cache, &product),
                            .operand = (size_t)(size * size) * sizeof(float)};

    square.memory = allocate(1, 3 * square.operand + PRODUCT_SCRATCH);
    const double rate = product_rate(square_run, &square, 2.0 * (double)(size * size * size));
    free(square.memory);
    return rate;
}

double product_measure_peak(struct product_cache *cache, enum data_type type)
{
    return fmax(rate_of_size(cache, type, 384), rate_of_size(cache, type, 768));
}
