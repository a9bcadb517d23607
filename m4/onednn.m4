dnl SPDX-License-Identifier: BSD-3-Clause
# VITTRAIN_ONEDNN: oneDNN 2.6 or later (2.x and 3.x). Sets ONEDNN_CFLAGS, ONEDNN_LIBS.
# VITTRAIN_RANDOM123: Random123, which consists of headers only. Sets RANDOM123_CFLAGS.

AC_DEFUN([VITTRAIN_ONEDNN], [
  AC_ARG_WITH([onednn],
    [AS_HELP_STRING([--with-onednn=PREFIX], [oneDNN is below PREFIX (default: the compiler finds it)])],
    [], [with_onednn=yes])
  ONEDNN_LIBS=-ldnnl
  AS_CASE([$with_onednn],
    [no], [AC_MSG_ERROR([--with-onednn=no: vittrain needs oneDNN])],
    [yes], [],
    [VITTRAIN_PREFIX([onednn], [dnnl.h])
     AS_IF([test -d "$with_onednn/lib64"], [vittrain_lib=lib64], [vittrain_lib=lib])
     ONEDNN_CFLAGS="-I$with_onednn/include"
     ONEDNN_LIBS="-L$with_onednn/$vittrain_lib -Wl,-rpath,$with_onednn/$vittrain_lib -ldnnl"])
  AC_MSG_CHECKING([for oneDNN >= 2.6])
  vittrain_onednn_version=no
  vittrain_save_CFLAGS=$CFLAGS; vittrain_save_LIBS=$LIBS
  CFLAGS="$CFLAGS $ONEDNN_CFLAGS"; LIBS="$ONEDNN_LIBS $LIBS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[
#include <dnnl.h>
#if DNNL_VERSION_MAJOR < 2 || (DNNL_VERSION_MAJOR == 2 && DNNL_VERSION_MINOR < 6)
#error too old
#endif
]], [[return dnnl_version() == 0;]])],
    [AC_COMPUTE_INT([vittrain_onednn_major], [DNNL_VERSION_MAJOR], [#include <dnnl.h>])
     AC_COMPUTE_INT([vittrain_onednn_minor], [DNNL_VERSION_MINOR], [#include <dnnl.h>])
     vittrain_onednn_version="$vittrain_onednn_major.$vittrain_onednn_minor"])
  AC_MSG_RESULT([$vittrain_onednn_version])
  AS_IF([test "$vittrain_onednn_version" = no], [VITTRAIN_MISSING([oneDNN >= 2.6], [libdnnl-dev])])
  # The version of the library that the program loads. It is unknown if the test cannot run, as in a cross build.
  AC_MSG_CHECKING([for the version of the oneDNN library])
  vittrain_onednn_library=unknown
  AC_RUN_IFELSE([AC_LANG_PROGRAM([[
#include <dnnl.h>
#include <stdio.h>
]], [[
  const dnnl_version_t *version = dnnl_version();
  FILE *file = fopen("conftest.version", "w");
  fprintf(file, "%d.%d", version->major, version->minor);
  return fclose(file);
]])], [vittrain_onednn_library=`cat conftest.version`], [], [:])
  rm -f conftest.version
  CFLAGS=$vittrain_save_CFLAGS; LIBS=$vittrain_save_LIBS
  AC_MSG_RESULT([$vittrain_onednn_library])
  AS_CASE([$vittrain_onednn_library], [unknown|$vittrain_onednn_version], [],
    [VITTRAIN_MISSING([oneDNN: the headers are of version $vittrain_onednn_version, the library of $vittrain_onednn_library],
      [libdnnl-dev])])
  AC_SUBST([ONEDNN_CFLAGS])
  AC_SUBST([ONEDNN_LIBS])
])

AC_DEFUN([VITTRAIN_RANDOM123], [
  AC_ARG_WITH([random123],
    [AS_HELP_STRING([--with-random123=PREFIX], [Random123 is below PREFIX (default: the compiler finds it)])],
    [], [with_random123=yes])
  AS_CASE([$with_random123],
    [no], [AC_MSG_ERROR([--with-random123=no: vittrain needs Random123])],
    [yes], [],
    [VITTRAIN_PREFIX([random123], [Random123/philox.h])
     RANDOM123_CFLAGS="-I$with_random123/include"])
  vittrain_save_CPPFLAGS=$CPPFLAGS
  CPPFLAGS="$CPPFLAGS $RANDOM123_CFLAGS"
  AC_CHECK_HEADER([Random123/philox.h], [],
    [VITTRAIN_MISSING([Random123 (Random123/philox.h)], [librandom123-dev])])
  CPPFLAGS=$vittrain_save_CPPFLAGS
  AC_SUBST([RANDOM123_CFLAGS])
])
