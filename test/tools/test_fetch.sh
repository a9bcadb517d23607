#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# tools/fetch.sh: files, output and exit status, with curl and with wget. The web server is on this machine.
. "$TEST_SOURCE/test/support/program.sh"
needs python3
mkfifo "$work/input" "$work/port"
tidy() { exec 8>&-; }
served=$work/served
mkdir "$served"
python3 "$TEST_SOURCE/test/support/http_server.py" "$served" <"$work/input" >"$work/port" &
exec 8>"$work/input"
read -r port <"$work/port"
home=http://127.0.0.1:$port
unset http_proxy all_proxy ALL_PROXY

# A copy of the script whose checksums of CIFAR-10 are those of small files.
mkdir "$work/cifar-10-batches-bin"
cp "$TEST_SOURCE/tools/fetch.sh" "$work/fetch.sh"
for name in batches.meta.txt data_batch_1.bin data_batch_2.bin data_batch_3.bin data_batch_4.bin data_batch_5.bin test_batch.bin; do
    echo "content of $name" >"$work/cifar-10-batches-bin/$name"
    sum=$(sha256sum <"$work/cifar-10-batches-bin/$name" | cut -d' ' -f1)
    sed -i "s/[0-9a-f]\{64\}  $name/$sum  $name/" "$work/fetch.sh"
done
tar -czf "$served/cifar-10-binary.tar.gz" -C "$work" cifar-10-batches-bin
mv "$work/cifar-10-batches-bin" "$work/original"

# get STATUS TEXT WORD...: run the script; set `bad` to the differences of exit status or text.
get() {
    expected=$1 words=$2
    shift 2
    : >"$served/requests"
    (cd "$work" && PATH=$programs timeout $time_limit sh fetch.sh "$@") >"$work/output" 2>&1 </dev/null
    status=$?
    bad="$(ended "$expected")$(has "$work/output" "$words")"
}

# requested TEXT: print the requests if they are others.
requested() { echo "$1" | cmp -s - "$served/requests" || tr '\n' ';' <"$served/requests"; }

model=vit_small_patch32_224
{ printf '\002\000\000\000\000\000\000\000{}' && head -c 300000 /dev/urandom; } >"$served/$model.safetensors"
cp "$served/$model.safetensors" "$served/resnet18.safetensors"
sum=$(sha256sum <"$served/$model.safetensors" | cut -d' ' -f1)
other=$(sha256sum <"$TEST_SOURCE/tools/fetch.sh" | cut -d' ' -f1)

# download_tests PROGRAM: with curl or wget.
download_tests() {
    rm -rf "$work/weights" "$work/data"
    get 0 "model.init=weights/$model.safetensors" --dir weights --url "$home/linked/$sum/range/" weights $model
    cmp -s "$work/weights/$model.safetensors" "$served/$model.safetensors" || bad="$bad other content"
    result "$1: weights arrive in --dir" "$bad" "$work/output"
    get 0 model.init --dir weights --url "$home/range/" weights $model
    result "$1: what is there is not requested again" "$bad$([ ! -s "$served/requests" ] || echo requested)" "$work/output"

    get 0 model.init --dir weights --url "$home/cut/200000/" weights resnet18
    cmp -s "$work/weights/resnet18.safetensors" "$served/resnet18.safetensors" || bad="$bad other content"
    bad="$bad$(requested "/cut/200000/resnet18.safetensors -
/cut/200000/resnet18.safetensors bytes=200000-")"
    result "$1: an interrupted download is resumed" "$bad" "$work/output"

    rm "$work/weights/$model.safetensors"
    head -c 1000 "$served/$model.safetensors" >"$work/weights/$model.safetensors.part"
    get 0 model.init --dir weights --url "$home/linked/$sum/range/" weights $model
    result "$1: so is one of an earlier call" "$bad$(requested "/range/$model.safetensors bytes=1000-")" "$work/output"

    rm "$work/weights/$model.safetensors"
    head -c 1000 "$TEST_SOURCE/NEWS" >"$work/weights/$model.safetensors.part"
    get 0 model.init --dir weights --url "$home/linked/$sum/range/" weights $model
    cmp -s "$work/weights/$model.safetensors" "$served/$model.safetensors" || bad="$bad other content"
    result "$1: a part of another file is replaced" "$bad" "$work/output"

    rm "$work/weights/$model.safetensors"
    head -c 1000 "$served/$model.safetensors" >"$work/weights/$model.safetensors.part"
    get 0 model.init --dir weights --url "$home/linked/$sum/plain/" weights $model
    result "$1: a server without ranges" "$bad$(requested "/plain/$model.safetensors bytes=1000-
/plain/$model.safetensors -")" "$work/output"

    rm "$work/weights/$model.safetensors"
    get 1 SHA-256 --dir weights --url "$home/linked/$other/range/" weights $model
    [ ! -e "$work/weights/$model.safetensors" ] || bad="$bad it is there"
    result "$1: a wrong checksum" "$bad" "$work/output"

    get 0 data.root=data/cifar-10-batches-bin --url "$home/range/" cifar10
    bad="$bad$(diff -r "$work/original" "$work/data/cifar-10-batches-bin")"
    [ "$(ls -A "$work/data")" = cifar-10-batches-bin ] || bad="$bad more files"
    get 0 data.root=data/cifar-10-batches-bin cifar10
    result "$1: CIFAR-10 is unpacked, once" "$bad$([ ! -s "$served/requests" ] || echo requested)" "$work/output"

    get 1 "//\*\*\*@127" --url "http://me:secret@${home#http://}/range/none/" --dir none weights resnet34
    ! grep -q secret "$work/output" || bad="$bad the password is printed"
    result "$1: nothing there" "$bad" "$work/output"
}
programs=$PATH
for program in curl wget; do
    if ! command -v $program >/dev/null; then
        result "with $program # SKIP needs $program" ''
        continue
    fi
    rm -rf "$work/path" && mkdir "$work/path" # the other program is not in it
    for name in $program sh sed sha256sum wc mv rm rmdir mkdir tar gzip dirname head od tr timeout; do
        ln -s "$(command -v $name)" "$work/path/$name"
    done
    programs=$work/path
    download_tests $program
done
programs=$PATH

echo '<html>' >"$served/resnet50.safetensors"
get 1 'no file of safetensors' --dir weights --url "$home/range/" weights resnet50
result 'a page is not taken for weights' "$bad" "$work/output"

echo damaged >"$work/data/cifar-10-batches-bin/test_batch.bin"
get 0 data.root --url "$home/range/" cifar10
bad="$bad$(diff -r "$work/original" "$work/data/cifar-10-batches-bin")"
result 'a damaged file of CIFAR-10 is replaced' "$bad" "$work/output"

rm -r "$work/data"
head -c 200 "$served/cifar-10-binary.tar.gz" >"$work/cut" && mv "$work/cut" "$served/cifar-10-binary.tar.gz"
get 1 'the archive is damaged' --url "$home/range/" cifar10
[ ! -e "$work/data/cifar-10-batches-bin" ] || bad="$bad it was unpacked"
result 'a damaged archive' "$bad" "$work/output"

get 2 'vit_cifar: no published weights' weights vit_cifar
result 'a model without published weights' "$bad" "$work/output"
get 2 'fetch.sh .*weights NAME'
result 'no words: usage' "$bad" "$work/output"
: >"$work/file"
get 1 'cannot write file/below/.*--dir' --dir file/below --url "$home/range/" cifar10
result 'a folder that cannot be made' "$bad" "$work/output"
