# SPDX-License-Identifier: BSD-3-Clause
"""The convolutional models that cnn_a, cnn_a_lenet, cnn_b, cnn_c and linear are measured against, as the obvious
torch modules: 9,986, 58,742, 11,173,962, 1,972,826 and 21 parameters."""

import torch
from torch import nn
from torch.nn import functional


class CnnA(nn.Module):
    def __init__(self, classes=10, channels=3, image=32):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 4, 3)
        self.conv2 = nn.Conv2d(4, 8, 3)
        self.fc1 = nn.Linear(8 * (((image - 2) // 2 - 2) // 2) ** 2, 32)
        self.fc2 = nn.Linear(32, classes)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.fc2(functional.relu(self.fc1(torch.flatten(x, 1))))


class CnnALeNet(nn.Module):
    def __init__(self, classes=10, channels=3, image=32):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * (((image - 4) // 2 - 4) // 2) ** 2, 120)
        self.fc2 = nn.Linear(120, 36)
        self.fc3 = nn.Linear(36, 72)
        self.fc4 = nn.Linear(72, classes)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = functional.relu(self.fc1(torch.flatten(x, 1)))
        x = functional.relu(self.fc2(x))
        return self.fc4(functional.relu(self.fc3(x)))


def cosine_filters(shape):
    """Functions of the three-dimensional discrete cosine basis of patches, each followed by its negative."""
    filters, basis = shape[0], torch.ones(1, 1)
    for size in shape[1:]:
        frequency, place = torch.arange(size)[:, None], torch.arange(size)[None, :] + 0.5
        scale = torch.where(frequency == 0, 1.0, 2.0).div(size).sqrt()
        basis = torch.kron(basis, scale * torch.cos(torch.pi * frequency * place / size))
    return torch.stack((basis, -basis), 1).flatten(0, 1)[:filters].reshape(shape)


class CnnC(nn.Module):
    def __init__(self, classes=10, channels=3, width=64):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 24, 2, bias=False)
        self.bn1 = nn.BatchNorm2d(24)
        before = 24
        for stage, after in enumerate((width, 4 * width, 4 * width)):
            layer = nn.Module()
            layer.conv1 = nn.Conv2d(before, after, 3, padding=1, bias=False)
            layer.bn1 = nn.BatchNorm2d(after)
            layer.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
            layer.bn2 = nn.BatchNorm2d(after)
            setattr(self, f"layer{stage + 1}", layer)
            before = after
        self.fc = nn.Linear(before, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                nn.init.dirac_(module.weight.data[:module.in_channels])
        self.conv1.weight.data = cosine_filters(self.conv1.weight.shape)

    def forward(self, x):
        x = functional.relu(self.bn1(self.conv1(x)))
        for layer in (self.layer1, self.layer2, self.layer3):
            x = functional.relu(layer.bn1(functional.max_pool2d(layer.conv1(x), 2)))
            x = functional.relu(layer.bn2(layer.conv2(x)))
        return self.fc(x.mean(dim=(2, 3)))


class BasicBlock(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != width:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(y + self.shortcut(x))


class CnnB(nn.Module):
    def __init__(self, classes=10, channels=3, width=64, blocks=(2, 2, 2, 2)):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        before = width
        for stage, count in enumerate(blocks):
            after = width << stage
            layer = [BasicBlock(before if i == 0 else after, after, 2 if stage > 0 and i == 0 else 1)
                     for i in range(count)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layer))
            before = after
        self.fc = nn.Linear(before, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = functional.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1))
