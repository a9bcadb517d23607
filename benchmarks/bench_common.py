# SPDX-License-Identifier: BSD-3-Clause
"""Shared by the PyTorch benchmarks: rows of the table (README.md), the models, the ranks."""

import os
import socket
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CELLS = ["work", "model", "batch", "precision", "strategy", "ranks", "threads", "metric", "value", "unit"]


def commit_of_checkout():
    """The commit, or "unknown" without git or outside of a repository."""
    try:
        done = subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def print_row(framework, version, commit=None, output=None, **cells):
    """Print a row of the table, by `row` of common.sh, to the descriptor `output` (None: standard output)."""
    commit = commit or commit_of_checkout()
    sys.stdout.flush()
    subprocess.run(["sh", "-c", 'here=$1; shift; . "$here/common.sh"; row "$@"', "row", HERE] +
                   [str(cells[name]) for name in CELLS],
                   env=dict(os.environ, framework=framework, version=version, commit=commit), stdout=output,
                   check=True)


def spawn_ranks(ranks, threads):
    """Start this script once per rank, like torchrun but without its start-up time, with RANK in the environment;
    return the largest exit code."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(ranks):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=str(port), OMP_NUM_THREADS=str(threads))
        processes.append(subprocess.Popen([sys.executable] + sys.argv, env=environment))
    return max(abs(process.wait()) for process in processes)


def make_model(name, classes=10):
    if name == "vit_cifar":
        from reference_vit import ReferenceViT
        return ReferenceViT(classes=classes), 32
    if name in ("cnn_a", "cnn_a_lenet", "cnn_b", "cnn_c"):
        import reference_cnn
        classes_of = {"cnn_a": "CnnA", "cnn_a_lenet": "CnnALeNet", "cnn_b": "CnnB", "cnn_c": "CnnC"}
        return getattr(reference_cnn, classes_of[name])(classes=classes), 32
    import timm
    return timm.create_model(name, num_classes=classes), 224
