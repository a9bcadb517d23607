#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Packs the built program with everything that benchmarks/gpu.sh needs on a machine with a GPU but without MPI, HDF5 and
# network: libraries, the launcher and plugins of Open MPI 4, tests of operations, headers and flags to build
# vittrain-cuda.so again, and losses of the CPU for comparison. Sources, scripts and data are not packed: they are
# tracked and travel with the working tree, in which the bundle is unpacked.
#
#   benchmarks/bundle.sh [FILE]        (default: vittrain-bundle.tar.gz)
#
# Configure with --with-cuda-arch=90 and build first: make, make check TESTS=. The C library
# of the other machine must be at least as new as the one here. Exit status 1 if the file is larger than 40 MB or if tree
# and file together are larger than 60 MiB.
# Environment, for tests: MODULE (instead of vittrain-cuda.so), BUNDLE_LEVEL (of gzip), BUNDLE_MOST (bytes), and what
# gpu/losses.sh names.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
unset MAKEFLAGS MAKELEVEL MFLAGS # of a make that runs this script: output of make is read below

out=${1:-vittrain-bundle.tar.gz}
module=${MODULE:-vittrain-cuda.so}
bundle_most=${BUNDLE_MOST:-40000000}
tree_most=$((60 << 20))
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
bundle=$stage/vittrain-bundle
mkdir -p "$bundle"/{bin,lib/openmpi,lib/pmix,share,test,include,losses}

fail() { echo "bundle.sh: $*" >&2; exit 2; }

# ---- The program and the tests of operations.
flags=$(make -s nvcc-flags)
if [[ $module == vittrain-cuda.so ]]; then
    [[ $(grep -o 'code=sm_[0-9a-z]*' <<<"$flags") == code=sm_90 ]] ||
        fail "vittrain-cuda.so is not built for sm_90 alone: configure with --with-cuda-arch=90 and build again"
    make -q vittrain-cuda.so || fail "vittrain-cuda.so is older than its sources: run make"
    # With VITTRAIN_CUDA_MODULE, the program opens the module even without a GPU.
    if VITTRAIN_CUDA_MODULE=$PWD/vittrain-cuda.so LD_LIBRARY_PATH=$(make -s cuda-library-dir) ./vittrain doctor \
        data.format=synthetic run.backend=cuda output.logbook= 2>&1 | grep 'cannot open the GPU module'; then
        fail "vittrain-cuda.so cannot be opened"
    fi
fi
. benchmarks/gpu/build.sh
tests=$(device_tests)
for file in vittrain "$module" $(printf 'test/%s ' $tests); do
    [[ -e $file ]] || fail "no $file: run make and make check TESTS= first"
done
cp vittrain "$bundle"
for name in $tests cuda/; do mkdir -p "$bundle/test/${name%/*}"; done
cp "$module" "$bundle/vittrain-cuda.so"
[[ $module != vittrain-cuda.so ]] || cp test/cuda/cudnn_engines "$bundle/test/cuda"

# One program holds all tests, since each alone contains most of the library: 10 MB less. The name of the link by which
# it is called selects the test. Tests without a main function have that of test/support/rank_main.c.
names=$(printf '%s\n' $tests | sed 's|.*/||')
objects=$stage/main.o
for file in support/rank_main $tests; do
    name=${file##*/}
    objcopy --redefine-sym "main=main_$name" "test/$file.o" "$stage/$name.o"
    objects="$objects $stage/$name.o"
    [[ $name = rank_main ]] || ln -s ../../bin/operations "$bundle/test/$file"
done
{
    echo '#include <string.h>'
    echo 'int main(int argc, char **argv) {'
    echo 'const char *slash = strrchr(argv[0], 47), *name = slash != NULL ? slash + 1 : argv[0];'
    for name in $names; do
        arguments='argc, argv' function=main_$name
        [[ -n $(nm "$stage/$name.o" | grep " T $function$") ]] || function=main_rank_main arguments="2, (char *[]){argv[0], \"$name\", NULL}"
        echo "if (strcmp(name, \"$name\") == 0) { int $function(int, char **); return $function($arguments); }"
    done
    echo 'return 2; }'
} >"$stage/main.c"
cc -c -o "$stage/main.o" "$stage/main.c"
make -s bundle-link BUNDLE_OUTPUT="$bundle/bin/operations" BUNDLE_OBJECTS="$objects"

# ---- What building vittrain-cuda.so needs besides nvcc and the sources.
echo "$flags" >"$bundle/nvcc.flags"
sources_sum >"$bundle/sources.sum"
cp cuda/nvml.module.o "$bundle"
mapfile -t include < <(grep -o -- '-I[^ ]*' <<<"$flags")
include+=("-I$(dirname "$(make -s cuda-library-dir)")/include")
header_folder() { # HEADER: the folder in which the compiler finds it, or nothing
    local file
    file=$(echo "#include <$1>" | c++ "${include[@]}" -x c++ -M - 2>/dev/null | tr -s ' \\' '\n' |
        grep "/$1\$" | sed -n 1p) || return 0
    dirname "$file"
}
cp -rL "$(header_folder Random123/philox.h)" "$bundle/include"
for name in cudnn nccl; do
    folder=$(header_folder $name.h)
    [[ -z $folder ]] || cp -L "$folder/$name"*.h "$bundle/include"
done

# ---- Open MPI: launcher, plugins, texts of its errors. It finds them by the settings in `env`.
asked() { # DIRECTORY
    ompi_info --parsable --path "$1" | sed -n "s/^path:$1://p"
}
cp -L "$(command -v orterun || command -v mpirun)" "$bundle/bin/mpirun"
cp -L "$(asked pkglibdir)"/mca_*.so "$bundle/lib/openmpi"
cp -rL "$(asked pkgdatadir)" "$bundle/share/openmpi"
pmix=$(ldd "$bundle"/lib/openmpi/mca_pmix_ext3x.so 2>/dev/null | sed -n 's/.*libpmix[^ ]* => \([^ ]*\).*/\1/p')
[[ -z $pmix ]] || cp -L "$(dirname "$(readlink -f "$pmix")")"/pmix/pmix_mca_*.so "$bundle/lib/pmix"
# One machine needs no fabrics, and no transports of MPI-IO and one-sided calls between nodes.
rm -f "$bundle"/lib/openmpi/mca_{mtl_ofi,mtl_psm*,btl_ofi,btl_openib,btl_usnic,pml_ucx,osc_ucx,atomic_ucx,common_*,spml_*,scoll_*,memheap_*,sshmem_*,fs_*,fbtl_*,fcoll_*,io_*}*.so

# ---- The libraries that all of these load, except the C library and CUDA's.
c_library='/(ld-linux|libc\.so|libm\.so|libdl\.so|libpthread|librt\.so|libresolv|libutil\.so|libanl|libnss_|libmvec)'
compiler_library='/(libstdc\+\+|libgcc_s)' # the machine's may be newer, and what nvcc builds there needs them
gpu_library='/(libcublas|libcudnn|libnccl|libcuda)'
{ find "$bundle" -type f \( -perm -u+x -o -name '*.so' \) -exec ldd {} + 2>/dev/null || true; } |
    sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u | grep -vE "$c_library|$compiler_library|$gpu_library" |
    while read -r library; do cp -L "$library" "$bundle/lib"; done
# ICU's tables (31 MB) serve libxml2 for rare character sets, and libxml2 serves libarchive for XAR archives: nothing here
# reads any. An empty table satisfies the loader; ICU itself reports it as unusable when asked.
for library in "$bundle"/lib/libicudata.so.*; do
    [[ -e $library ]] || continue
    name=$(basename "$library")
    version=${name#libicudata.so.}
    echo "const char icudt${version%%.*}_dat[64] = {0};" |
        cc -shared -fPIC -nostdlib -Wl,-soname,"$name" -o "$library" -x c -
done

cat >"$bundle/env" <<'END'
# Sourced by benchmarks/gpu.sh for programs of this bundle only; `build` is the bundle's folder.
export OPAL_PREFIX=$build PATH=$build/bin:$PATH LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export OMPI_MCA_mca_base_component_path=$build/lib/openmpi PMIX_MCA_mca_base_component_path=$build/lib/pmix
export OMPI_MCA_plm=isolated OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
END
find "$bundle" -type f \( -name '*.so*' -o -perm -u+x \) -exec strip --strip-unneeded {} + 2>/dev/null || true

# ---- Losses of the CPU.
here=$PWD/benchmarks scratch=$stage VITTRAIN=$PWD/vittrain
. benchmarks/common.sh
. benchmarks/gpu/losses.sh
for work in $loss_works; do
    for precision in $loss_precisions; do
        losses_reference "${work%:*}" "${work#*:}" "$precision" "$bundle/losses" || fail "no losses of $work in $precision"
    done
done

tar -C "$stage" -cf - vittrain-bundle | gzip -"${BUNDLE_LEVEL:-9}" >"$out"
size=$(stat -c %s "$out")
tree=$({ git ls-files -z 2>/dev/null || true; } | xargs -0 -r stat -c %s | awk '{ sum += $1 } END { printf "%d", sum }')
echo "$out: $((size / 1000000)) MB; with the tracked files $(((size + tree) / 1000000)) MB"
((size <= bundle_most)) || { echo "bundle.sh: $out is larger than $((bundle_most / 1000000)) MB" >&2; exit 1; }
((size + tree <= tree_most)) ||
    { echo "bundle.sh: $out and the tracked files are larger than $((tree_most >> 20)) MiB" >&2; exit 1; }
