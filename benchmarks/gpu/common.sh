# SPDX-License-Identifier: BSD-3-Clause
# Shared by the parts of gpu.sh: folders, remaining time, completed measurements, and starting programs.
# Sourced by gpu.sh with `here` set to benchmarks.

out=${OUT:-gpu-results}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
csv=$out/gpu.csv
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python=${PYTHON:-python3}
failures=$scratch/failures misses=$scratch/misses
: >"$failures" >"$misses"

# ---- The build: a bundle, or this checkout.
build=${BUNDLE:-vittrain-bundle}
[[ -x $build/vittrain ]] || build=.
build=$(cd "$build" && pwd)
for file in vittrain vittrain-cuda.so; do
    [[ -e $build/$file ]] || { echo "gpu.sh: no $build/$file: build it, or unpack a bundle (bundle.sh)" >&2; exit 2; }
done
choices=$build/gpu-choices # cuda.cache
# CUDA's libraries may be a part of Python's packages.
python_cuda=$("$python" -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null)
cuda_libraries=
for folder in ${python_cuda:+"$python_cuda"/*/lib} /usr/local/cuda/lib64; do
    [[ ! -d $folder ]] || cuda_libraries=$cuda_libraries${cuda_libraries:+:}$folder
done
VITTRAIN=$build/vittrain
launcher=$here/gpu/run
export VITTRAIN_BUILD=$build VITTRAIN_CUDA_LIBRARIES=$cuda_libraries
export VITTRAIN_CUDA_MODULE=${VITTRAIN_CUDA_MODULE:-$build/vittrain-cuda.so}
export srcdir=$PWD # where tests find their vectors
VITTRAIN_BENCH_GPU=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1 | tr -d ,)
export VITTRAIN_BENCH_GPU

# ---- Time.
part_begin() { # PART
    part=$1 begun=$SECONDS
    case $part in
    check) limit=240 ;;
    losses) limit=300 ;;
    speed) limit=540 ;;
    plan) limit=560 ;;
    *) limit=480 ;;
    esac
    limit=${LIMIT:-$limit}
    build_sum=$(cat "$vittrain" "$VITTRAIN_CUDA_MODULE" | cksum | cut -d ' ' -f 1)
}
left() { echo $((limit - (SECONDS - begun))); }
# within SECONDS: prints the smaller of SECONDS and the time left, at least 5.
within() {
    local most=$(left)
    ((most < $1)) || most=$1
    ((most > 5)) || most=5
    echo "$most"
}

# stage NAME SECONDS COMMAND...: runs the command, which takes about SECONDS, unless an earlier call completed it (with the
# same build or, in part plan, with any) or too little time is left. It is completed if it succeeds; `miss` reports what this
# machine cannot do, and fails.
stage() {
    local name=$1 seconds=$2 build_any=$build_sum
    shift 2
    [[ $part != plan ]] || build_any='[0-9]+'
    grep -qxE "$build_any $(regular "$name")" "$out/gpu-done.txt" 2>/dev/null && return
    if (($(left) < seconds)); then
        miss "$name: $limit s of $part are nearly over"
        return
    fi
    printf '\n== %s (%s s)\n' "$name" "$SECONDS"
    "$@" || return
    echo "$build_sum $name" >>"$out/gpu-done.txt"
}
regular() { sed 's/[][().*+?^$|{}\\]/\\&/g' <<<"$1"; } # TEXT: prints the regular expression that matches it
# together MOST NAME SECONDS COMMAND...: starts a stage in the background, at most MOST at a time; together_end waits for all.
# The output of a stage is printed when it ends.
together() {
    local most=$1 own
    shift
    while ((${#beside[@]} >= most)); do together_wait; done
    own=$(mktemp -d -p "$scratch")
    (
        scratch=$own
        stage "$@" >"$own/output" 2>&1
        cat "$own/output"
    ) &
    beside+=($!)
}
together_wait() {
    wait "${beside[0]}"
    beside=("${beside[@]:1}")
}
together_end() {
    while ((${#beside[@]} > 0)); do together_wait; done
}
beside=()
fail() { # WHAT: records a failure, and fails
    echo "FAILED: $*" | tee -a "$failures"
    return 1
}
miss() { # WHAT: records what this machine cannot do or what has no time left, and fails
    echo "not measured: $*" >>"$misses"
    return 1
}

report() { row "$1" "$2" "$3" bf16 none 1 1 "$4" "$5" "$6" | tee -a "$csv"; } # WORK MODEL BATCH METRIC VALUE UNIT

# ---- Machine.
# MPI between ranks, and NCCL between ranks that share a GPU, need the loopback interface. Connecting to a closed port shows
# whether it is up.
network_open() {
    loopback=yes
    ip link set lo up 2>/dev/null || "$python" -c 'import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh22x", b"lo", 0x49)) # SIOCSIFFLAGS: up' 2>/dev/null
    if grep -q unreachable <<<"$( (: </dev/tcp/127.0.0.1/1) 2>&1)"; then loopback=no; fi
}
# The algorithms that were chosen on this GPU, for later comparison.
choices_keep() {
    [[ -d $choices ]] || return
    (cd "$choices" && find . -type f -exec sh -c 'for f; do echo "# $f"; cat "$f"; done' sh {} +) >"$out/gpu-choices.txt"
}

# ---- Programs.
gpu_settings="run.backend=cuda cuda.cache=$choices output.logbook="
# gpu_steps NAME MODEL BATCH STEPS [SETTING...]: train_steps of common.sh on the GPU by one rank.
gpu_steps() {
    local name=$1 model=$2 batch=$3 steps=$4
    shift 4
    # shellcheck disable=SC2086
    RUN_LIMIT=$(within "${RUN_LIMIT:-90}") train_steps "$name" 1 auto "$model" "$batch" "$steps" $gpu_settings ${MODEL_SETTINGS:-} "$@" \
        2>"$scratch/problem" || { cat "$scratch/problem"; explain "$scratch/$name.log"; return 1; }
}

# variants_keep MODEL LOG: appends the candidates that the program measured to gpu-variants.csv, a row each.
variants_keep() {
    local table=$out/gpu-variants.csv
    [[ -s $table ]] || echo "model,key,candidate,chosen,us" >"$table"
    sed -n 's/.*algorithm of \(.*\): candidate \([0-9]*\) of [0-9]*; us:\(.*\)/\1,\2,\3/p' "$2" 2>/dev/null |
        awk -F, -v model="$1" '{ n = split($3, us, " "); for (i = 1; i <= n; i++) print model "," $1 "," i - 1 "," (i - 1 == $2) "," us[i] }' \
        >>"$table"
}

# device_measure NAME SUBJECT: appends the rows of `vittrain bench device SUBJECT`.
device_measure() {
    # shellcheck disable=SC2086
    "$launcher" timeout "$(within 60)" "$vittrain" bench device "$2" $gpu_settings train.precision=bf16 bench.output="$csv" \
        output.verbose=on >"$scratch/log" 2>&1 || { fail "$1"; explain "$scratch/log"; return 1; }
    variants_keep "$2" "$scratch/log"
    grep -v 'algorithm of' "$scratch/log"
}

# Bandwidth of a copy, and the product that shares are relative to.
side=${SIDE:-8192}
ceilings() {
    device_measure ceilings "product:$side"
}
# Prints FLOP/s of the fastest measured product, or nothing.
ceiling_of() {
    table_rows "$csv" | awk -F '\t' -v work="ceiling: product ${side}x${side}x${side}" \
        '$6 == work && $13 == "speed" && $14 > most { most = $14 } END { if (most > 0) printf "%.0f\n", most * 1e9 }'
}
