# SPDX-License-Identifier: BSD-3-Clause
# commands: one file per small command
libvittrain_a_SOURCES += \
	src/commands/convert.c \
	src/commands/data.c \
	src/commands/eval.c \
	src/commands/find.c \
	src/commands/plan.c \
	src/commands/predict.c \
	src/commands/prediction_arrays.c \
	src/commands/prediction_arrays.h \
	src/commands/prediction.c \
	src/commands/prediction.h \
	src/commands/report.c \
	src/commands/train.c \
	src/commands/verify.c
