#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Build vittrain for Arm (aarch64) with a cross compiler and test it under qemu-user: first all kernels against double
# precision, then short runs whose losses must equal those of this machine's build.
#   test/project/arm64.sh [FOLDER]
# FOLDER (default: arm64) keeps the libraries, which apt downloads in the first call, the build, and the tests' output.
# Needs no root. Prints TAP, one result per test; exit status 1: a test failed, 77: a tool is missing. Not part of make
# check. Environment: TEST_BUILD (folder of this machine's build; default: .), MPIRUN, ARM64_TESTS (test programs),
# TEST_TIMEOUT (seconds for one test; default: 600).
set -u
native=$(cd "${TEST_BUILD:-.}" && pwd)
reference=$native/vittrain
folder=${1:-arm64}
limit=${TEST_TIMEOUT:-600}
mpirun=${MPIRUN:-mpirun --oversubscribe --bind-to none}

# The test programs, those with the most kernels first.
tests=${ARM64_TESTS:-convolution product_tiles linear attention batch_norm norm loss elements product image planes \
dropout mix update tokens target_loss policy}
# The runs: ranks, value of VITTRAIN_CPU here and under qemu, precision, largest difference of a loss, model.
runs="1 baseline baseline fp32 1e-5 vit
1 baseline neon_bf16 fp32 1e-5 vit
2 baseline neon_bf16 fp32 1e-5 vit
1 amx-emulated amx-emulated bf16 1e-3 vit
1 baseline baseline fp32 1e-5 cnn
1 baseline neon_bf16 fp32 1e-5 cnn"
vit="model.name=vit_cifar model.dim=32 model.depth=2 model.heads=2 model.patch=8 train.global_batch=24"
cnn="model.name=cnn_a train.global_batch=24"

# Debian's packages of the libraries, as in quickstart, without those that only tests of other parts need.
packages="libc6-dev libstdc++-12-dev libgcc-12-dev libopenmpi-dev libhdf5-openmpi-dev libdnnl-dev librandom123-dev
libjansson-dev libprotobuf-c-dev libarchive-dev libssl-dev libisal-dev
libjpeg-dev libpng-dev libwebp-dev libcmocka-dev"

for tool in apt-get dpkg aarch64-linux-gnu-gcc aarch64-linux-gnu-g++ qemu-aarch64-static; do
    command -v $tool >/dev/null || {
        echo "1..0 # SKIP no $tool (Debian: gcc-aarch64-linux-gnu, g++-aarch64-linux-gnu, qemu-user-static)"
        exit 77
    }
done
mkdir -p "$folder" && cd "$folder" && folder=$(pwd) || exit 1
root=$folder/root
# `-cpu max` emulates the instructions of all kernels.
emulator="qemu-aarch64-static -cpu max -L $root"

step() {
    name=$1
    shift
    echo "# $name" && "$@" >"$folder/$name.log" 2>&1 && return
    tail -n 20 "$folder/$name.log" | sed 's/^/# /'
    echo "Bail out! $name failed: $folder/$name.log"
    exit 1
}

# Download the packages and their dependencies with a separate database of apt, and unpack them.
download() {
    mkdir -p apt/lists/partial apt/archives/partial && : >apt/status
    cat >apt/apt.conf <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
APT::Sandbox::User "";
Dir::State "$folder/apt";
Dir::State::status "$folder/apt/status";
Dir::Cache "$folder/apt";
Debug::NoLocking "true";
END
    APT_CONFIG=$folder/apt/apt.conf
    export APT_CONFIG
    apt-get update && apt-get -y --download-only install $packages || return 1
    for package in apt/archives/*.deb; do
        dpkg -x "$package" root.new || return 1
    done
    # Absolute links would lead to this machine's files.
    find root.new -type l -lname '/*' | while read -r link; do
        ln -sfn "$(realpath -m --relative-to="$(dirname "$link")" "root.new$(readlink "$link")")" "$link"
    done
    mv root.new root && rm -rf apt/archives
}

# Copy the files of a release to build/, from a repository or an unpacked tarball. Their times are kept, so a second
# call compiles only what has changed.
copy_source() {
    make -C "$native" -s distdir distdir="$folder/source" && mkdir -p build && cp -a source/. build && rm -rf source
}

configure() {
    ./bootstrap && ./configure --host=aarch64-linux-gnu --with-cuda=no \
        CC="aarch64-linux-gnu-gcc --sysroot=$root" CXX="aarch64-linux-gnu-g++ --sysroot=$root"
}

# program_of TEST: its program.
program_of() { ls test/*/test_"$1".c | sed 's/\.c$//'; }

[ -d root ] || step download download
step copy copy_source
cd build || exit 1
PKG_CONFIG_LIBDIR=$root/usr/lib/aarch64-linux-gnu/pkgconfig:$root/usr/share/pkgconfig
PKG_CONFIG_SYSROOT_DIR=$root
export PKG_CONFIG_LIBDIR PKG_CONFIG_SYSROOT_DIR
[ -e config.status ] || step configure configure
step make make -s -j "$(nproc)" vittrain $(for test in $tests; do program_of "$test"; done)

number=0 failed=0
# result NAME FAILURE: FAILURE is empty if the test passed.
result() {
    number=$((number + 1))
    [ -z "$2" ] && echo "ok $number - $1" && return
    failed=1
    echo "not ok $number - $1: $2"
}

# failure STATUS LOG: print the failures of a test program, one per line.
failure() {
    case $1 in
        0) ;;
        124) echo "not finished after $limit s" ;;
        *) echo "exit status $1" ;;
    esac
    sed -n '/# SKIP/d; s/^not ok [0-9]* *-* *//p' "$2"
}

TEST_SOURCE=$folder/build TEST_BUILD=$folder/build
. test/support/environment.sh
srcdir=$folder/build
export TEST_SOURCE TEST_BUILD srcdir
for test in $tests; do
    log=$folder/test_$test.log begin=$(date +%s)
    timeout "$limit" $emulator "$(program_of "$test")" >"$log" 2>&1
    reason=$(failure $? "$log" | paste -s -d ,)
    result "$test, $(($(date +%s) - begin)) s" "${reason:+$reason: $log}"
done

# losses FOLDER: print the losses of a run, one per line.
losses() {
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "loss") column = i } NR > 1 && column { print $column }' \
        "$1/metrics.csv"
}

# train RANKS KERNELS PRECISION NAME PROGRAM WORD...: train for a few steps. The run reads no checkpoint: a child
# process that reads one cannot be emulated unless the kernel starts qemu itself (binfmt_misc).
train() (
    ranks=$1 precision=$3 run=$folder/runs/$4
    VITTRAIN_CPU=$2
    export VITTRAIN_CPU
    shift 4
    rm -rf "$run"
    timeout "$limit" $mpirun -np "$ranks" "$@" run.dir="$run" data.format=cifar10 \
        data.root="$native/data/cifar-10-sample" debug.fraction=0.04 \
        train.precision="$precision" train.epochs=1 output.log_every=1 run.seed=7 run.threads=1 output.weights=no \
        checkpoint.resume=never >"$run.log" 2>&1
)

# compare RANKS KERNELS_HERE KERNELS PRECISION TOLERANCE MODEL: print the steps whose losses differ.
compare() {
    eval "words=\$$6"
    train 1 "$2" "$4" expected "$reference" $words || echo "exit status $? here: $folder/runs/expected.log"
    train "$1" "$3" "$4" seen $emulator ./vittrain $words || echo "exit status $?: $folder/runs/seen.log"
    losses "$folder/runs/expected" >"$folder/expected"
    losses "$folder/runs/seen" >"$folder/seen"
    paste "$folder/expected" "$folder/seen" | awk -v tolerance="$5" '
        { d = $1 - $2; if (NF != 2 || d > tolerance || d < -tolerance) print "step " NR ": " $2 ", not " $1 }
        END { if (NR < 5) print NR " steps" }'
}

mkdir -p "$folder/runs"
reason=
command -v "${mpirun%% *}" >/dev/null || reason="no ${mpirun%% *}"
[ -x "$reference" ] || reason="no $reference to compare with"
while read -r ranks here kernels precision tolerance model; do
    name="losses of $model, $kernels, $precision, ranks: $ranks"
    if [ -n "$reason" ]; then
        number=$((number + 1))
        echo "ok $number - $name # SKIP $reason"
        continue
    fi
    result "$name" "$(compare $ranks $here $kernels $precision $tolerance $model </dev/null | paste -s -d ,)"
done <<END
$runs
END
echo "1..$number"
exit $failed
