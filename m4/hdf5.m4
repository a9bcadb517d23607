dnl SPDX-License-Identifier: BSD-3-Clause
# VITTRAIN_HDF5: HDF5 1.10 or later, built with the MPI that VITTRAIN_MPI has found. Sets HDF5_CFLAGS, HDF5_LIBS.
# Debian and Ubuntu keep one library for each MPI beside the serial one: hdf5-openmpi and hdf5-mpich.

AC_DEFUN([VITTRAIN_HDF5], [
  AC_ARG_WITH([hdf5],
    [AS_HELP_STRING([--with-hdf5=PREFIX], [parallel HDF5 is below PREFIX (default: from pkg-config, else h5pcc)])],
    [], [with_hdf5=yes])
  AS_CASE([$with_hdf5],
    [no], [AC_MSG_ERROR([--with-hdf5=no: vittrain needs parallel HDF5])],
    [yes], [
      HDF5_LIBS=
      AS_IF([test -n "$PKG_CONFIG" && $PKG_CONFIG --exists hdf5-$MPI_NAME], [
        HDF5_CFLAGS=`$PKG_CONFIG --cflags hdf5-$MPI_NAME`
        HDF5_LIBS=`$PKG_CONFIG --libs hdf5-$MPI_NAME`
      ], [
        # A cross build does not use the building machine's h5pcc.
        AS_IF([test "$cross_compiling" != yes], [AC_PATH_PROGS([H5PCC], [h5pcc.$MPI_NAME h5pcc])])
        AS_IF([test -n "$H5PCC"], [
          VITTRAIN_SPLIT_FLAGS([HDF5], [`$H5PCC -show`])
        ], [HDF5_LIBS=-lhdf5])
      ])],
    [VITTRAIN_PREFIX([hdf5], [hdf5.h])
     HDF5_CFLAGS="-I$with_hdf5/include"
     HDF5_LIBS="-L$with_hdf5/lib -Wl,-rpath,$with_hdf5/lib -lhdf5"])
  AC_MSG_CHECKING([for parallel HDF5 >= 1.10])
  vittrain_hdf5_version=no
  vittrain_save_CFLAGS=$CFLAGS; vittrain_save_LIBS=$LIBS
  CFLAGS="$CFLAGS $HDF5_CFLAGS $MPI_CFLAGS"; LIBS="$HDF5_LIBS $MPI_LIBS $LIBS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[
#include <hdf5.h>
#if !defined H5_HAVE_PARALLEL || !H5_VERSION_GE(1, 10, 0)
#error serial or too old
#endif
]], [[return H5Pset_fapl_mpio(H5P_DEFAULT, MPI_COMM_WORLD, MPI_INFO_NULL);]])],
    [VITTRAIN_HDF5_MPI
     AC_COMPUTE_INT([vittrain_hdf5_major], [H5_VERS_MAJOR], [#include <hdf5.h>])
     AC_COMPUTE_INT([vittrain_hdf5_minor], [H5_VERS_MINOR], [#include <hdf5.h>])
     AC_COMPUTE_INT([vittrain_hdf5_release], [H5_VERS_RELEASE], [#include <hdf5.h>])
     vittrain_hdf5_version="$vittrain_hdf5_major.$vittrain_hdf5_minor.$vittrain_hdf5_release, parallel"
     AS_IF([test $vittrain_hdf5_mpi != $MPI_NAME],
       [vittrain_hdf5_version="no, $vittrain_hdf5_file was built with $vittrain_hdf5_mpi, not $MPI_NAME"])])
  CFLAGS=$vittrain_save_CFLAGS; LIBS=$vittrain_save_LIBS
  AC_MSG_RESULT([$vittrain_hdf5_version])
  AS_CASE([$vittrain_hdf5_version],
    [no*], [VITTRAIN_MISSING([HDF5 >= 1.10 built with $MPI_NAME], [libhdf5-$MPI_NAME-dev])])
  AC_SUBST([HDF5_CFLAGS])
  AC_SUBST([HDF5_LIBS])
])

# VITTRAIN_HDF5_MPI: set vittrain_hdf5_mpi to the MPI that HDF5 was built with, and vittrain_hdf5_file to its library.
# Called after a successful link test. Linking its program again with -Wl,-t prints the libraries, also in a cross build.
# An HDF5 built with Open MPI contains names such as ompi_mpi_byte.
AC_DEFUN([VITTRAIN_HDF5_MPI], [
  AC_REQUIRE([AC_PROG_GREP])
  vittrain_hdf5_file=`$CC -o conftest$ac_exeext $CFLAGS $CPPFLAGS $LDFLAGS conftest.$ac_ext $LIBS -Wl,-t 2>/dev/null |
    tr -s ' ()' '\n' | $GREP '/libhdf5@<:@_a-z@:>@*@<:@.@:>@' | $SED 1q`
  AS_IF([test -z "$vittrain_hdf5_file"], [vittrain_hdf5_mpi=$MPI_NAME],
    [$GREP ompi_mpi_ "$vittrain_hdf5_file" >/dev/null 2>&1], [vittrain_hdf5_mpi=openmpi],
    [vittrain_hdf5_mpi=mpich])
])
