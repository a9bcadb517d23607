// SPDX-License-Identifier: BSD-3-Clause
/* The library of matrix products (product_library.h) on the host, for the emulated GPU: the same
 * arithmetic, sums in fp32. Products run when the stream executes them. There are two algorithms,
 * which differ in the order of their sums and therefore in rounding. VITTRAIN_EMULATION_PRODUCT=0
 * or 1 selects the one that takes less emulated time (default 0); =0apart or =1apart makes sums in
 * the epilogue slow; with =0varying every fourth run of the slower one takes no time.
 * VITTRAIN_EMULATION_LIBRARY is the version. VITTRAIN_EMULATION_REFUSE lists what fails: find-bias
 * or find-sums, the search for algorithms with this epilogue; run-bias or run-sums, their
 * execution; run-0, the execution of the first algorithm. */
#include "internal.h"
#include "product_library.h"
#include "value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALGORITHMS = 2 };

struct product_library {
};

struct product_descriptors {
    struct product_shape shape;
    int runs[ALGORITHMS]; /* queued */
};

struct product_library *product_library_open(void)
{
    return new product_library;
}

void product_library_close(struct product_library *library)
{
    delete library;
}

void product_library_name(char *text, size_t size)
{
    const char *version = getenv("VITTRAIN_EMULATION_LIBRARY");
    snprintf(text, size, "emulated products %s", version != NULL ? version : "1");
}

struct product_descriptors *product_descriptors_open(const struct product_shape *shape)
{
    return new product_descriptors{*shape, {}};
}

void product_descriptors_close(struct product_descriptors *descriptors)
{
    delete descriptors;
}

/* The library needs 16 bytes for its fast kernels; less is legal. */
static void must_hold(const void *values, int64_t count, enum data_type type, const char *what)
{
    const size_t size = type_size(type);
    memory_must_hold(values, (size_t)count * size, size, what);
}

static float element_finish(const struct product *p, int64_t row, int64_t column, float sum)
{
    if (p->epilogue == EPILOGUE_BIAS)
        sum += value_at(p->c_type, p->bias, column);
    if (p->add != NULL)
        sum += value_at(p->c_type, p->add, row * p->columns + column);
    return sum;
}

/* Convert an operand to floats with `inner` as the innermost dimension, so that the compiler
 * vectorises the loop over it. */
static float *operand_spread(enum data_type type, const void *values, int64_t outer, int64_t inner,
                             bool inner_first)
{
    float *spread = new float[(size_t)(outer * inner) + 1];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++)
            spread[o * inner + i] =
                value_at(type, values, inner_first ? i * outer + o : o * inner + i);
    return spread;
}

/* Eight partial sums, which is faster and rounds less than one; GPUs use many, too. The second
 * algorithm adds them in another order. */
static float sum_of_products(const float *left, const float *right, int64_t count, int algorithm)
{
    float sums[8] = {};
    int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (int lane = 0; lane < 8; lane++)
            sums[lane] += left[i + lane] * right[i + lane];
    for (; i < count; i++)
        sums[i % 8] += left[i] * right[i];
    if (algorithm == 1) {
        for (int lane = 1; lane < 8; lane++)
            sums[0] += sums[lane];
        return sums[0];
    }
    float low = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    return low + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

static void product_compute(const struct product *p, bool tf32, int algorithm)
{
    float *a = operand_spread(p->type, p->a, p->rows, p->inner, p->a_transposed);
    float *b = operand_spread(p->type, p->b, p->columns, p->inner, !p->b_transposed);
    for (int64_t i = 0; tf32 && i < p->rows * p->inner; i++)
        a[i] = tf32_round(a[i]);
    for (int64_t i = 0; tf32 && i < p->columns * p->inner; i++)
        b[i] = tf32_round(b[i]);
    for (int64_t row = 0; row < p->rows; row++) {
        const float *left = a + row * p->inner;
        for (int64_t column = 0; column < p->columns; column++) {
            float sum = sum_of_products(left, b + column * p->inner, p->inner, algorithm);
            value_put(p->c_type, p->c, row * p->columns + column,
                      element_finish(p, row, column, sum));
        }
        if (p->epilogue == EPILOGUE_BIAS_GRADIENT_A) {
            float sum = 0;
            for (int64_t i = 0; i < p->inner; i++)
                sum += left[i];
            ((float *)p->bias)[row] = sum;
        }
    }
    delete[] a;
    delete[] b;
}

/* An algorithm is encoded as its number and a marker that is not zero. */
static struct choice algorithm_of(int number)
{
    return (struct choice){{0x70726f64, (uint64_t)number}};
}

/* Return the number of an algorithm, or -1. */
static int algorithm_number(const struct choice *choice)
{
    for (int i = 0; i < ALGORITHMS; i++) {
        struct choice algorithm = algorithm_of(i);
        if (memcmp(&algorithm, choice, sizeof algorithm) == 0)
            return i;
    }
    return -1;
}

static const char *const epilogue_names[] = {"plain", "bias", "sums"};

static bool is_refused(const char *what, const char *which)
{
    const char *refuse = getenv("VITTRAIN_EMULATION_REFUSE");
    char word[32];
    snprintf(word, sizeof word, "%s-%s", what, which);
    return refuse != NULL && strstr(refuse, word) != NULL;
}

/* Epilogues require aligned operands, as in a real library, so that tests cover both cases. */
int product_algorithms(struct product_library *, const struct product_descriptors *descriptors,
                       struct choice *algorithms, int most, const char **reason)
{
    const struct product_shape *shape = &descriptors->shape;
    *reason = "refused by the emulation";
    if (is_refused("find", epilogue_names[shape->epilogue]) ||
        (shape->epilogue == EPILOGUE_BIAS_GRADIENT_A &&
         (shape->rows % 8 != 0 || shape->columns % 8 != 0)))
        return 0;
    int count = most < ALGORITHMS ? most : ALGORITHMS;
    for (int i = 0; i < count; i++)
        algorithms[i] = algorithm_of(i);
    return count;
}

bool product_algorithm_fits(struct product_library *, const struct product_descriptors *,
                            const struct choice *algorithm)
{
    return algorithm_number(algorithm) >= 0;
}

/* In emulated time. `run`: the number of the algorithm's runs before. */
static double product_seconds(const struct product *p, int algorithm, int run)
{
    const char *wanted = getenv("VITTRAIN_EMULATION_PRODUCT");
    const char *options = wanted != NULL ? wanted : "";
    double seconds = algorithm == atoi(options) ? 10e-3 : 20e-3;
    if (p->epilogue == EPILOGUE_BIAS_GRADIENT_A && strstr(options, "apart") != NULL)
        seconds += 100e-3;
    return seconds > 10e-3 && run % 4 == 3 && strstr(options, "varying") != NULL ? 0 : seconds;
}

static void product_check(const struct product *p, void *c)
{
    bool sums_a = p->epilogue == EPILOGUE_BIAS_GRADIENT_A;
    ENSURE(p->rows > 0 && p->columns > 0 && p->inner > 0, "product with a size of 0");
    ENSURE((p->epilogue != EPILOGUE_NONE) == (p->bias != NULL),
           "a bias without its epilogue, or the reverse");
    must_hold(p->a, p->rows * p->inner, p->type, "a of a product");
    must_hold(p->b, p->inner * p->columns, p->type, "b of a product");
    must_hold(c, p->rows * p->columns, p->c_type, "c of a product");
    if (p->add != NULL)
        must_hold(p->add, p->rows * p->columns, p->c_type, "add of a product");
    if (p->bias != NULL)
        must_hold(p->bias, sums_a ? p->rows : p->columns, sums_a ? TYPE_FP32 : p->c_type,
                  "bias of a product");
    /* c is written while operands are still being read. */
    const size_t size = type_size(p->type);
    const size_t c_bytes = (size_t)(p->rows * p->columns) * type_size(p->c_type);
    memory_must_not_overlap(p->a, (size_t)(p->rows * p->inner) * size, c, c_bytes,
                            "a of a product");
    memory_must_not_overlap(p->b, (size_t)(p->inner * p->columns) * size, c, c_bytes,
                            "b of a product");
}

const char *product_queue(struct product_library *, struct stream *stream,
                          struct product_descriptors *descriptors, const struct choice *choice,
                          const struct product *product, void *c)
{
    struct product p = *product;
    bool tf32 = descriptors->shape.tf32 != 0 && p.type == TYPE_FP32;
    int algorithm = algorithm_number(choice);
    ENSURE(algorithm >= 0, "no algorithm of the emulated products");
    if (is_refused("run", epilogue_names[p.epilogue]) || (algorithm == 0 && is_refused("run", "0")))
        return "refused by the emulation";
    product_check(&p, c);
    p.c = c;
    /* A kernel is loaded by its first launch, which may wait for all work of the device. */
    const int run = descriptors->runs[algorithm]++;
    if (run == 0 && stream->handle->capture == NULL)
        streams_finish();
    emulated_enqueue(stream->handle, "product", [=]() {
        product_compute(&p, tf32, algorithm);
        emulated_time_pass(product_seconds(&p, algorithm, run));
    });
    return NULL;
}
