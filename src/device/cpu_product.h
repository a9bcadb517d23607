/* Matrix products of the CPU backend, by oneDNN. The only file that knows oneDNN is cpu_product.c.
 */
#ifndef VITTRAIN_DEVICE_CPU_PRODUCT_H
#define VITTRAIN_DEVICE_CPU_PRODUCT_H

#include "device/device.h"

struct product_cache;

struct product_cache *product_cache_open(void);
void product_cache_close(struct product_cache *cache);

/* Does this processor multiply bf16 (AVX512_BF16 or AMX)? */
bool product_multiplies_bf16(void);

#endif
