#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Build Debian packages from the released sources (`make dist`); dpkg-checkbuilddeps lists missing packages.
#   packaging/build_deb.sh vittrain-VERSION.tar.gz FOLDER [OPTION OF dpkg-buildpackage ...]
# With the module for GPUs: -Ppkg.vittrain.cuda
set -eu
[ $# -ge 2 ] || { sed -n '3,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
tarball=$(readlink -f "$1") folder=$2
shift 2
name=$(basename "$tarball" .tar.gz)
fail() { echo "build_deb.sh: $*" >&2; exit 1; }
tar -tzf "$tarball" "$name/packaging/debian/control" >/dev/null 2>&1 ||
    fail "$tarball: no archive of released sources; make one with make dist"
[ ! -e "$folder/$name" ] || fail "$folder/$name exists; remove it, or choose another folder"
mkdir -p "$folder"
cd "$folder"
cp "$tarball" "vittrain_${name#vittrain-}.orig.tar.gz"
tar -xzf "$tarball"
cd "$name"
cp -r packaging/debian debian
dpkg-buildpackage -us -uc "$@"
