// SPDX-License-Identifier: BSD-3-Clause
/* Products of Hopper's warpgroups of four warps, 64 rows at a time (PTX ISA 8.0, "wgmma"), for
 * sm_90a. The left operand is in registers, in each warp's layout of left_matrix: warp w has rows
 * 16 w .. 16 w + 15. Sums have the layout of sum_matrix. The right operand is read from shared
 * memory, in rows of 64 elements whose octets are swizzled as by shared_offset<64> (attention.h);
 * the memory's start is a multiple of 1024 bytes.
 *
 * Products run asynchronously and access shared memory through the asynchronous proxy:
 *
 *     copies_wait(), wgmma_publish(), barrier: makes rows in shared memory visible to products
 *     wgmma_begin(): after changes of registers that products use
 *     wgmma_add(), ...
 *     wgmma_commit(), wgmma_wait(): until then operands must not change, nor sums be accessed
 *
 * The compiler does not know which registers a running product uses: wgmma_hold() of each of them,
 * before wgmma_begin and after wgmma_wait, prevents moves of accesses past these calls. */
#ifndef VITTRAIN_CUDA_WGMMA_H
#define VITTRAIN_CUDA_WGMMA_H

#include "tensor_core.h"

enum { WARPGROUP = 128, WGMMA_ROWS = 64, WGMMA_ROW_BYTES = 128, WGMMA_ALIGNMENT = 1024 };

/* The descriptor of a right operand (PTX ISA, "Matrix Descriptor"): address / 16, offset of the
 * leading dimension (not used with one swizzled row of 128 bytes), 1024 bytes from eight rows to
 * the next, swizzling over 128 bytes. `address` is a multiple of 32, in the first row of eight. */
__device__ static inline uint64_t wgmma_rows(uint32_t address)
{
    return (uint64_t)(address >> 4 & 0x3fff) | 1ull << 16 | (uint64_t)(1024 >> 4) << 32 |
           1ull << 62;
}

#ifdef __CUDACC__

__device__ static inline uint32_t shared_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

__device__ static inline void wgmma_publish(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ static inline void wgmma_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ static inline void wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

__device__ static inline void wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

template <int count> __device__ static inline void wgmma_hold(struct sum_matrix (&sums)[count])
{
    UNROLL
    for (int i = 0; i < count * 4; i++)
        asm volatile("" : "+f"(sums[i / 4].value[i % 4])::"memory");
}

template <int count> __device__ static inline void wgmma_hold(struct left_matrix (&left)[count])
{
    UNROLL
    for (int i = 0; i < count * 4; i++)
        asm volatile("" : "+r"(left[i / 4].word[i % 4])::"memory");
}

#define WGMMA_FOUR(sum)                                                                            \
    "+f"(sum.value[0]), "+f"(sum.value[1]), "+f"(sum.value[2]), "+f"(sum.value[3])
#define WGMMA_SUMS_2 WGMMA_FOUR(sums[0]), WGMMA_FOUR(sums[1])
#define WGMMA_SUMS_8                                                                               \
    WGMMA_SUMS_2, WGMMA_FOUR(sums[2]), WGMMA_FOUR(sums[3]), WGMMA_FOUR(sums[4]),                   \
        WGMMA_FOUR(sums[5]), WGMMA_FOUR(sums[6]), WGMMA_FOUR(sums[7])
#define WGMMA_NAMES_2 "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12"
#define WGMMA_NAMES_8                                                                              \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "  \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36"

/* type: of the elements in PTX; columns: 8 * blocks; flag: the number of the last operand. */
#define WGMMA_FORM(name, number, type, blocks, columns, flag, transposed)                          \
    __device__ static inline void name(struct sum_matrix(&sums)[blocks],                           \
                                       const struct left_matrix &left, uint64_t right, bool adds,  \
                                       struct number)                                              \
    {                                                                                              \
        asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " flag ", 0;\n"                       \
                     "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type          \
                     " " WGMMA_NAMES_##blocks ", adds, 1, 1, " transposed ";\n}"                   \
                     : WGMMA_SUMS_##blocks                                                         \
                     : "r"(left.word[0]), "r"(left.word[1]), "r"(left.word[2]), "r"(left.word[3]), \
                       "l"(right), "r"((int)adds)                                                  \
                     : "memory");                                                                  \
    }

#else

#define shared_address emulated_shared_address
#define wgmma_publish emulated_proxy_fence
#define wgmma_begin emulated_wgmma_fence
#define wgmma_commit emulated_wgmma_commit
#define wgmma_wait emulated_wgmma_wait

template <typename registers> static inline void wgmma_hold(registers &)
{
}

#define WGMMA_FORM(name, number, type, blocks, columns, flag, transposed)                          \
    static inline void name(struct sum_matrix(&sums)[blocks], const struct left_matrix &left,      \
                            uint64_t right, bool adds, struct number)                              \
    {                                                                                              \
        emulated_wgmma_add(sums[0].value, blocks, left.word, right, adds, transposed[0] == '1',    \
                           [](uint16_t bits) { return number_load(number{bits}); });               \
    }

#endif

/* wgmma_add(sums, left, right, adds, number{}): sums[64, 8 * blocks] = left[64, 16] . rows^T, for
 * 8 * blocks rows from the descriptor `right` on and 16 of their columns; added to sums if `adds`.
 * wgmma_add_transposed: sums[64, 64] = left[64, 16] . 16 rows. */
WGMMA_FORM(wgmma_add, bf16, "bf16", 8, "64", "%37", "0")
WGMMA_FORM(wgmma_add, fp16, "f16", 8, "64", "%37", "0")
WGMMA_FORM(wgmma_add, bf16, "bf16", 2, "16", "%13", "0")
WGMMA_FORM(wgmma_add, fp16, "f16", 2, "16", "%13", "0")
WGMMA_FORM(wgmma_add_transposed, bf16, "bf16", 8, "64", "%37", "1")
WGMMA_FORM(wgmma_add_transposed, fp16, "f16", 8, "64", "%37", "1")

#endif
