#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# Building with wrong arguments, with damaged files and after interruptions: configure, quickstart and rules of make.
. "$TEST_SOURCE/test/support/program.sh"
needs make xz

# refuses PATTERN OPTION...: configure ends with one line of error that matches the pattern.
mkdir configure && ln -s "$TEST_SOURCE/configure" "$TEST_SOURCE/build-aux" "$TEST_SOURCE/src" configure
refuses() {
    pattern=$1
    shift
    (cd configure && ./configure -q "$@") >configure.log 2>&1 </dev/null
    status=$?
    result "configure refuses $*" "$([ $status = 1 ] && grep '^configure: error: ' configure.log | grep -q -e "$pattern" ||
        echo "status $status, or no line with: $pattern")" configure.log
}
refuses 'unknown value; known: yes, no, thread' --enable-sanitizers=theads
case $(uname -m) in
x86_64 | aarch64) refuses ' compiles for ' --host=mips-linux-gnu CC=cc ;;
esac
refuses 'no program mpicc.foo in PATH; known names: openmpi, mpich' --with-mpi=foo
for library in hdf5 onednn random123; do
    refuses "no file $work/none/include/" --with-$library="$work/none"
done

# quickstart with stand-ins for bootstrap, configure and dpkg-query. Each writes its name to the file of steps.
mkdir quickstart quickstart/bin && cp "$TEST_SOURCE/quickstart" quickstart
cat >quickstart/bootstrap <<'END'
#!/bin/sh
mkdir -p build-aux && touch Makefile.in
cat >configure <<'EOF'
#!/bin/sh
printf 'all:\nclean:\n\t@echo clean >>steps\n' >Makefile
echo "configure $*" >>steps
printf '#!/bin/sh\necho "%s"\n' "$*" >config.status
chmod +x config.status
EOF
chmod +x configure
echo bootstrap >>steps
END
printf '#!/bin/sh\necho installed\n' >quickstart/bin/dpkg-query
chmod +x quickstart/bootstrap quickstart/bin/dpkg-query
# builds STEPS: print a problem if `quickstart build` fails or takes other steps.
builds() {
    rm -f quickstart/steps
    PATH=$work/quickstart/bin:$PATH MAKEFLAGS= sh quickstart/quickstart build >quickstart.out 2>&1
    status=$?
    steps=$(cat quickstart/steps 2>/dev/null | paste -s -d ,)
    [ "$status $steps" = "0 $1" ] || echo "status $status, steps '$steps' instead of '$1';"
}
result 'quickstart takes the steps that are needed' "$(
    unset CONFIGURE_FLAGS
    builds 'bootstrap,configure '
    builds ''
    CONFIGURE_FLAGS='--with-cuda=no  --enable-werror'
    export CONFIGURE_FLAGS
    builds 'clean,configure --with-cuda=no --enable-werror'
    builds ''
    unset CONFIGURE_FLAGS
    builds ''
    rm quickstart/Makefile
    builds 'configure --with-cuda=no --enable-werror'
    rm -r quickstart/build-aux
    builds bootstrap
    CONFIGURE_FLAGS=
    export CONFIGURE_FLAGS
    builds 'clean,configure '
)" quickstart.out

# rules PATTERN FILE: print a makefile with the lines from the pattern on, without Automake's conditionals.
rules() {
    printf 'MKDIR_P = mkdir -p\nXZ = xz\nsrcdir = source\n'
    sed -n "/$1/,\$p" "$TEST_SOURCE/$2" | sed '/^if /d; /^endif/d'
}
mkdir -p sample/source/input && rules '^EXTRA_DIST' input/local.mk >sample/Makefile
archive=$TEST_SOURCE/input/cifar-10-sample.tar.xz
for kept in 1000 $(($(wc -c <"$archive") - 20)); do
    head -c "$kept" "$archive" >sample/source/input/cifar-10-sample.tar.xz
    make -C sample data/cifar-10-sample/README.md >sample.log 2>&1
    status=$?
    result "an archive of the sample that ends after $kept bytes is refused" "$(
        [ $status != 0 ] || echo 'make succeeds;'
        [ ! -e sample/data/cifar-10-sample ] || echo 'files are left;'
        grep -q '^cannot unpack source/input/cifar-10-sample.tar.xz: .*restore the file' sample.log || echo 'no line of error;')" sample.log
done
cp "$archive" sample/source/input
make -C sample data/cifar-10-sample/README.md >sample.log 2>&1
result 'the whole archive is unpacked' "$(ls sample/data/cifar-10-sample 2>&1 | paste -s -d ' ' |
    grep -vx 'README.md batches.meta.txt data_batch_1.bin test_batch.bin')" sample.log

mkdir -p commit/source commit/bin && rules '^version_commit.h' src/local.mk >commit/Makefile
printf '#!/bin/sh\n[ ! -e %s/refuse ] && echo abc1234\n' "$work" >commit/bin/git
chmod +x commit/bin/git
# commit: print the line that make writes.
commit() { PATH=$work/commit/bin:$PATH make -s -C commit version_commit.h >commit.log 2>&1 && cat commit/version_commit.h; }
result 'version_commit.h keeps the commit if git refuses the repository' "$(
    touch refuse commit/source/.git
    [ "$(commit)" = '#define VERSION_COMMIT ""' ] || echo 'not empty without git;'
    rm refuse
    [ "$(commit)" = '#define VERSION_COMMIT "abc1234"' ] || echo 'no commit;'
    touch -d '2001-01-01' commit/version_commit.h
    touch refuse
    [ "$(commit)" = '#define VERSION_COMMIT "abc1234"' ] || echo 'changed by the failure of git;'
    rm commit/source/.git
    echo released >commit/source/.commit
    [ "$(commit)" = '#define VERSION_COMMIT "released"' ] || echo 'no commit from .commit;')" commit.log

# into RULE: make this rule for another prefix, with a space, below $work/root.
into() { make -s -C "$TEST_BUILD" "$1" prefix='/opt/a b' exec_prefix='/opt/a b' DESTDIR="$work/root" >install.log 2>&1 || echo "make $1 fails;"; }
share="$work/root/opt/a b/share"
bad=$(into install)
module=$(find root -path '*/modulefiles/vittrain/*')
result 'the module file has the prefix of make install' "$bad$(
    grep -qx 'prepend-path PATH {/opt/a b/bin}' "$module" && grep -qx 'setenv VITTRAIN_HOME {/opt/a b/share/vittrain}' "$module" ||
        echo "other paths in '$module'")" install.log
mkdir elsewhere
result 'the installed program finds its decks from any folder' "$(cd elsewhere &&
    { echo '# mark' && cat "$TEST_SOURCE/input/linear.ini"; } >"$share/vittrain/input/mark.ini" &&
    "$work/root/opt/a b/bin/vittrain" plan input/mark.ini >plan.log 2>&1 && grep -q '^linear ' plan.log || echo "plan fails")" elsewhere/plan.log
rm "$share/vittrain/input/mark.ini"
result 'the manual is installed' "$(cd "$TEST_SOURCE" && find docs -type f | while read -r file; do
    cmp "$file" "$share/doc/vittrain/$file" 2>&1
done)"
result 'make uninstall leaves neither files nor folders of the program' "$(into uninstall; find root -type f -o -name '*vittrain*')" install.log
