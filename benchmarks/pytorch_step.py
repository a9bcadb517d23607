# SPDX-License-Identifier: BSD-3-Clause
"""Seconds of one training step with PyTorch: forward, cross-entropy, backward, clip to norm 1, AdamW, on one
synthetic batch. Prints a row of the benchmarks' CSV. With --ranks N: DistributedDataParallel over gloo, or
fully_shard of each block and of the rest. With --serve: reads lines "MODEL BATCH VARIANT SECONDS" from standard
input (VARIANT: eager, compiled or reduce-overhead) and answers each with a row, or with "failed: REASON"."""

import argparse
import copy
import gc
import os
import statistics
import sys
import time

from bench_common import make_model, print_row, spawn_ranks


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="vit_base_patch32_224")
    parser.add_argument("--batch", type=int, default=32, help="global batch")
    parser.add_argument("--image", type=int, default=0, help="height and width; 0: the default of the architecture")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--mode", default="default", help="torch.compile's, such as reduce-overhead")
    parser.add_argument("--serve", action="store_true", help="measure what standard input asks for")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cuda: one GPU, one rank")
    parser.add_argument("--optimizer", choices=["fused", "foreach"], default="fused")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--strategy", choices=["ddp", "fsdp"], default="ddp", help="with more than one rank")
    parser.add_argument("--threads", type=int, default=0, help="per rank; 0: all cores / ranks")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--epoch-seconds-of-start", type=float, default=0.0, metavar="SECONDS",
                        help="report the time from this moment (seconds since 1970) to the end of step one")
    return parser.parse_args()


def shard(model, precision):
    """As torchtitan does it: a unit for each block and one for the rest; bf16 copies, sums in fp32."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) \
        if precision == "bf16" else MixedPrecisionPolicy()
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    return fully_shard(model, mp_policy=policy)


def make_step(options, threads):
    import torch
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model, image = make_model(options.model)
    image = options.image or image
    if options.device == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = False  # as in vittrain; has no effect in bf16
    sharded = options.ranks > 1 and options.strategy == "fsdp"
    # fully_shard takes contiguous parameters only.
    layout = torch.contiguous_format if sharded else torch.channels_last
    model = model.to(options.device, memory_format=layout)
    trained = model
    if options.ranks > 1:
        import torch.distributed as distributed
        distributed.init_process_group("gloo")
        if sharded:
            model = trained = shard(model, options.precision)
        else:
            trained = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    if options.compile:
        trained = torch.compile(trained, mode=options.mode, dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05,
                                  **{options.optimizer: True})
    batch = options.batch // options.ranks
    autocast = options.precision == "bf16" and not sharded  # fully_shard's policy converts types
    images = torch.randn(batch, 3, image, image).to(options.device, memory_format=layout)
    labels = torch.randint(0, 10, (batch,)).to(options.device)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(options.device, torch.bfloat16, enabled=autocast):
            loss = torch.nn.functional.cross_entropy(trained(images), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if options.device == "cpu":
            return loss.item()
        return loss

    return step, torch.__version__


def measure_queued(step, options):
    """Seconds of a step on a GPU, which runs asynchronously: the mean of several steps, synchronised at the end."""
    import torch
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(options.steps):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / options.steps)
    return statistics.median(times)


def framework_of(options):
    if not options.compile:
        return "pytorch-eager"
    return "pytorch-compiled" if options.mode == "default" else f"pytorch-{options.mode}"


def work_of(options):
    return f"training step at {options.image} pixels" if options.image else "training step"


def print_seconds(options, version, threads, metric, value, output=None):
    print_row(output=output, framework=framework_of(options), version=version,
              work=work_of(options) if metric == "step" else "start", model=options.model, batch=options.batch,
              precision=options.precision, strategy=options.strategy if options.ranks > 1 else "none",
              ranks=options.ranks, threads=threads, metric=metric, value=f"{value:.4g}", unit="s")


def measure(step, options):
    """Seconds of one step."""
    if options.device == "cuda":
        return measure_queued(step, options)
    times = []
    for _ in range(options.steps):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def prepare(options, variant, threads):
    """A step of this variant after its warm-up, the version of PyTorch, and the seconds of a step, roughly."""
    options = copy.copy(options)
    options.compile = variant != "eager"
    options.mode = "default" if variant in ("eager", "compiled") else variant
    step, version = make_step(options, threads)
    for _ in range(options.warmup + 3):
        step()
    options.steps = 3
    return step, version, options, measure(step, options)


def release(ready):
    """Free the memory of all prepared variants."""
    import torch
    ready.clear()
    torch._dynamo.reset()
    gc.collect()


def answer(request, ready, options, threads, output):
    """Measure what a request names, and print its row. `ready` has the prepared variants of options.model and
    options.batch."""
    model, batch, variant, seconds = request.split()
    if (options.model, options.batch) != (model, int(batch)):
        release(ready)
        options.model, options.batch = model, int(batch)
    if variant not in ready:
        ready[variant] = prepare(options, variant, threads)
    step, version, chosen, once = ready[variant]
    chosen.steps = max(3, int(float(seconds) / once / 5))
    print_seconds(chosen, version, threads, "step", measure(step, chosen), output)


def serve(options, threads):
    """Variants of one model and batch stay ready, so that measurements in turns do not compile again. Answers go to a
    copy of standard output that no other process inherits, so its reader gets end of file when this process ends. What
    libraries print goes to standard error."""
    import torch
    output = os.dup(1)
    os.dup2(2, 1)
    ready = {}
    for request in sys.stdin:
        failure = None
        try:
            answer(request, ready, options, threads, output)
        except Exception as error:  # the next request may work
            failure = " ".join(f"failed: {type(error).__name__}: {error}".split())[:300]
        if failure is not None:  # here nothing refers to the frames of the error, and their tensors
            os.write(output, (failure + "\n").encode())
            release(ready)
        if options.device == "cuda":
            torch.cuda.empty_cache()


def main():
    options = parse()
    threads = options.threads or max(1, len(os.sched_getaffinity(0)) // options.ranks)
    if options.ranks > 1 and "RANK" not in os.environ:
        sys.exit(spawn_ranks(options.ranks, threads))
    if options.serve:
        serve(options, threads)
        return
    step, version = make_step(options, threads)
    if options.epoch_seconds_of_start:
        float(step())
        metric, value = "start_to_first_step", time.time() - options.epoch_seconds_of_start
    else:
        for _ in range(options.warmup):
            step()
        metric, value = "step", measure(step, options)
    if int(os.environ.get("RANK", "0")) == 0:
        print_seconds(options, version, threads, metric, value)
    if options.ranks > 1:
        import torch.distributed as distributed
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
