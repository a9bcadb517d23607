"""What the PyTorch benchmarks share: the row of the CSV (see README.md), the models, the ranks."""

import datetime
import os
import platform
import socket
import subprocess
import sys

COLUMNS = ["date", "host_cpu", "commit", "framework", "version", "work", "model", "batch", "precision",
           "strategy", "ranks", "threads", "metric", "value", "unit", "nodes", "host", "cores", "memory_gib", "gpu",
           "load"]


def host_cpu():
    """The processor's name and how many cores there are."""
    name = platform.machine()
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    return f"{name} ({os.sysconf('SC_NPROCESSORS_ONLN')} cores)".replace(",", " ")


def commit():
    here = os.path.dirname(os.path.abspath(__file__))
    done = subprocess.run(["git", "-C", here, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def print_row(**fields):
    row = dict(date=datetime.datetime.now().isoformat(timespec="seconds"), host_cpu=host_cpu(), commit=commit(),
               nodes=1, host=socket.gethostname(), cores=os.sysconf("SC_NPROCESSORS_ONLN"),
               memory_gib=round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
               gpu=os.environ.get("VITTRAIN_BENCH_GPU", "").replace(",", " "), load=f"{os.getloadavg()[0]:.2f}")
    row.update(fields)
    print(",".join(str(row[name]) for name in COLUMNS), flush=True)


def spawn_ranks(ranks, threads):
    """Starts this script once per rank, as torchrun would but without its own cost; returns the worst exit
    code. The children find RANK in their environment."""
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
    if name in ("cnn_a", "cnn_a_lenet", "cnn_b"):
        import reference_cnn
        classes_of = {"cnn_a": "CnnA", "cnn_a_lenet": "CnnALeNet", "cnn_b": "CnnB"}
        return getattr(reference_cnn, classes_of[name])(classes=classes), 32
    import timm
    return timm.create_model(name, num_classes=classes), 224
