# SPDX-License-Identifier: BSD-3-Clause
# bench: the command bench
libvittrain_a_SOURCES += \
	src/bench/bench.c \
	src/bench/bench.h \
	src/bench/bench_comm.c \
	src/bench/bench_convolutions.c \
	src/bench/bench_device.c \
	src/bench/bench_device.h \
	src/bench/bench_machine.c \
	src/bench/bench_machine.h \
	src/bench/bench_network.c \
	src/bench/bench_trials.c
