"""Images a second that torchvision's ImageFolder and DataLoader bring: RandomResizedCrop, RandAugment, ColorJitter,
to tensors (PIL backend). Prints a row of the benchmarks' CSV, to stand beside those of bench_input."""

import argparse
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
    parser.add_argument("--seconds", type=float, default=10)
    return parser.parse_args()


def make_loader(options):
    from torch.utils.data import DataLoader
    from torchvision import transforms
    from torchvision.datasets import ImageFolder
    stages = [transforms.RandomResizedCrop(options.image)]
    if options.rand_augment > 0:
        stages.append(transforms.RandAugment(options.rand_augment))
    if any(options.jitter):
        stages.append(transforms.ColorJitter(*options.jitter))
    stages.append(transforms.PILToTensor())
    data = ImageFolder(options.folder, transforms.Compose(stages))
    return DataLoader(data, options.batch, shuffle=True, num_workers=options.workers, drop_last=True,
                      persistent_workers=options.workers > 0)


def main():
    import torchvision
    options = parse()
    loader = make_loader(options)
    for _ in loader:  # workers are there, files are cached
        pass
    begin, images = time.perf_counter(), 0
    while time.perf_counter() - begin < options.seconds:
        for batch, _ in loader:
            images += len(batch)
    rate = images / (time.perf_counter() - begin)
    stages = "crop" + (" + RandAugment" if options.rand_augment else "") + (" + jitter" if any(options.jitter) else "")
    print_row(framework="torchvision", version=torchvision.__version__, work="input",
              model=f"files to {options.image} pixels", batch=options.batch, precision="uint8", strategy="none",
              ranks=1, threads=options.workers, metric=f"{stages} ({options.workers} workers)", value=f"{rate:.0f}",
              unit="images/s")


if __name__ == "__main__":
    main()
