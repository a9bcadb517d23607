# SPDX-License-Identifier: BSD-3-Clause
"""Trains and evaluates with weights of timm and torchvision: a ViT-B/32 and a ResNet-18 (random) in safetensors.
vittrain's log-probabilities must equal PyTorch's to 1e-4, and the losses of 20 steps of fine-tuning must agree, all in
single precision on real images resized to 224 pixels as by PIL. Rounding errors grow in a network with batch norm and
random weights, so losses are compared with PyTorch's in double precision: vittrain's error may be three times that of
PyTorch in single precision. Weights for 1,000 classes must load into a model for 10, except for the head.

    check_pretrained.py VITTRAIN SAMPLE [MODEL...]

SAMPLE is a folder with CIFAR-10's binary files. Needs torch, torchvision, timm, safetensors; takes minutes.
"""
import copy
import csv
import pathlib
import subprocess
import sys
import tempfile

import numpy
import timm
import torch
import torchvision
from PIL import Image
from safetensors.torch import save_file

STEPS, BATCH, IMAGES, CLASSES = 20, 8, 32, 10
RATE = {"vit_base_patch32_224": 0.01, "resnet18": 1e-4}
MEAN_STD = {"vit_base_patch32_224": ([0.5] * 3, [0.5] * 3),
            "resnet18": ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])}


def model_make(name, classes):
    torch.manual_seed(1)
    if name.startswith("vit"):
        model = timm.create_model(name, num_classes=classes)
        torch.nn.init.normal_(model.head.weight, std=0.02)
        return model
    model = getattr(torchvision.models, name)(num_classes=classes)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    return model


def images_read(path, name):
    mean, std = (torch.tensor(values).reshape(3, 1, 1) for values in MEAN_STD[name])
    records = numpy.fromfile(path, numpy.uint8, IMAGES * 3073).reshape(IMAGES, 3073)
    images = []
    for record in records:
        image = Image.fromarray(record[1:].reshape(3, 32, 32).transpose(1, 2, 0))
        image = torch.from_numpy(numpy.array(image.resize((224, 224), Image.BILINEAR))).permute(2, 0, 1)
        images.append((image.float() / 255 - mean) / std)
    return torch.stack(images), torch.from_numpy(records[:, 0].astype(numpy.int64))


def vittrain_run(program, *words):
    done = subprocess.run([program, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def predictions_gap(program, name, model, data, images, folder):
    """The largest difference of a log-probability from PyTorch's."""
    vittrain_run(program, "predict", f"{folder}/{name}.safetensors", *data, "predict.split=test",
                 f"predict.output={folder}/{name}.csv", "train.batch=8")
    with open(f"{folder}/{name}.csv", newline="") as file:
        rows = list(csv.reader(file))
    ours = torch.tensor([[float(value) for value in row[-CLASSES:]] for row in rows[1:]]).log()
    model.eval()
    with torch.no_grad():
        theirs = torch.log_softmax(model(images), 1)
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    return (ours - theirs).abs().max().item()


def losses_ours(program, name, data, folder):
    vittrain_run(program, "train", *data, f"model.init={folder}/{name}.safetensors", "data.shuffle=off",
                 "data.val=none", "augment.flip=0", "augment.rotate=0", "augment.translate=0", "augment.erase=0",
                 f"train.batch={BATCH}", f"train.steps={STEPS}", "optim.name=sgd", f"optim.lr={RATE[name]}",
                 "optim.momentum=0.9", "optim.weight_decay=1e-4", "output.log_every=1",
                 f"run.dir={folder}/run-{name}")
    with open(f"{folder}/run-{name}/metrics.csv", newline="") as file:
        losses = [float(row["loss"]) for row in csv.DictReader(file) if row["split"] == "train"]
    assert len(losses) == STEPS
    return losses


def losses_theirs(name, model, images, labels):
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE[name], momentum=0.9, weight_decay=1e-4)
    losses = []
    for step in range(STEPS):
        batch = slice(step * BATCH % IMAGES, step * BATCH % IMAGES + BATCH)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert abs(losses[-4] / losses[0] - 1) > 1e-2, "the same images again, and nothing was learnt"
    return losses


def furthest(losses, truth):
    return max(abs(a - b) / b for a, b in zip(losses, truth))


def other_head(program, name, data, folder):
    model = model_make(name, 1000)
    save_file({key: value.contiguous() for key, value in model.state_dict().items()},
              f"{folder}/{name}-1000.safetensors")
    vittrain_run(program, "train", *data, f"model.init={folder}/{name}-1000.safetensors", "train.steps=1",
                 f"train.batch={BATCH}", "data.val=none", f"run.dir={folder}/head-{name}")


def main():
    program, sample = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        first = (sample / "data_batch_1.bin").read_bytes()[: IMAGES * 3073]
        for file in ("data_batch_1.bin", "test_batch.bin"):
            (pathlib.Path(folder) / file).write_bytes(first)
        (pathlib.Path(folder) / "batches.meta.txt").write_bytes((sample / "batches.meta.txt").read_bytes())
        print("model,log-probabilities' largest difference,losses' from double precision,PyTorch's own in single")
        for name in sys.argv[3:] or MEAN_STD:
            model = model_make(name, CLASSES)
            images, labels = images_read(f"{folder}/data_batch_1.bin", name)
            save_file({key: value.contiguous() for key, value in model.state_dict().items()},
                      f"{folder}/{name}.safetensors")
            data = (f"model.name={name}", f"model.classes={CLASSES}", "data.format=cifar10", f"data.root={folder}",
                    "train.precision=fp32", "run.backend=cpu")
            logits = predictions_gap(program, name, model, data, images, folder)
            truth = losses_theirs(name, copy.deepcopy(model).double(), images.double(), labels)
            single = furthest(losses_theirs(name, copy.deepcopy(model), images, labels), truth)
            ours = furthest(losses_ours(program, name, data, folder), truth)
            other_head(program, name, data, folder)
            print(f"{name},{logits:.2g},{ours:.2g},{single:.2g}", flush=True)
            assert logits < 1e-4 and ours < max(1e-4, 3 * single)


if __name__ == "__main__":
    main()
