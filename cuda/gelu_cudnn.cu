// SPDX-License-Identifier: BSD-3-Clause
/* Matrix products with GELU by cuDNN's graph API. */
#include "gelu_engine.h"
#include "gelu_product.h"
#include "variant.h"

/* 32 MiB of bf16: smaller tensors stay in the L2 cache. */
int64_t gelu_product_least(void)
{
    return 16 << 20;
}

int gelu_product_version(void)
{
    return (int)cudnnGetVersion();
}

bool gelu_product_queue(struct stream *stream, const struct gelu_product *p, int number)
{
    const struct {
        struct gelu_shape shape;
        int64_t number;
    } key = {{p->type, p->tanh, p->gradient, p->rows, p->columns, p->inner}, number};
    struct engine_entry *entry = engines_find(&stream->cuda->engines, &key, sizeof key);
    cudnnHandle_t handle = stream->cuda->engines->handle;
    const struct gelu_operands operands = {p->a,   p->b, p->bias,
                                           p->pre, p->c, cuda_workspace_products(stream->cuda)};
    if (!entry->searched && !stream_is_recorded(stream)) {
        const struct engine_device device = {handle, NULL};
        entry->searched = true;
        gelu_engine_open(&device, &key.shape, number, WORKSPACE_PRODUCTS, &entry->engine);
    }
    if (entry->engine.plan == NULL)
        return false;
    GRAPH_CHECK(cudnnSetStream(handle, stream->handle));
    if (gelu_engine_run(handle, &key.shape, &entry->engine, &operands) == CUDNN_STATUS_SUCCESS)
        return true;
    (void)cudaGetLastError();
    return false;
}
