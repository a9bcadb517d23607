/* Products by cuBLASLt. It is column-major: our c[rows, columns] is its transposed, so our b is its
 * A and our a its B. What a shape needs (descriptors, the algorithm) is made when it comes for the
 * first time and found again later, so that a step costs the host a look-up.
 *
 * The algorithm is the fastest of those that the library's heuristics name, measured on the real
 * operands (device/choices.h), but for shapes that first come while a step is recorded: they take
 * what the heuristics name first. Ranks that take different algorithms get gradients that differ in
 * rounding, as their samples do; what all of them add to their weights is the same reduced
 * gradient, so their weights stay the same. Algorithms that add up parts of `inner` in the output,
 * in an order that may change, are left out. */
#include "product.h"

#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "device/choices.h"
}

enum { CANDIDATES = 16, ROUNDS = 3, ALIGNMENT_MOST = 16 };

/* All that an algorithm depends on; compared as bytes. */
struct shape {
    int64_t type, c_type, rows, columns, inner, a_transposed, b_transposed, adds, in_place,
        epilogue, alignment, tf32;
};

struct plan {
    struct shape shape;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c; /* the library's */
    bool possible;
    cublasLtMatmulAlgo_t algorithm;
};

struct products {
    struct cuda_device *cuda;
    cublasLtHandle_t library;
    bool tf32;
    struct choices *choices;
    struct plan *plans;
    int count, room;
};

static void library_check(cublasStatus_t result, const char *call, int line)
{
    if (result != CUBLAS_STATUS_SUCCESS)
        error_abort(__FILE__, line, "%s: %s (%s)", call, cublasLtGetStatusString(result),
                    cublasLtGetStatusName(result));
}
#define LIBRARY_CHECK(call) library_check(call, #call, __LINE__)

/* ---- Opening. */
struct products *products_open(struct cuda_device *cuda)
{
    struct products *products = (struct products *)calloc(1, sizeof *products);
    ENSURE(products != NULL, "no memory for products");
    products->cuda = cuda;
    LIBRARY_CHECK(cublasLtCreate(&products->library));
    products_set(products, false, "");
    return products;
}

void products_set(struct products *products, bool tf32, const char *cache)
{
    char of[256];
    snprintf(of, sizeof of, "%s cublasLt %zu", products->cuda->limits.name, cublasLtGetVersion());
    choices_close(products->choices);
    products->choices = choices_open(cache, of);
    products->tf32 = tf32;
}

void products_close(struct products *products)
{
    for (int i = 0; i < products->count; i++) {
        struct plan *plan = &products->plans[i];
        LIBRARY_CHECK(cublasLtMatrixLayoutDestroy(plan->a));
        LIBRARY_CHECK(cublasLtMatrixLayoutDestroy(plan->b));
        LIBRARY_CHECK(cublasLtMatrixLayoutDestroy(plan->c));
        LIBRARY_CHECK(cublasLtMatmulDescDestroy(plan->operation));
    }
    choices_close(products->choices);
    LIBRARY_CHECK(cublasLtDestroy(products->library));
    free(products->plans);
    free(products);
}

/* ---- What a shape needs. */
static int64_t alignment_of(const struct product *p)
{
    uintptr_t bits = (uintptr_t)p->a | (uintptr_t)p->b | (uintptr_t)p->c | (uintptr_t)p->add |
                     (uintptr_t)p->bias | ALIGNMENT_MOST;
    return (int64_t)(bits & (~bits + 1)); /* the lowest bit */
}

static struct shape shape_of(const struct products *products, const struct product *p)
{
    struct shape shape = {};
    shape.type = p->type;
    shape.c_type = p->c_type;
    shape.rows = p->rows;
    shape.columns = p->columns;
    shape.inner = p->inner;
    shape.a_transposed = p->a_transposed;
    shape.b_transposed = p->b_transposed;
    shape.adds = p->add != NULL;
    shape.in_place = p->add == p->c;
    shape.epilogue = p->epilogue;
    shape.alignment = alignment_of(p);
    shape.tf32 = p->type == TYPE_FP32 && products->tf32;
    return shape;
}

static void shape_name(const struct shape *shape, char *name, size_t size)
{
    static const char *const epilogues[] = {"plain", "bias", "sums"};
    snprintf(name, size, "%s %s %lldx%lldx%lld %c%c %s %s align%d%s",
             type_name((enum data_type)shape->type), type_name((enum data_type)shape->c_type),
             (long long)shape->rows, (long long)shape->columns, (long long)shape->inner,
             shape->a_transposed ? 't' : 'n', shape->b_transposed ? 't' : 'n',
             !shape->adds      ? "new"
             : shape->in_place ? "in-place"
                               : "add",
             epilogues[shape->epilogue], (int)shape->alignment, shape->tf32 ? " tf32" : "");
}

static cudaDataType_t library_type(int64_t type)
{
    return type == TYPE_FP32 ? CUDA_R_32F : type == TYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

/* Of an operand that is [inner, outer] in the library's order as it is stored, or [outer, inner].
 */
static cublasLtMatrixLayout_t layout_open(int64_t type, int64_t rows, int64_t columns)
{
    cublasLtMatrixLayout_t layout;
    LIBRARY_CHECK(cublasLtMatrixLayoutCreate(&layout, library_type(type), (uint64_t)rows,
                                             (uint64_t)columns, rows));
    return layout;
}

static void operation_set(const struct plan *plan, cublasLtMatmulDescAttributes_t attribute,
                          const void *value, size_t bytes)
{
    LIBRARY_CHECK(cublasLtMatmulDescSetAttribute(plan->operation, attribute, value, bytes));
}

static void descriptors_open(struct plan *plan)
{
    static const cublasLtEpilogue_t epilogues[] = {
        CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BGRADB};
    const struct shape *shape = &plan->shape;
    cublasOperation_t a_operation = shape->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t b_operation = shape->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    LIBRARY_CHECK(cublasLtMatmulDescCreate(
        &plan->operation, shape->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
        CUDA_R_32F));
    operation_set(plan, CUBLASLT_MATMUL_DESC_TRANSA, &a_operation, sizeof a_operation);
    operation_set(plan, CUBLASLT_MATMUL_DESC_TRANSB, &b_operation, sizeof b_operation);
    operation_set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogues[shape->epilogue],
                  sizeof epilogues[0]);
    plan->a = shape->b_transposed ? layout_open(shape->type, shape->inner, shape->columns)
                                  : layout_open(shape->type, shape->columns, shape->inner);
    plan->b = shape->a_transposed ? layout_open(shape->type, shape->rows, shape->inner)
                                  : layout_open(shape->type, shape->inner, shape->rows);
    plan->c = layout_open(shape->c_type, shape->columns, shape->rows);
}

static void bias_set(const struct plan *plan, const struct product *product)
{
    if (product->epilogue != EPILOGUE_NONE)
        operation_set(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &product->bias,
                      sizeof product->bias);
}

static cublasStatus_t plan_run(struct stream *stream, const struct plan *plan,
                               const cublasLtMatmulAlgo_t *algorithm, const struct product *p,
                               void *c)
{
    const float one = 1, beta = p->add != NULL ? 1.0f : 0.0f;
    const struct cuda_device *cuda = stream->cuda;
    return cublasLtMatmul(cuda->products->library, plan->operation, &one, p->b, plan->a, p->a,
                          plan->b, &beta, p->add != NULL ? p->add : c, plan->c, c, plan->c,
                          algorithm, cuda_workspace_products(cuda), WORKSPACE_PRODUCTS,
                          stream->handle);
}

/* ---- Which algorithm. */
static void preference_set(cublasLtMatmulPreference_t preference,
                           cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                           size_t bytes)
{
    LIBRARY_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, attribute, value, bytes));
}

/* Those that the library names, its favourite first. */
static int candidates_find(struct products *products, const struct plan *plan,
                           struct choice *candidates)
{
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasLtMatmulHeuristicResult_t results[CANDIDATES];
    cublasLtMatmulPreference_t preference;
    size_t workspace = WORKSPACE_PRODUCTS;
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint32_t alignment = (uint32_t)plan->shape.alignment;
    int named = 0, count = 0;
    LIBRARY_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                   sizeof workspace);
    preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction,
                   sizeof reduction);
    for (int i = 0; i < 4; i++)
        preference_set(preference, alignments[i], &alignment, sizeof alignment);
    cublasStatus_t result =
        cublasLtMatmulAlgoGetHeuristic(products->library, plan->operation, plan->a, plan->b,
                                       plan->c, plan->c, preference, CANDIDATES, results, &named);
    LIBRARY_CHECK(cublasLtMatmulPreferenceDestroy(preference));
    if (result != CUBLAS_STATUS_NOT_SUPPORTED)
        LIBRARY_CHECK(result);
    for (int i = 0; i < named; i++)
        if (results[i].state == CUBLAS_STATUS_SUCCESS)
            memcpy(&candidates[count++], &results[i].algo, sizeof results[i].algo);
    return count;
}
static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(struct choice), "a choice is an algorithm");

struct trial {
    struct stream *stream;
    const struct plan *plan;
    const struct product *product;
    const struct choice *candidates;
    void *c; /* the product's, or scratch where that holds what is to be added */
    cudaEvent_t begin, end;
};

static cublasLtMatmulAlgo_t algorithm_of(const struct choice *choice)
{
    cublasLtMatmulAlgo_t algorithm;
    memcpy(&algorithm, choice, sizeof algorithm);
    return algorithm;
}

static double trial_time(void *context, int candidate)
{
    const struct trial *trial = (const struct trial *)context;
    cublasLtMatmulAlgo_t algorithm = algorithm_of(&trial->candidates[candidate]);
    double least = INFINITY;
    for (int round = 0; round <= ROUNDS; round++) { /* the first one does not count */
        float milliseconds = 0;
        CUDA_CHECK(cudaEventRecord(trial->begin, trial->stream->handle));
        if (plan_run(trial->stream, trial->plan, &algorithm, trial->product, trial->c) !=
            CUBLAS_STATUS_SUCCESS)
            return INFINITY;
        CUDA_CHECK(cudaEventRecord(trial->end, trial->stream->handle));
        CUDA_CHECK(cudaEventSynchronize(trial->end));
        CUDA_CHECK(cudaEventElapsedTime(&milliseconds, trial->begin, trial->end));
        if (round > 0 && milliseconds < least)
            least = milliseconds;
    }
    return least * 1e-3;
}

static bool trial_usable(void *context, const struct choice *choice)
{
    const struct trial *trial = (const struct trial *)context;
    const struct plan *plan = trial->plan;
    cublasLtMatmulAlgo_t algorithm = algorithm_of(choice);
    cublasLtMatmulHeuristicResult_t result = {};
    return cublasLtMatmulAlgoCheck(trial->stream->cuda->products->library, plan->operation, plan->a,
                                   plan->b, plan->c, plan->c, &algorithm,
                                   &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= WORKSPACE_PRODUCTS;
}

/* Nothing is measured while a step is recorded: nothing runs then. */
static bool is_recorded(struct stream *stream)
{
    enum cudaStreamCaptureStatus status;
    CUDA_CHECK(cudaStreamIsCapturing(stream->handle, &status));
    return status != cudaStreamCaptureStatusNone;
}

/* The stream's work is waited for before others are kept waiting (choices_make): it may wait for
 * other ranks. False: no memory for scratch, or nothing ran. */
static bool fastest_find(struct stream *stream, const struct plan *plan,
                         const struct product *product, const struct choice *candidates, int count,
                         struct choice *chosen)
{
    char name[CHOICE_KEY];
    struct trial trial = {stream, plan, product, candidates, product->c, NULL, NULL};
    size_t bytes = (size_t)(product->rows * product->columns) * type_size(product->c_type);
    void *scratch = NULL;
    if (product->add == product->c && cudaMalloc(&scratch, bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    if (scratch != NULL)
        trial.c = scratch;
    CUDA_CHECK(cudaEventCreate(&trial.begin));
    CUDA_CHECK(cudaEventCreate(&trial.end));
    stream->cuda->device.backend->stream_synchronize(stream);
    shape_name(&plan->shape, name, sizeof name);
    bool found = choices_make(stream->cuda->products->choices, name, candidates, count, trial_time,
                              trial_usable, &trial, chosen);
    CUDA_CHECK(cudaEventDestroy(trial.begin));
    CUDA_CHECK(cudaEventDestroy(trial.end));
    if (scratch != NULL)
        CUDA_CHECK(cudaFree(scratch));
    return found;
}

static void algorithm_choose(struct stream *stream, struct plan *plan,
                             const struct product *product)
{
    struct choice candidates[CANDIDATES], chosen;
    int count = candidates_find(stream->cuda->products, plan, candidates);
    plan->possible = count > 0;
    if (!plan->possible)
        return;
    if (is_recorded(stream) || !fastest_find(stream, plan, product, candidates, count, &chosen))
        chosen = candidates[0];
    plan->algorithm = algorithm_of(&chosen);
}

/* ---- */
static struct plan *plan_add(struct products *products)
{
    if (products->count == products->room) {
        products->room = products->room > 0 ? 2 * products->room : 64;
        products->plans = (struct plan *)realloc(products->plans,
                                                 (size_t)products->room * sizeof *products->plans);
        ENSURE(products->plans != NULL, "no memory for products");
    }
    return &products->plans[products->count++];
}

static const struct plan *plan_find(struct stream *stream, const struct product *product)
{
    struct products *products = stream->cuda->products;
    struct shape shape = shape_of(products, product);
    for (int i = 0; i < products->count; i++)
        if (memcmp(&products->plans[i].shape, &shape, sizeof shape) == 0)
            return &products->plans[i];
    struct plan *plan = plan_add(products);
    *plan = {};
    plan->shape = shape;
    descriptors_open(plan);
    bias_set(plan, product); /* the heuristics look at its alignment */
    algorithm_choose(stream, plan, product);
    return plan;
}

bool product_possible(struct stream *stream, const struct product *product)
{
    return plan_find(stream, product)->possible;
}

void product_run(struct stream *stream, const struct product *product)
{
    const struct plan *plan = plan_find(stream, product);
    ENSURE(plan->possible, "cuBLASLt has no product of %lld x %lld x %lld",
           (long long)product->rows, (long long)product->columns, (long long)product->inner);
    bias_set(plan, product);
    LIBRARY_CHECK(plan_run(stream, plan, &plan->algorithm, product, product->c));
}
