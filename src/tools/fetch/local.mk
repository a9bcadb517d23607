# SPDX-License-Identifier: BSD-3-Clause
# fetch: the command fetch: downloads
libvittrain_a_SOURCES += \
	src/tools/fetch/archive.c \
	src/tools/fetch/download.c \
	src/tools/fetch/download.h \
	src/tools/fetch/fetch.c
