# SPDX-License-Identifier: BSD-3-Clause
"""Writes groups.txt: how timm treats each parameter of a model with layer-wise decay of 0.75, for test_model.c.

A line holds the model, an option, the parameter, the scale of its learning rate, whether it has weight decay, and
whether Muon orthogonalizes its update.

Needs timm. Run it in this directory; the result does not depend on anything but versions.
"""

import timm
from timm.optim import param_groups_layer_decay
from timm.optim.muon import _is_suitable_for_muon

CASES = (
    ("vit_tiny_patch16_224", "model.pool=token", {}),
    ("vit_tiny_patch16_224", "model.pool=mean", {"global_pool": "avg"}),
    ("vit_tiny_patch16_224", "model.registers=4", {"reg_tokens": 4}),
    ("vit_tiny_patch16_224", "model.layer_scale=1e-5", {"init_values": 1e-5}),
    ("vit_base_patch32_siglip_256", "model.pool=map", {"num_classes": 1000}),
    ("resnet18", "model.width=64", {}),
)


def main():
    with open("groups.txt", "w") as file:
        for name, option, arguments in CASES:
            model = timm.create_model(name, **arguments)
            excluded = model.no_weight_decay() if hasattr(model, "no_weight_decay") else ()
            groups = param_groups_layer_decay(model, 0.05, excluded, layer_decay=0.75)
            group_of = {id(parameter): group for group in groups for parameter in group["params"]}
            for parameter_name, parameter in model.named_parameters():
                group = group_of[id(parameter)]
                file.write(f"{name} {option} {parameter_name} {group['lr_scale']:.9g} "
                           f"{int(group['weight_decay'] > 0)} {int(_is_suitable_for_muon(parameter))}\n")


if __name__ == "__main__":
    main()
