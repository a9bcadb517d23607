# SPDX-License-Identifier: BSD-3-Clause
# sweep: the command sweep
libvittrain_a_SOURCES += \
	src/sweep/sweep.c \
	src/sweep/sweep.h \
	src/sweep/sweep_folder.c \
	src/sweep/sweep_space.c \
	src/sweep/sweep_space.h \
	src/sweep/sweep_tpe.c \
	src/sweep/sweep_tpe.h \
	src/sweep/sweep_trial.c
