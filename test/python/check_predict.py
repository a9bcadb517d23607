# SPDX-License-Identifier: BSD-3-Clause
"""Predicts a photograph with weights of timm, which are described by the config.json beside them, and compares the
probabilities with timm's. Files of PyTorch are converted with the command in the program's error, and give the same.

    check_predict.py VITTRAIN FOLDER
"""
import json
import os
import shlex
import subprocess
import sys

import numpy
import timm
import torch
from PIL import Image
from safetensors.torch import load_file

from support import run

CLASSES = [f"kind {number}" for number in range(7)]


def predict(program, weights, photo):
    """Return the line of JSON."""
    output = photo + ".json"
    run(program, "predict", weights, photo, f"predict.output={output}", "train.precision=fp32")
    with open(output) as file:
        return json.load(file)


def make_photo(path):
    """Smooth shapes with some noise, wider than high."""
    y, x = numpy.mgrid[0:300, 0:420]
    planes = [numpy.sin(x / (20 + 9 * c)) * numpy.cos(y / (30 - 7 * c)) for c in range(3)]
    noise = numpy.random.default_rng(1).normal(0, 0.05, (300, 420, 3))
    pixels = 127 + 110 * (numpy.stack(planes, 2) + noise)
    Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8)).save(path, quality=92)


def check_model(program, folder, photo, name):
    model = timm.create_model(name, num_classes=len(CLASSES)).eval()
    timm.models.save_for_hf(model, folder, safe_serialization=True, model_config={"label_names": CLASSES})
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))
    with torch.no_grad():
        expected = model(transform(Image.open(photo))[None]).softmax(1)[0].numpy()
    line = predict(program, folder + "/model.safetensors", photo)
    difference = abs(expected - numpy.array(line["probabilities"])).max()
    assert difference < 1e-5, (name, difference)
    assert line["class"] == CLASSES[int(expected.argmax())], line
    print(f"{name}: difference {difference:.1e}")
    return line


def check_conversions(program, folder, photo, line):
    state = load_file(folder + "/model.safetensors")
    parallel = {"module." + key: value for key, value in state.items()}
    files = {"plain.pth": state, "it's.pt": {"model": state, "epoch": 3}, "saved": {"state_dict": parallel}}
    for name, content in files.items():
        torch.save(content, f"{folder}/{name}", _use_new_zipfile_serialization=name != "saved")
        error = run(program, "predict", f"{folder}/{name}", photo, status=4)
        assert error.count("\n") == 1, error
        weights = f"{folder}/{name.split('.')[0]}.safetensors"
        command = error[error.index("python -c"):].strip().replace("python", shlex.quote(sys.executable), 1)
        assert command.endswith(" INPUT OUTPUT.safetensors"), command
        words = f" {shlex.quote(f'{folder}/{name}')} {shlex.quote(weights)}"
        subprocess.run(command.removesuffix(" INPUT OUTPUT.safetensors") + words, shell=True, check=True)
        assert predict(program, weights, photo) == line, name


def main():
    program, folder = sys.argv[1:]
    photo = folder + "/photo.jpg"
    os.makedirs(folder, exist_ok=True)
    make_photo(photo)
    torch.manual_seed(1)
    for name in ("vit_tiny_patch16_224", "resnet18"):
        line = check_model(program, f"{folder}/{name}", photo, name)
    check_conversions(program, f"{folder}/resnet18", photo, line)


if __name__ == "__main__":
    main()
