// SPDX-License-Identifier: BSD-3-Clause
/* Plans of matrix products. A shape gets its descriptors and its algorithm at its first product;
 * after that a product costs the host one lookup.
 *
 * The algorithm is the fastest of those that the library's heuristics propose, measured on the real
 * operands (device/algorithm_choices.h). Column sums of a gradient are computed by the product's
 * epilogue or by a separate kernel, whichever is faster. Shapes that first occur during graph
 * capture use the heuristics' first algorithm, because nothing can be measured then, and so do all
 * shapes if results must be reproducible. A choice adopted from other ranks or a checkpoint is
 * always used.
 *
 * An algorithm that the library refuses to run is replaced by the next one. If none with an
 * epilogue runs, a separate kernel computes the epilogue.
 */
#include "product_library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "variant.h"

enum { CANDIDATES = 33, ALIGNMENT_MOST = 16 };

struct plan {
    struct product_shape shape;
    struct product_descriptors *descriptors;
    bool chosen;
    struct choice choice; /* an algorithm of the library, or `apart` */
};

struct products {
    struct cuda_device *cuda;
    struct product_library *library;
    bool tf32;
    struct choices *choices;
    struct plan **plans;
    int count;
    size_t room;
};

/* A product with an epilogue as two operations: the product, then cuda_bias_relu or columns_sum. */
static const struct choice apart = {{UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX,
                                     UINT64_MAX, UINT64_MAX, UINT64_MAX}};

static bool is_apart(const struct choice *choice)
{
    return memcmp(choice, &apart, sizeof apart) == 0;
}

static struct product without_epilogue(const struct product *product)
{
    struct product plain = *product;
    plain.epilogue = EPILOGUE_NONE;
    plain.bias = NULL;
    return plain;
}

/* ---- Opening */
struct products *products_open(struct cuda_device *cuda)
{
    struct products *products = (struct products *)allocate(1, sizeof *products);
    products->cuda = cuda;
    products->library = product_library_open();
    products_set(products, false, "");
    return products;
}

void products_set(struct products *products, bool tf32, const char *cache)
{
    char library[64], of[256];
    product_library_name(library, sizeof library);
    snprintf(of, sizeof of, "%s %s", products->cuda->limits.name, library);
    choices_close(products->choices);
    products->choices = choices_open(cache, of);
    products->tf32 = tf32;
}

void products_close(struct products *products)
{
    for (int i = 0; i < products->count; i++) {
        product_descriptors_close(products->plans[i]->descriptors);
        free(products->plans[i]);
    }
    choices_close(products->choices);
    product_library_close(products->library);
    free(products->plans);
    free(products);
}

char *products_export(struct products *products)
{
    return choices_export(products->choices);
}

bool products_are_new(struct products *products)
{
    return choices_are_new(products->choices);
}

bool products_adopt(struct products *products, const char *choices)
{
    bool changed = choices_adopt(products->choices, choices);
    for (int i = 0; i < products->count && changed; i++)
        products->plans[i]->chosen = false;
    return changed;
}

struct choices *products_choices(struct products *products)
{
    return products->choices;
}

/* ---- Shapes */
static int64_t alignment_of(const struct product *p)
{
    uintptr_t bits = (uintptr_t)p->a | (uintptr_t)p->b | (uintptr_t)p->c | (uintptr_t)p->add |
                     (uintptr_t)p->bias | ALIGNMENT_MOST;
    return (int64_t)(bits & (~bits + 1)); /* lowest set bit */
}

static struct product_shape shape_of(const struct products *products, const struct product *p)
{
    struct product_shape shape = {};
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

static void shape_name(const struct product_shape *shape, char *name, size_t size)
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

/* ---- Execution */
static struct plan *plan_find(struct stream *stream, const struct product *product);
static const char *plan_queue(struct stream *stream, const struct product *product, void *c,
                              float *sums);

static const char *apart_queue(struct stream *stream, const struct product *product, void *c,
                               float *sums)
{
    struct product plain = without_epilogue(product);
    const char *refused = plan_queue(stream, &plain, c, NULL);
    if (refused != NULL)
        return refused;
    if (product->epilogue == EPILOGUE_BIAS)
        cuda_bias_relu(stream, product->c_type, product->rows, product->columns, product->bias,
                       false, c);
    else
        columns_sum(stream, product->type, product->a, product->inner, product->rows, sums,
                    product->add == NULL);
    return NULL;
}

/* Queue the product with its result in `c`, and the sums of op(a) in `sums` (product_run_sums).
 * Return NULL, or the library's reason for failure. */
static const char *choice_queue(struct stream *stream, const struct plan *plan,
                                const struct choice *choice, const struct product *product, void *c,
                                float *sums)
{
    if (is_apart(choice))
        return apart_queue(stream, product, c, sums);
    const char *refused = product_queue(stream->cuda->products->library, stream, plan->descriptors,
                                        choice, product, c);
    if (refused == NULL && sums != NULL && product->add != NULL)
        columns_add(stream, (const float *)product->bias, 1, product->rows, product->rows, sums,
                    false);
    return refused;
}

/* The library's algorithms, best first, then `apart` for a product with an epilogue. */
static int candidates_find(struct stream *stream, const struct plan *plan,
                           const struct product *product, struct choice *candidates)
{
    const char *reason;
    int count = product_algorithms(stream->cuda->products->library, plan->descriptors, candidates,
                                   CANDIDATES - 1, &reason);
    if (plan->shape.epilogue != EPILOGUE_NONE)
        candidates[count++] = apart;
    ENSURE(count > 0, "the library has no product of %lld x %lld x %lld: %s",
           (long long)product->rows, (long long)product->columns, (long long)product->inner,
           reason);
    return count;
}

/* choice_queue with the plan's choice or, if that fails, with the first candidate that runs. */
static const char *plan_queue(struct stream *stream, const struct product *product, void *c,
                              float *sums)
{
    struct choice candidates[CANDIDATES];
    struct plan *plan = plan_find(stream, product);
    const char *refused = choice_queue(stream, plan, &plan->choice, product, c, sums);
    int count = refused != NULL ? candidates_find(stream, plan, product, candidates) : 0;
    for (int i = 0; i < count && refused != NULL; i++) {
        plan->choice = candidates[i];
        refused = choice_queue(stream, plan, &plan->choice, product, c, sums);
    }
    return refused;
}

static void plan_run(struct stream *stream, const struct product *product, float *sums)
{
    const char *refused = plan_queue(stream, product, product->c, sums);
    ENSURE(refused == NULL, "cannot compute a product of %lld x %lld x %lld: %s",
           (long long)product->rows, (long long)product->columns, (long long)product->inner,
           refused);
}

void product_run(struct stream *stream, const struct product *product)
{
    plan_run(stream, product, NULL);
}

void product_run_sums(struct stream *stream, const struct product *product, float *sums)
{
    size_t bytes = (size_t)product->rows * sizeof(float);
    ENSURE(product->a_transposed && product->epilogue == EPILOGUE_NONE,
           "invalid sums of a product");
    if (bytes > WORKSPACE_SUMS) {
        product_run(stream, product);
        columns_sum(stream, product->type, product->a, product->inner, product->rows, sums,
                    product->add == NULL);
        return;
    }
    struct product together = *product;
    together.epilogue = EPILOGUE_BIAS_GRADIENT_A;
    together.bias = product->add == NULL ? sums : cuda_workspace_sums(stream->cuda, bytes);
    plan_run(stream, &together, sums);
}

/* ---- Measurement */
struct trial {
    struct stream *stream;
    const struct plan *plan;
    const struct product *product;
    const struct choice *candidates;
    void *c;     /* product->c, or scratch memory if the result is accumulated */
    float *sums; /* scratch memory, or NULL */
};

static bool trial_queue(void *context, int candidate)
{
    const struct trial *trial = (const struct trial *)context;
    return choice_queue(trial->stream, trial->plan, &trial->candidates[candidate], trial->product,
                        trial->c, trial->sums) == NULL;
}

static double trial_time(void *context, int candidate)
{
    return variant_time(((const struct trial *)context)->stream, trial_queue, context, candidate);
}

static bool trial_usable(void *context, const struct choice *choice)
{
    const struct trial *trial = (const struct trial *)context;
    if (is_apart(choice))
        return trial->plan->shape.epilogue != EPILOGUE_NONE;
    return product_algorithm_fits(trial->stream->cuda->products->library, trial->plan->descriptors,
                                  choice);
}

/* Allocate scratch memory for accumulated outputs: the result and the sums. *memory is NULL if none
 * is needed. Return false if memory is short. */
static bool scratch_open(struct trial *trial, void **memory)
{
    const struct product *product = trial->product;
    size_t of_c = (size_t)(product->rows * product->columns) * type_size(product->c_type);
    size_t c_bytes = product->add == product->c ? (of_c + 255) / 256 * 256 : 0;
    size_t bytes = c_bytes;
    if (product->epilogue == EPILOGUE_BIAS_GRADIENT_A)
        bytes += (size_t)product->rows * sizeof(float);
    *memory = NULL;
    if (bytes > 0 && cudaMalloc(memory, bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    trial->c = c_bytes > 0 ? *memory : product->c;
    if (bytes > c_bytes) {
        trial->sums = (float *)((unsigned char *)*memory + c_bytes);
        cuda_zero(trial->stream, trial->sums, bytes - c_bytes);
    }
    return true;
}

/* Return false if there is no scratch memory or no candidate ran. */
static bool fastest_find(struct trial *trial, const char *name, int count, struct choice *chosen)
{
    struct stream *stream = trial->stream;
    void *scratch;
    if (!scratch_open(trial, &scratch))
        return false;
    variant_settle(stream);
    bool found = choices_make(stream->cuda->products->choices, name, trial->candidates, count,
                              trial_time, trial_usable, trial, chosen);
    if (scratch != NULL)
        CUDA_CHECK(cudaFree(scratch));
    return found;
}

/* ---- Choice */
static void plan_choose(struct stream *stream, struct plan *plan, const struct product *product)
{
    struct choices *choices = stream->cuda->products->choices;
    struct choice candidates[CANDIDATES];
    struct trial trial = {stream, plan, product, candidates, product->c, NULL};
    char name[CHOICE_KEY];
    shape_name(&plan->shape, name, sizeof name);
    plan->chosen = true;
    if (choices_find(choices, name, trial_usable, &trial, &plan->choice))
        return;
    int count = candidates_find(stream, plan, product, candidates);
    if (product->epilogue != EPILOGUE_BIAS_GRADIENT_A && is_apart(&candidates[count - 1]) &&
        count > 1)
        count--; /* `apart` moves more bytes, so it is not measured */
    bool measures = count > 1 && !stream_is_recorded(stream) && !stream->cuda->device.reproducible;
    if (measures && fastest_find(&trial, name, count, &plan->choice))
        return;
    plan->choice = candidates[0];
    choices_put(choices, name, &plan->choice);
}

static struct plan *plan_add(struct products *products)
{
    products->plans = (struct plan **)allocate_more(
        products->plans, &products->room, (size_t)products->count, sizeof *products->plans);
    struct plan *plan = (struct plan *)allocate(1, sizeof *plan);
    products->plans[products->count++] = plan;
    return plan;
}

static struct plan *plan_find(struct stream *stream, const struct product *product)
{
    struct products *products = stream->cuda->products;
    struct product_shape shape = shape_of(products, product);
    struct plan *plan = NULL;
    for (int i = 0; i < products->count && plan == NULL; i++)
        if (memcmp(&products->plans[i]->shape, &shape, sizeof shape) == 0)
            plan = products->plans[i];
    if (plan == NULL) {
        plan = plan_add(products);
        plan->shape = shape;
        plan->descriptors = product_descriptors_open(&shape);
    }
    if (!plan->chosen)
        plan_choose(stream, plan, product);
    return plan;
}
