# SPDX-License-Identifier: BSD-3-Clause
"""What the checks share: runs of the program and what it writes."""
import configparser
import csv
import functools
import os
import pathlib
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "benchmarks"), str(ROOT / "test/vectors")]
# Runs whose losses are compared with those of PyTorch: a row of metrics.csv for each step, and no random changes of images
EXACT = ("data.shuffle=off train.precision=fp32 optim.name=sgd run.threads=1 output.log_every=1 "
         "output.tensorboard=off").split()
NOT_AUGMENTED = "augment.flip=0 augment.rotate=0 augment.translate=0 augment.erase=0".split()
# A small model of arrays
ARRAYS = ("data.format=arrays model.name=vit_cifar model.dim=32 model.depth=1 model.heads=2 model.patch=4 "
          "train.precision=fp32 run.threads=1").split()


def run(*words, status=0):
    """Run a program, and return all that it prints."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == status, f"{words}: status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def table(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def options_of(folder):
    """{option: value} of a run, all as texts."""
    deck = configparser.ConfigParser(interpolation=None)
    deck.read(os.path.join(folder, "deck.ini"))
    return {f"{section}.{key}": value for section in deck.sections() for key, value in deck[section].items()}


def losses_of(folder, split="train"):
    return [float(row["loss"]) for row in table(os.path.join(folder, "metrics.csv")) if row["split"] == split]


def probabilities_of(path):
    """The columns p_NAME, or p0, p1, ..., of a prediction."""
    rows = table(path)
    columns = [key for key in rows[0] if key.startswith("p_") or key[0] == "p" and key[1:].isdigit()]
    return [[float(row[key]) for key in columns] for row in rows]


def program_in_folder():
    """Enter the folder of the arguments PROGRAM FOLDER. Return a function that runs the program with words."""
    program, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    return functools.partial(run, program)


def python_of(page):
    """The Python blocks of a page of the manual."""
    block, blocks = [], []
    for line in (ROOT / "docs" / page).read_text().splitlines() + ["end"]:
        if line.startswith("    ") or (block and not line):
            block.append(line)
        elif block:
            blocks.append(textwrap.dedent("\n".join(block)))
            block = []
    return [block for block in blocks if block.startswith(("import ", "from "))]


def cifar_part(sample, folder, counts):
    """Write the first records of files of CIFAR-10 to a new folder. counts: {name of a file: records}. Return a list with the
    images, [records, 3, 32, 32] levels, and the labels of each file."""
    import numpy
    os.makedirs(folder)
    parts = []
    for name, count in counts.items():
        records = numpy.fromfile(os.path.join(sample, name), numpy.uint8, count * 3073).reshape(count, 3073)
        records.tofile(os.path.join(folder, name))
        parts.append((records[:, 1:].reshape(count, 3, 32, 32), records[:, 0].astype("int64")))
    return parts


def images_in(folder):
    files = sorted(path for path in pathlib.Path(folder).rglob("*") if path.suffix.lower() in (".jpeg", ".jpg", ".png"))
    assert len(files) >= 10, f"{folder}: {len(files)} images"
    return files


def save_weights(model, path):
    from safetensors.torch import save_file
    save_file({name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()}, path)
