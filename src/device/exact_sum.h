// SPDX-License-Identifier: BSD-3-Clause
/* Sums that do not depend on the order of the summands, on the CPU and the GPU. A sum of squares
 * adds each block of EXACT_BLOCK elements in fp64, in a fixed order. The sums of blocks are added
 * as integers. So the elements may be divided into parts that begin at multiples of EXACT_BLOCK. */
#ifndef VITTRAIN_DEVICE_EXACT_SUM_H
#define VITTRAIN_DEVICE_EXACT_SUM_H

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "device/device.h"

/* Word 0 of an exact_sum counts units of 2^EXACT_UNIT. */
enum { EXACT_BLOCK = 16, EXACT_UNIT = -352 };

/* The sum of a block is an fp64 value >= 0 with these bits. It equals exact_mantissa << exact_place
 * in units of word 0. The place is 2 for the smallest sum, 2^-298, and at most 560. It is at least
 * EXACT_PLACES for zero, infinity and NaN. */
enum { EXACT_PLACES = 576 };

SHARED_FUNCTION uint64_t exact_place(uint64_t bits)
{
    return (bits >> 52) - (1075 + EXACT_UNIT);
}

SHARED_FUNCTION uint64_t exact_mantissa(uint64_t bits)
{
    return (bits & 0xfffffffffffff) | 0x10000000000000;
}

/* Add low + 2^32 * middle + 2^64 * high to the words from *word on. */
SHARED_FUNCTION void exact_words_add(int64_t *word, uint64_t low, uint64_t middle, uint64_t high)
{
    word[0] += (uint32_t)low;
    word[1] += (int64_t)(low >> 32) + (uint32_t)middle;
    word[2] += (int64_t)(middle >> 32) + (uint32_t)high;
    word[3] += (int64_t)(high >> 32);
}

/* Add a value >= 0. */
SHARED_FUNCTION void exact_add(struct exact_sum *sum, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint64_t place = exact_place(bits);
    if (place < EXACT_PLACES) {
        uint64_t mantissa = exact_mantissa(bits), offset = place % 32, low = mantissa << offset;
        exact_words_add(&sum->word[place / 32], (uint32_t)low, low >> 32,
                        mantissa >> 1 >> (63 - offset));
    } else {
        sum->infinities += isinf(value) != 0;
        sum->nans += isnan(value) != 0;
    }
}

/* Return the sum rounded once to fp64. It is NaN or infinite if a summand was. */
SHARED_FUNCTION double exact_sum_value(const struct exact_sum *sum)
{
    uint32_t digit[EXACT_WORDS + 1];
    int64_t carry = 0;
    int high = EXACT_WORDS;
    if (sum->nans != 0)
        return NAN;
    if (sum->infinities != 0)
        return INFINITY;
    for (int i = 0; i < EXACT_WORDS; i++) {
        carry += sum->word[i];
        digit[i] = (uint32_t)carry;
        carry >>= 32;
    }
    digit[EXACT_WORDS] = (uint32_t)carry;
    while (high > 2 && digit[high] == 0)
        high--;
    /* Convert the upper 64 bits. Their lowest bit is set if any bit below is set, so that the
     * conversion rounds correctly. */
    uint64_t upper = (uint64_t)digit[high] << 32 | digit[high - 1];
    uint32_t below = digit[high - 2];
    bool rest = false;
    int exponent = EXACT_UNIT + 32 * (high - 1);
    for (; exponent > EXACT_UNIT && upper >> 63 == 0; exponent--) {
        upper = upper << 1 | below >> 31;
        below <<= 1;
    }
    for (int i = 0; i < high - 2; i++)
        rest = rest || digit[i] != 0;
    return ldexp((double)(upper | (below != 0 || rest ? 1u : 0u)), exponent);
}

/* Round the loss of a sample to a multiple of 2^-26. Sums below 2^27 are then exact in fp64. Values
 * from 2^26 on are such multiples; they, infinity and NaN do not change. */
SHARED_FUNCTION double loss_round(double loss)
{
    return rint(loss * 0x1p26) * 0x1p-26;
}

#endif
