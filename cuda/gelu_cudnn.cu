// SPDX-License-Identifier: BSD-3-Clause
/* Matrix products with GELU by cuDNN's graph API. */
#include "gelu_engine.h"
#include "gelu_product.h"
#include "variant.h"

#include <stdlib.h>
#include <string.h>

struct plan {
    struct gelu_shape shape;
    bool opened[GELU_PLANS]; /* the engine was searched */
    struct engine engines[GELU_PLANS];
};

struct gelu_products {
    cudnnHandle_t handle;
    struct plan *plans;
    int count, room;
};

/* 32 MiB of bf16: smaller tensors stay in the L2 cache. */
int64_t gelu_product_least(void)
{
    return 16 << 20;
}

int gelu_product_version(void)
{
    return (int)cudnnGetVersion();
}

static struct gelu_products *products_of(struct cuda_device *cuda)
{
    if (cuda->gelu_products == NULL) {
        cuda->gelu_products = (struct gelu_products *)calloc(1, sizeof *cuda->gelu_products);
        ENSURE(cuda->gelu_products != NULL, "no memory for products");
        GRAPH_CHECK(cudnnCreate(&cuda->gelu_products->handle));
    }
    return cuda->gelu_products;
}

void gelu_products_close(struct gelu_products *products)
{
    if (products == NULL)
        return;
    for (int i = 0; i < products->count; i++)
        for (int number = 0; number < GELU_PLANS; number++)
            engine_close(&products->plans[i].engines[number]);
    GRAPH_CHECK(cudnnDestroy(products->handle));
    free(products->plans);
    free(products);
}

static struct plan *plan_find(struct gelu_products *products, const struct gelu_product *p)
{
    const struct gelu_shape shape = {p->type, p->tanh, p->gradient, p->rows, p->columns, p->inner};
    for (int i = 0; i < products->count; i++)
        if (memcmp(&products->plans[i].shape, &shape, sizeof shape) == 0)
            return &products->plans[i];
    if (products->count == products->room) {
        products->room = products->room > 0 ? 2 * products->room : 16;
        products->plans = (struct plan *)realloc(products->plans,
                                                 (size_t)products->room * sizeof *products->plans);
        ENSURE(products->plans != NULL, "no memory for products");
    }
    struct plan *plan = &products->plans[products->count++];
    *plan = {};
    plan->shape = shape;
    return plan;
}

bool gelu_product_queue(struct stream *stream, const struct gelu_product *p, int number)
{
    struct gelu_products *products = products_of(stream->cuda);
    struct plan *plan = plan_find(products, p);
    struct engine *engine = &plan->engines[number];
    const struct gelu_operands operands = {p->a,   p->b, p->bias,
                                           p->pre, p->c, cuda_workspace_products(stream->cuda)};
    if (!plan->opened[number] && !stream_is_recorded(stream)) {
        const struct engine_device device = {products->handle, NULL};
        plan->opened[number] = true;
        gelu_engine_open(&device, &plan->shape, number, WORKSPACE_PRODUCTS, engine);
    }
    if (engine->plan == NULL)
        return false;
    GRAPH_CHECK(cudnnSetStream(products->handle, stream->handle));
    if (gelu_engine_run(products->handle, &plan->shape, engine, &operands) == CUDNN_STATUS_SUCCESS)
        return true;
    (void)cudaGetLastError();
    return false;
}
