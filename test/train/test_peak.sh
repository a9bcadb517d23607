#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# system
# The peak rate behind the MFU: measured once and cached; a cached rate that is too low never gives an MFU above 100 %.
. "$TEST_SOURCE/test/support/program.sh"

peaks=$XDG_CACHE_HOME/vittrain/peaks
tiny="$small train.epochs=1 debug.fraction=0.1 checkpoint.every=0 output.weights=off"

# shares FOLDER: the values of peak_share in the rows of training, "" where empty.
shares() {
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        $at["split"] == "train" { print "=" $at["peak_share"] }' "$work/$1/metrics.csv"
}

# known FOLDER: print a problem unless all shares are above 0 and at most 1.
known() {
    shares "$1" | awk '{ value = substr($0, 2); n++; if (!(value > 0 && value <= 1)) print "share " $0 ";" }
        END { if (n < 5) print n + 0 " rows;" }'
}

run 2 first $tiny run.dir="$work/first"
cp "$peaks" first_peaks
result 'the peak is measured by the first run and cached' "$(
    ended
    [ "$(grep -cE '^[0-9.]+e[+][0-9]+ [0-9.]+ fp32 .+' "$peaks")" = 1 ] || echo "no line of the peak;"
    known first)" "$work/first.log"

if ! grep -q '^SANITIZER_CFLAGS = .' "$TEST_BUILD/Makefile"; then # sanitizers need memory that is not planned
    VITTRAIN_CPU=amx-emulated run 1 tiles $tiny train.precision=bf16 train.epochs=0 train.steps=1 run.dir="$work/tiles" cuda.cache=none
    result 'measuring tiles takes no more memory than planned' "$(
        ended
        grep -q 'memory of rank 0: planned .* resident at most .*(-' "$work/tiles/train.log" || echo "resident memory above the planned")" "$work/tiles.log"

    run 1 convolutions model.name=resnet50 model.classes=10 data.format=synthetic data.image=33 data.samples=19 data.val=0.3 \
        train.global_batch=8 train.precision=bf16 train.epochs=1 checkpoint.every=0 output.weights=off run.dir="$work/convolutions" cuda.cache=none
    result 'generated code of convolutions takes no more memory than planned' "$(
        ended
        grep -q 'memory of rank 0: planned .* resident at most .*(-' "$work/convolutions/train.log" ||
            echo "resident memory above the planned")" "$work/convolutions.log"
fi

run 1 second $tiny run.dir="$work/second" run.threads=2
rate=$(cut -d ' ' -f 1 "$peaks")
result 'the second run reads it, with any number of threads' "$(
    cmp "$peaks" first_peaks
    sed -n 's/.*"peak_flops": \([0-9.e+]*\).*/\1/p' "$work/second/result.json" |
        awk -v rate="$rate" '{ n++; if ($1 / rate < 1.999 || $1 / rate > 2.001) print $1 " is not twice " rate }
            END { if (n != 1) print "no peak_flops" }')" "$work/second.log"

# A peak of 1 kFLOP/s. The other line is of another machine.
sed 's/^[^ ]*/1000/' first_peaks >"$peaks"
echo '2e+11 0.1.0 fp32 Another, avx2' >>"$peaks"
run 2 low $tiny run.dir="$work/low" output.logbook="$work/book"
result 'with a cached peak that is too low no MFU is shown' "$(
    [ "$(shares low | sort -u)" = "=" ] || shares low | sort -u
    grep -q '"peak_flops": null' "$work/low/result.json" || echo "peak_flops in result.json;"
    ! grep -q peak_share "$work"/low/events.out.tfevents* || echo "points in TensorBoard;"
    grep -qE '^\| .*/low \|( [^|]* \|){11} - \|' "$work/book/README.md" || echo "MFU in the log book;"
    grep -oE '[0-9.]+ ?%' "$work/low.log" | awk '$1 + 0 > 100 { print $1 " in the log;" }'
    grep -q '^MFU: not reported' "$work/low.log" || echo "not in the log;")" "$work/low.log"
result 'only the line of this machine is removed' "$(cat "$peaks" | grep -vx '2e+11 0.1.0 fp32 Another, avx2')" "$peaks"

printf 'not a rate\n-5 0.1.0 fp32 x\n1e400 0.1.0 fp32 x\n' >>"$peaks"
sed 's/^[^ ]*/nan/' first_peaks >>"$peaks"
run 1 again $tiny run.dir="$work/again"
result 'the next run measures again, also where the file is damaged' "$(
    known again
    grep -F "$(cut -d ' ' -f 2- first_peaks)" "$peaks" | awk -v rate="$rate" '{ n++; if ($1 < rate / 100 || $1 > rate * 100) print }
        END { if (n != 1) print n + 0 " lines" }')" "$peaks"

rm -rf "$XDG_CACHE_HOME" && : >"$XDG_CACHE_HOME"
run 1 unwritable $tiny run.dir="$work/unwritable"
result 'a cache that cannot be written does not stop a run' "$(ended
    known unwritable)" "$work/unwritable.log"
rm "$XDG_CACHE_HOME"
run 1 none $tiny run.dir="$work/none" cuda.cache=none
result 'with cuda.cache=none nothing is stored' "$([ ! -e "$XDG_CACHE_HOME/vittrain/peaks" ] || echo stored
    known none)" "$work/none.log"
