# SPDX-License-Identifier: BSD-3-Clause
# plan: memory plan, cost model, machine description
libvittrain_a_SOURCES += \
	src/plan/find_batch.c \
	src/plan/fit.c \
	src/plan/machine.c \
	src/plan/machine.h \
	src/plan/plan.c \
	src/plan/plan.h \
	src/plan/plan_print.c \
	src/plan/step_prediction.c \
	src/plan/step_script.c \
	src/plan/step_script.h
