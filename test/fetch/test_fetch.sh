#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The command fetch: files, output and exit status, with one and several ranks. The web server is on this
# machine.
. "$TEST_SOURCE/test/support/program.sh"
needs python3
mkfifo "$work/input"
tidy() { exec 8>&-; }
mkdir "$work/served"
python3 "$TEST_SOURCE/test/support/http_server.py" "$work/served" <"$work/input" >"$work/port" &
server=$!
exec 8>"$work/input"
until [ -s "$work/port" ] || ! kill -0 $server; do
    sleep 0.1
done
home=http://127.0.0.1:$(cat "$work/port")
unset http_proxy all_proxy ALL_PROXY

# report NAME PROBLEM: the result, explained by the output of the newest command.
report() {
    echo "$output" >"$work/output"
    result "$1" "$2" "$work/output"
}

# run STATUS TEXT COMMAND...: run it; set `bad` to the differences of exit status or text.
run() {
    expected=$1 words=$2
    shift 2
    output=$(cd "$work" && timeout $time_limit "$@" 2>&1 </dev/null)
    status=$?
    bad=
    [ $status -eq "$expected" ] || bad="exit status $status instead of $expected"
    case $output in *"$words"*) ;; *) bad="$bad; not printed: $words" ;; esac
}

# requests PATH: number of requests that the server received for it.
requests() {
    grep -c "^$1 " "$work/served/requests"
}

model=vit_small_patch32_224
printf '\002\000\000\000\000\000\000\000{}' >"$work/served/$model.safetensors"
run 0 "model.init=weights/$model.safetensors" "$vittrain" fetch weights $model fetch.url="$home/range/" fetch.dir=weights
cmp -s "$work/weights/$model.safetensors" "$work/served/$model.safetensors" || bad="$bad; other content"
report 'weights arrive in fetch.dir' "$bad"

cp "$work/served/$model.safetensors" "$work/served/resnet18.safetensors"
run 0 "model.init=weights/resnet18.safetensors" "$vittrain" fetch weights resnet18 fetch.url="$home/range/" fetch.dir=weights
report 'there are weights of ResNets' "$bad"

run 0 'already exists' "$vittrain" fetch weights $model fetch.url="$home/range/" fetch.dir=weights
[ "$(requests /range/$model.safetensors)" = 1 ] || bad="$bad; asked for again"
report 'what is there is not fetched again' "$bad"

run 0 'the weights are in' $MPIRUN -np 4 "$vittrain" fetch weights $model fetch.url="$home/range/copy/" fetch.dir=shared/deep
[ "$(requests /range/copy/$model.safetensors)" = 1 ] || bad="$bad; not asked for exactly once"
left=$(ls -A "$work/shared/deep")
[ "$left" = $model.safetensors ] || bad="$bad; left: $left"
report 'of four ranks one downloads' "$bad"

run 8 'HTTP 404' $MPIRUN -np 2 "$vittrain" fetch cifar10 fetch.url="$home/range/" fetch.dir=none
[ "$(echo "$output" | grep -c 'vittrain: error:')" = 1 ] || bad="$bad; not printed exactly once"
report 'nothing there: one message, exit code 8' "$bad"

echo 'no archive' >"$work/served/cifar-10-binary.tar.gz"
run 8 'the archive is damaged' "$vittrain" fetch cifar10 fetch.url="$home/range/" fetch.dir=none
report 'no archive: exit code 8' "$bad"

run 2 'vit_cifar: no published weights for this model' "$vittrain" fetch weights vit_cifar
report 'a model without published weights: exit code 2' "$bad"

run 2 'nothing known to fetch' "$vittrain" fetch
report 'fetch without an object: exit code 2' "$bad"

: >"$work/file"
run 5 'cannot create the folder' "$vittrain" fetch cifar10 fetch.url="$home/range/" fetch.dir=file/below
report 'a fetch.dir that cannot be: exit code 5' "$bad"

run 8 "http://me:***@127.0.0.1" "$vittrain" fetch cifar10 fetch.url="http://me:se@cret@${home#http://}/missing/" fetch.dir=none
! grep -qr 'cret' "$work/none" 2>/dev/null || bad="$bad; it is in a file"
case $output in *cret*) bad="$bad; it is in the output" ;; esac
report 'a password in a URL is masked' "$bad"
