# SPDX-License-Identifier: BSD-3-Clause
# fetch: the command fetch: downloads
libvittrain_a_SOURCES += \
	src/fetch/archive.c \
	src/fetch/download.c \
	src/fetch/download.h \
	src/fetch/fetch.c
