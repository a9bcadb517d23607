# SPDX-License-Identifier: BSD-3-Clause
"""Images per second of an epoch of CNN-A with PyTorch and torchvision, data included, as the course project trains it:
batches of 16, single precision, plain SGD, images from PIL through ToTensor and Normalize in a DataLoader of the main
process. Prints a row of the CSV (README.md).

    python pytorch_epoch.py FOLDER      CIFAR-10's binary files
"""
import pathlib
import sys
import time

import numpy
import torch
from bench_common import print_row
from PIL import Image
from reference_cnn import CnnA
from torchvision import transforms


class Cifar(torch.utils.data.Dataset):
    """As torchvision's CIFAR10 gives its samples."""

    def __init__(self, folder):
        data = [numpy.fromfile(path, numpy.uint8) for path in sorted(pathlib.Path(folder).glob("data_batch_*.bin"))]
        records = numpy.concatenate(data).reshape(-1, 3073)
        self.targets = records[:, 0].tolist()
        self.data = numpy.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        self.transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.5,) * 3, (0.5,) * 3)])

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return self.transform(Image.fromarray(self.data[index])), self.targets[index]


def main():
    loader = torch.utils.data.DataLoader(Cifar(sys.argv[1]), batch_size=16, shuffle=True)
    model, count = CnnA(), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for images, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        count += len(labels)
    print_row(framework="pytorch-eager", version=torch.__version__, work="epoch with its data", model="cnn_a", batch=16,
              precision="fp32", strategy="none", ranks=1, threads=torch.get_num_threads(), metric="speed",
              value=f"{count / (time.perf_counter() - begin):.0f}", unit="images/s")


if __name__ == "__main__":
    main()
