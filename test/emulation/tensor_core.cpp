// SPDX-License-Identifier: BSD-3-Clause
/* Tensor core instructions on the host: each lane gathers its elements from those of all lanes,
 * using the fragment layouts in cuda/tensor_core.h. Sums are those of an H100. */
#include "internal.h"

#include <algorithm>

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

/* Exponent of a number; subnormal numbers and 0 have the least one. */
static int exponent_of(float value)
{
    int biased = (int)(__float_as_uint(value) >> 23 & 255);
    return (biased > 0 ? biased : 1) - 127;
}

void operand_put(struct operand_line *line, int k, float value)
{
    line->value[k] = value;
    line->exponent[k] = exponent_of(value);
}

/* Return addend + a . b as an H100 adds: the addend and the exact products are aligned to the
 * largest exponent and truncated there, and their sum is truncated to fp32 (Fasi et al. 2021,
 * "Numerical behavior of NVIDIA tensor cores"; Xie et al. 2025, "MMA-Sim"). */
float truncated_sum(float addend, const struct operand_line &a, const struct operand_line &b)
{
    const int fraction_bits = 25;
    const uint64_t below_fp32 = (1u << 29) - 1; /* excess bits of a double's fraction */
    double products[16], plain = addend;
    int most = exponent_of(addend);
    for (int k = 0; k < 16; k++) {
        products[k] = (double)a.value[k] * b.value[k];
        plain += products[k];
        most = std::max(most, a.exponent[k] + b.exponent[k]);
    }
    if (!isfinite(plain))
        return (float)plain;
    const double scale = ldexp(1, fraction_bits - most);
    int64_t aligned = (int64_t)(addend * scale);
    for (int k = 0; k < 16; k++)
        aligned += (int64_t)(products[k] * scale);
    double sum = (double)aligned / scale;
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    bits &= ~below_fp32;
    memcpy(&sum, &bits, sizeof bits);
    return (float)sum;
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
    struct operand_line rows[2], columns[2];
    for (int i = 0; i < 32; i++) {
        int line = i / 16, k = i % 16, pair = k % 8 / 2;
        operand_put(&rows[line], k, value(half_of(all + 4 * g + pair, k / 8 * 2 + line, k % 2)));
        operand_put(&columns[line], k,
                    value(half_of(all + 4 * (2 * q + line) + pair, 4 + k / 8, k % 2)));
    }
    for (int i = 0; i < 4; i++)
        sum[i] = truncated_sum(sum[i], rows[i / 2], columns[i % 2]);
}
