# SPDX-License-Identifier: BSD-3-Clause
# Part build: vittrain-cuda.so from cuda/*.cu by nvcc alone, with the flags of the build that made the bundle (nvcc.flags). CUDA's
# headers and libraries come from nvcc's folder, from Python's packages, or, headers only, from the bundle. Environment: JOBS.
# bundle.sh sources this file, too, for the checksum of the sources of its module and for the list of tests.

sources_sum() { cat cuda/*.cu cuda/*.c cuda/*.h src/device/*.h | cksum; }

# device_tests [NAME...]: the programs below test/ that run on a device (test/list.sh), those of these names first.
device_tests() {
    { for name in "$@"; do ls test/*/"test_$name.c" 2>/dev/null; done && grep -l '^// devices: ' test/*/test_*.c; } |
        sed 's|^test/||; s|\.c$||' | awk '!seen[$0]++'
}

part_build() {
    if [[ $(sources_sum) == "$(cat "$build/sources.sum" 2>/dev/null)" ]]; then
        echo "$build/vittrain-cuda.so is built from these sources"
        return
    fi
    printf '\n== vittrain-cuda.so (%s s)\n' "$SECONDS"
    module_build && sources_sum >"$build/sources.sum"
}

# wgmma exists only in sm_90a (cuda/local.mk).
source_flags() { # NAME FLAGS
    if [[ $1 == *_wgmma ]]; then
        echo "$(sed 's/-gencode [^ ]*//g' <<<"$2") -gencode arch=compute_90a,code=sm_90a -DWITH_SM_90A"
    else
        echo "$2"
    fi
}

cuda_library() { # NAME: the file to link to
    local folder
    for folder in ${cuda_libraries//:/ } ; do
        ls "$folder/lib$1.so"* 2>/dev/null | head -n 1
    done | head -n 1
}

module_build() {
    local nvcc flags includes= folder source name file objects=$build/objects libraries=()
    nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc) || { miss "vittrain-cuda.so: no nvcc"; return 1; }
    [[ -s $build/nvcc.flags ]] || { miss "vittrain-cuda.so: no $build/nvcc.flags (bundle.sh): use make"; return 1; }
    flags=$(cat "$build/nvcc.flags")
    for folder in ${python_cuda:+"$python_cuda"/*/include} "$build/include"; do
        [[ ! -d $folder ]] || includes="$includes -isystem $folder"
    done
    for name in cublasLt cudnn nccl; do
        file=$(cuda_library $name)
        [[ -n $file ]] || { miss "vittrain-cuda.so: no lib$name"; return 1; }
        libraries+=(-Xlinker "$file") # nvcc itself refuses names such as libcudnn.so.9
    done
    mkdir -p "$objects"
    # shellcheck disable=SC2086
    {
        for source in cuda/*.cu; do
            name=$(basename "$source" .cu)
            printf '%s\0' "$nvcc $(source_flags "$name" "$flags") $includes -c -o $objects/$name.o $source"
        done
        for source in cuda/*engine.c; do
            name=$(basename "$source" .c)
            printf '%s\0' "$nvcc -O2 -Xcompiler -fPIC,-std=c17 -Icuda -Isrc $includes -c -o $objects/$name.o $source"
        done
    } | timeout "$(left)" xargs -0 -n 1 -P "${JOBS:-16}" sh -c >"$scratch/log" 2>&1 ||
        { fail "vittrain-cuda.so"; explain "$scratch/log" 30; return 1; }
    cp "$build/nvml.module.o" "$objects/"
    "$nvcc" -shared -o "$scratch/module" "$objects"/*.o "${libraries[@]}" >"$scratch/log" 2>&1 ||
        { fail "vittrain-cuda.so"; explain "$scratch/log" 30; return 1; }
    mv "$scratch/module" "$build/vittrain-cuda.so"
    echo "$build/vittrain-cuda.so: $(stat -c %s "$build/vittrain-cuda.so") bytes"
}
