// SPDX-License-Identifier: BSD-3-Clause
/* Tensor core instructions on the host: each lane gathers its elements from those of all lanes,
 * using the fragment layouts in cuda/tensor_core.h. Sums are in fp32, in column order; the order on
 * a GPU is not documented. */
#include "internal.h"

static uint16_t half_of(const struct emulated_exchange *lane, int word, int half)
{
    uint16_t bits;
    memcpy(&bits, lane->bytes + 4 * word + 2 * half, sizeof bits);
    return bits;
}

void emulated_blocks_load(uint32_t word[4], const uint32_t row[4], bool transposed)
{
    const struct emulated_exchange *rows = emulated_warp_exchange(row, 16, false);
    int g = emulated_lane() / 4, q = emulated_lane() % 4;
    for (int block = 0; block < 4; block++) {
        const struct emulated_exchange *of_block = rows + 8 * block;
        uint16_t low =
            transposed ? half_of(of_block + 2 * q, g / 2, g % 2) : half_of(of_block + g, q, 0);
        uint16_t high =
            transposed ? half_of(of_block + 2 * q + 1, g / 2, g % 2) : half_of(of_block + g, q, 1);
        word[block] = (uint32_t)low | (uint32_t)high << 16;
    }
}

/* Operands that a lane contributes to a product. */
struct operands {
    uint32_t left[4], right[2];
};

void emulated_product_add(float sum[4], const uint32_t left[4], uint32_t right0, uint32_t right1,
                          float (*value)(uint16_t bits))
{
    const struct operands mine = {{left[0], left[1], left[2], left[3]}, {right0, right1}};
    const struct emulated_exchange *all = emulated_warp_exchange(&mine, sizeof mine, false);
    int g = emulated_lane() / 4, q = emulated_lane() % 4;
    for (int i = 0; i < 4; i++) {
        int column = 2 * q + i % 2, lower = i / 2;
        for (int k = 0; k < 16; k++) {
            uint16_t a = half_of(all + 4 * g + k % 8 / 2, k / 8 * 2 + lower, k % 2);
            uint16_t b = half_of(all + 4 * column + k % 8 / 2, 4 + k / 8, k % 2);
            sum[i] += value(a) * value(b);
        }
    }
}
