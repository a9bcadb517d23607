#!/bin/sh
# Build vittrain for Arm (aarch64) with a cross compiler and test it under qemu-user: operations against double precision
# with all kernels, then short runs whose losses must equal those of this machine's build to 1e-5.
#   test/arm64.sh [FOLDER]
# FOLDER (arm64) keeps the libraries, which apt downloads at the first call, and the build. Needs no root. Prints TAP;
# exit status 77: a tool is missing. Not part of make check. Environment: TEST_BUILD (folder of this machine's build, .),
# MPIRUN, ARM64_TESTS (the test programs).
set -u
source=$(cd "$(dirname "$0")/.." && pwd)
reference=$(cd "${TEST_BUILD:-.}" && pwd)/vittrain
folder=${1:-arm64}
tests=${ARM64_TESTS:-attention batch_norm convolution dropout elements image linear linear_relu loss max_pool mix norm \
policy product squared_error tokens update}

# Debian's packages of the libraries, as in quickstart, without those that only tests of other parts need.
packages="libc6-dev libstdc++-12-dev libgcc-12-dev libopenmpi-dev libhdf5-openmpi-dev libdnnl-dev librandom123-dev
libinih-dev libjansson-dev libprotobuf-c-dev libcurl4-openssl-dev libarchive-dev libssl-dev libisal-dev
libjpeg-dev libpng-dev libwebp-dev libcairo2-dev libcmocka-dev"

for tool in apt-get dpkg aarch64-linux-gnu-gcc aarch64-linux-gnu-g++ qemu-aarch64-static; do
    command -v $tool >/dev/null || {
        echo "1..0 # SKIP no $tool (Debian: gcc-aarch64-linux-gnu, g++-aarch64-linux-gnu, qemu-user-static)"
        exit 77
    }
done
mkdir -p "$folder" && cd "$folder" && folder=$(pwd) || exit 1
root=$folder/root
# A processor that runs every set of kernels.
emulator="qemu-aarch64-static -cpu max -L $root"

step() {
    name=$1
    shift
    echo "# $name" && "$@" >"$folder/$name.log" 2>&1 && return
    tail -n 20 "$folder/$name.log" | sed 's/^/# /'
    echo "Bail out! $name failed: $folder/$name.log"
    exit 1
}

# Download the packages and their dependencies with a package database of its own, and unpack them.
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

copy_source() {
    mkdir -p build && (cd "$source" && git ls-files -z -co --exclude-standard | tar -c --null -T -) | tar -x -C build
}

configure() {
    ./bootstrap && ./configure --host=aarch64-linux-gnu --with-cuda=no EMULATOR="$emulator" \
        CC="aarch64-linux-gnu-gcc --sysroot=$root" CXX="aarch64-linux-gnu-g++ --sysroot=$root"
}

[ -d root ] || step download download
step copy copy_source
cd build || exit 1
PKG_CONFIG_LIBDIR=$root/usr/lib/aarch64-linux-gnu/pkgconfig:$root/usr/share/pkgconfig
PKG_CONFIG_SYSROOT_DIR=$root
export PKG_CONFIG_LIBDIR PKG_CONFIG_SYSROOT_DIR
[ -e config.status ] || step configure configure
step make make -s -j "$(nproc)" vittrain $(printf 'test/test_%s ' $tests)

number=0
result() {
    number=$((number + 1))
    if [ -z "$2" ]; then echo "ok $number - $1"; else printf 'not ok %s - %s\n# %s\n' $number "$1" "$2"; fi
}

TEST_SOURCE=$folder/build TEST_BUILD=$folder/build
. test/environment.sh
srcdir=$folder/build
export TEST_SOURCE TEST_BUILD srcdir
for test in $tests; do
    timeout 900 $emulator "test/test_$test" >"$folder/test_$test.log" 2>&1
    status=$?
    result "$test" "$(grep '^not ok' "$folder/test_$test.log" | grep -v '# SKIP')$(
        [ $status -eq 0 ] || echo " exit status $status: $folder/test_$test.log")"
done

# losses FOLDER: the losses of a run, one a line.
losses() {
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "loss") column = i } NR > 1 && column { print $column }' \
        "$1/metrics.csv"
}

# train RANKS NAME PROGRAM WORD...: a run of a few steps that reads no checkpoint, because a child process that reads one
# cannot be emulated unless the kernel starts qemu itself (binfmt_misc).
train() {
    ranks=$1 run=$folder/runs/$2
    shift 2
    rm -rf "$run"
    ${MPIRUN:-mpirun --oversubscribe} -np "$ranks" "$@" run.dir="$run" data.format=cifar10 \
        data.root="$folder/build/input/data/cifar-10-sample" debug.fraction=0.02 \
        train.precision=fp32 train.epochs=1 output.log_every=1 run.seed=7 run.threads=1 output.weights=no \
        checkpoint.resume=never >"$run.log" 2>&1
}

vit="model.name=vit_cifar model.dim=32 model.depth=2 model.heads=2 model.patch=8 train.global_batch=24"
cnn="model.name=cnn_a train.global_batch=24"
mkdir -p "$folder/runs"
[ -x "$reference" ] || tests_of_runs=no
for model in vit cnn; do
    [ "${tests_of_runs:-yes}" = yes ] || break
    eval "words=\$$model"
    train 1 $model "$reference" $words
    losses "$folder/runs/$model" >"$folder/expected"
    for way in '1 baseline' '1 neon_bf16' '2 neon_bf16'; do
        ranks=${way% *} VITTRAIN_CPU=${way#* }
        export VITTRAIN_CPU
        train $ranks $model-arm $emulator ./vittrain $words
        status=$?
        unset VITTRAIN_CPU
        losses "$folder/runs/$model-arm" >"$folder/seen"
        result "losses of $words, $way" "$([ $status -eq 0 ] || echo "exit status $status: $folder/runs/$model-arm.log;"
            paste "$folder/expected" "$folder/seen" | awk '
                { d = $1 - $2; if (NF != 2 || d > 1e-5 || d < -1e-5) bad = bad " step " NR ": " $2 ", not " $1 }
                END { if (NR < 5) bad = NR " steps"; print bad }')"
    done
done
echo "1..$number"
