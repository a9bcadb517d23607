// SPDX-License-Identifier: BSD-3-Clause
/* Matrix products with GELU (gelu_product.h) on the host, for the emulated GPU.
 * VITTRAIN_EMULATION_GELU=1 or 2 makes one of the two plans fast, 3 a product with an epilogue
 * (product.cpp); without it none is. With run-gelu in VITTRAIN_EMULATION_REFUSE none of the two
 * plans runs. */
#include "gelu_product.h"
#include "internal.h"
#include "value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Small, so that tests cover both cases. */
int64_t gelu_product_least(void)
{
    return 10000;
}

int gelu_product_version(void)
{
    return 1;
}

static void element_compute(const struct gelu_product *p, int64_t row, int64_t column)
{
    int64_t at = row * p->columns + column;
    float sum = 0;
    for (int64_t i = 0; i < p->inner; i++)
        sum +=
            value_at(p->type, p->a, row * p->inner + i) *
            value_at(p->type, p->b, p->gradient ? i * p->columns + column : column * p->inner + i);
    if (!p->gradient)
        value_put(p->type, p->pre, at, sum + value_at(p->type, p->bias, column));
    double pre = value_at(p->type, p->pre, at);
    value_put(p->type, p->c, at,
              (float)(p->gradient ? sum * gelu_slope(pre, p->tanh) : gelu(pre, p->tanh)));
}

bool gelu_product_queue(struct stream *stream, const struct gelu_product *product, int number)
{
    struct gelu_product p = *product;
    const char *fast = getenv("VITTRAIN_EMULATION_GELU");
    const char *refuse = getenv("VITTRAIN_EMULATION_REFUSE");
    double seconds = fast != NULL && atoi(fast) == number + 1 ? 0 : 1e-3;
    if (refuse != NULL && strstr(refuse, "run-gelu") != NULL)
        return false;
    ENSURE(p.type != TYPE_FP32 && p.columns % 8 == 0 && p.inner % 8 == 0 && p.pre != p.c,
           "a product with GELU that the library does not support");
    const size_t size = type_size(p.type);
    memory_must_hold(p.a, (size_t)(p.rows * p.inner) * size, 16, "a of a product with GELU");
    memory_must_hold(p.b, (size_t)(p.columns * p.inner) * size, 16, "b of a product with GELU");
    memory_must_hold(p.pre, (size_t)(p.rows * p.columns) * size, 16, "pre of a product with GELU");
    memory_must_hold(p.c, (size_t)(p.rows * p.columns) * size, 16, "c of a product with GELU");
    if (!p.gradient)
        memory_must_hold(p.bias, (size_t)p.columns * size, 16, "bias of a product with GELU");
    emulated_enqueue(stream->handle, "product with GELU", [=]() {
        for (int64_t row = 0; row < p.rows; row++)
            for (int64_t column = 0; column < p.columns; column++)
                element_compute(&p, row, column);
        emulated_time_pass(seconds);
    });
    return true;
}
