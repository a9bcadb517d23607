#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Check the packages in clean Debian systems: build the .deb files, check them with lintian, install them in another
# system, train, purge them, and check that no file is left. For bookworm, also run the steps of the container recipes.
#   packaging/check.sh vittrain-VERSION.tar.gz SUITE FOLDER     SUITE: bookworm, trixie
# Prints TAP. FOLDER gets systems, logs and packages; FOLDER/base is kept for the next call. Needs root, debootstrap, the
# network, 6 GB, and an hour on two cores.
[ $# = 3 ] && [ "$(id -u)" = 0 ] || { sed -n '3,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
. "$(dirname "$0")/../test/project/systems.sh"
tarball=$(readlink -f "$1") suite=$2 packaging=$(cd "$(dirname "$0")" && pwd)
fail() { echo "check.sh: $*" >&2; exit 1; }
tar -tzf "$tarball" "$(basename "$tarball" .tar.gz)/configure" >/dev/null 2>&1 ||
    fail "$1: no archive of released sources; make one with make dist"
case $suite in bookworm | trixie) ;; *) fail "$suite: unknown suite; known: bookworm, trixie" ;; esac
mkdir -p "$3" && cd "$3" || exit 1
folder=$PWD number=0 failed=0

# step NAME COMMAND...: run the command, with its output in a log, and print a line of TAP. After a failure, also print
# the end of the log.
step() {
    number=$((number + 1)) name=$1
    shift
    if "$@" >"$folder/$number.log" 2>&1 </dev/null; then
        echo "ok $number - $name"
    else
        failed=$((failed + 1))
        echo "not ok $number - $name"
        tail -n 20 "$folder/$number.log" | sed 's/^/# /'
    fi
}

# as_user SYSTEM LINE: run a line of shell as an ordinary user.
as_user() { system_run "$1" su - user -c "$2"; }

# make_system NAME: make a copy of the base system, with an ordinary user.
make_system() {
    rm -rf "$1" && cp -a --reflink=auto base "$1" && system_run "$1" useradd --create-home user
}

build() {
    make_system build && cp "$tarball" "$packaging/build_deb.sh" build/home/user && cp -r "$packaging/debian" build/root &&
        system_install build build-essential lintian &&
        system_run build apt-get build-dep -y -q --no-install-recommends /root &&
        as_user build "./build_deb.sh ${tarball##*/} built" && mkdir -p packages && cp build/home/user/built/*.deb packages
}
# The suppressed tags: the project has no mail address, and the package closes no bugs of Debian.
lint() {
    as_user build 'lintian --fail-on error,warning \
        --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog,initial-upload-closes-no-bugs built/*.changes'
}

# list_files: print all files of the system with types, modes and sizes, and checksums of /etc. Not listed: databases of
# apt and dpkg, which record what was installed, and /tmp, where Open MPI 5 leaves its session folder.
list_files() {
    system_run test find / -xdev -regextype posix-extended \
        -regex '/(proc|sys|dev|home|tmp|var/cache|var/log|var/lib/apt|var/lib/dpkg)' -prune -o \
        -type d -printf '%p %m\n' -o -printf '%p %y %m %s\n' | sort
    system_run test find /etc -type f -exec md5sum {} + | sort
    system_run test dpkg-query -W | sed -n /vittrain/p
}

install_libraries() {
    system_run test apt-get update -q &&
        system_run test apt-get satisfy -y -q --no-install-recommends "$(dpkg-deb -f packages/vittrain_*.deb Depends)" && list_files >before
}
install_packages() {
    cp packages/vittrain_*.deb packages/vittrain-sample_*.deb test/tmp && chmod +r test/tmp/*.deb &&
        system_run test sh -c 'apt-get install -y -q --no-install-recommends /tmp/*.deb && rm /tmp/*.deb'
}
# train SYSTEM RUN LINE: run a line of shell that trains, with runs/RUN as its folder. Fail if the run is not finished.
train() {
    as_user "$1" "OMPI_MCA_btl_vader_single_copy_mechanism=none $3 run.dir=runs/$2 && grep '\"finished\": true' runs/$2/result.json"
}
purge_packages() { system_run test apt-get purge -y -q vittrain vittrain-sample; }
compare() { list_files >after && diff before after; }

same_steps() {
    sed -n '/^WORKDIR .work$/q; s/^WORKDIR /cd /p; s/^RUN //p' "$packaging/../jobs/Dockerfile" | sed 's/ && /\n/g' >steps
    sed -n '/^%post/,/^$/s/^    //p' "$packaging/../jobs/vittrain.def" | diff steps - && [ -s steps ]
}
make_image() {
    make_system image && tar -xzf "$tarball" -C image/opt && mv image/opt/vittrain-* image/opt/vittrain && cp steps image/opt &&
        system_run image sh -e /opt/steps
}
load_module() {
    system_install image environment-modules &&
        system_run image bash -c '. /usr/share/modules/init/bash && module use /usr/local/share/vittrain/modulefiles &&
            module load vittrain && ls "$VITTRAIN_HOME/input/quickstart.ini"'
}

deck=/usr/share/vittrain/input/quickstart.ini
step "debootstrap $suite" eval '[ -x base/usr/sbin/policy-rc.d ] || system_make "$suite" base'
[ $failed = 0 ] || { echo 'Bail out! no base system' && exit 1; }
step 'the .deb files are built' build
step 'lintian has no errors or warnings, except for suppressed tags' lint
step 'a clean system with the libraries' eval 'make_system test && install_libraries'
step 'apt installs the .deb files' install_packages
step 'training of one epoch on one rank' train test one "vittrain $deck train.epochs=1 train.max_seconds=0"
step 'training of two epochs on two ranks' train test two "mpirun --oversubscribe -np 2 vittrain $deck train.epochs=2 train.max_seconds=0"
step 'man page' system_run test sh -c 'ls /usr/share/man/man1/vittrain.1.gz'
step 'apt purges the packages' purge_packages
step 'no file is left' compare
if [ "$suite" = bookworm ]; then # on which the images are based
    step 'jobs/Dockerfile and jobs/vittrain.def have the same steps' same_steps
    step 'their steps build and install the program' make_image
    step 'the module file is loaded' load_module
    step 'training on two ranks in the image' train image image "mpirun --oversubscribe -np 2 vittrain train.epochs=1"
fi
echo "1..$number"
[ $failed = 0 ]
