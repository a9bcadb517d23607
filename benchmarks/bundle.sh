#!/bin/bash
# Packs the program with what it needs besides the C library and the GPU's: MPI with its launcher and plugins,
# HDF5, oneDNN and the rest, the tests of device operations, decks, benchmarks. For a machine with a GPU that
# has none of these: unpack it anywhere and run benchmarks/gpu.sh in it, which sets up the rest.
#
#   benchmarks/bundle.sh [FILE]        (default: vittrain-bundle.tar.xz)
#
# Build first: make vittrain vittrain-cuda.so, and the tests (make check TESTS=). The C library there must be as new
# as the one here. Exit status 1 when the file would be larger than 60 MB.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

out=${1:-vittrain-bundle.tar.xz}
most=60000000
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
bundle=$stage/vittrain-bundle
mkdir -p "$bundle"/{bin,lib/openmpi,lib/pmix,share,test}

for file in vittrain vittrain-cuda.so; do
    [[ -e $file ]] || { echo "bundle.sh: no $file: run make first (with nvcc for vittrain-cuda.so)" >&2; exit 2; }
done

# ---- The program, tests of operations, benchmarks.
cp vittrain vittrain-cuda.so "$bundle"
cp -rL input benchmarks "$bundle"
rm -rf "$bundle/benchmarks/results"
find "$bundle/benchmarks" -type f \( -name '*.o' -o -name 'bench_*' ! -name '*.py' ! -name '*.c' \) -delete
cp test/devices test/ranks test/run_test.sh "$bundle/test"
cp -r test/vectors "$bundle/test"
while read -r name _; do
    [[ $name == \#* || -z $name ]] && continue
    [[ -x test/$name ]] || { echo "bundle.sh: no test/$name: make check TESTS=" >&2; exit 2; }
    cp "test/$name" "$bundle/test"
done < <(cat test/devices; printf '%s\n' test_vit_device test_convnet_device)

# ---- Open MPI: launcher, daemon, plugins, texts of its errors. It finds them by OPAL_PREFIX and the settings in
# the file env.
asked() { # DIRECTORY
    ompi_info --parsable --path "$1" | sed -n "s/^path:$1://p"
}
cp -L "$(command -v orterun || command -v mpirun)" "$bundle/bin/mpirun"
cp -L "$(command -v orted)" "$bundle/bin/orted"
cp -L "$(asked pkglibdir)"/mca_*.so "$bundle/lib/openmpi"
cp -rL "$(asked pkgdatadir)" "$bundle/share/openmpi"
pmix=$(ldd "$bundle/lib/openmpi/mca_pmix_ext3x.so" 2>/dev/null | sed -n 's/.*libpmix[^ ]* => \([^ ]*\).*/\1/p')
if [[ -n $pmix ]]; then
    find "$(dirname "$(readlink -f "$pmix")")" -path '*pmix*/mca_*.so' -exec cp -L {} "$bundle/lib/pmix" \;
fi
# Fabrics and accelerators of which one machine has none, with large libraries behind them.
rm -f "$bundle"/lib/openmpi/mca_{mtl_ofi,mtl_psm*,btl_ofi,btl_openib,btl_usnic,pml_ucx,osc_ucx,atomic_ucx,common_*,spml_*,scoll_*,memheap_*,sshmem_*,fs_*,fbtl_*,fcoll_*,io_*}*.so

# ---- The libraries behind all that, but the C library's own.
c_library='/(ld-linux|libc\.so|libm\.so|libdl\.so|libpthread|librt\.so|libresolv|libutil\.so|libanl|libnss_|libmvec)'
gpu_library='/(libcublas|libcudnn|libnccl|libcuda)'
{ find "$bundle" -type f \( -perm -u+x -o -name '*.so' \) -exec ldd {} + 2>/dev/null || true; } |
    sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u | grep -vE "$c_library|$gpu_library" |
    while read -r library; do cp -L "$library" "$bundle/lib"; done # not found: reported at the start there

cat >"$bundle/env" <<'END'
# Source this in the bundle's folder: . ./env
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export OPAL_PREFIX=$here PATH=$here/bin:$PATH LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export OMPI_MCA_mca_base_component_path=$here/lib/openmpi PMIX_MCA_mca_base_component_path=$here/lib/pmix
export OMPI_MCA_plm_rsh_agent=/bin/false OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_orte_launch_agent=$here/bin/orted
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
END
find "$bundle/lib" "$bundle/bin" "$bundle/test" -maxdepth 2 -type f -exec strip --strip-unneeded {} + 2>/dev/null || true

tar -C "$stage" -cf - vittrain-bundle | xz -T0 -6 >"$out"
size=$(stat -c %s "$out")
echo "$out: $((size / 1000000)) MB"
((size <= most)) || { echo "bundle.sh: larger than $((most / 1000000)) MB" >&2; exit 1; }
