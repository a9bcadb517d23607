// SPDX-License-Identifier: BSD-3-Clause
/* Matrix products by cuBLASLt, which is column-major: our c[rows, columns] is its transpose, so our
 * b is its A and our a its B. Algorithms that accumulate parts of `inner` in the output in a
 * varying order (split-K with atomics) are excluded. */
#include "product_library.h"

#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALGORITHMS_MOST = 32 };

struct product_library {
    cublasLtHandle_t handle;
};

struct product_descriptors {
    int64_t alignment;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c; /* descriptors of the library */
};

static void library_check(cublasStatus_t result, const char *call, int line)
{
    if (result != CUBLAS_STATUS_SUCCESS)
        error_abort(__FILE__, line, "%s: %s (%s)", call, cublasLtGetStatusString(result),
                    cublasLtGetStatusName(result));
}
#define LIBRARY_CHECK(call) library_check(call, #call, __LINE__)

/* The caller continues without this call, so an error that it left in the runtime library must not
 * be reported by the next launch. */
static const char *library_reason(cublasStatus_t result)
{
    (void)cudaGetLastError();
    return cublasLtGetStatusString(result);
}

struct product_library *product_library_open(void)
{
    struct product_library *library = (struct product_library *)calloc(1, sizeof *library);
    ENSURE_MEMORY(library != NULL, "no memory for products");
    LIBRARY_CHECK(cublasLtCreate(&library->handle));
    return library;
}

void product_library_close(struct product_library *library)
{
    LIBRARY_CHECK(cublasLtDestroy(library->handle));
    free(library);
}

void product_library_name(char *text, size_t size)
{
    snprintf(text, size, "cublasLt %zu", cublasLtGetVersion());
}

/* ---- Descriptors */
static cudaDataType_t library_type(int64_t type)
{
    return type == TYPE_FP32 ? CUDA_R_32F : type == TYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

/* Open the layout of an operand that is stored as [inner, outer] in the library's order, or as
 * [outer, inner]. */
static cublasLtMatrixLayout_t layout_open(int64_t type, int64_t rows, int64_t columns)
{
    cublasLtMatrixLayout_t layout;
    LIBRARY_CHECK(cublasLtMatrixLayoutCreate(&layout, library_type(type), (uint64_t)rows,
                                             (uint64_t)columns, rows));
    return layout;
}

static void operation_set(const struct product_descriptors *descriptors,
                          cublasLtMatmulDescAttributes_t attribute, const void *value, size_t bytes)
{
    LIBRARY_CHECK(cublasLtMatmulDescSetAttribute(descriptors->operation, attribute, value, bytes));
}

static void bias_set(const struct product_descriptors *descriptors, enum product_epilogue epilogue,
                     void *bias)
{
    if (epilogue != EPILOGUE_NONE)
        operation_set(descriptors, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
}

struct product_descriptors *product_descriptors_open(const struct product_shape *shape)
{
    static const cublasLtEpilogue_t epilogues[] = {
        CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BGRADB};
    void *aligned =
        (void *)(uintptr_t)shape->alignment; /* heuristics read only a pointer's alignment */
    cublasOperation_t a_operation = shape->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t b_operation = shape->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    struct product_descriptors *descriptors =
        (struct product_descriptors *)calloc(1, sizeof *descriptors);
    ENSURE_MEMORY(descriptors != NULL, "no memory for products");
    descriptors->alignment = shape->alignment;
    LIBRARY_CHECK(cublasLtMatmulDescCreate(
        &descriptors->operation, shape->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
        CUDA_R_32F));
    operation_set(descriptors, CUBLASLT_MATMUL_DESC_TRANSA, &a_operation, sizeof a_operation);
    operation_set(descriptors, CUBLASLT_MATMUL_DESC_TRANSB, &b_operation, sizeof b_operation);
    operation_set(descriptors, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogues[shape->epilogue],
                  sizeof epilogues[0]);
    descriptors->a = shape->b_transposed ? layout_open(shape->type, shape->inner, shape->columns)
                                         : layout_open(shape->type, shape->columns, shape->inner);
    descriptors->b = shape->a_transposed ? layout_open(shape->type, shape->rows, shape->inner)
                                         : layout_open(shape->type, shape->inner, shape->rows);
    descriptors->c = layout_open(shape->c_type, shape->columns, shape->rows);
    bias_set(descriptors, (enum product_epilogue)shape->epilogue, aligned);
    return descriptors;
}

void product_descriptors_close(struct product_descriptors *descriptors)
{
    LIBRARY_CHECK(cublasLtMatrixLayoutDestroy(descriptors->a));
    LIBRARY_CHECK(cublasLtMatrixLayoutDestroy(descriptors->b));
    LIBRARY_CHECK(cublasLtMatrixLayoutDestroy(descriptors->c));
    LIBRARY_CHECK(cublasLtMatmulDescDestroy(descriptors->operation));
    free(descriptors);
}

/* ---- Algorithms */
static void preference_set(cublasLtMatmulPreference_t preference,
                           cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                           size_t bytes)
{
    LIBRARY_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, attribute, value, bytes));
}

static cublasLtMatmulPreference_t preference_open(const struct product_descriptors *descriptors,
                                                  uint32_t reductions)
{
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    size_t workspace = WORKSPACE_PRODUCTS;
    uint32_t alignment = (uint32_t)descriptors->alignment;
    cublasLtMatmulPreference_t preference;
    LIBRARY_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                   sizeof workspace);
    preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                   sizeof reductions);
    for (int i = 0; i < 4; i++)
        preference_set(preference, alignments[i], &alignment, sizeof alignment);
    return preference;
}

/* Append the algorithms that the heuristics propose with these reduction schemes of split-K to the
 * list, without duplicates, until it has `most`. Return its new length. */
static int algorithms_add(struct product_library *library,
                          const struct product_descriptors *descriptors, uint32_t reductions,
                          struct choice *algorithms, int count, int most, const char **reason)
{
    cublasLtMatmulHeuristicResult_t results[ALGORITHMS_MOST];
    cublasLtMatmulPreference_t preference = preference_open(descriptors, reductions);
    int named = 0;
    cublasStatus_t result = cublasLtMatmulAlgoGetHeuristic(
        library->handle, descriptors->operation, descriptors->a, descriptors->b, descriptors->c,
        descriptors->c, preference, ALGORITHMS_MOST, results, &named);
    LIBRARY_CHECK(cublasLtMatmulPreferenceDestroy(preference));
    if (result != CUBLAS_STATUS_SUCCESS)
        *reason = library_reason(result);
    for (int i = 0; result == CUBLAS_STATUS_SUCCESS && i < named && count < most; i++) {
        bool listed = results[i].state != CUBLAS_STATUS_SUCCESS;
        for (int j = 0; j < count && !listed; j++)
            listed = memcmp(&algorithms[j], &results[i].algo, sizeof results[i].algo) == 0;
        if (!listed)
            memcpy(&algorithms[count++], &results[i].algo, sizeof results[i].algo);
    }
    return count;
}

/* A quarter of the list is for algorithms without split-K, which need no second kernel. */
int product_algorithms(struct product_library *library,
                       const struct product_descriptors *descriptors, struct choice *algorithms,
                       int most, const char **reason)
{
    ENSURE(most <= ALGORITHMS_MOST, "%d algorithms of a product", most);
    *reason = "no algorithm";
    int count = algorithms_add(library, descriptors, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
                               algorithms, 0, most - most / 4, reason);
    return algorithms_add(library, descriptors, CUBLASLT_REDUCTION_SCHEME_NONE, algorithms, count,
                          most, reason);
}
static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(struct choice), "a choice is an algorithm");

static cublasLtMatmulAlgo_t algorithm_of(const struct choice *choice)
{
    cublasLtMatmulAlgo_t algorithm;
    memcpy(&algorithm, choice, sizeof algorithm);
    return algorithm;
}

bool product_algorithm_fits(struct product_library *library,
                            const struct product_descriptors *descriptors,
                            const struct choice *choice)
{
    cublasLtMatmulAlgo_t algorithm = algorithm_of(choice);
    cublasLtMatmulHeuristicResult_t result = {};
    return cublasLtMatmulAlgoCheck(library->handle, descriptors->operation, descriptors->a,
                                   descriptors->b, descriptors->c, descriptors->c, &algorithm,
                                   &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= WORKSPACE_PRODUCTS;
}

const char *product_queue(struct product_library *library, struct stream *stream,
                          struct product_descriptors *descriptors, const struct choice *choice,
                          const struct product *p, void *c)
{
    const float one = 1, beta = p->add != NULL ? 1.0f : 0.0f;
    cublasLtMatmulAlgo_t algorithm = algorithm_of(choice);
    bias_set(descriptors, p->epilogue, p->bias);
    cublasStatus_t result = cublasLtMatmul(
        library->handle, descriptors->operation, &one, p->b, descriptors->a, p->a, descriptors->b,
        &beta, p->add != NULL ? p->add : c, descriptors->c, c, descriptors->c, &algorithm,
        cuda_workspace_products(stream->cuda), WORKSPACE_PRODUCTS, stream->handle);
    return result == CUBLAS_STATUS_SUCCESS ? NULL : library_reason(result);
}
