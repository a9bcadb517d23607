# SPDX-License-Identifier: BSD-3-Clause
# mesh: the mesh of ranks, units, flat buffers
libvittrain_a_SOURCES += \
	src/mesh/flat.c \
	src/mesh/flat.h \
	src/mesh/flat_mesh.c \
	src/mesh/flat_orthogonal.c \
	src/mesh/flat_partial.c \
	src/mesh/initial.c \
	src/mesh/mesh.c \
	src/mesh/mesh.h \
	src/mesh/reduction.c \
	src/mesh/reduction.h \
	src/mesh/unit.h
