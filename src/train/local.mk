# SPDX-License-Identifier: BSD-3-Clause
# train: session, step, optimizer, schedule, evaluation, trainer
libvittrain_a_SOURCES += \
	src/train/control.c \
	src/train/control.h \
	src/train/evaluate.c \
	src/train/evaluate.h \
	src/train/feed.c \
	src/train/feed.h \
	src/train/hardware.c \
	src/train/hardware.h \
	src/train/inference.c \
	src/train/inference.h \
	src/train/optimizer.c \
	src/train/optimizer.h \
	src/train/step_io.c \
	src/train/step_io.h \
	src/train/peak.c \
	src/train/peak.h \
	src/train/progress.c \
	src/train/progress.h \
	src/train/range_test.c \
	src/train/range_test.h \
	src/train/receipts.c \
	src/train/receipts.h \
	src/train/recipe.c \
	src/train/recipe.h \
	src/train/retrieve.c \
	src/train/retrieve.h \
	src/train/run_record.c \
	src/train/run_record.h \
	src/train/schedule.c \
	src/train/schedule.h \
	src/train/session.c \
	src/train/session.h \
	src/train/input.c \
	src/train/input.h \
	src/train/step.c \
	src/train/step.h \
	src/train/straggler.c \
	src/train/straggler.h \
	src/train/trainer.c \
	src/train/trainer.h \
	src/train/trainer_run.c \
	src/train/trainer_state.c \
	src/train/trainer_state.h \
	src/train/verify.c \
	src/train/verify.h
