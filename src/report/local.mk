# SPDX-License-Identifier: BSD-3-Clause
# report: log book, HTML report, comparison of runs
libvittrain_a_SOURCES += \
	src/report/chart.c \
	src/report/chart.h \
	src/report/escape.c \
	src/report/escape.h \
	src/report/export.c \
	src/report/export.h \
	src/report/export_course.c \
	src/report/facts.c \
	src/report/facts.h \
	src/report/format.c \
	src/report/format.h \
	src/report/html.c \
	src/report/html.h \
	src/report/html_classes.c \
	src/report/html_curves.c \
	src/report/html_figure.c \
	src/report/html_figure.h \
	src/report/html_sensors.c \
	src/report/html_style.c \
	src/report/html_tables.c \
	src/report/html_units.c \
	src/report/logbook.c \
	src/report/logbook.h \
	src/report/pen.c \
	src/report/pen.h \
	src/report/record.c \
	src/report/record.h \
	src/report/run_tables.c \
	src/report/run_tables.h \
	src/report/sheet.c \
	src/report/sheet.h \
	src/report/table.c \
	src/report/table.h \
	src/report/ticks.c \
	src/report/ticks.h
