#!/bin/sh
# A job of jobs/ddp_2node.sh that Slurm's time limit of a minute cuts again and again, and one that is left alone, on
# two nodes of this machine (test/cluster.sh, so as root): prints a CSV row for each part of the first, then whether
# both ended with the same weights.
#   benchmarks/slurm_limit.sh DIR CIFAR10 [section.key=value ...]     CIFAR10: folder of the binary version
set -eu
top=$(cd "$(dirname "$0")/.." && pwd) dir=$1 data=$2
shift 2
mkdir -p "$dir"
cd "$dir"
cluster() { sh "$top/test/cluster.sh" "$dir" "$@"; }
trap 'cluster down' EXIT
cluster up 2 slurm
eval "$(cluster env)"
export VITTRAIN_HOME="$top" VITTRAIN_BIND=none VITTRAIN_INTERFACE=eth0 OMPI_MCA_mpi_yield_when_idle=1
set -- output.logbook= data.root="$data" model.dim=32 model.depth=2 model.heads=2 model.patch=8 train.epochs=14 train.precision=fp32 \
    optim.ema=0.99 schedule.name=onecycle schedule.per=step run.seed=7 run.threads=1 output.monitor=0 "$@"
limited=$(cluster head sbatch --parsable --time=1 --signal=B:USR1@30 "$top/jobs/ddp_2node.sh" "$@")
cluster wait "$limited" 3600 >&2
alone=$(cluster head sbatch --parsable "$top/jobs/ddp_2node.sh" "$@")
cluster wait "$alone" 3600 >&2
echo part,first_step,last_step,seconds_to_stop,reason
awk -v log_="ddp_2node.$limited.log" '
    function seconds(clock, part) { split(clock, part, ":"); return part[1] * 3600 + part[2] * 60 + part[3] }
    BEGIN {
        while ((getline line < log_) > 0) {
            split(line, word, " ")
            if (line ~ /asking the ranks to stop/) asked[word[4] + 0] = seconds(word[2])
            if (line ~ /ended with status/) ended[word[4] + 0] = seconds(word[2])
        }
        part = 1
    }
    / stopped at step / {
        print part "," first + 0 "," $5 "," ended[part] - asked[part] ",limit"
        first = $5
        part++
    }
    / epoch [0-9]+ done / { last = $3 }
    END { print part "," first "," "end,,finished after epoch " last }' "runs/ddp_2node-$limited/train.log"
cmp "runs/ddp_2node-$limited/weights.safetensors" "runs/ddp_2node-$alone/weights.safetensors" &&
    echo '# the weights are the same, bit for bit'
