# SPDX-License-Identifier: BSD-3-Clause
# train: session, step, optimizer, schedule, evaluation, trainer
libvittrain_a_SOURCES += \
	src/train/evaluate.c \
	src/train/evaluate.h \
	src/train/feed.c \
	src/train/feed.h \
	src/train/grain_check.c \
	src/train/grain_check.h \
	src/train/hardware.c \
	src/train/hardware.h \
	src/train/inference.c \
	src/train/inference.h \
	src/train/input.c \
	src/train/input.h \
	src/train/optimizer.c \
	src/train/optimizer.h \
	src/train/peak.c \
	src/train/pictures.c \
	src/train/pictures.h \
	src/train/progress.c \
	src/train/progress.h \
	src/train/range_test.c \
	src/train/range_test.h \
	src/train/receipts.c \
	src/train/resolve.c \
	src/train/resume.c \
	src/train/resume.h \
	src/train/run.c \
	src/train/run.h \
	src/train/run_record.c \
	src/train/schedule.c \
	src/train/session.c \
	src/train/session.h \
	src/train/step.c \
	src/train/step.h \
	src/train/step_io.c \
	src/train/straggler.c \
	src/train/straggler.h \
	src/train/trainer.c \
	src/train/trainer.h \
	src/train/trainer_checkpoint.c \
	src/train/trainer_run.c
