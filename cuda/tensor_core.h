// SPDX-License-Identifier: BSD-3-Clause
/* Matrix products of small tiles on tensor cores: the only file that contains their instructions. A
 * matrix is a fragment distributed over the lanes of a warp, two neighbouring elements per word
 * (PTX ISA, "Matrix fragments for mma.m16n8k16"). With g = lane / 4 and q = lane % 4 a lane holds
 * of
 *   left[16, 16]:  word 0: (g, 2q), (g, 2q + 1)    word 1: row g + 8    word 2: column + 8
 *                  word 3: row + 8, column + 8
 *   right[16, 8]:  word 0: (2q, g), (2q + 1, g)    word 1: row + 8
 *   sum[16, 8]:    0, 1: (g, 2q), (g, 2q + 1)      2, 3: row g + 8; fp32
 * So two adjacent accumulators, rounded, are the left operand of the next product. In the emulation
 * the lanes exchange their elements and compute the same. All lanes of a warp must call these
 * functions together. */
#ifndef VITTRAIN_CUDA_TENSOR_CORE_H
#define VITTRAIN_CUDA_TENSOR_CORE_H

#include "number.h"

struct left_matrix {
    uint32_t word[4];
};

struct sum_matrix {
    float value[4];
};

#ifdef __CUDACC__

/* Load four blocks of 8 x 8 from shared memory: lane l passes the address of row l % 8 of block l /
 * 8 (16 bytes); word b receives (g, 2q), (g, 2q + 1) of block b, or (2q, g), (2q + 1, g) when
 * transposed. */
__device__ static inline void blocks_load(uint32_t (&word)[4], const void *row)
{
    uint32_t address = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                 : "r"(address)
                 : "memory");
}

__device__ static inline void blocks_load_transposed(uint32_t (&word)[4], const void *row)
{
    uint32_t address = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                 : "r"(address)
                 : "memory");
}

/* sum += left . right; the last argument only selects the element type. */
__device__ static inline void product_add(struct sum_matrix &sum, const struct left_matrix &left,
                                          uint32_t right0, uint32_t right1, struct bf16)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum.value[0]), "+f"(sum.value[1]), "+f"(sum.value[2]), "+f"(sum.value[3])
        : "r"(left.word[0]), "r"(left.word[1]), "r"(left.word[2]), "r"(left.word[3]), "r"(right0),
          "r"(right1));
#else
    __trap(); /* instruction not available; the host never launches this */
#endif
}

__device__ static inline void product_add(struct sum_matrix &sum, const struct left_matrix &left,
                                          uint32_t right0, uint32_t right1, struct fp16)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum.value[0]), "+f"(sum.value[1]), "+f"(sum.value[2]), "+f"(sum.value[3])
        : "r"(left.word[0]), "r"(left.word[1]), "r"(left.word[2]), "r"(left.word[3]), "r"(right0),
          "r"(right1));
#else
    for (int half = 0; half < 2; half++)
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
            "{%0, %1, %2, %3};"
            : "+f"(sum.value[0]), "+f"(sum.value[1]), "+f"(sum.value[2]), "+f"(sum.value[3])
            : "r"(left.word[2 * half]), "r"(left.word[2 * half + 1]),
              "r"(half == 0 ? right0 : right1));
#endif
}

/* Pack two numbers into a word, rounded to nearest even. */
__device__ static inline uint32_t word_pack(float low, float high, struct bf16)
{
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *(uint32_t *)&both;
}

__device__ static inline uint32_t word_pack(float low, float high, struct fp16)
{
    __half2 both = __floats2half2_rn(low, high);
    return *(uint32_t *)&both;
}

/* Start an asynchronous copy of 16 bytes from device to shared memory. copies_wait waits for it; a
 * barrier then makes it visible to other threads. */
__device__ static inline void copy_start(void *shared, const void *from)
{
#if __CUDA_ARCH__ >= 800
    uint32_t address = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
#else
    *(struct vector16 *)shared = *(const struct vector16 *)from;
#endif
}

__device__ static inline void copies_wait(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/* 2^x to 2 ulp; results below the least normal number become 0. */
__device__ static inline float exp2_quick(float x)
{
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

#else

static inline void blocks_load(uint32_t (&word)[4], const void *row)
{
    struct vector16 mine = *(const struct vector16 *)row;
    emulated_blocks_load(word, mine.word, false);
}

static inline void blocks_load_transposed(uint32_t (&word)[4], const void *row)
{
    struct vector16 mine = *(const struct vector16 *)row;
    emulated_blocks_load(word, mine.word, true);
}

static inline void product_add(struct sum_matrix &sum, const struct left_matrix &left,
                               uint32_t right0, uint32_t right1, struct bf16)
{
    emulated_product_add(sum.value, left.word, right0, right1,
                         [](uint16_t bits) { return number_load(bf16{bits}); });
}

static inline void product_add(struct sum_matrix &sum, const struct left_matrix &left,
                               uint32_t right0, uint32_t right1, struct fp16)
{
    emulated_product_add(sum.value, left.word, right0, right1,
                         [](uint16_t bits) { return number_load(fp16{bits}); });
}

template <typename number16> static inline uint32_t word_pack(float low, float high, number16)
{
    number16 a, b;
    number_store(&a, low);
    number_store(&b, high);
    return (uint32_t)a.bits | (uint32_t)b.bits << 16;
}

static inline void copy_start(void *shared, const void *from)
{
    emulated_copy_start(shared, from);
}

static inline void copies_wait(void)
{
    emulated_copies_wait();
}

static inline float exp2_quick(float x)
{
    float result = exp2f(x);
    return result < 0x1p-126f ? 0 : result;
}

#endif

/* Transpose a 4 x 4 of words over a quad (four neighbouring lanes): word i of lane q becomes word q
 * of lane i. This converts 16 bytes of a row per lane to the two columns of four blocks that a
 * fragment requires, and back. */
__device__ static inline void quad_transpose(uint32_t (&word)[4])
{
    UNROLL
    for (int bit = 1; bit <= 2; bit *= 2) {
        bool upper = (threadIdx.x & (unsigned)bit) != 0;
        UNROLL
        for (int pair = 0; pair < 2; pair++) {
            int low = bit == 1 ? 2 * pair : pair, high = low + bit;
            uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? word[low] : word[high], bit);
            word[low] = upper ? got : word[low];
            word[high] = upper ? word[high] : got;
        }
    }
}

#endif
