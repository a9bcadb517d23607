# SPDX-License-Identifier: BSD-3-Clause
# app: the commands
libvittrain_a_SOURCES += \
	src/app/app.c \
	src/app/app.h \
	src/app/completion.c \
	src/app/completion.h \
	src/app/convert.c \
	src/app/convert_data.c \
	src/app/eval.c \
	src/app/find.c \
	src/app/help.c \
	src/app/plan.c \
	src/app/predict.c \
	src/app/prediction.c \
	src/app/prediction.h \
	src/app/report.c \
	src/app/train.c \
	src/app/upload.c \
	src/app/verify.c
