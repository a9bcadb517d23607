# SPDX-License-Identifier: BSD-3-Clause
# report: log book, HTML report, comparison of runs
libvittrain_a_SOURCES += \
	src/tools/report/chart.c \
	src/tools/report/chart.h \
	src/tools/report/escape.c \
	src/tools/report/escape.h \
	src/tools/report/export.c \
	src/tools/report/export.h \
	src/tools/report/export_course.c \
	src/tools/report/facts.c \
	src/tools/report/facts.h \
	src/tools/report/format.c \
	src/tools/report/format.h \
	src/tools/report/html.c \
	src/tools/report/html.h \
	src/tools/report/html_classes.c \
	src/tools/report/html_curves.c \
	src/tools/report/html_figure.c \
	src/tools/report/html_figure.h \
	src/tools/report/html_sensors.c \
	src/tools/report/html_style.c \
	src/tools/report/html_tables.c \
	src/tools/report/html_units.c \
	src/tools/report/logbook.c \
	src/tools/report/logbook.h \
	src/tools/report/pen.c \
	src/tools/report/pen.h \
	src/tools/report/record.c \
	src/tools/report/record.h \
	src/tools/report/run_tables.c \
	src/tools/report/run_tables.h \
	src/tools/report/sheet.c \
	src/tools/report/sheet.h \
	src/tools/report/table.c \
	src/tools/report/table.h \
	src/tools/report/ticks.c \
	src/tools/report/ticks.h
