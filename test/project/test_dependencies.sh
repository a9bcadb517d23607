#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# A touched header rebuilds every object of the GPU modules that includes it. The expected objects come from the
# #include lines alone, what make would rebuild comes from `make -n -W HEADER`.
. "$TEST_SOURCE/test/support/program.sh"

unset MAKEFLAGS MAKELEVEL
for module in vittrain-cuda.so test/emulated-cuda.so; do
    [ ! -e "$TEST_BUILD/$module" ] || targets="$targets $module"
done
[ -n "$targets" ] || skip_all 'no module for GPUs was built'
relative=$(realpath --relative-to="$TEST_BUILD" "$TEST_SOURCE")

# rebuilt FILE...: the objects that make would compile if these files were newer, one `OBJECT SOURCE` a line. The name of a
# file in make depends on how configure was called.
rebuilt() {
    for file; do printf -- '-W\n%s\n' "$file" "$TEST_SOURCE/$file" "$relative/$file"; done |
        xargs make -s -n -C "$TEST_BUILD" $targets | grep -oE -- '-c -o [^ ]+\.o [^ ]+$' | cut -d' ' -f3- | sort
}

# included FILE: FILE and all that it includes of ours; nvcc does not see the emulation.
included() {
    pending=$1 seen=
    while [ -n "$pending" ]; do
        file=${pending%% *} pending=${pending#"$file"} pending=${pending# }
        case " $seen " in *" $file "*) continue ;; esac
        seen="$seen $file"
        for name in $(sed -n 's/^ *# *include "\(.*\)"/\1/p' "$file"); do
            for folder in "${file%/*}" cuda src test; do
                [ ! -e "$folder/$name" ] || { pending="$folder/$name${pending:+ $pending}"; break; }
            done
        done
    done
    printf '%s\n' $seen
}

cd "$TEST_SOURCE" || exit 1
rebuilt $(find cuda test -name '*.cu' -o -name '*.cpp' -o -name '*.c') >"$work/objects"
while read -r object source; do
    source=${source#"$TEST_SOURCE"/} source=${source#"$relative"/}
    included "${source#./}" | grep '\.h$' | sed "s|\$| $object|"
done <"$work/objects" | grep -v '^test/emulation/.*\.cuda\.o$' | sort >"$work/pairs"
for header in $(cut -d' ' -f1 "$work/pairs" | uniq); do
    rebuilt "$header" | cut -d' ' -f1 >"$work/rebuilt"
    grep "^$header " "$work/pairs" | cut -d' ' -f2 | grep -vxF -f "$work/rebuilt" | sed "s|^|$header does not rebuild |"
done >"$work/missing"
[ "$(wc -l <"$work/pairs")" -gt 200 ] || echo "only $(wc -l <"$work/pairs") pairs of header and object" >>"$work/missing"
result 'a touched header rebuilds every object that includes it' "$(head -n 3 "$work/missing" | tr '\n' ';')" "$work/missing"
