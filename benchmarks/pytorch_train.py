# SPDX-License-Identifier: BSD-3-Clause
"""Trains a model on all of CIFAR-10 with PyTorch and torchvision and the recipe of a deck of input/, to compare its accuracy and
its time with vittrain's. Writes one row per epoch to OUTPUT/epochs.csv: epoch, seconds since the start (with evaluations,
without interruptions), training loss, accuracy on the 10,000 test images. An interrupted run continues after its last
complete epoch. vit_cifar also writes OUTPUT/weights.safetensors for vittrain.

    python pytorch_train.py RECIPE FOLDER OUTPUT [--epochs N] [--batch N] [--seed N] [--bf16] [--workers N]

RECIPE: vit_cifar (input/vit_cifar.ini, the course project's) or cnn_c_94 (input/cnn_c_94.ini). FOLDER: CIFAR-10's binary files.
"""
import argparse
import pathlib
import time

import numpy
import torch
from bench_common import make_model
from PIL import Image
from safetensors.torch import save_file
from timm.optim import Muon
from torch import nn
from torchvision import transforms

HALF = transforms.Normalize((0.5,) * 3, (0.5,) * 3)
# In the order of the course project: erasing is before the normalisation.
VIT_CIFAR = [transforms.RandomHorizontalFlip(), transforms.RandomRotation(15),
             transforms.RandomAffine(0, translate=(0.1, 0.1)), transforms.ToTensor(),
             transforms.RandomErasing(0.5, scale=(0.02, 0.2)), HALF]
CNN_C = [transforms.RandomCrop(32, padding=2), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
         transforms.RandomErasing(1, scale=(0.0625, 0.0625), ratio=(1, 1)), HALF]


class Cifar(torch.utils.data.Dataset):
    def __init__(self, folder, pattern, stages):
        files = sorted(pathlib.Path(folder).glob(pattern))
        records = numpy.concatenate([numpy.fromfile(path, numpy.uint8) for path in files]).reshape(-1, 3073)
        self.labels = records[:, 0].tolist()
        self.images = numpy.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        self.transform = transforms.Compose(stages)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


class VitCifar:
    epochs, batch, stages, smoothing, flips = 10, 64, VIT_CIFAR, 0, False

    def __init__(self):
        self.model = make_model("vit_cifar")[0]
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, weight_decay=1e-4)

    @staticmethod
    def rate(progress):
        return 1


class CnnC94:
    epochs, batch, stages, smoothing, flips = 20, 1000, CNN_C, 0.2, True

    def __init__(self):
        self.model = make_model("cnn_c")[0]
        decayed = [p for p in self.model.parameters() if p.ndim > 1]
        others = [p for p in self.model.parameters() if p.ndim <= 1]
        self.optimizer = Muon([{"params": decayed, "weight_decay": 0.5}, {"params": others, "weight_decay": 0}],
                              lr=0.03, momentum=0.8, nesterov=True)

    @staticmethod
    def rate(progress):
        return 1 - progress


RECIPES = {"vit_cifar": VitCifar, "cnn_c_94": CnnC94}


def train_epoch(run, schedule, loader, loss_of, bf16):
    run.model.train()
    total = count = 0
    for images, labels in loader:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            logits = run.model(images)
        loss = loss_of(logits.float(), labels)
        run.optimizer.zero_grad()
        loss.backward()
        run.optimizer.step()
        schedule.step()
        total, count = total + loss.item() * len(labels), count + len(labels)
    return total / count


@torch.no_grad()
def accuracy(run, loader, bf16):
    model = run.model
    model.eval()
    right = count = 0
    for images, labels in loader:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            logits = model(images)
            if run.flips:
                logits = logits + model(images.flip(3))
        right, count = right + (logits.argmax(1) == labels).sum().item(), count + len(labels)
    return right / count


def table_write(rows, output):
    lines = [f"{epoch},{seconds:.1f},{loss:.4f},{top1:.4f}\n" for epoch, seconds, loss, top1 in rows]
    (output / "epochs.csv").write_text("epoch,seconds,loss,accuracy\n" + "".join(lines))


def resume(parts, output):
    """Load the state of `parts` from the checkpoint, if there is one. Return the rows of its epochs."""
    path = output / "last.pt"
    if not path.exists():
        return []
    saved = torch.load(path)
    for name, part in parts.items():
        part.load_state_dict(saved[name])
    return saved["rows"]


def save(parts, rows, output):
    """Replace the checkpoint. It contains the rows, so that an interruption loses none."""
    states = {name: part.state_dict() for name, part in parts.items()}
    torch.save({"rows": rows, **states}, output / "next.pt")
    (output / "next.pt").replace(output / "last.pt")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", choices=RECIPES)
    parser.add_argument("folder")
    parser.add_argument("output", type=pathlib.Path)
    for name in ("epochs", "batch", "seed", "workers"):
        parser.add_argument("--" + name, type=int, default=0)
    parser.add_argument("--bf16", action="store_true")
    args = parser.parse_args()
    recipe = RECIPES[args.recipe]
    epochs, batch = args.epochs or recipe.epochs, args.batch or recipe.batch
    torch.manual_seed(args.seed)
    train_set = Cifar(args.folder, "data_batch_*.bin", recipe.stages)
    test_set = Cifar(args.folder, "test_batch.bin", [transforms.ToTensor(), HALF])
    run, steps = recipe(), epochs * -(-len(train_set) // batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(run.optimizer, lambda step: run.rate(step / steps))
    parts = {"model": run.model, "optimizer": run.optimizer, "schedule": schedule}
    args.output.mkdir(parents=True, exist_ok=True)
    rows = resume(parts, args.output)
    table_write(rows, args.output)
    test = torch.utils.data.DataLoader(test_set, batch_size=500)
    loss_of = nn.CrossEntropyLoss(label_smoothing=recipe.smoothing)
    for epoch in range(len(rows), epochs):
        torch.manual_seed(args.seed * 1000 + epoch)  # the same order and augmentation after an interruption
        begin = time.perf_counter()
        loader = torch.utils.data.DataLoader(train_set, batch_size=batch, shuffle=True, num_workers=args.workers)
        loss = train_epoch(run, schedule, loader, loss_of, args.bf16)
        top1 = accuracy(run, test, args.bf16)
        seconds = (rows[-1][1] if rows else 0) + time.perf_counter() - begin
        rows.append((epoch + 1, seconds, loss, top1))
        save(parts, rows, args.output)
        table_write(rows, args.output)
    if args.recipe == "vit_cifar":
        save_file(run.model.timm_tensors(run.model.state_dict()), args.output / "weights.safetensors")


if __name__ == "__main__":
    main()
