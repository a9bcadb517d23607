/* Matrix products by oneDNN. */
#include "device/cpu_product.h"

#include <stdlib.h>

struct product_cache {
    int count;
};

struct product_cache *product_cache_open(void)
{
    struct product_cache *cache = calloc(1, sizeof *cache);

    ENSURE(cache != NULL, "no memory for products");
    return cache;
}

void product_cache_close(struct product_cache *cache)
{
    free(cache);
}

bool product_multiplies_bf16(void)
{
#ifdef __x86_64__
    return __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}
