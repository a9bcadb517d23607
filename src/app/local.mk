# SPDX-License-Identifier: BSD-3-Clause
# app: the list of commands, help and completion
libvittrain_a_SOURCES += \
	src/app/app.c \
	src/app/app.h \
	src/app/completion.c \
	src/app/completion.h \
	src/app/help.c
