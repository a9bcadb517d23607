# SPDX-License-Identifier: BSD-3-Clause
"""Single kernels by PyTorch on a GPU, for comparison with `vittrain bench device`. Prints rows of the benchmarks' CSV.

    pytorch_kernels.py product:SIDE               a copy, and a square product of bf16
    pytorch_kernels.py attention:BATCH:TOKENS     fused attention with 12 heads of 64, by cuDNN and by FlashAttention
"""

import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from bench_common import print_row

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

HEADS, HEAD_DIM = 12, 64


def seconds_of(run):
    """Median seconds of a call, by events around 20 calls that the GPU runs back to back."""
    calls, times = 20, []
    for _ in range(3):
        run()
    for _ in range(7):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1000 / calls)
    return statistics.median(times)


def row(framework, work, metric, value, unit):
    print_row(framework=framework, version=torch.__version__, work=work, model="", batch="", precision="bf16",
              strategy="none", ranks=1, threads=1, metric=metric, value=f"{value:.6g}", unit=unit)


def measure_ceilings(side):
    a, b = (torch.randn(side, side, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = seconds_of(lambda: a @ b)
    row("pytorch-eager", f"ceiling: product {side}x{side}x{side}", "time", product, "s")
    row("pytorch-eager", f"ceiling: product {side}x{side}x{side}", "speed", 2e-9 * side**3 / product, "GFLOP/s")
    source = torch.empty(2**30, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    row("pytorch-eager", "ceiling: copy", "bandwidth", 2e-9 * source.numel() / seconds_of(lambda: target.copy_(source)),
        "GB/s")


def measure_attention(batch, tokens):
    """Queries, keys and values are in one tensor, like the output of a ViT's linear layer."""
    qkv = torch.randn(batch, tokens, 3, HEADS, HEAD_DIM, device="cuda", dtype=torch.bfloat16)
    q, k, v = (part.detach().requires_grad_() for part in qkv.permute(2, 0, 3, 1, 4).unbind(0))
    attention = torch.nn.functional.scaled_dot_product_attention
    product = 2 * batch * HEADS * tokens * tokens * HEAD_DIM
    for name, backend in (("cudnn", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)):
        try:
            with sdpa_kernel(backend):
                out = attention(q, k, v)
                gradient = torch.randn_like(out)
                with torch.no_grad():
                    forward = seconds_of(lambda: attention(q, k, v))
                backward = seconds_of(lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True))
        except RuntimeError as error:
            print(f"{name} attention: {error}", file=sys.stderr)
            continue
        for way, seconds, products in (("forward", forward, 2), ("backward", backward, 5)):
            work = f"attention_{way} {batch}x{HEADS}x{tokens}x{HEAD_DIM}"
            row(f"pytorch-{name}", work, "time", seconds, "s")
            row(f"pytorch-{name}", work, "speed", 1e-9 * products * product / seconds, "GFLOP/s")


def main():
    what, *sizes = sys.argv[1].split(":")
    {"product": measure_ceilings, "attention": measure_attention}[what](*(int(size) for size in sizes))


if __name__ == "__main__":
    main()
