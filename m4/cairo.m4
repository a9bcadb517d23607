dnl SPDX-License-Identifier: BSD-3-Clause
# VITTRAIN_CAIRO: Cairo 1.16 or later with its PNG back end, for charts as PNG files. Optional.
# Sets CAIRO_CFLAGS, CAIRO_LIBS, HAVE_CAIRO.

AC_DEFUN([VITTRAIN_CAIRO], [
  AC_ARG_WITH([cairo],
    [AS_HELP_STRING([--with-cairo=auto|yes|no], [charts as PNG files (default auto: if Cairo is found)])],
    [], [with_cairo=auto])
  vittrain_cairo_summary=no
  AS_CASE([$with_cairo:$PKG_CONFIG], [no:*|*:], [],
    [PKG_CHECK_MODULES([CAIRO], [cairo-png >= 1.16],
      [AC_DEFINE([HAVE_CAIRO], [1], [charts are written as PNG])
       vittrain_cairo_summary=yes],
      [vittrain_cairo_summary="no, charts are not written as PNG (libcairo2-dev)"])])
  AS_CASE([$with_cairo:$vittrain_cairo_summary], [yes:no*], [VITTRAIN_MISSING([cairo >= 1.16], [libcairo2-dev])])
  AC_SUBST([CAIRO_CFLAGS])
  AC_SUBST([CAIRO_LIBS])
])
