#!/bin/bash
# Seconds from `mpirun` to the end of a run of one step of vit_cifar on 2 ranks, its checkpoint and the end of
# the processes included: an upper bound of the time to the end of the first step. pytorch_start.py is
# PyTorch's. Prints rows of the benchmarks' CSV.
#
#   benchmarks/start.sh [TURNS] >> benchmarks/results/start-DATE.csv
#
# Environment: PYTHON (any), VITTRAIN, MPIRUN.
set -euo pipefail

turns=${1:-5}
here=$(dirname "$(readlink -f "$0")")
python=${PYTHON:-python3}
vittrain=${VITTRAIN:-$here/../vittrain}
mpirun=${MPIRUN:-mpirun --oversubscribe}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

for ((turn = 0; turn <= turns; turn++)); do
    begin=$(date +%s.%N)
    $mpirun -np 2 "$vittrain" train train.steps=1 run.threads=1 train.global_batch=64 data.format=synthetic \
        data.val=none output.weights=off "run.dir=$scratch/run$turn" >"$scratch/log" 2>&1 ||
        { tail -3 "$scratch/log" >&2; exit 1; }
    end=$(date +%s.%N)
    # The first turn brings the program into the page cache.
    ((turn == 0)) || awk "BEGIN { print $end - $begin }" >>"$scratch/seconds"
done
median=$(sort -g "$scratch/seconds" | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }')
version=$("$vittrain" --version | head -1 | tr -d , | sed "s|^vittrain ||")
"$python" - "$version" "$median" <<END
import sys
sys.path.insert(0, "$here")
from bench_common import print_row
print_row(framework="vittrain", version=sys.argv[1], work="start and one step", model="vit_cifar", batch=64,
          precision="fp32", strategy="ddp", ranks=2, threads=1, metric="whole run", value=sys.argv[2], unit="s")
END
