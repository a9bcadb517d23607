# SPDX-License-Identifier: BSD-3-Clause
# launch: the command launch
libvittrain_a_SOURCES += \
	src/tools/launch/launch.c \
	src/tools/launch/launch.h \
	src/tools/launch/launch_attempt.c \
	src/tools/launch/launch_hosts.c \
	src/tools/launch/launch_policy.c \
	src/tools/launch/launch_run.c
