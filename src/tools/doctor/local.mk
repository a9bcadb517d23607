# SPDX-License-Identifier: BSD-3-Clause
# doctor: the command doctor
libvittrain_a_SOURCES += \
	src/tools/doctor/doctor.c \
	src/tools/doctor/doctor.h \
	src/tools/doctor/doctor_data.c \
	src/tools/doctor/doctor_facts.c \
	src/tools/doctor/doctor_folder.c \
	src/tools/doctor/doctor_gpu.c \
	src/tools/doctor/doctor_node.c \
	src/tools/doctor/doctor_watch.c
