# SPDX-License-Identifier: BSD-3-Clause
# launch: the command launch
libvittrain_a_SOURCES += \
	src/launch/launch.c \
	src/launch/launch.h \
	src/launch/launch_attempt.c \
	src/launch/launch_cause.c \
	src/launch/launch_hosts.c \
	src/launch/launch_run.c
