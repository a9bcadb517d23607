# SPDX-License-Identifier: BSD-3-Clause
# sweep: the command sweep
libvittrain_a_SOURCES += \
	src/tools/sweep/sweep.c \
	src/tools/sweep/sweep.h \
	src/tools/sweep/sweep_folder.c \
	src/tools/sweep/sweep_space.c \
	src/tools/sweep/sweep_space.h \
	src/tools/sweep/sweep_tpe.c \
	src/tools/sweep/sweep_tpe.h \
	src/tools/sweep/sweep_trial.c \
	src/tools/sweep/table.c \
	src/tools/sweep/table.h
