/* Differences between oneDNN 2 and 3, where memory descriptions became opaque. Included only by the
 * files that use oneDNN: cpu_product.c and cpu_convolution_plan.c. */
#ifndef VITTRAIN_DEVICE_CPU_ONEDNN_H
#define VITTRAIN_DEVICE_CPU_ONEDNN_H

#include <dnnl.h>

#include "core/error.h"

static inline void onednn_check(dnnl_status_t status, const char *what)
{
    ENSURE(status == dnnl_success, "oneDNN: %s: status %d", what, (int)status);
}

#if DNNL_VERSION_MAJOR >= 3

typedef const_dnnl_memory_desc_t description_handle;

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

#else

typedef const dnnl_memory_desc_t *description_handle;

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

#endif

#endif
