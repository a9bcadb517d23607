# SPDX-License-Identifier: BSD-3-Clause
# doctor: the command doctor
libvittrain_a_SOURCES += \
	src/tools/doctor/doctor.c \
	src/tools/doctor/doctor.h \
	src/tools/doctor/doctor_checks.c \
	src/tools/doctor/doctor_facts.c
