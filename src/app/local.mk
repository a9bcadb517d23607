# SPDX-License-Identifier: BSD-3-Clause
# app: the list of commands, help
libvittrain_a_SOURCES += \
	src/app/app.c \
	src/app/app.h \
	src/app/help.c
