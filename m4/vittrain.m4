dnl SPDX-License-Identifier: BSD-3-Clause
# Macros of configure for compiler properties, libraries with pkg-config modules, missing libraries, and the summary.
# Other libraries have a file of their own.

# VITTRAIN_MISSING(NAME, PACKAGE): record that NAME is missing. configure continues, so that one run lists all
# missing libraries.
AC_DEFUN([VITTRAIN_MISSING], [
  AC_MSG_WARN([$1: missing, too old or unusable (Debian, Ubuntu: $2)])
  vittrain_missing="$vittrain_missing
  $1"
  AS_CASE([" $vittrain_packages "], [*" $2 "*], [], [vittrain_packages="$vittrain_packages $2"])
])

AC_DEFUN([VITTRAIN_REPORT_MISSING], [
  AS_IF([test -n "$vittrain_missing"], [
    AC_MSG_ERROR([missing, too old or unusable:$vittrain_missing
On Debian and Ubuntu this command installs them:
  apt-get install$vittrain_packages
Libraries elsewhere: --with-mpi=PREFIX --with-hdf5=PREFIX --with-onednn=PREFIX --with-random123=PREFIX, PKG_CONFIG_PATH.
config.log has the details.])
  ])
])

# VITTRAIN_PREFIX(NAME, HEADER): fail if --with-NAME=PREFIX was given and HEADER is not below PREFIX. Without this check
# the compiler would find the system's copy.
AC_DEFUN([VITTRAIN_PREFIX], [
  AS_IF([test ! -f "$with_$1/include/$2"], [AC_MSG_ERROR([--with-$1=$with_$1: no file $with_$1/include/$2])])
])

# VITTRAIN_SPLIT_FLAGS(VARIABLE, COMMAND LINE): split a wrapper's command line. The first word, the compiler, is
# dropped; preprocessor flags become VARIABLE_CFLAGS, all others VARIABLE_LIBS.
AC_DEFUN([VITTRAIN_SPLIT_FLAGS], [
  $1_CFLAGS=; $1_LIBS=; vittrain_first=yes
  for vittrain_flag in $2; do
    AS_CASE([$vittrain_first$vittrain_flag],
      [yes*], [vittrain_first=],
      [-I*|-D*], [$1_CFLAGS="$$1_CFLAGS $vittrain_flag"],
      [$1_LIBS="$$1_LIBS $vittrain_flag"])
  done
])

# VITTRAIN_FIND_LIBRARY(VARIABLE, PKG-CONFIG MODULE, MINIMUM VERSION, HEADER, FUNCTION, LIBRARY): find a library with
# pkg-config, or by header and function if it has no module. An installed module's version decides. Sets vittrain_found.
AC_DEFUN([VITTRAIN_FIND_LIBRARY], [
  vittrain_found=no
  AS_IF([test -n "$PKG_CONFIG"], [
    AS_IF([$PKG_CONFIG --exists $2], [
      PKG_CHECK_MODULES([$1], [$2 >= $3], [vittrain_found=yes], [vittrain_found=old])])])
  AS_IF([test "$vittrain_found" = no], [
    AC_CHECK_HEADER(m4_ifval([$4], [[$4]], [[stdio.h]]), [
      AC_CHECK_LIB([$6], [$5], [vittrain_found=yes; $1_LIBS="-l$6"])])])
])

# VITTRAIN_LIBRARY(VARIABLE, PKG-CONFIG MODULE, MINIMUM VERSION, PACKAGE, HEADER, FUNCTION, LIBRARY): find a library that
# the program needs; report it if it is missing.
AC_DEFUN([VITTRAIN_LIBRARY], [
  VITTRAIN_FIND_LIBRARY([$1], [$2], [$3], [$5], [$6], [$7])
  AS_IF([test "$vittrain_found" != yes], [VITTRAIN_MISSING([$2 >= $3], [$4])])
])

# VITTRAIN_HOST: fail if --host names another processor and the compiler is the one for the building machine.
AC_DEFUN([VITTRAIN_HOST], [
  vittrain_machine=`$CC -dumpmachine 2>/dev/null`
  AS_IF([test "$host_cpu" != "$build_cpu" && test "${vittrain_machine%%-*}" = "$build_cpu"],
    [AC_MSG_ERROR([--host=$host_alias: $CC compiles for $vittrain_machine; install $host_alias-gcc or set CC])])
])

# C17 with GNU extensions.
AC_DEFUN([VITTRAIN_C17], [
  AC_MSG_CHECKING([whether $CC takes -std=gnu17])
  vittrain_save_CFLAGS=$CFLAGS
  CFLAGS="$CFLAGS -std=gnu17"
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[_Static_assert(__STDC_VERSION__ >= 201710L, "C17");]])],
    [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     VITTRAIN_MISSING([a compiler for C17 (gcc >= 8 or clang >= 6)], [gcc])])
  CFLAGS=$vittrain_save_CFLAGS
  AC_SUBST([C17_CFLAGS], [-std=gnu17])
])

AC_DEFUN([VITTRAIN_OPENMP], [
  AC_OPENMP
  AS_IF([test "$ac_cv_prog_c_openmp" = unsupported], [
    AC_MSG_CHECKING([whether $CC is clang])
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [[
#ifndef __clang__
#error not clang
#endif
]])], [AC_MSG_RESULT([yes]); VITTRAIN_MISSING([OpenMP for clang], [libomp-dev])],
      [AC_MSG_RESULT([no]); VITTRAIN_MISSING([OpenMP (option -fopenmp of the compiler)], [gcc])])
  ])
])

# The vectorised loops are compiled once per instruction set; the program selects one at run time.
AC_DEFUN([VITTRAIN_KERNELS], [
  vittrain_kernels=baseline
  AS_CASE([$host_cpu], [x86_64|amd64], [
    VITTRAIN_KERNELS_FLAG([avx2], [-march=x86-64-v3])
    VITTRAIN_KERNELS_FLAG([avx512], [-march=x86-64-v4 -mprefer-vector-width=512])
    AC_SUBST([AMX_CFLAGS],
      ["-march=x86-64-v4 -mprefer-vector-width=512 -mavx512bf16 -mamx-tile -mamx-bf16"])
    VITTRAIN_KERNELS_FLAG([amx], [$AMX_CFLAGS])
  ], [aarch64], [
    VITTRAIN_KERNELS_FLAG([neon_bf16], [-march=armv8.2-a+bf16])
  ])
  AS_IF([test "$vittrain_kernels_avx2" = yes],
    [AC_DEFINE([HAVE_KERNELS_AVX2], [1], [kernels compiled for x86-64-v3 are in the program])])
  AS_IF([test "$vittrain_kernels_avx512" = yes],
    [AC_DEFINE([HAVE_KERNELS_AVX512], [1], [kernels compiled for x86-64-v4 are in the program])])
  AS_IF([test "$vittrain_kernels_neon_bf16" = yes],
    [AC_DEFINE([HAVE_KERNELS_NEON_BF16], [1], [kernels compiled for NEON with bf16 are in the program])])
  AM_CONDITIONAL([KERNELS_AVX2], [test "$vittrain_kernels_avx2" = yes])
  AS_IF([test "$vittrain_kernels_amx" = yes],
    [AC_DEFINE([HAVE_KERNELS_AMX], [1], [operations compiled for AMX are in the program])])
  AM_CONDITIONAL([KERNELS_AVX512], [test "$vittrain_kernels_avx512" = yes])
  AM_CONDITIONAL([KERNELS_AMX], [test "$vittrain_kernels_amx" = yes])
  AM_CONDITIONAL([KERNELS_NEON_BF16], [test "$vittrain_kernels_neon_bf16" = yes])
])

# VITTRAIN_KERNELS_FLAG(NAME, FLAGS): compile the kernels for NAME if the compiler takes FLAGS.
AC_DEFUN([VITTRAIN_KERNELS_FLAG], [
  AC_MSG_CHECKING([whether $CC takes $2])
  vittrain_save_CFLAGS=$CFLAGS
  CFLAGS="$CFLAGS $2 -Werror"
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <stddef.h>]])],
    [AC_MSG_RESULT([yes])
     vittrain_kernels_$1=yes
     vittrain_kernels="$vittrain_kernels $1"],
    [AC_MSG_RESULT([no]); vittrain_kernels_$1=no])
  CFLAGS=$vittrain_save_CFLAGS
])

AC_DEFUN([VITTRAIN_SANITIZERS], [
  AC_ARG_ENABLE([sanitizers],
    [AS_HELP_STRING([--enable-sanitizers], [check addresses and undefined behaviour at run time;
       =thread: races between threads])],
    [], [enable_sanitizers=no])
  AS_CASE([$enable_sanitizers], [yes|no|thread], [],
    [AC_MSG_ERROR([--enable-sanitizers=$enable_sanitizers: unknown value; known: yes, no, thread])])
  AS_IF([test "$enable_sanitizers" != no], [
    SANITIZER_CFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"
    AS_IF([test "$enable_sanitizers" = thread], [SANITIZER_CFLAGS="-fsanitize=thread"])
    AC_MSG_CHECKING([whether $CC links with the sanitizers])
    vittrain_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS $SANITIZER_CFLAGS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM()], [AC_MSG_RESULT([yes])],
      [AC_MSG_RESULT([no])
       VITTRAIN_MISSING([libasan, libubsan or libtsan (for --enable-sanitizers)], [gcc])])
    CFLAGS=$vittrain_save_CFLAGS
  ])
  AC_SUBST([SANITIZER_CFLAGS])
  AM_CONDITIONAL([SANITIZERS], [test "$enable_sanitizers" != no])
])

# Full RELRO, stack protector and _FORTIFY_SOURCE, if compiler and linker support them. Builds with sanitizers use
# RELRO only.
AC_DEFUN([VITTRAIN_HARDENING], [
  AS_IF([test "$enable_sanitizers" = no], [
    VITTRAIN_FLAG([HARDENING_CFLAGS], [-fstack-protector-strong])
    VITTRAIN_FLAG([HARDENING_CFLAGS], [-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2])])
  VITTRAIN_FLAG([HARDENING_LDFLAGS], [-Wl,-z,relro,-z,now])
  AC_SUBST([HARDENING_CFLAGS])
  AC_SUBST([HARDENING_LDFLAGS])
])

# VITTRAIN_FLAG(VARIABLE, FLAGS): add FLAGS to VARIABLE if a program links with them without a warning.
AC_DEFUN([VITTRAIN_FLAG], [
  AC_MSG_CHECKING([whether $CC takes $2])
  vittrain_save_CFLAGS=$CFLAGS
  CFLAGS="-O2 $CFLAGS $2 -Werror"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <string.h>]])],
    [AC_MSG_RESULT([yes]); $1="$$1 $2"],
    [AC_MSG_RESULT([no])])
  CFLAGS=$vittrain_save_CFLAGS
])

AC_DEFUN([VITTRAIN_WARNINGS], [
  AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror], [warnings are errors])],
    [], [enable_werror=no])
  WARNING_CFLAGS="-Wall -Wextra -Wshadow -Wconversion"
  # clang 19 warns about 1.5 * CONSTANT. In C, unlike C++, the constant of an enum has type int.
  VITTRAIN_FLAG([WARNING_CFLAGS], [-Wno-enum-float-conversion])
  AS_IF([test "$enable_werror" != no], [WARNING_CFLAGS="$WARNING_CFLAGS -Werror"])
  AC_SUBST([WARNING_CFLAGS])
])

AC_DEFUN([VITTRAIN_SUMMARY], [
  AS_ECHO(["
vittrain $PACKAGE_VERSION
  installs in      $prefix
  compiler         $CC ($C17_CFLAGS, kernels: $vittrain_kernels)
  MPI              $vittrain_mpi_version
  HDF5             $vittrain_hdf5_version
  oneDNN           $vittrain_onednn_version
  CUDA             $vittrain_cuda_summary
  array filters    deflate$vittrain_filters
  sanitizers       $enable_sanitizers
  tests            $vittrain_tests

Now: make, make check, make install"])
])
