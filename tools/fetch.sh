#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Download CIFAR-10, or published weights of a model, and verify checksums:
#   fetch.sh [--dir FOLDER] [--url URL] cifar10             the complete data set in FOLDER/cifar-10-batches-bin
#   fetch.sh [--dir FOLDER] [--url URL] weights NAME        FOLDER/NAME.safetensors, for model.name=NAME
# FOLDER: default data. URL: another address than the official one; the file's name is appended if it ends in /.
# An interrupted download is resumed, also by a second call. Needs curl or wget. On private disks call it once per node.

say() { echo "$1" | sed 's|//[^/ ]*@|//***@|g'; }
fail() { say "fetch.sh: error: $2" >&2; exit "$1"; }

# Print the variant of timm's weights of a model: timm's default for ViTs, torchvision's first weights for ResNets.
variant() {
    case $1 in
    vit_base_patch16_224) echo augreg2_in21k_ft_in1k ;;
    vit_large_patch32_224 | vit_huge_patch14_224) echo orig_in21k ;;
    vit_large_patch32_384) echo orig_in21k_ft_in1k ;;
    vit_tiny_patch16_[23]?4 | vit_small_patch[13][62]_[23]?4 | vit_base_patch[13][62]_[23]?4 | vit_large_patch16_[23]?4)
        echo augreg_in21k_ft_in1k ;;
    deit3_*_patch1[46]_[23]?4) echo fb_in1k ;;
    vit_*_patch14_dinov2 | vit_*_patch14_reg4_dinov2) echo lvd142m ;;
    vit_*_patch16_dinov3) echo lvd1689m ;;
    vit_*_siglip_[2-5]??) echo v2_webli ;;
    resnet18 | resnet34 | resnet50 | resnet101 | resnet152) echo tv_in1k ;;
    *) return 1 ;;
    esac
}

# get: append the rest of $url to $part, and set $reason. headers URL: print those of the first answer.
if command -v curl >/dev/null; then
    [ -t 2 ] && progress='-#' || progress=-s
    get() {
        code=$(curl -fL "$progress" -C - --retry 3 --connect-timeout 30 --speed-time 60 -w '%{http_code}' -o "$part" "$url")
        reason="exit status $? of curl, HTTP $code"
    }
    headers() { curl -sI "$1"; }
elif command -v wget >/dev/null; then
    get() { wget -q -c --tries=5 --timeout=60 -O "$part" "$url"; reason="exit status $? of wget"; }
    headers() { wget -S --spider --max-redirect=0 "$1" 2>&1; }
else
    fail 1 'needs curl or wget; install one of them'
fi

matches() { echo "$2  $1" | sha256sum --check --status 2>/dev/null; }

# download URL FILE SHA256: write FILE, which is FILE.part until it is complete. Without a sum, a part of an earlier call is
# not used, since it may be of another version.
download() {
    url=$1 part=$2.part
    { mkdir -p "$dir" && : >>"$part"; } 2>/dev/null || fail 1 "cannot write $part; choose another folder with --dir"
    [ -n "$3" ] || : >"$part"
    if matches "$part" "$3"; then mv "$part" "$2" && return; fi
    say "downloading $url to $2"
    for try in 1 2 3 4 5; do
        had=$(wc -c <"$part")
        get
        case $reason in
        *'status 0 of'*)
            if [ -z "$3" ] || matches "$part" "$3"; then mv "$part" "$2" && return; fi
            : >"$part"
            reason="wrong content: its SHA-256 is not $3"
            [ "$had" != 0 ] || break ;;
        *'HTTP 416'* | *'status 33 of'*) : >"$part" ;; # the part is not of this document, or the server cannot resume
        *'HTTP 4'* | *wget*) break ;;
        esac
        [ "$(wc -c <"$part")" != "$had" ] || sleep $try
    done
    [ -s "$part" ] || rm -f "$part"
    fail 1 "cannot download $url: $reason; call again to resume, or set another address with --url"
}

fetch_cifar10() {
    folder=$dir/cifar-10-batches-bin archive=$dir/cifar-10-binary.tar.gz
    case $address in */) address=$address${archive##*/} ;; esac
    sums='558e74b5e208382e186da55784b4bac2cd52e558448e1b5800990fdb28ed8033  batches.meta.txt
cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5  data_batch_1.bin
a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed  data_batch_2.bin
bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67  data_batch_3.bin
014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48  data_batch_4.bin
755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add  data_batch_5.bin
8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b  test_batch.bin'
    are_whole() { (cd "$1" && echo "$sums" | sha256sum --check --status) 2>/dev/null; }
    if ! are_whole "$folder"; then
        official=c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd
        [ -z "$address" ] || official= # the archive of a mirror may be packed differently
        download "${address:-https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz}" "$archive" $official
        rm -rf "$folder.part" && mkdir "$folder.part" && tar -xzof "$archive" -C "$folder.part" --strip-components=1 2>/dev/null
        rm -f "$archive"
        are_whole "$folder.part" ||
            fail 1 "$archive: the archive is damaged, or the disk is full; call again, or set another address with --url"
        { mkdir -p "$folder" && mv -f "$folder.part"/* "$folder" && rmdir "$folder.part"; } || fail 1 "cannot write $folder"
    fi
    echo "CIFAR-10 is in $folder; train on it with data.root=$folder"
}

fetch_weights() {
    variant=$(variant "$1") || fail 2 "$1: no published weights; choose a ResNet or a ViT of timm from vittrain --list-models"
    file=$dir/$1.safetensors
    case $address in */) address=$address${file##*/} ;; esac
    : "${address:=https://huggingface.co/timm/$1.$variant/resolve/main/model.safetensors}"
    if [ ! -e "$file" ]; then
        sum=$(headers "$address" | sed -n 's/.*x-linked-etag: "\([0-9a-f]\{64\}\)".*/\1/Ip')
        download "$address" "$file" "$sum"
        # The length of the header, at least two bytes of which are zero, and the header.
        [ "$(head -c 9 "$file" | od -An -tx1 -j6 | tr -d ' ')" = 00007b ] ||
            { rm -f "$file"; fail 1 "$address is no file of safetensors; set another address with --url"; }
    fi
    echo "the weights are in $file; start from them with model.name=$1 model.init=$file"
}

dir=data address=
while [ $# -gt 2 ]; do
    case $1 in --dir) dir=$2 ;; --url) address=$2 ;; *) break ;; esac
    shift 2
done
case $1-$# in
cifar10-1) fetch_cifar10 ;;
weights-2) fetch_weights "$2" ;;
*) sed -n '3,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
