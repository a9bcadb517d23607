# SPDX-License-Identifier: BSD-3-Clause
# runlog: console, metrics, TensorBoard, sensors
libvittrain_a_SOURCES += \
	src/runlog/evaluation.c \
	src/runlog/evaluation.h \
	src/runlog/logbook.c \
	src/runlog/metrics.c \
	src/runlog/metrics.h \
	src/runlog/monitor.c \
	src/runlog/monitor.h \
	src/runlog/run_log.c \
	src/runlog/run_log.h \
	src/runlog/tensorboard.c \
	src/runlog/tensorboard.h \
	src/runlog/upload.c
EXTRA_DIST += src/runlog/events.proto
nodist_libvittrain_a_SOURCES = \
	src/runlog/events.pb-c.c \
	src/runlog/events.pb-c.h

src/runlog/events.pb-c.c: $(srcdir)/src/runlog/events.proto
	$(AM_V_GEN)$(MKDIR_P) src/runlog && \
	$(PROTOC_C) --proto_path=$(srcdir)/src --c_out=src $(srcdir)/src/runlog/events.proto
src/runlog/events.pb-c.h: src/runlog/events.pb-c.c
BUILT_SOURCES += src/runlog/events.pb-c.h
CLEANFILES += \
	src/runlog/events.pb-c.c \
	src/runlog/events.pb-c.h
