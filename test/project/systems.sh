# SPDX-License-Identifier: BSD-3-Clause
# Make clean Debian systems in folders and run commands in them. Sourced by test/project/matrix.sh and packaging/check.sh.
# Needs root, debootstrap and the network. Environment: MIRROR (of Debian; default: this machine's).

# system_make SUITE ROOT: make a minimal system. Packages that are installed later do not start their daemons.
system_make() (
    # For a suite without a script of debootstrap, use that of unstable.
    script=/usr/share/debootstrap/scripts/$1
    [ -e "$script" ] || script=${script%/*}/sid
    mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' | head -n 1)}
    rm -rf "$2" && mkdir -p "$2" && debootstrap --variant=minbase "$1" "$2" "$mirror" "$script" &&
        cp /etc/hosts /etc/resolv.conf "$2/etc" && printf '#!/bin/sh\nexit 101\n' >"$2/usr/sbin/policy-rc.d" &&
        chmod +x "$2/usr/sbin/policy-rc.d" && # Accept a mirror that is out of date.
        echo 'Acquire::Check-Valid-Until "false";' >"$2/etc/apt/apt.conf.d/90valid"
)

# system_run ROOT COMMAND WORD...: run a command in the system as root. Its mounts and processes end with it. pivot_root
# makes ROOT the root of the mount namespace, because nsenter (test/support/cluster.sh) would leave a chroot.
system_run() {
    unshare --mount --pid --fork --kill-child sh -c '
        mount --bind "$0" "$0" && cd "$0" && mount -t proc proc proc && mount --rbind /sys sys && mount --rbind /dev dev &&
            mount -t tmpfs tmpfs dev/shm && pivot_root . mnt && cd / && umount -l /mnt &&
            exec env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"' "$@"
}

# system_install ROOT PACKAGE...: install packages without recommended ones.
system_install() (
    root=$1
    shift
    system_run "$root" dpkg --configure -a && system_run "$root" apt-get update -q &&
        system_run "$root" apt-get install -q -y --no-install-recommends "$@"
)
