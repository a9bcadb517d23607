// SPDX-License-Identifier: BSD-3-Clause
/* Hashes of arrays of floats that do not depend on the order in which elements are visited: the sum
 * modulo 2^64 of hash_element over all elements. */
#ifndef VITTRAIN_CORE_HASH_H
#define VITTRAIN_CORE_HASH_H

#include <stdint.h>
#include <string.h>

#include "core/shared_function.h"

/* Return the hash of an element. `key` must be different for each element. Increment and finalizer
 * are those of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
 * OOPSLA 2014; constants of David Stafford's variant 13). */
SHARED_FUNCTION uint64_t hash_element(uint64_t key, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint64_t z = key * 0x9e3779b97f4a7c15 ^ bits;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

#endif
