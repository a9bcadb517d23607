# app: the commands
libvittrain_a_SOURCES += \
	src/app/app.c \
	src/app/app.h \
	src/app/convert.c \
	src/app/convert_data.c \
	src/app/eval.c \
	src/app/find.c \
	src/app/find.h \
	src/app/find_batch.c \
	src/app/find_lr.c \
	src/app/find_lr_plot.c \
	src/app/help.c \
	src/app/manual.c \
	src/app/plan.c \
	src/app/plan_checkpoint.c \
	src/app/plan_cluster.c \
	src/app/plan_operations.c \
	src/app/plan_time.c \
	src/app/plan_time.h \
	src/app/predict.c \
	src/app/report.c \
	src/app/same_start.c \
	src/app/train.c \
	src/app/upload.c
