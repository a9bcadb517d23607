# SPDX-License-Identifier: BSD-3-Clause
"""Trains a small vit_cifar in fp32 with the program, on one and on two ranks, and with PyTorch, for five epochs with the
augmentation and dropout of input/vit_cifar.ini. The order of samples, the parameters of the augmentation and the dropout masks are
computed here with numpy, as src/base/random.h, src/image/augment.c and src/device/device.h specify; torchvision transforms the
images. The losses of all steps and the weights at the end must agree.

    check_augmented.py VITTRAIN MPIRUN SAMPLE FOLDER
"""
import math
import pathlib
import shlex
import sys

import numpy
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch.nn import functional
from torchvision.transforms import functional as images

from support import cifar_part, losses_of, run
import reference_vit

SEED, RECORDS, TESTS, BATCH, EPOCHS = 0x123456789, 815, 10, 64, 5
SHAPE = dict(patch=4, dim=36, depth=3, heads=3)  # the widths of masks, 36 and 65, are not multiples of 8
RATE, DECAY = 1e-3, 1e-4
SHUFFLE, AUGMENT, DROPOUT = 2, 4, 5  # enum random_purpose
# Measured: 3e-7 and 4e-5. PyTorch's losses in fp32 differ from its own in double precision by 3e-7, too.
LOSSES_GAP, WEIGHTS_GAP = 2e-6, 1e-3


def philox(purpose, layer, epoch, index, block):
    """Return the random blocks [..., 4] of Philox 4x32-10. The last three arguments are arrays or numbers."""
    low, key = numpy.uint64(0xffffffff), [SEED & 0xffffffff, SEED >> 32]
    block, index, epoch = numpy.broadcast_arrays(*(numpy.asarray(part, numpy.uint64) for part in (block, index, epoch)))
    words = [block, index, epoch, numpy.full_like(block, purpose + (layer << 8))]
    for _ in range(10):
        first, second = words[0] * numpy.uint64(0xD2511F53), words[2] * numpy.uint64(0xCD9E8D57)
        words = [second >> numpy.uint64(32) ^ words[1] ^ numpy.uint64(key[0]), second & low,
                 first >> numpy.uint64(32) ^ words[3] ^ numpy.uint64(key[1]), first & low]
        key = [key[0] + 0x9E3779B9 & 0xffffffff, key[1] + 0xBB67AE85 & 0xffffffff]
    return numpy.stack(words, -1)


def order_of(epoch):
    """Fisher-Yates from the end; two numbers of 64 bits per block."""
    words = philox(SHUFFLE, 0, epoch, 0, numpy.arange(RECORDS // 2 + 1)).reshape(-1, 2).tolist()
    order = list(range(RECORDS))
    for last, (low, high) in zip(range(RECORDS - 1, 0, -1), words):
        chosen = (high << 32 | low) * (last + 1) >> 64
        order[last], order[chosen] = order[chosen], order[last]
    return order


def between(word, low, high):
    """A uniform number from the upper 24 bits of a word."""
    return low + (high - low) * (int(word) >> 8) / 2**24


def integer_between(word, low, high):
    return low + (int(word) * (high - low + 1) >> 32)


def erased_rectangle(attempts):
    """As torchvision's RandomErasing: scale 0.02 to 0.2, ratio 0.3 to 3.3. Return y, x, height and width, or None."""
    for area, ratio, y, x in attempts:
        area, ratio = 32 * 32 * between(area, 0.02, 0.2), math.exp(between(ratio, math.log(0.3), math.log(3.3)))
        height, width = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if height < 32 and width < 32:
            return integer_between(y, 0, 32 - height), integer_between(x, 0, 32 - width), height, width
    return None


def augmented(pixels, words):
    """Return the image after the transforms of torchvision with the numbers of a sample's random blocks."""
    (flip, angle, shift_x, shift_y), (_, _, erase, _) = words[:2]
    image = Image.fromarray(pixels)
    if between(flip, 0, 1) < 0.5:
        image = images.hflip(image)
    image = images.rotate(image, between(angle, -15, 15))
    image = images.affine(image, 0.0, [round(between(shift, -3.2, 3.2)) for shift in (shift_x, shift_y)], 1.0, [0.0, 0.0])
    tensor = images.to_tensor(image)
    rectangle = erased_rectangle(words[2:]) if between(erase, 0, 1) < 0.5 else None
    if rectangle:
        tensor = images.erase(tensor, *rectangle, 0.0)
    return (tensor - 0.5) / 0.5


class Mask(torch.nn.Module):
    """Dropout number `layer` of the model. The tensor has `rows` rows of `width` elements per sample; with one row, the program
    computes only that of the class token, and the other rows of PyTorch's tensor get the same mask."""
    step = count = None  # of the current batch

    def __init__(self, layer, rate, rows, width):
        super().__init__()
        self.layer, self.rows, self.width, self.threshold = layer, rows, width, round(rate * 65536)

    def forward(self, x):
        padded = -(-self.width // 8) * 8
        words = philox(DROPOUT, self.layer, Mask.step, numpy.arange(Mask.count)[:, None],
                       numpy.arange(self.rows * padded // 8)).astype("<u4")
        lanes = words.view("<u2").reshape(Mask.count, -1, padded)[..., :self.width]
        mask = torch.from_numpy((lanes >= self.threshold) * (65536 / (65536 - self.threshold)))
        if x.ndim == 4:
            mask = mask.unflatten(1, (x.shape[1], -1))
        return x * mask.to(x.dtype)


class InTurn(torch.nn.Module):
    """Two modules; each call uses the next one."""

    def __init__(self, *modules):
        super().__init__()
        self.all, self.calls = torch.nn.ModuleList(modules), 0

    def forward(self, x):
        self.calls += 1
        return self.all[(self.calls - 1) % len(self.all)](x)


def model_make():
    """The dropout after fc2 and that of the branch are one, whose keep rate is the product of both."""
    torch.manual_seed(1)
    model = reference_vit.ReferenceViT(**SHAPE)
    dim, depth, heads = (SHAPE[name] for name in ("dim", "depth", "heads"))
    tokens = model.pos_embed.shape[1]
    model.dropout = Mask(0, 0.1, tokens, dim)
    for number, block in enumerate(model.blocks):
        rows = 1 if number == depth - 1 else tokens
        block.attn.dropout = Mask(4 * number + 1, 0.1, heads * rows, tokens)
        block.mlp.dropout = torch.nn.Identity()
        block.branch_dropout = InTurn(Mask(4 * number + 2, 0.1, rows, dim), Mask(4 * number + 4, 0.19, rows, dim))
    return model


def train(model, levels, labels):
    """Return the losses of all steps; `model` is trained."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    pixels = numpy.ascontiguousarray(levels.transpose(0, 2, 3, 1))
    labels, losses = torch.from_numpy(labels), []
    for epoch in range(EPOCHS):
        order = order_of(epoch)
        words = philox(AUGMENT, 0, epoch, numpy.arange(RECORDS)[:, None], numpy.arange(12))
        for begin in range(0, RECORDS, BATCH):
            chosen = order[begin:begin + BATCH]
            batch = torch.stack([augmented(pixels[n], words[n]) for n in chosen])
            Mask.step, Mask.count = len(losses), len(chosen)
            loss = functional.cross_entropy(model(batch), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def run_program(vittrain, launcher, where, folder, data):
    run(*launcher, vittrain, "train", "model.name=vit_cifar", *(f"model.{key}={value}" for key, value in SHAPE.items()),
        f"model.init={folder}/start.safetensors", "data.format=cifar10", f"data.root={data}", f"run.seed={SEED}",
        f"run.dir={where}", "run.threads=1", f"train.global_batch={BATCH}", f"train.epochs={EPOCHS}",
        "train.precision=fp32", f"optim.lr={RATE}", f"optim.weight_decay={DECAY}", "output.log_every=1",
        "output.tensorboard=off")
    return losses_of(where), load_file(where / "weights.safetensors")


def losses_gap(losses, expected):
    return max(abs(loss - other) / other for loss, other in zip(losses, expected, strict=True))


def weights_gap(weights, expected, start):
    """Return the largest relative error, in the 2-norm, of the change of a tensor."""
    assert weights.keys() == expected.keys(), weights.keys() ^ expected.keys()
    return max(((weights[name] - tensor).norm() / (tensor - start[name]).norm()).item()
               for name, tensor in expected.items())


def tensors(model):
    return {name: tensor.clone() for name, tensor in model.timm_tensors(model.state_dict()).items()}


def main():
    vittrain, mpirun, sample, folder = sys.argv[1:]
    folder = pathlib.Path(folder)
    torch.set_num_threads(1)
    data = folder / "images"
    training, _ = cifar_part(sample, data, {"data_batch_1.bin": RECORDS, "test_batch.bin": TESTS})
    model = model_make()
    start = tensors(model)
    save_file(start, folder / "start.safetensors")
    expected = train(model, *training)
    for ranks in (1, 2):
        launcher = shlex.split(mpirun) + ["-np", str(ranks)] if ranks > 1 else []
        losses, weights = run_program(vittrain, launcher, folder / f"{ranks}-ranks", folder, data)
        gaps = losses_gap(losses, expected), weights_gap(weights, tensors(model), start)
        assert gaps[0] < LOSSES_GAP and gaps[1] < WEIGHTS_GAP, (ranks, gaps, losses, expected)
        print(f"{len(losses)} steps on {ranks} ranks, losses {losses[0]:.4f} to {losses[-1]:.4f}: "
              f"relative difference {gaps[0]:.1e}, of the weights' change {gaps[1]:.1e}")


if __name__ == "__main__":
    main()
