dnl SPDX-License-Identifier: BSD-3-Clause
# VITTRAIN_MPI: MPI 3.1 or later, and mpirun for the tests. The flags come from the wrapper mpicc, so any compiler
# can be used; in a cross build, where mpicc belongs to the building machine, from pkg-config.
# Sets MPI_CFLAGS, MPI_LIBS, MPIRUN, MPIRUN_FLAGS and MPI_NAME (openmpi, or mpich for MPICH and its descendants).

AC_DEFUN([VITTRAIN_MPI], [
  AC_ARG_WITH([mpi], [AS_HELP_STRING([--with-mpi=PREFIX|NAME], [MPI is below PREFIX, or its programs are mpicc.NAME
       and mpirun.NAME, as Debian names them for openmpi and mpich (default: mpicc in PATH)])],
    [], [with_mpi=yes])
  MPI_NAME=openmpi vittrain_mpi_path=$PATH vittrain_mpi_suffix=
  AS_CASE([$with_mpi],
    [yes], [],
    [no], [AC_MSG_ERROR([--with-mpi=no: vittrain needs MPI])],
    [*/*], [vittrain_mpi_path=$with_mpi/bin],
    [vittrain_mpi_suffix=.$with_mpi MPI_NAME=$with_mpi])
  AC_PATH_PROG([MPICC], [mpicc$vittrain_mpi_suffix], [], [$vittrain_mpi_path])
  AC_PATH_PROG([MPIRUN], [mpirun$vittrain_mpi_suffix], [], [$vittrain_mpi_path])
  AS_CASE([$MPICC,$with_mpi], [,yes|,*/*|,openmpi|,mpich], [],
    [,*], [AC_MSG_ERROR([--with-mpi=$with_mpi: no program mpicc.$with_mpi in PATH; known names: openmpi, mpich])])
  vittrain_mpi_version=no
  AS_CASE([$cross_compiling,$with_mpi],
    [yes,yes|yes,openmpi], [MPICC="$PKG_CONFIG ompi-c"],
    [yes,mpich], [MPICC="$PKG_CONFIG mpich"])
  AS_IF([test -n "$MPICC"], [
    AC_MSG_CHECKING([for the flags of $MPICC])
    AS_IF([test "${MPICC% *}" = "$PKG_CONFIG"], [
      MPI_CFLAGS=`$MPICC --cflags`
      MPI_LIBS=`$MPICC --libs`
    ], [vittrain_mpi_compile=`$MPICC --showme:compile 2>/dev/null`], [
      MPI_CFLAGS=$vittrain_mpi_compile
      MPI_LIBS=`$MPICC --showme:link`
    ], [
      # MPICH and its descendants: one line, compiler first.
      VITTRAIN_SPLIT_FLAGS([MPI], [`$MPICC -show 2>/dev/null`])
    ])
    AC_MSG_RESULT([$MPI_CFLAGS $MPI_LIBS])
    AC_MSG_CHECKING([for MPI >= 3.1])
    vittrain_save_CFLAGS=$CFLAGS; vittrain_save_LIBS=$LIBS
    CFLAGS="$CFLAGS $MPI_CFLAGS"; LIBS="$MPI_LIBS $LIBS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[
#include <mpi.h>
#if MPI_VERSION < 3 || (MPI_VERSION == 3 && MPI_SUBVERSION < 1)
#error too old
#endif
]], [[return MPI_Init(0, 0);]])],
      [vittrain_mpi_version=`$MPIRUN --version 2>/dev/null |
         $SED -n 's/.*(Open MPI)/Open MPI/p; s/^ *Version: */MPICH /p'`
       AS_IF([test -z "$vittrain_mpi_version"], [vittrain_mpi_version=$MPICC])])
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
#include <mpi.h>
#ifndef OPEN_MPI
#error not Open MPI
#endif
]])], [MPI_NAME=openmpi MPIRUN_FLAGS='--oversubscribe --bind-to none'], [MPI_NAME=mpich])
    CFLAGS=$vittrain_save_CFLAGS; LIBS=$vittrain_save_LIBS
    AC_MSG_RESULT([$vittrain_mpi_version])
  ])
  AS_IF([test "$vittrain_mpi_version" = no], [VITTRAIN_MISSING([MPI >= 3.1], [lib$MPI_NAME-dev])])
  AS_IF([test "$cross_compiling,$MPIRUN" = no,], [VITTRAIN_MISSING([mpirun], [lib$MPI_NAME-dev])])
  AC_SUBST([MPI_CFLAGS])
  AC_SUBST([MPI_LIBS])
  AC_SUBST([MPIRUN_FLAGS])
  AC_SUBST([MPI_NAME])
])
