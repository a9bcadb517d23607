dnl SPDX-License-Identifier: BSD-3-Clause
# VITTRAIN_FILTER(VARIABLE, NAME, PKG-CONFIG MODULE, MINIMUM VERSION, PACKAGE, HEADER, FUNCTION, HELP): find an optional
# library that decodes compressed chunks of arrays. Sets VARIABLE_CFLAGS, VARIABLE_LIBS and HAVE_VARIABLE, and
# adds NAME to vittrain_filters.

AC_DEFUN([VITTRAIN_FILTER], [
  AC_ARG_WITH([$2],
    [AS_HELP_STRING([--with-$2=auto|yes|no], m4_default([$8], [read arrays compressed with $2])[ (default auto: if it is found)])],
    [], [with_$2=auto])
  vittrain_found=no
  AS_IF([test "$with_$2" != no], [VITTRAIN_FIND_LIBRARY([$1], [$3], [$4], [$6], [$7], [$2])])
  AS_IF([test "$vittrain_found" = yes],
    [AC_DEFINE([HAVE_$1], [1], [arrays may be compressed with $2])
     vittrain_filters="$vittrain_filters, $2"],
    [test "$with_$2" = yes], [VITTRAIN_MISSING([$3 >= $4], [$5])],
    [$1_CFLAGS= $1_LIBS=])
  AC_SUBST([$1_CFLAGS])
  AC_SUBST([$1_LIBS])
])
