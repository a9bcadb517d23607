# SPDX-License-Identifier: BSD-3-Clause
"""Images per second, and per second of CPU time, of torchvision's ImageFolder and DataLoader:
RandomResizedCrop, RandAugment, ColorJitter, to tensors (PIL backend). Prints rows of the benchmarks' CSV,
for comparison with bench_input."""

import argparse
import os
import time

from bench_common import print_row


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="a folder of classes of images")
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--jitter", type=float, nargs=4, default=[0.0] * 4, metavar="PART",
                        help="brightness, contrast, saturation, hue")
    parser.add_argument("--rand-augment", type=int, default=0, metavar="OPERATIONS")
    parser.add_argument("--normalise", action="store_true", help="also flip, ToTensor and Normalize, as training does")
    parser.add_argument("--seconds", type=float, default=10)
    return parser.parse_args()


def endless(count):
    """Repeats small folders without a pause between epochs."""
    import torch
    while True:
        yield from torch.randperm(count).tolist()


def make_loader(options):
    from torch.utils.data import DataLoader
    from torchvision import transforms
    from torchvision.datasets import ImageFolder
    stages = [transforms.RandomResizedCrop(options.image)]
    if options.rand_augment > 0:
        stages.append(transforms.RandAugment(options.rand_augment))
    if any(options.jitter):
        stages.append(transforms.ColorJitter(*options.jitter))
    if options.normalise:
        stages += [transforms.RandomHorizontalFlip(), transforms.ToTensor(),
                   transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]
    else:
        stages.append(transforms.PILToTensor())
    data = ImageFolder(options.folder, transforms.Compose(stages))
    return DataLoader(data, options.batch, sampler=endless(len(data)), num_workers=options.workers)


def processor_seconds(processes):
    """CPU time of this process and its children."""
    ticks = 0
    for process in [os.getpid(), *processes]:
        with open(f"/proc/{process}/stat") as file:
            ticks += sum(int(word) for word in file.read().rsplit(")", 1)[1].split()[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(loader, options):
    """Samples per second, and per second of CPU time, of a DataLoader whose batches are pairs."""
    batches = iter(loader)
    for _ in range(4 * max(1, options.workers)):  # all workers have started
        next(batches)
    processes = [worker.pid for worker in getattr(batches, "_workers", [])]
    begin, before, samples = time.perf_counter(), processor_seconds(processes), 0
    while time.perf_counter() - begin < options.seconds:
        samples += len(next(batches)[1])
    rate = samples / (time.perf_counter() - begin)
    return {"": rate, " in processor time": samples / (processor_seconds(processes) - before)}


def main():
    import torch
    import torchvision
    options = parse()
    torch.set_num_threads(1)
    rates = measure(make_loader(options), options)
    stages = "crop" + (" + RandAugment" if options.rand_augment else "") + (" + jitter" if any(options.jitter) else "")
    for of, value in rates.items():
        print_row(framework="torchvision", version=torchvision.__version__, work="input",
                  model=f"files to {options.image} pixels", batch=options.batch,
                  precision="fp32" if options.normalise else "uint8", strategy="none", ranks=1,
                  threads=options.workers, metric=f"{stages} ({options.workers} workers){of}", value=f"{value:.0f}",
                  unit="images/s")


if __name__ == "__main__":
    main()
