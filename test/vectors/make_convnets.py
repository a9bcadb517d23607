# SPDX-License-Identifier: BSD-3-Clause
"""Writes convnet_*.safetensors: whole small convolutional models computed with PyTorch, torchvision's blocks and
the modules of benchmarks/reference_cnn.py, in double precision.

A file holds weights with running statistics, a batch, its logits and loss in evaluation and in training, every
gradient (of a running statistic: what a step adds to 0.9 of it), and weights after several steps on that batch.
Metadata: "convnet" (which table of nodes), "numbers" (image channels classes width dense), "blocks". A dense
model's outputs of all classes and pixels are the logits of one classifier.

Needs torch, torchvision, safetensors. Run it in this directory.
"""

import copy
import os
import sys

import torch
import torchvision
from safetensors.torch import save_file
from torch import nn
from torchvision.models import resnet

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../benchmarks"))
import reference_cnn

MOMENTUM = 0.1


class SmallResNet(torchvision.models.ResNet):
    """torchvision's, of any width."""

    def __init__(self, block, blocks, classes, width):
        nn.Module.__init__(self)
        self._norm_layer = nn.BatchNorm2d
        self.inplanes, self.dilation, self.groups, self.base_width = width, 1, 1, 64
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        for stage, count in enumerate(blocks):
            layer = self._make_layer(block, width << stage, count, stride=2 if stage > 0 else 1)
            setattr(self, f"layer{stage + 1}", layer)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(width * 8 * block.expansion, classes)


class DenseResNet(SmallResNet):
    """A head of 1 x 1 convolution and bilinear interpolation, as torchvision's FCN has after its own layers."""

    def __init__(self, block, blocks, classes, width):
        super().__init__(block, blocks, classes, width)
        self.dense = nn.Conv2d(self.fc.in_features, classes, 1)
        del self.fc, self.avgpool

    def forward(self, images):
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        x = self.dense(self.layer4(self.layer3(self.layer2(self.layer1(x)))))
        return nn.functional.interpolate(x, size=images.shape[-2:], mode="bilinear", align_corners=False)


def randomize(model):
    """No weight may be at a value (0, 1) where a mistake would not show."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.normal_(1.0, 0.2)
                module.bias.normal_(0.0, 0.2)
                module.running_mean.normal_(0.0, 0.5)
                module.running_var.uniform_(0.5, 2.0)


def tensors(model):
    return {name: tensor.detach().float().clone().contiguous() for name, tensor in model.state_dict().items()
            if not name.endswith("num_batches_tracked")}


def loss_of(model, images, labels):
    return nn.functional.cross_entropy(model(images).flatten(1), labels)


def gradients(model, images, labels):
    """And what they leave of the running statistics, less 0.9 of what these were."""
    trained = copy.deepcopy(model)
    loss = loss_of(trained, images, labels)
    loss.backward()
    before, after = model.state_dict(), trained.state_dict()
    found = {name: (after[name] - (1 - MOMENTUM) * before[name]).float() for name in after if "running" in name}
    found.update({name: p.grad.float().contiguous() for name, p in trained.named_parameters()})
    return found, loss


def train(model, make_optimizer, images, labels, steps=3, pieces=1, frozen=()):
    trained = copy.deepcopy(model)
    for name, module in trained.named_modules():
        if name in frozen:
            module.eval()
            for parameter in module.parameters():
                parameter.requires_grad_(False)
    optimizer = make_optimizer([p for p in trained.parameters() if p.requires_grad])
    for _ in range(steps):
        optimizer.zero_grad()
        for x, y in zip(images.chunk(pieces), labels.chunk(pieces)):
            (loss_of(trained, x, y) * len(x) / len(images)).backward()
        optimizer.step()
    return tensors(trained)


def nearest_edge(model, images):
    """How near what goes into a relu comes to 0, where rounding decides whether there is a gradient."""
    nearest, relu = [], nn.functional.relu
    nn.functional.relu = lambda x, inplace=False: (nearest.append(x.detach().abs().min()), relu(x, inplace))[1]
    copy.deepcopy(model)(images)
    nn.functional.relu = relu
    return min(nearest).item()


def add_prefixed(file, prefix, found):
    file.update({f"{prefix}/{name}": tensor for name, tensor in found.items()})


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.05, eps=1e-4)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, weight_decay=0.05)


def make(name, table, model, image, width=0, blocks=(), batch=6, rules=False, classes=5, dense=False):
    torch.manual_seed(sum(name.encode()))
    randomize(model)
    model.double().train()
    images = torch.randn(batch, 3, image, image, dtype=torch.float64)
    while nearest_edge(model, images) < 2e-5:
        images = torch.randn(batch, 3, image, image, dtype=torch.float64)
    labels = torch.randint(0, classes * (image * image if dense else 1), (batch,))
    file = {"images": images.float(), "labels": labels.to(torch.int32)}
    add_prefixed(file, "weight", tensors(model))
    with torch.no_grad():
        file["logits_training"] = copy.deepcopy(model)(images).float()
        evaluated = copy.deepcopy(model).eval()(images)
        file["logits"] = evaluated.float()
        file["loss"] = nn.functional.cross_entropy(evaluated.flatten(1), labels).float().reshape(1)
    found, loss = gradients(model, images, labels)
    file["loss_training"] = loss.detach().float().reshape(1)
    add_prefixed(file, "gradient", found)
    if rules:
        add_prefixed(file, "after_adamw", train(model, adamw, images, labels))
        add_prefixed(file, "after_pieces", train(model, sgd, images, labels, 2, 3))
        frozen = {n for n, _ in model.named_modules() if n.startswith(("conv1", "bn1", "layer1.0", "layer2.0.bn2"))}
        add_prefixed(file, "after_freeze", train(model, sgd, images, labels, 2, 1, frozen))
    metadata = {"convnet": table, "numbers": f"{image} 3 {classes} {width} {int(dense)}", "smoothing": "0",
                "blocks": " ".join(map(str, blocks or (0, 0, 0, 0)))}
    save_file(file, f"convnet_{name}.safetensors", metadata)
    print(name, os.path.getsize(f"convnet_{name}.safetensors"), f"loss {loss.item():.6f}")


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    make("cnn_a", "cnn_a", reference_cnn.CnnA(classes=5, image=14), 14)
    make("lenet", "cnn_a_lenet", reference_cnn.CnnALeNet(classes=5, image=16), 16, batch=3)
    blocks = (2, 1, 1, 1)
    make("cifar", "cnn_b", reference_cnn.CnnB(5, 3, 2, blocks), 9, 2, blocks, rules=True)
    make("cnn_c", "cnn_c", reference_cnn.CnnC(5, 3, 2), 16, 2, batch=4)
    make("basic", "resnet", SmallResNet(resnet.BasicBlock, blocks, 5, 3), 37, 3, blocks, batch=5)
    make("bottleneck", "bottleneck", SmallResNet(resnet.Bottleneck, blocks, 5, 2), 33, 2, blocks, batch=6)
    make("dense", "resnet", DenseResNet(resnet.BasicBlock, blocks, 2, 2), 33, 2, blocks, batch=3, classes=2, dense=True)


if __name__ == "__main__":
    main()
