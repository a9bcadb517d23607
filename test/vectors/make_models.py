# SPDX-License-Identifier: BSD-3-Clause
"""Writes model_*.safetensors: whole small Vision Transformers computed with PyTorch and timm.

A file holds weights (timm's names), a batch, its logits and loss, every gradient, and the weights after
three steps on that batch. Metadata: "shape" (image channels patch dim depth heads hidden classes),
"switches" (qkv_bias class_token embed_norm pool_mean), "norm_epsilon", "smoothing" and, for models with newer parts,
"parts" (registers position norm_first gelu_tanh layer_scale pool_map swiglu qk_norm image_width dense). A dense model's
outputs of all classes and pixels are the logits of one classifier.

Needs torch, timm, numpy, safetensors. Run it in this directory; the result does not depend on anything but versions.
"""

import copy
import functools
import math
import os
import sys

import numpy
import torch
from safetensors.torch import save_file
from timm.layers import Mlp, SwiGLUPacked
from timm.models.eva import Eva
from timm.models.vision_transformer import VisionTransformer
from timm.optim import param_groups_layer_decay
from timm.utils import ModelEmaV3
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../benchmarks"))
from reference_vit import ReferenceViT

STEPS = 3
RATE = 1e-3
WEIGHT_DECAY = 0.05
CLIP_NORM = 0.5
# Gradients that are zero in exact arithmetic (the bias of the keys) are rounding errors of 1e-9 in both
# programs; with Adam's usual 1e-8 the comparison would be one of noise. model_mean_token, which has no such
# gradient, keeps 1e-8.
EPSILON = 1e-4
TOKENS = ("cls_token", "reg_token", "pos_embed", "attn_pool.latent")
POSITIONS = ("learned", "patches", "sincos", "rotary")  # enum position_choice, from 1


def randomize(model):
    """No weight may be at a value (0, 1) where a mistake would not show."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name and name.endswith("weight"):
                parameter.normal_(1.0, 0.2)
            elif parameter.ndim == 1:
                parameter.normal_(0.0, 0.2)
            elif name in TOKENS:
                if parameter.requires_grad:
                    parameter.normal_(0.0, 0.5)
            else:
                fan_in = parameter[0].numel()
                parameter.normal_(0.0, 1.0 / math.sqrt(fan_in))


def sincos_positions(side, width):
    """big_vision's posemb_sincos_2d."""
    y, x = numpy.mgrid[:side, :side]
    omega = 1.0 / 10000.0 ** (numpy.arange(width // 4) / (width // 4 - 1))
    y, x = numpy.outer(y.flatten(), omega), numpy.outer(x.flatten(), omega)
    positions = numpy.concatenate([numpy.sin(x), numpy.cos(x), numpy.sin(y), numpy.cos(y)], axis=1)
    return torch.tensor(positions, dtype=torch.float32)[None]


def timm_model(image, channels, patch, dim, depth, heads, hidden, classes, qkv_bias, class_token, pool_mean,
               norm_epsilon, registers=0, position="learned", norm_first=False, gelu_tanh=False, layer_scale=0.0,
               pool_map=False, swiglu=False, qk_norm=False, image_width=0, **_):
    image = (image, image_width or image)
    norm = functools.partial(nn.LayerNorm, eps=norm_epsilon)
    if position == "rotary":
        return Eva(img_size=image, in_chans=channels, patch_size=patch, embed_dim=dim, depth=depth, num_heads=heads,
                   mlp_ratio=hidden / dim, num_classes=classes, qkv_bias=qkv_bias, class_token=class_token,
                   global_pool="avg" if pool_mean else "token", num_reg_tokens=registers, use_abs_pos_emb=False,
                   use_rot_pos_emb=True, qk_norm=qk_norm, rope_type="dinov3", rope_temperature=100,
                   rope_rotate_half=True, init_values=layer_scale or None,
                   use_fc_norm=pool_mean and not norm_first, norm_layer=norm)
    model = VisionTransformer(img_size=image, in_chans=channels, patch_size=patch, embed_dim=dim, depth=depth,
                              num_heads=heads, mlp_ratio=(2 if swiglu else 1) * hidden / dim, num_classes=classes,
                              qkv_bias=qkv_bias, qk_norm=qk_norm, mlp_layer=SwiGLUPacked if swiglu else Mlp,
                              class_token=class_token,
                              global_pool="map" if pool_map else "avg" if pool_mean else "token",
                              reg_tokens=registers, no_embed_class=position != "learned",
                              fc_norm=pool_mean and not norm_first, init_values=layer_scale or None,
                              act_layer=nn.SiLU if swiglu else "gelu_tanh" if gelu_tanh else None,
                              norm_layer=norm)
    if position == "sincos":
        model.pos_embed = nn.Parameter(sincos_positions(image[0] // patch, dim), requires_grad=False)
    return model


class Dense:
    """Before the class of a timm model: a linear layer per patch whose outputs are put together as an image."""

    def add_dense(self, dim, patch, classes):
        self.reset_classifier(0)
        self.dense = nn.Linear(dim, classes * patch * patch)

    def forward(self, images):
        patch = self.patch_embed.patch_size
        rows = self.dense(self.forward_features(images)[:, self.num_prefix_tokens:])
        return nn.functional.fold(rows.transpose(1, 2), images.shape[-2:], patch, stride=patch)


def dense_model(dim, patch, classes, **shape):
    model = timm_model(dim=dim, patch=patch, classes=classes, **shape)
    model.__class__ = type("DenseModel", (Dense, type(model)), {})
    model.add_dense(dim, patch, classes)
    return model


def loss_of(model, images, labels, smoothing):
    return nn.functional.cross_entropy(model(images).flatten(1), labels, label_smoothing=smoothing)


def reference_model(image, channels, patch, dim, depth, heads, hidden, classes, **_):
    return ReferenceViT(image=image, patch=patch, channels=channels, dim=dim, depth=depth, heads=heads,
                        mlp_ratio=hidden / dim, classes=classes, dropout=0.0, branch_dropout=0.0)


def timm_tensors(model, tensors):
    renamed = model.timm_tensors(tensors) if isinstance(model, ReferenceViT) else tensors
    return {name: tensor.detach().clone().contiguous() for name, tensor in renamed.items()}


def layer_groups(model, decay):
    """timm's groups; its schedulers multiply the rate of a group by lr_scale."""
    groups = param_groups_layer_decay(model, WEIGHT_DECAY, model.no_weight_decay(), layer_decay=decay)
    return [dict(group, lr=RATE * group["lr_scale"]) for group in groups]


OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=RATE, weight_decay=WEIGHT_DECAY, eps=EPSILON),
    "adamw_default": lambda p: torch.optim.AdamW(p, lr=RATE, weight_decay=WEIGHT_DECAY),
    "adam": lambda p: torch.optim.Adam(p, lr=RATE, weight_decay=WEIGHT_DECAY, eps=EPSILON),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=WEIGHT_DECAY),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=WEIGHT_DECAY, momentum=0.9, nesterov=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=RATE, weight_decay=WEIGHT_DECAY, eps=EPSILON),
    "rmsprop_momentum": lambda p: torch.optim.RMSprop(p, lr=RATE, weight_decay=WEIGHT_DECAY, eps=EPSILON,
                                                      momentum=0.9),
}

# Each makes a scheduler for SGD with momentum 0.9 at rate 0.1, stepped after every update.
SCHEDULES = {
    "constant": lambda o: torch.optim.lr_scheduler.ConstantLR(o, 1.0, 0),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=6, eta_min=0.01),
    "step": lambda o: torch.optim.lr_scheduler.StepLR(o, step_size=2, gamma=0.1),
    "onecycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=6),
    "linear": lambda o: torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.2, total_iters=6),
    "plateau": lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, factor=0.5, patience=1, threshold=1e-2),
}
# What the plateau schedule is shown after each step.
PLATEAU_LOSSES = [1.0, 0.999, 0.998, 0.5, 0.499, 0.498]


def one_step(model, optimizer, batch):
    images, labels, smoothing = batch
    optimizer.zero_grad()
    loss_of(model, images, labels, smoothing).backward()
    trained = [p for p in model.parameters() if p.requires_grad]
    torch.nn.utils.clip_grad_norm_(trained, CLIP_NORM)
    optimizer.step()


def add_prefixed(file, prefix, tensors):
    file.update({f"{prefix}/{name}": tensor for name, tensor in tensors.items()})


def train_copy(model, batch, make_optimizer, steps=STEPS, make_schedule=None, after=None):
    trained = copy.deepcopy(model)
    optimizer = make_optimizer(trained)
    schedule = make_schedule(optimizer) if make_schedule else None
    for number in range(steps):
        one_step(trained, optimizer, batch)
        if isinstance(schedule, torch.optim.lr_scheduler.ReduceLROnPlateau):
            schedule.step(PLATEAU_LOSSES[number])
        elif schedule and number + 1 < steps:
            schedule.step()
        if after:
            after(trained)
    return dict(trained.named_parameters())


def add_more_rules(file, model, batch):
    """Schedules, layer-wise decay, frozen tensors and the moving average: for one small model."""
    for name, make_schedule in SCHEDULES.items():
        trained = train_copy(model, batch, lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9),
                             len(PLATEAU_LOSSES), make_schedule)
        add_prefixed(file, f"schedule_{name}", timm_tensors(model, trained))

    def adamw(groups):
        return torch.optim.AdamW(groups, lr=RATE, weight_decay=WEIGHT_DECAY, eps=EPSILON)

    trained = train_copy(model, batch, lambda m: adamw(layer_groups(m, 0.75)))
    add_prefixed(file, "after_layer_decay", timm_tensors(model, trained))

    def freeze_stem(trained):
        for name, parameter in trained.named_parameters():
            if name in TOKENS or name.startswith("patch_embed"):
                parameter.requires_grad_(False)
        return adamw([p for p in trained.parameters() if p.requires_grad])

    add_prefixed(file, "after_freeze", timm_tensors(model, train_copy(model, batch, freeze_stem)))
    average = ModelEmaV3(model, decay=0.9)
    train_copy(model, batch, lambda m: adamw(m.parameters()), after=average.update)
    add_prefixed(file, "average", timm_tensors(model, dict(average.module.named_parameters())))


def make(name, batch=3, smoothing=0.0, optimizers=("adamw",), more_rules=False, **shape):
    torch.manual_seed(sum(name.encode()))
    dense = shape.get("dense", False)
    model = (reference_model if shape["embed_norm"] else dense_model if dense else timm_model)(**shape)
    randomize(model)
    width = shape.get("image_width") or shape["image"]
    images = torch.randn(batch, shape["channels"], shape["image"], width)
    labels = torch.randint(0, shape["classes"] * (shape["image"] * width if dense else 1), (batch,))
    file = {"images": images, "labels": labels.to(torch.int32)}
    logits = model(images)
    loss = loss_of(model, images, labels, smoothing)
    loss.backward()
    parameters = dict(model.named_parameters())
    file["logits"] = logits.detach()
    file["loss"] = loss.detach().reshape(1)
    add_prefixed(file, "weight", timm_tensors(model, parameters))
    add_prefixed(file, "gradient", timm_tensors(model, {
        n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in parameters.items()}))
    for optimizer in optimizers:
        trained = train_copy(model, (images, labels, smoothing),
                             lambda m: OPTIMIZERS[optimizer](m.parameters()))
        add_prefixed(file, f"after_{optimizer}", timm_tensors(model, trained))
    if more_rules:
        add_more_rules(file, model, (images, labels, smoothing))
    numbers = ("image", "channels", "patch", "dim", "depth", "heads", "hidden", "classes")
    switches = ("qkv_bias", "class_token", "embed_norm", "pool_mean")
    parts = dict(registers=0, position="learned", norm_first=False, gelu_tanh=False, layer_scale=0.0,
                 pool_map=False, swiglu=False, qk_norm=False, image_width=0, dense=False)
    metadata = {"shape": " ".join(str(shape[key]) for key in numbers),
                "switches": " ".join(str(int(shape[key])) for key in switches),
                "norm_epsilon": repr(shape["norm_epsilon"]), "smoothing": repr(smoothing)}
    if not parts.keys().isdisjoint(shape):
        values = {**parts, **shape}
        position = POSITIONS.index(values["position"]) + 1
        metadata["parts"] = (f"{values['registers']} {position} {int(values['norm_first'])} "
                             f"{int(values['gelu_tanh'])} {values['layer_scale']} {int(values['pool_map'])} "
                             f"{int(values['swiglu'])} {int(values['qk_norm'])} {values['image_width']} {int(values['dense'])}")
    save_file(file, f"model_{name}.safetensors", metadata)
    print(name, os.path.getsize(f"model_{name}.safetensors"), f"loss {loss.item():.6f}")


def main():
    torch.set_num_threads(1)
    small = dict(image=8, channels=3, patch=4, dim=16, depth=2, heads=2, hidden=64, classes=5, qkv_bias=True,
                 class_token=True, embed_norm=False, pool_mean=False, norm_epsilon=1e-6)
    make("token", **small)
    make("mean", smoothing=0.1, **{**small, "class_token": False, "pool_mean": True, "image": 12})
    make("mean_token", optimizers=("adamw_default",),
         **{**small, "pool_mean": True, "qkv_bias": False, "norm_epsilon": 1e-5})
    make("cifar", smoothing=0.1, **{**small, "embed_norm": True, "qkv_bias": False, "norm_epsilon": 1e-5})
    # Sizes that no vector width divides, more patches than a vector, one channel.
    make("odd", batch=5, **{**small, "image": 15, "channels": 1, "patch": 3, "dim": 12, "heads": 3, "hidden": 36,
                            "classes": 7})
    parts = {**small, "hidden": 24, "image": 12}
    # DeiT III, DINOv2 with registers, register tokens with positions, big_vision's ViT
    make("layer_scale", optimizers=(), **{**parts, "layer_scale": 1e-6, "position": "patches"})
    make("registers", **{**parts, "registers": 4, "layer_scale": 1e-5, "position": "patches"})
    make("register_positions", optimizers=(), **{**parts, "registers": 1, "class_token": False, "pool_mean": True})
    make("sincos", **{**parts, "class_token": False, "pool_mean": True, "position": "sincos", "norm_first": True,
                      "gelu_tanh": True})
    # DINOv2's giant model
    make("swiglu", optimizers=(), **{**parts, "swiglu": True, "layer_scale": 1e-5})
    # DINOv3
    make("rotary", optimizers=(), **{**parts, "pool_mean": True, "norm_first": True, "position": "rotary",
                                     "qkv_bias": False, "layer_scale": 1e-5, "norm_epsilon": 1e-5})
    # Images that are not square, norms of queries and keys: with positions and with rotary positions
    make("wide", **{**parts, "image": 8, "image_width": 20, "qk_norm": True})
    make("wide_rotary", optimizers=(), **{**parts, "image": 20, "image_width": 12, "position": "rotary",
                                          "qk_norm": True, "qkv_bias": False})
    # SigLIP's image tower
    make("map", optimizers=(), **{**parts, "class_token": False, "pool_map": True, "hidden": 20, "gelu_tanh": True})
    # Outputs for each pixel: with and without a class token, which the head does not read
    make("dense", smoothing=0.1, **{**parts, "image": 8, "image_width": 12, "classes": 3, "registers": 2,
                                    "position": "patches", "layer_scale": 1e-5, "dense": True})
    make("dense_rotary", optimizers=(), **{**parts, "patch": 3, "channels": 2, "classes": 2, "class_token": False,
                                           "position": "rotary", "pool_mean": True, "norm_first": True,
                                           "qkv_bias": False, "dense": True})
    tiny = {**small, "image": 4, "patch": 2, "dim": 8, "depth": 2, "hidden": 16, "heads": 1, "classes": 3}
    make("rules", optimizers=("adamw", "adam", "sgd", "nesterov", "rmsprop", "rmsprop_momentum"), more_rules=True,
         **tiny)


if __name__ == "__main__":
    main()
