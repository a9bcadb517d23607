# SPDX-License-Identifier: BSD-3-Clause
"""Measures the rounding errors of a gradient of the CIFAR ViT in bf16. The program trains 20 steps. At these weights, the
gradient of one batch is computed in PyTorch in fp32, in the program in bf16, in PyTorch with autocast, and in PyTorch in fp32
with the values rounded that the program stores in bf16: all of them, and all except some groups. Dropout and augmentation are off
in the gradients. Prints a CSV table: relative error of the whole gradient in the 2-norm, and the median of that of its tensors.

    python pytorch_rounding.py VITTRAIN SAMPLE FOLDER
"""
import pathlib
import shutil
import statistics
import subprocess
import sys

import numpy
import torch
from reference_vit import ReferenceViT
from safetensors.torch import load_file
from torch.nn import functional

SEEDS, BATCHES, BATCH, STEPS = (1, 2), (1, 2), 64, 20
RATE = 1000  # of sgd: the weights' change, divided by it, is the gradient, with few rounding errors
# residual: the residual stream, its gradient: that of the stream; vectors: weights of norms, biases, class token, positions.
GROUPS = ("products", "residual", "residual gradient", "vectors", "logits")
KEPT = {"nothing": (), "logits": ("logits",), "vectors": ("vectors",), "residual gradient": ("residual gradient",),
        "residual and its gradient": ("residual", "residual gradient"),
        "residual, its gradient and vectors": ("residual", "residual gradient", "vectors")}


class Round(torch.autograd.Function):
    @staticmethod
    def forward(context, x, forward, backward):
        context.backward = backward
        return x.bfloat16().float() if forward else x.view_as(x)

    @staticmethod
    def backward(context, dy):
        return dy.bfloat16().float() if context.backward else dy, None, None


class Rounded:
    """The forward pass of a ReferenceViT without dropout. Values of `groups` are rounded."""

    def __init__(self, model, groups):
        self.model, self.groups = model, groups

    def round(self, x, forward, backward=None):
        return Round.apply(x, forward in self.groups, backward in self.groups)

    def product(self, x):
        return self.round(x, "products", "products")

    def stream(self, x):
        return self.round(x, "residual", "residual gradient")

    def vector(self, parameter):
        return self.round(parameter, "vectors")

    def linear(self, layer, x):
        bias = None if layer.bias is None else self.vector(layer.bias)
        return functional.linear(x, self.round(layer.weight, "products"), bias)

    def norm(self, layer, x):
        return functional.layer_norm(x, x.shape[-1:], self.vector(layer.weight), self.vector(layer.bias), layer.eps)

    def attention(self, layer, x):
        batch, tokens, dim = x.shape
        qkv = self.product(self.linear(layer.qkv, x)).reshape(batch, tokens, 3, layer.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        out = (q @ k.transpose(-2, -1) * layer.scale).softmax(-1) @ v
        return self.linear(layer.proj, self.product(out.transpose(1, 2).reshape(batch, tokens, dim)))

    def __call__(self, images):
        model, side = self.model, images.shape[-1] // self.model.patch
        rows = images.reshape(len(images), 3, side, model.patch, side, model.patch).permute(0, 2, 4, 1, 3, 5)
        x = self.product(self.linear(model.embed, self.product(rows.reshape(len(images), side * side, -1))))
        x = torch.cat([self.vector(model.cls_token).expand(len(images), -1, -1), x], 1)
        x = self.stream(self.norm(model.embed_norm, self.stream(x + self.vector(model.pos_embed))))
        for block in model.blocks:
            x = self.stream(x + self.attention(block.attn, self.product(self.norm(block.norm1, x))))
            pre = self.product(self.linear(block.mlp.fc1, self.product(self.norm(block.norm2, x))))
            hidden = self.round(functional.gelu(pre), "products")
            x = self.stream(x + self.linear(block.mlp.fc2, hidden))
        logits = self.linear(model.head, self.product(self.norm(model.norm, x[:, 0])))
        return self.round(logits, "logits", "logits")


def run(vittrain, folder, *words):
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([vittrain, "train", "model.name=vit_cifar", f"train.global_batch={BATCH}", f"run.dir={folder}",
                    "data.format=cifar10", "data.val=none", "output.tensorboard=off", "output.logbook=", *words], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return load_file(folder / "weights.safetensors")


def program_gradient(vittrain, folder, weights, data):
    before = load_file(weights)
    after = run(vittrain, folder, f"data.root={data}", f"model.init={weights}", "data.shuffle=off", "model.dropout=0",
                "model.drop_path=0", "augment.flip=0", "augment.rotate=0", "augment.translate=0", "augment.erase=0",
                "train.steps=1", "train.precision=bf16", "optim.name=sgd", f"optim.lr={RATE}", "optim.weight_decay=0")
    return {name: (before[name] - after[name]) / RATE for name in before}


def gradient(model, forward, images, labels):
    model.zero_grad()
    functional.cross_entropy(forward(images).float(), labels).backward()
    return model.timm_tensors({name: parameter.grad.clone() for name, parameter in model.named_parameters()})


def autocast(model):
    def forward(images):
        with torch.autocast("cpu", torch.bfloat16):
            return model(images)
    return forward


def print_errors(case, found, expected):
    errors = {name: ((found[name] - tensor).norm().item(), tensor.norm().item()) for name, tensor in expected.items()}
    whole = sum(error ** 2 for error, _ in errors.values()) / sum(norm ** 2 for _, norm in errors.values())
    print(f"{case},{whole ** 0.5:.5f},{statistics.median(error / norm for error, norm in errors.values()):.5f}", flush=True)


def model_load(weights):
    model = ReferenceViT(dropout=0, branch_dropout=0)
    start = model.state_dict()
    names = {timm: name for name in start for timm in model.timm_tensors({name: start[name]})}
    model.load_state_dict({names[timm]: tensor.reshape(start[names[timm]].shape) for timm, tensor in load_file(weights).items()})
    return model


def main():
    vittrain, sample, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    records = numpy.fromfile(sample / "data_batch_1.bin", numpy.uint8).reshape(-1, 3073)
    print("seed,batch,case,gradient,median of tensors")
    for seed in SEEDS:
        weights = folder / f"seed{seed}" / "weights.safetensors"
        run(vittrain, weights.parent, f"data.root={sample}", f"run.seed={seed}", f"train.steps={STEPS}", "train.precision=bf16")
        model = model_load(weights)
        for number in BATCHES:
            batch = records[numpy.random.default_rng(number).permutation(len(records))[:BATCH]]
            data = folder / f"batch{number}"
            data.mkdir(exist_ok=True)
            batch.tofile(data / "data_batch_1.bin")
            images = (torch.from_numpy(batch[:, 1:].astype(numpy.float32)).reshape(-1, 3, 32, 32) / 255 - 0.5) / 0.5
            labels = torch.from_numpy(batch[:, 0].astype(numpy.int64))
            expected = gradient(model, model, images, labels)
            case = f"{seed},{number}"
            print_errors(f"{case},program", program_gradient(vittrain, folder / "step", weights, data), expected)
            print_errors(f"{case},autocast", gradient(model, autocast(model), images, labels), expected)
            for kept, groups in KEPT.items():
                forward = Rounded(model, set(GROUPS) - set(groups))
                print_errors(f'{case},"in fp32: {kept}"', gradient(model, forward, images, labels), expected)


if __name__ == "__main__":
    main()
