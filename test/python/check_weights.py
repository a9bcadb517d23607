# SPDX-License-Identifier: BSD-3-Clause
"""Weights go from timm, torchvision or plain torch modules through a run and back: for each architecture, random
weights initialize a run of one step, and the run's weights.safetensors loads (strictly, unchanged) into a new
model, whose log-probabilities on a validation set must equal those of `vittrain predict` to 1e-4. Larger models
get photographs, by the recipe for photographs and by timm's transforms. `vittrain convert` must write the
same tensors (of two models).

    check_weights.py VITTRAIN SAMPLE PHOTOS FOLDER [MODEL...]

SAMPLE is a folder with CIFAR-10's binary files, PHOTOS one with train/CLASS and val/CLASS.
"""
import json
import pathlib
import sys

import numpy
import timm
import torch
import torchvision
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file
from timm.data import create_transform
from timm.models.vision_transformer import VisionTransformer

from support import images_in, probabilities_of, python_of, run, save_weights
import reference_cnn

IMAGES, CONVERTED = 4, ("vit_cifar", "resnet18")


def vit_cifar(classes):
    """By the code of docs/fine-tune.md."""
    code = next(block for block in python_of("fine-tune.md") if "import VisionTransformer" in block)
    space = {}
    exec(code.split("\nmodel = ")[0], space)
    return space["vit_cifar"](classes)


MODELS = {"vit_cifar": vit_cifar, "cnn_a": reference_cnn.CnnA, "cnn_a_lenet": reference_cnn.CnnALeNet,
          "cnn_b": reference_cnn.CnnB, "cnn_c": reference_cnn.CnnC}
SMALL = tuple(MODELS)
for name in ("vit_tiny_patch16_224", "vit_small_patch16_224", "vit_small_patch32_224", "vit_base_patch16_224",
             "vit_base_patch32_224", "deit3_small_patch16_224", "vit_small_patch14_dinov2",
             "vit_small_patch14_reg4_dinov2", "vit_small_patch16_dinov3", "resnet18", "resnet34", "resnet50", "resnet101",
             "resnet152"):
    MODELS[name] = lambda classes, name=name: timm.create_model(name, num_classes=classes)
MODELS["vit_small_patch16_sincos"] = lambda classes: VisionTransformer(
    embed_dim=384, depth=12, num_heads=6, num_classes=classes, class_token=False, global_pool="avg", fc_norm=False,
    act_layer="gelu_tanh")


def random_model(name, classes):
    """Nothing is 0 or 1, so that errors are detected."""
    model = MODELS[name](classes)
    for key, tensor in model.state_dict().items():
        if not tensor.dtype.is_floating_point:
            continue
        if tensor.dim() >= 2:
            scale = 0.3 if key.startswith("fc.") else 0.7 if tensor.dim() == 4 else 1.5
            tensor.normal_(0, 0.2 if "embed" in key else scale * tensor[0].numel() ** -0.5)
        elif key.endswith("weight") or key.endswith("running_var"):
            tensor.uniform_(0.5, 1.5)
        else:
            tensor.normal_(0, 0.1)
    return model


def small_images(sample):
    records = numpy.fromfile(sample / "test_batch.bin", numpy.uint8, IMAGES * 3073).reshape(IMAGES, 3073)
    return (torch.from_numpy(records[:, 1:].reshape(IMAGES, 3, 32, 32)).float() / 255 - 0.5) / 0.5


def photographs(folder, weights):
    """In the order of the data set, by timm's transform for the metadata of the weights."""
    with safe_open(weights, "pt") as file:
        info = file.metadata()
    size = json.loads(info["input_size"])
    config = {key: json.loads(info[key]) for key in ("mean", "std")}
    transform = create_transform(size, is_training=False, interpolation=info["interpolation"],
                                 crop_pct=size[1] / (int(info["eval.resize"]) + 0.5), **config)
    return torch.stack([transform(Image.open(file).convert("RGB")) for file in images_in(folder / "val")[:IMAGES]])


def check(vittrain, name, data, images_of, folder):
    torch.manual_seed(sum(map(ord, name)))
    where, small = folder / name, name in SMALL
    classes = 10 if small else 3
    model = random_model(name, classes)
    where.mkdir()
    save_weights(model, where / "start.safetensors")
    run(vittrain, f"model.name={name}", *data, f"model.init={where}/start.safetensors", f"run.dir={where}/run",
        "train.precision=fp32", "train.steps=1", "train.batch=2", "data.val=val" if not small else "data.val=none",
        "train.eval_every=0", "optim.name=sgd", "optim.lr=1e-3", "debug.batches=1", "output.tensorboard=off")
    weights = where / "run/weights.safetensors"
    written = load_file(weights)
    model.load_state_dict(written)
    if "resnet" in name:
        with torch.device("meta"):
            other = getattr(torchvision.models, name)(num_classes=classes)
        other.load_state_dict(written, assign=True)
    if name in CONVERTED:
        run(vittrain, "convert", where / "run/checkpoints/last.h5", where / "converted.safetensors")
        converted = load_file(where / "converted.safetensors")
        assert converted.keys() == written.keys() and all(torch.equal(converted[key], written[key]) for key in written)
    run(vittrain, "predict", where / "run/checkpoints/last.h5", "predict.split=" + ("test" if small else "val"),
        f"predict.output={where}/predictions.csv", f"train.batch={IMAGES}", "debug.batches=1")
    model.eval()
    with torch.no_grad():
        expected = torch.log_softmax(model(images_of(weights)), 1)
    found = torch.tensor(probabilities_of(where / "predictions.csv")[:IMAGES]).log()
    assert found.shape == expected.shape, (found.shape, expected.shape)
    gap, spread = (found - expected).abs().max().item(), (expected - expected.mean(0)).abs().max().item()
    print(f"{name}: log-probabilities differ by {gap:.1e}; they spread by {spread:.2g} over the images", flush=True)
    assert gap < 1e-4 < spread, name
    for file in (*where.glob("*.safetensors"), *where.glob("run/*.safetensors"), *where.glob("run/checkpoints/*")):
        file.unlink()


def main():
    vittrain, sample, photos, folder = (pathlib.Path(word).resolve() for word in sys.argv[1:5])
    folder.mkdir(parents=True, exist_ok=True)
    cifar = ("data.format=cifar10", f"data.root={sample}")
    files = ("data.format=imagefolder", f"data.root={photos}")
    for name in sys.argv[5:] or MODELS:
        if name in SMALL:
            check(vittrain, name, cifar, lambda weights: small_images(sample), folder)
        else:
            check(vittrain, name, files, lambda weights: photographs(photos, weights), folder)


if __name__ == "__main__":
    main()
