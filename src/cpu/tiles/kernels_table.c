// SPDX-License-Identifier: BSD-3-Clause
/* The table of the operations on tiles; compiled like all kernels. */
#include "cpu/tiles/tiles.h"

const struct tile_kernels KERNEL(tile_kernels) = {
#ifdef __AMX_BF16__
    .name = "amx",
#else
    .name = "amx-emulated",
#endif
    .attention = &KERNEL(tile_attention_kernels),
    .convolution = &KERNEL(tile_convolution_kernels),
    .product = &KERNEL(tile_product_kernels),
};
