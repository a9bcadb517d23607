// SPDX-License-Identifier: BSD-3-Clause
/* Differences between oneDNN 2 and 3, where memory descriptions became opaque. Included only by the
 * files that use oneDNN: cpu_product.c and cpu_convolution_plan.c. */
#ifndef VITTRAIN_CPU_CPU_ONEDNN_H
#define VITTRAIN_CPU_CPU_ONEDNN_H

#include <dnnl.h>

#include "base/error.h"
#include "base/sensors.h"

struct onednn {
    dnnl_engine_t engine;
    int threads;
    dnnl_stream_t *streams; /* one per thread; convolutions use the first one */
    struct product_plan *products;
    struct convolution_plan *convolutions;
};

/* cpu_convolution_plan.c: close the list of plans. */
void convolution_plans_close(struct convolution_plan *plans);

static inline void onednn_check(dnnl_status_t status, const char *what)
{
    ENSURE(status == dnnl_success, "oneDNN: %s: status %d", what, (int)status);
}

/* oneDNN ends with a segmentation fault if there is no memory for its machine code. */
static inline void onednn_primitive_create(dnnl_primitive_t *primitive,
                                           const_dnnl_primitive_desc_t description,
                                           const char *what)
{
    ENSURE_MEMORY(memory_mappable((size_t)16 << 20), "no memory for the machine code of a %s",
                  what);
    onednn_check(dnnl_primitive_create(primitive, description), what);
}

#if DNNL_VERSION_MAJOR >= 3

typedef const_dnnl_memory_desc_t description_handle;

#define onednn_describe_tag dnnl_memory_desc_create_with_tag
#define onednn_describe_strides dnnl_memory_desc_create_with_strides

static inline description_handle onednn_handle(const dnnl_memory_desc_t *description)
{
    return *description;
}

static inline void onednn_description_free(dnnl_memory_desc_t *description)
{
    onednn_check(dnnl_memory_desc_destroy(*description), "memory description");
}

static inline dnnl_status_t onednn_accumulate(dnnl_post_ops_t operations)
{
    return dnnl_post_ops_append_sum(operations, 1, 0, dnnl_data_type_undef);
}

static inline dnnl_status_t onednn_relu(dnnl_post_ops_t operations)
{
    return dnnl_post_ops_append_eltwise(operations, dnnl_eltwise_relu, 0, 0);
}

#else

typedef const dnnl_memory_desc_t *description_handle;

#define onednn_describe_tag dnnl_memory_desc_init_by_tag
#define onednn_describe_strides dnnl_memory_desc_init_by_strides

static inline description_handle onednn_handle(const dnnl_memory_desc_t *description)
{
    return description;
}

static inline void onednn_description_free(dnnl_memory_desc_t *description)
{
    (void)description;
}

static inline dnnl_status_t onednn_accumulate(dnnl_post_ops_t operations)
{
    return dnnl_post_ops_append_sum(operations, 1);
}

static inline dnnl_status_t onednn_relu(dnnl_post_ops_t operations)
{
    return dnnl_post_ops_append_eltwise(operations, 1, dnnl_eltwise_relu, 0, 0);
}

#endif

/* allocation: DNNL_MEMORY_NONE or DNNL_MEMORY_ALLOCATE. */
static inline dnnl_memory_t onednn_memory(const struct onednn *onednn,
                                          description_handle description, void *allocation)
{
    dnnl_memory_t memory;

    onednn_check(dnnl_memory_create(&memory, description, onednn->engine, allocation), "memory");
    return memory;
}

/* Post-operations: ReLU, or adding to the old contents. The caller supplies the scratchpad: with
 * oneDNN's own, a primitive could only run on the thread that created it. */
static inline dnnl_primitive_attr_t onednn_attributes(bool relu, bool accumulate)
{
    dnnl_primitive_attr_t attributes;
    dnnl_post_ops_t operations;

    onednn_check(dnnl_primitive_attr_create(&attributes), "attributes");
    onednn_check(dnnl_post_ops_create(&operations), "post-operations");
    onednn_check(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user),
                 "scratchpad mode");
    if (relu)
        onednn_check(onednn_relu(operations), "relu");
    if (accumulate)
        onednn_check(onednn_accumulate(operations), "sum");
    onednn_check(dnnl_primitive_attr_set_post_ops(attributes, operations), "post-operations");
    onednn_check(dnnl_post_ops_destroy(operations), "post-operations");
    return attributes;
}

#endif
