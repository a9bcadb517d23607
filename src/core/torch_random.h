// SPDX-License-Identifier: BSD-3-Clause
/* torch.randperm on the CPU: the same permutation for the same seed as
 * torch.randperm(count, generator=torch.Generator().manual_seed(seed)). Compared with PyTorch 2.15
 * (test/vectors/make_torch_permutation.py). */
#ifndef VITTRAIN_CORE_TORCH_RANDOM_H
#define VITTRAIN_CORE_TORCH_RANDOM_H

#include <stdint.h>

/* Fill order[0..count) with a permutation of 0..count-1. Like PyTorch, use only the lower 32 bits
 * of the seed. count < 2^32. */
void torch_permutation(uint64_t seed, uint32_t count, uint32_t *order);

#endif
