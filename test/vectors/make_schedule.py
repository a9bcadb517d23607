# SPDX-License-Identifier: BSD-3-Clause
"""Learning rates and momenta of torch.optim.lr_scheduler, for test_schedule.c.

Writes schedule.safetensors: for each case the rate and the momentum (Adam's beta1 in the case
onecycle_adam) of every step; the metadata of a case are the options that ask for it. For plateau
CASE.values are what is observed after each step. With warm-up a warm-up scheduler runs first, and
then the main one, fresh, for the rest of the run.

    python make_schedule.py
"""

import math
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.optim import SGD, Adam, lr_scheduler

RATE = 0.02
STEPS_PER_EPOCH = 4
STEPS = 46  # the last epoch is short
WARMUP = 3

# name: (options, scheduler for a run of so many units)
MAIN = {
    "constant": ("", lambda opt, units: lr_scheduler.ConstantLR(opt, factor=1)),
    "cosine": (
        "schedule.min_lr=0.001",
        lambda opt, units: lr_scheduler.CosineAnnealingLR(opt, T_max=units, eta_min=0.001),
    ),
    "step": (
        "schedule.step_size=3 schedule.gamma=0.3",
        lambda opt, units: lr_scheduler.StepLR(opt, step_size=3, gamma=0.3),
    ),
    "onecycle": (
        "schedule.pct_start=0.3 schedule.div_factor=20 schedule.final_div_factor=500",
        lambda opt, units: lr_scheduler.OneCycleLR(
            opt, max_lr=RATE, total_steps=units, pct_start=0.3, div_factor=20,
            final_div_factor=500),
    ),
    "linear": (
        "schedule.end_factor=0.1",
        lambda opt, units: lr_scheduler.LinearLR(
            opt, start_factor=1, end_factor=0.1, total_iters=units),
    ),
}

PLATEAU = "schedule.factor=0.5 schedule.patience=2 schedule.threshold=0.01 schedule.min_lr=0.003"
OBSERVED = [1.0, 0.9, 0.895, 0.9, 0.89, 0.889, 0.89, 0.95, 0.885, 0.5, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6,
            0.6, 0.6, 0.6, 0.49, 0.498, 0.5, 0.5]


def optimizer(kind):
    parameter = torch.nn.Parameter(torch.zeros(1))
    return Adam([parameter], lr=RATE) if kind is Adam else SGD([parameter], lr=RATE, momentum=0.9)


def follow(make, units, kind=SGD):
    """Rates and momenta of `units` units under the scheduler that make(optimizer, units) gives."""
    opt = optimizer(kind)
    scheduler = make(opt, units)
    rates, momenta = [], []
    for _ in range(units):
        group = opt.param_groups[0]
        rates.append(float(group["lr"]))
        momenta.append(float(group["betas"][0] if kind is Adam else group["momentum"]))
        opt.step()
        scheduler.step()
    return rates, momenta


def warm_up(opt, units):
    return lr_scheduler.LinearLR(opt, start_factor=1 / units, end_factor=1, total_iters=units - 1)


def run(make, units, warmup, kind):
    rates, momenta = follow(make, units - warmup, kind)
    if warmup > 0:
        first = follow(warm_up, warmup, kind)[0]
        return first + rates, momenta[:1] * warmup + momenta
    return rates, momenta


def plateau(mode):
    """Rates with an observation after each step; for `max` the values are turned round."""
    opt = optimizer(SGD)
    scheduler = lr_scheduler.ReduceLROnPlateau(
        opt, mode=mode, factor=0.5, patience=2, threshold=0.01, min_lr=0.003)
    values = OBSERVED if mode == "min" else [1 - value for value in OBSERVED]
    rates = []
    for value in values:
        rates.append(float(opt.param_groups[0]["lr"]))
        scheduler.step(value)
    return rates, values


def main():
    tensors, options = {}, {}

    def store(case, text, rates, momenta):
        tensors[case + ".rates"] = torch.tensor(rates, dtype=torch.float64)
        tensors[case + ".momenta"] = torch.tensor(momenta, dtype=torch.float64)
        options[case] = text

    for name, (text, make) in MAIN.items():
        for per in ("step", "epoch"):
            for warmup in (0, WARMUP):
                for kind in (SGD, Adam) if name == "onecycle" else (SGD,):
                    length = STEPS_PER_EPOCH if per == "epoch" else 1
                    rates, momenta = run(make, math.ceil(STEPS / length), warmup, kind)
                    case = f"{name}_{kind.__name__.lower()}_{per}_{warmup}"
                    store(
                        case,
                        f"schedule.name={name} schedule.per={per} schedule.warmup={warmup} {text}",
                        [rates[step // length] for step in range(STEPS)],
                        [momenta[step // length] for step in range(STEPS)])
    for mode in ("min", "max"):
        rates, values = plateau(mode)
        store(f"plateau_{mode}", f"schedule.name=plateau {PLATEAU}", rates, [0.9] * len(rates))
        tensors[f"plateau_{mode}.values"] = torch.tensor(values, dtype=torch.float64)
    options.update(cases=" ".join(options), torch=torch.__version__)
    save_file(tensors, Path(__file__).parent / "schedule.safetensors", metadata=options)


if __name__ == "__main__":
    main()
