#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Permutations and splits of PyTorch's CPU generator, for test_random and test_dataset: "COUNT.SEED" [COUNT] is
torch.randperm, "validation" [5000] the second part of random_split into 45,000, 5,000 and 10,000 with seed 42.
Needs torch (made with 2.15.0) and safetensors.
    make_torch_permutation.py torch_permutation.safetensors"""
import sys

import torch
from safetensors.torch import save_file
from torch.utils.data import random_split


def generator(seed):
    return torch.Generator().manual_seed(seed)


def main():
    tensors = {f"{count}.{seed}": torch.randperm(count, generator=generator(seed)).int()
               for count, seed in [(1, 42), (2, 42), (3, 0), (16, 42), (624, 1), (625, 2**32 + 7), (1300, 42)]}
    validation = random_split(range(60000), [45000, 5000, 10000], generator(42))[1]
    tensors["validation"] = torch.tensor(validation.indices).int()
    save_file(tensors, sys.argv[1])


if __name__ == "__main__":
    main()
