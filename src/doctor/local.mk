# SPDX-License-Identifier: BSD-3-Clause
# doctor: the command doctor
libvittrain_a_SOURCES += \
	src/doctor/doctor.c \
	src/doctor/doctor.h \
	src/doctor/doctor_build.c \
	src/doctor/doctor_data.c \
	src/doctor/doctor_facts.c \
	src/doctor/doctor_folder.c \
	src/doctor/doctor_gpu.c \
	src/doctor/doctor_network.c \
	src/doctor/doctor_node.c \
	src/doctor/doctor_watch.c
