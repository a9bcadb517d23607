# VITTRAIN_CAIRO: Cairo 1.16 or later with its SVG and PNG back ends, for the charts of reports. Optional.
# Sets CAIRO_CFLAGS, CAIRO_LIBS, HAVE_CAIRO.

AC_DEFUN([VITTRAIN_CAIRO], [
  AC_ARG_WITH([cairo],
    [AS_HELP_STRING([--with-cairo=auto|yes|no], [charts in reports (default auto: if Cairo is found)])],
    [], [with_cairo=auto])
  vittrain_cairo_summary=no
  AS_CASE([$with_cairo:$PKG_CONFIG], [no:*|*:], [],
    [PKG_CHECK_MODULES([CAIRO], [cairo-svg >= 1.16 cairo-png],
      [AC_DEFINE([HAVE_CAIRO], [1], [reports have charts])
       vittrain_cairo_summary=yes],
      [vittrain_cairo_summary="no, reports have no charts (libcairo2-dev)"])])
  AS_CASE([$with_cairo:$vittrain_cairo_summary], [yes:no*], [VITTRAIN_MISSING([cairo >= 1.16], [libcairo2-dev])])
  AC_SUBST([CAIRO_CFLAGS])
  AC_SUBST([CAIRO_LIBS])
])
