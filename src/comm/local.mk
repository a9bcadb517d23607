# SPDX-License-Identifier: BSD-3-Clause
# comm: groups of ranks and their collectives
libvittrain_a_SOURCES += \
	src/comm/combine.c \
	src/comm/combine.h \
	src/comm/comm.c \
	src/comm/comm.h \
	src/comm/exchange.c \
	src/comm/fake.c \
	src/comm/heartbeat.c \
	src/comm/internal.h \
	src/comm/joined_bytes.c \
	src/comm/messages.c \
	src/comm/mpi.c \
	src/comm/mpi_check.h \
	src/comm/comm_thread.c \
	src/comm/ring.c \
	src/comm/shared.c \
	src/comm/signals.c \
	src/comm/transport.c \
	src/comm/watch.c \
	src/comm/watch.h \
	src/comm/window.c
