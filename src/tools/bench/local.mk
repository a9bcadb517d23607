# SPDX-License-Identifier: BSD-3-Clause
# bench: the command bench
libvittrain_a_SOURCES += \
	src/tools/bench/bench.c \
	src/tools/bench/bench.h \
	src/tools/bench/bench_comm.c \
	src/tools/bench/bench_device.c \
	src/tools/bench/bench_trials.c
