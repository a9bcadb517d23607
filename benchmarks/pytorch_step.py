"""Seconds of one training step with PyTorch: forward, cross-entropy, backward, clip to norm 1, AdamW, on one
synthetic batch. Prints a row of the benchmarks' CSV. With --ranks N: DistributedDataParallel over gloo, or
fully_shard of each block and of the rest."""

import argparse
import os
import statistics
import sys
import time

from bench_common import make_model, print_row, spawn_ranks


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="vit_base_patch32_224")
    parser.add_argument("--batch", type=int, default=32, help="global batch")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--compile", action="store_true")
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
    if options.device == "cuda":
        torch.backends.cudnn.benchmark = True
    model = model.to(options.device, memory_format=torch.channels_last)
    trained = model
    if options.ranks > 1:
        import torch.distributed as distributed
        distributed.init_process_group("gloo")
        if options.strategy == "fsdp":
            model = trained = shard(model, options.precision)
        else:
            trained = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    if options.compile:
        trained = torch.compile(trained)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05,
                                  **{options.optimizer: True})
    batch = options.batch // options.ranks
    # fully_shard's policy converts by itself.
    autocast = options.precision == "bf16" and not (options.ranks > 1 and options.strategy == "fsdp")
    images = torch.randn(batch, 3, image, image).to(options.device, memory_format=torch.channels_last)
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
    """Seconds of a step on a GPU, which runs behind: of a row of steps, waited for at its end."""
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


def main():
    options = parse()
    threads = options.threads or max(1, len(os.sched_getaffinity(0)) // options.ranks)
    if options.ranks > 1 and "RANK" not in os.environ:
        sys.exit(spawn_ranks(options.ranks, threads))
    step, version = make_step(options, threads)
    if options.epoch_seconds_of_start:
        float(step())
        metric, value = "start_to_first_step", time.time() - options.epoch_seconds_of_start
    else:
        for _ in range(options.warmup):
            step()
        times = []
        for _ in range(options.steps if options.device == "cpu" else 0):
            begin = time.perf_counter()
            step()
            times.append(time.perf_counter() - begin)
        metric = "step"
        value = statistics.median(times) if times else measure_queued(step, options)
    if int(os.environ.get("RANK", "0")) == 0:
        print_row(framework="pytorch-compiled" if options.compile else "pytorch-eager", version=version,
                  work="training step" if metric == "step" else "start", model=options.model, batch=options.batch,
                  precision=options.precision, strategy=options.strategy if options.ranks > 1 else "none",
                  ranks=options.ranks, threads=threads, metric=metric, value=f"{value:.4f}", unit="s")
    if options.ranks > 1:
        import torch.distributed as distributed
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
