# VITTRAIN_ONEDNN: oneDNN 2.6 or later (2.x and 3.x). Sets ONEDNN_CFLAGS, ONEDNN_LIBS.
# VITTRAIN_RANDOM123: Random123, which consists of headers only.

AC_DEFUN([VITTRAIN_ONEDNN], [
  AC_ARG_WITH([onednn],
    [AS_HELP_STRING([--with-onednn=PREFIX], [oneDNN is below PREFIX (default: the compiler finds it)])],
    [], [with_onednn=yes])
  ONEDNN_LIBS=-ldnnl
  AS_CASE([$with_onednn],
    [no], [AC_MSG_ERROR([--with-onednn=no: vittrain needs oneDNN])],
    [yes], [],
    [AS_IF([test -d "$with_onednn/lib64"], [vittrain_lib=lib64], [vittrain_lib=lib])
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
  CFLAGS=$vittrain_save_CFLAGS; LIBS=$vittrain_save_LIBS
  AC_MSG_RESULT([$vittrain_onednn_version])
  AS_IF([test "$vittrain_onednn_version" = no], [VITTRAIN_MISSING([oneDNN >= 2.6], [libdnnl-dev])])
  AC_SUBST([ONEDNN_CFLAGS])
  AC_SUBST([ONEDNN_LIBS])
])

AC_DEFUN([VITTRAIN_RANDOM123], [
  AC_CHECK_HEADER([Random123/philox.h], [],
    [VITTRAIN_MISSING([Random123 (Random123/philox.h)], [librandom123-dev])])
])
