// SPDX-License-Identifier: BSD-3-Clause
/* Matrix products by oneDNN 2.6 and 3.x. A plan holds a oneDNN primitive and, for each thread, the
 * memory objects of its operands, so that running it creates nothing. */
#include "cpu/cpu_product.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "cpu/cpu_onednn.h"

enum { OPERANDS = 4 }; /* a, b, c, scratchpad */

static const int operand_name[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                           DNNL_ARG_SCRATCHPAD};

struct product_plan {
    struct product product;
    struct product_plan *next;
    const struct onednn *onednn;
    dnnl_primitive_t primitive;
    bool own_scratch; /* the memory objects own scratchpads larger than PRODUCT_SCRATCH */
    dnnl_memory_t (*memory)[OPERANDS]; /* of each thread */
};

struct onednn *onednn_open(int threads)
{
    struct onednn *onednn = allocate(1, sizeof *onednn);

    onednn->threads = threads;
    onednn->streams = allocate((size_t)threads, sizeof *onednn->streams);
    onednn_check(dnnl_engine_create(&onednn->engine, dnnl_cpu, 0), "engine");
    for (int thread = 0; thread < threads; thread++)
        onednn_check(
            dnnl_stream_create(&onednn->streams[thread], onednn->engine, dnnl_stream_default_flags),
            "stream");
    return onednn;
}

void onednn_close(struct onednn *onednn)
{
    int capacity;
    convolution_plans_close(onednn->convolutions);
    while (onednn->products != NULL) {
        struct product_plan *plan = onednn->products;
        onednn->products = plan->next;
        for (int thread = 0; thread < onednn->threads; thread++)
            for (int operand = 0; operand < OPERANDS; operand++)
                dnnl_memory_destroy(plan->memory[thread][operand]);
        dnnl_primitive_destroy(plan->primitive);
        free(plan->memory);
        free(plan);
    }
    for (int thread = 0; thread < onednn->threads; thread++)
        dnnl_stream_destroy(onednn->streams[thread]);
    dnnl_engine_destroy(onednn->engine);
    /* Empty oneDNN's cache, which keeps the machine code of destroyed primitives: up to 8 MiB for
     * each batch size in version 3.12. A capacity of 0 empties it. */
    onednn_check(dnnl_get_primitive_cache_capacity(&capacity), "cache capacity");
    onednn_check(dnnl_set_primitive_cache_capacity(0), "cache capacity");
    onednn_check(dnnl_set_primitive_cache_capacity(capacity), "cache capacity");
    free(onednn->streams);
    free(onednn);
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

static void plan_open_memory(struct onednn *onednn, struct product_plan *plan,
                             const dnnl_memory_desc_t matrices[3],
                             dnnl_primitive_desc_t description)
{
    description_handle scratchpad =
        dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);

    plan->own_scratch = dnnl_memory_desc_get_size(scratchpad) > PRODUCT_SCRATCH;
    plan->memory = allocate((size_t)onednn->threads, sizeof *plan->memory);
    for (int thread = 0; thread < onednn->threads; thread++) {
        dnnl_memory_t *memory = plan->memory[thread];
        for (int operand = 0; operand < OPERANDS - 1; operand++)
            memory[operand] =
                onednn_memory(onednn, onednn_handle(&matrices[operand]), DNNL_MEMORY_NONE);
        memory[OPERANDS - 1] = onednn_memory(
            onednn, scratchpad, plan->own_scratch ? DNNL_MEMORY_ALLOCATE : DNNL_MEMORY_NONE);
    }
}

static struct product_plan *plan_open(struct onednn *onednn, const struct product *product)
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

    plan->product = *product;
    plan->onednn = onednn;
    dnnl_primitive_attr_t attributes = onednn_attributes(false, product->accumulate);
    dnnl_primitive_desc_t description;
    dnnl_status_t status = describe_product(&description, onednn->engine, matrices, attributes);
    ENSURE(status == dnnl_success, "oneDNN has no product %lld x %lld x %lld: status %d",
           (long long)product->m, (long long)product->n, (long long)product->k, (int)status);
    onednn_primitive_create(&plan->primitive, description, "product");
    plan_open_memory(onednn, plan, matrices, description);
    onednn_check(dnnl_primitive_attr_destroy(attributes), "attributes");
    onednn_check(dnnl_primitive_desc_destroy(description), "description");
    for (int operand = 0; operand < OPERANDS - 1; operand++)
        onednn_description_free(&matrices[operand]);
    return plan;
}

static bool product_equal(const struct product *a, const struct product *b)
{
    return a->type == b->type && a->m == b->m && a->n == b->n && a->k == b->k &&
           a->a_stride == b->a_stride && a->b_stride == b->b_stride && a->c_stride == b->c_stride &&
           a->a_transposed == b->a_transposed && a->b_transposed == b->b_transposed &&
           a->accumulate == b->accumulate;
}

const struct product_plan *product_plan(struct onednn *onednn, const struct product *product)
{
    for (struct product_plan *plan = onednn->products; plan != NULL; plan = plan->next)
        if (product_equal(&plan->product, product))
            return plan;
    const int threads_before = omp_get_max_threads();
    omp_set_num_threads(1);
    struct product_plan *plan = plan_open(onednn, product);
    omp_set_num_threads(threads_before);
    plan->next = onednn->products;
    onednn->products = plan;
    return plan;
}

void product_run(const struct product_plan *plan, int thread, const void *a, const void *b,
                 float *c, void *scratch)
{
    dnnl_memory_t *memory = plan->memory[thread];
    /* oneDNN takes operands as void *, and only reads the first two. */
    void *address[OPERANDS];
    dnnl_exec_arg_t arguments[OPERANDS];

    memcpy(&address[0], &a, sizeof a);
    memcpy(&address[1], &b, sizeof b);
    address[2] = c;
    address[3] = scratch;
    for (int operand = 0; operand < OPERANDS; operand++) {
        if (operand < OPERANDS - 1 || !plan->own_scratch)
            onednn_check(dnnl_memory_set_data_handle(memory[operand], address[operand]), "operand");
        arguments[operand] = (dnnl_exec_arg_t){operand_name[operand], memory[operand]};
    }
    /* Outside a parallel region oneDNN would start as many threads as it may. */
    omp_set_num_threads(1);
    onednn_check(
        dnnl_primitive_execute(plan->primitive, plan->onednn->streams[thread], OPERANDS, arguments),
        "product");
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
