// SPDX-License-Identifier: BSD-3-Clause
/* Attributes of functions, arithmetic of integers, hashes and checksums, and the version. */
#ifndef VITTRAIN_BASE_BASE_H
#define VITTRAIN_BASE_BASE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Version of the program. */
extern const char version_number[]; /* "0.3.0" */
extern const char version_commit[]; /* "1a2b3c4", "1a2b3c4-dirty", or empty if unknown */

/* Functions whose loops the compiler vectorises at any level of optimization. At -O2, GCC
 * vectorises few loops. */
#if defined(__GNUC__) && !defined(__clang__)
#define VECTORISED __attribute__((optimize("O3")))
#else
#define VECTORISED
#endif

/* Functions that are compiled for the CPU and the GPU. */
#ifdef __device__
#define SHARED_FUNCTION __device__ static inline
#else
#define SHARED_FUNCTION static inline __attribute__((always_inline, unused))
#endif

/* ---- Arithmetic of integers that are not negative */

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t integer_clamp(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

static inline int64_t round_up_division(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t round_up(int64_t count, int64_t multiple)
{
    return round_up_division(count, multiple) * multiple;
}

/* Set begin and length of piece `part` of `count` elements cut into `parts` contiguous pieces. The
 * first count % parts pieces have one element more. */
static inline void cut_evenly(int64_t count, int64_t parts, int64_t part, int64_t *begin,
                              int64_t *length)
{
    int64_t size = count / parts, larger_pieces = count % parts;
    *begin = part * size + smaller(part, larger_pieces);
    *length = size + (part < larger_pieces);
}

/* Compare two uint32_t, for qsort. */
static inline int compare_uint32(const void *left, const void *right)
{
    const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* ---- Hashes and checksums */

/* Return the hash of an element. `key` must be different for each element. The hash of an array is
 * the sum modulo 2^64 over its elements, in any order. Increment and finalizer are those of
 * SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014;
 * constants of David Stafford's variant 13). */
SHARED_FUNCTION uint64_t hash_element(uint64_t key, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint64_t z = key * 0x9e3779b97f4a7c15 ^ bits;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

/* Return the CRC32C (Castagnoli) of `data`, continued from `crc` (0 for the first piece).
 * crc32c_update(0, "123456789", 9) is 0xe3069283. */
uint32_t crc32c_update(uint32_t crc, const void *data, size_t bytes);

#endif
