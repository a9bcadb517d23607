# SPDX-License-Identifier: BSD-3-Clause
"""Writes tpe.txt: densities of Optuna's Parzen estimator at some points, for test_sweep.c.

The space: a rate from 1e-4 to 0.1 in its logarithm, a whole number from 2 to 8, a whole number from 1 to 64 in its
logarithm, one of 3 choices. Lines "trials N", then N lines with a trial each, then lines "at", the point and the
logarithm of the density there.

It also prints how good the best of 40 trials by Optuna's sampler is on the function of test_sweep.c, over 100 seeds:
with 5.0.0 the mean is 0.8878, means of 20 seeds go from 0.8832 to 0.8912; by chance 0.8614. Over 100 seeds the program
has 0.8909, and by chance 0.8599.

Needs optuna (made with 5.0.0). Run it in this directory.
"""

import warnings

import numpy
import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator, _ParzenEstimatorParameters
from optuna.samplers._tpe.sampler import default_weights

SPACE = {
    "rate": FloatDistribution(1e-4, 0.1, log=True),
    "depth": IntDistribution(2, 8),
    "batch": IntDistribution(1, 64, log=True),
    "choice": CategoricalDistribution([0, 1, 2]),
}


def draw(random, count):
    return {
        "rate": numpy.array([float(f"{rate:.4g}") for rate in 10 ** random.uniform(-4, -1, count)]),
        "depth": random.integers(2, 9, count).astype(float),
        "batch": numpy.rint(2 ** random.uniform(0, 6, count)),
        "choice": random.integers(0, 3, count).astype(float),
    }


def line(points, i):
    return " ".join(f"{points[name][i]:.17g}" for name in SPACE)


def accuracy(trial):
    rate = numpy.log10(trial.suggest_float("rate", 1e-4, 0.1, log=True) / 3e-3)
    depth = trial.suggest_int("depth", 2, 8)
    batch = numpy.log2(trial.suggest_int("batch", 1, 64, log=True) / 16)
    name = trial.suggest_categorical("name", ["sgd", "adam", "adamw"])
    return 0.9 - 0.15 * rate**2 - 0.02 * batch**2 - (name != "adam") * 0.1 - 0.01 * abs(depth - 6)


def best_mean(sampler):
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    best = []
    for seed in range(100):
        study = optuna.create_study(direction="maximize", sampler=sampler(seed=seed))
        study.optimize(accuracy, n_trials=40)
        best.append(study.best_value)
    means = numpy.array(best).reshape(5, 20).mean(axis=1)
    print(f"{sampler.__name__}: best of 40 trials, mean {numpy.mean(best):.4f}, of 20 seeds {means.round(4)}")


def main():
    warnings.simplefilter("ignore")
    # Of equal values the earlier trial is the first: numpy's own order changes from machine to machine.
    argsort = numpy.argsort
    numpy.argsort = lambda values, kind="stable": argsort(values, kind=kind)
    random = numpy.random.default_rng(1)
    parameters = _ParzenEstimatorParameters(1.0, True, False, default_weights, True)
    with open("tpe.txt", "w") as file:
        for count in (0, 1, 2, 3, 9, 24, 26, 27, 60):
            trials, at = draw(random, count), draw(random, 6)
            density = _ParzenEstimator(trials, SPACE, parameters).log_pdf(at)
            # Optuna's density of a rate is that of its logarithm, as ours.
            file.write(f"trials {count}\n")
            file.writelines(line(trials, i) + "\n" for i in range(count))
            file.writelines(f"at {line(at, i)} {density[i]:.12g}\n" for i in range(6))


if __name__ == "__main__":
    main()
    best_mean(optuna.samplers.TPESampler)
    best_mean(optuna.samplers.RandomSampler)
