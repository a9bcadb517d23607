# SPDX-License-Identifier: BSD-3-Clause
"""MB/s of torch.save for ViT-B/32 with AdamW's state, flushed to the disk (median of three), and of a plain
write of the same size. Prints rows of the benchmarks' CSV. Argument: the directory to write in."""

import os
import statistics
import sys
import time

import torch

from bench_common import make_model, print_row

REPETITIONS = 3


def timed(path, write):
    times = []
    for _ in range(REPETITIONS):
        begin = time.perf_counter()
        with open(path, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        times.append(time.perf_counter() - begin)
        size = os.path.getsize(path)
        os.unlink(path)
    return size / statistics.median(times) / 1e6, size


def main():
    path = os.path.join(sys.argv[1] if len(sys.argv) > 1 else ".", "pytorch_checkpoint.pt")
    model, _ = make_model("vit_base_patch32_224")
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    saved, size = timed(path, lambda file: torch.save(state, file))
    block = bytes(1 << 24)
    plain, _ = timed(path, lambda file: [file.write(block) for _ in range(size // len(block))])
    common = dict(version=torch.__version__, work="checkpoint", model="vit_base_patch32_224", batch=0,
                  precision="fp32", strategy="none", ranks=1, threads=1, unit="MB/s")
    print_row(framework="pytorch", metric="save", value=f"{saved:.0f}", **common)
    print_row(framework="plain write", metric="save", value=f"{plain:.0f}", **common)


if __name__ == "__main__":
    main()
