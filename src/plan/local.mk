# plan: memory plan, cost model, machine description
libvittrain_a_SOURCES += \
	src/plan/fit.c \
	src/plan/fit.h \
	src/plan/forecast.c \
	src/plan/forecast.h \
	src/plan/machine.c \
	src/plan/machine.h \
	src/plan/machine_file.c \
	src/plan/plan.c \
	src/plan/plan.h \
	src/plan/prediction.c \
	src/plan/prediction.h \
	src/plan/step_script.c \
	src/plan/step_script.h \
	src/plan/trial.c \
	src/plan/trial.h
