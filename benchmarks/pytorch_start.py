# SPDX-License-Identifier: BSD-3-Clause
"""Seconds from the start of two processes to the end of their first training step with PyTorch, DDP over
gloo: importing, building the model, meeting, one step. Prints a row of the benchmarks' CSV."""

import os
import subprocess
import sys
import time


def main():
    model = sys.argv[1] if len(sys.argv) > 1 else "vit_cifar"
    ranks = sys.argv[2] if len(sys.argv) > 2 else "2"
    here = os.path.dirname(os.path.abspath(__file__))
    sys.exit(subprocess.call([sys.executable, os.path.join(here, "pytorch_step.py"), "--model", model,
                              "--batch", "64", "--ranks", ranks,
                              "--epoch-seconds-of-start", repr(time.time())]))


if __name__ == "__main__":
    main()
