# SPDX-License-Identifier: BSD-3-Clause
# Files of src that need rules of their own. src/list.sh lists all others.

# Vectorised loops, compiled once for each level of the instruction set: -DKERNELS=LEVEL names the
# copy (src/cpu/cpu*.c picks one at run time). Only files src/cpu/kernels_*.c.
kernel_cflags = $(AM_CFLAGS) -O3 -fno-math-errno -fno-trapping-math -fno-stack-protector
kernel_libraries = libkernels_baseline.a
libvittrain_a_LIBADD = $(libkernels_baseline_a_OBJECTS)
libkernels_baseline_a_SOURCES = $(kernel_sources)
libkernels_baseline_a_CPPFLAGS = $(AM_CPPFLAGS) -DKERNELS=baseline
libkernels_baseline_a_CFLAGS = $(kernel_cflags)
if KERNELS_AVX2
kernel_libraries += libkernels_avx2.a
libvittrain_a_LIBADD += $(libkernels_avx2_a_OBJECTS)
libkernels_avx2_a_SOURCES = $(kernel_sources)
libkernels_avx2_a_CPPFLAGS = $(AM_CPPFLAGS) -DKERNELS=avx2
libkernels_avx2_a_CFLAGS = $(kernel_cflags) -march=x86-64-v3
endif
if KERNELS_AVX512
kernel_libraries += libkernels_avx512.a
libvittrain_a_LIBADD += $(libkernels_avx512_a_OBJECTS)
libkernels_avx512_a_SOURCES = $(kernel_sources)
libkernels_avx512_a_CPPFLAGS = $(AM_CPPFLAGS) -DKERNELS=avx512
libkernels_avx512_a_CFLAGS = $(kernel_cflags) -march=x86-64-v4 -mprefer-vector-width=512
endif
if KERNELS_NEON_BF16
kernel_libraries += libkernels_neon_bf16.a
libvittrain_a_LIBADD += $(libkernels_neon_bf16_a_OBJECTS)
libkernels_neon_bf16_a_SOURCES = $(kernel_sources)
libkernels_neon_bf16_a_CPPFLAGS = $(AM_CPPFLAGS) -DKERNELS=neon_bf16
libkernels_neon_bf16_a_CFLAGS = $(kernel_cflags) -march=armv8.2-a+bf16
endif

# Operations on tiles, compiled for AMX and with an emulation of its instructions.
kernel_libraries += libtiles_emulated.a
libvittrain_a_LIBADD += $(libtiles_emulated_a_OBJECTS)
libtiles_emulated_a_SOURCES = $(tile_sources) src/cpu/tiles/emulation.c
libtiles_emulated_a_CPPFLAGS = $(AM_CPPFLAGS) -DKERNELS=amx_emulated -DTILES_EMULATED
libtiles_emulated_a_CFLAGS = $(kernel_cflags) -Wno-psabi
if KERNELS_AMX
kernel_libraries += libtiles_amx.a
libvittrain_a_LIBADD += $(libtiles_amx_a_OBJECTS)
libtiles_amx_a_SOURCES = $(tile_sources)
libtiles_amx_a_CPPFLAGS = $(AM_CPPFLAGS) -DKERNELS=amx
libtiles_amx_a_CFLAGS = $(kernel_cflags) $(AMX_CFLAGS)
endif
# Their objects are part of libvittrain.a; Automake makes the rules for them.
EXTRA_LIBRARIES = $(kernel_libraries)

# Messages of TensorBoard's event files.
EXTRA_DIST += src/record/events.proto
nodist_libvittrain_a_SOURCES = \
	src/record/events.pb-c.c \
	src/record/events.pb-c.h

src/record/events.pb-c.c: $(srcdir)/src/record/events.proto
	$(AM_V_GEN)$(MKDIR_P) src/record && \
	$(PROTOC_C) --proto_path=$(srcdir)/src --c_out=src $(srcdir)/src/record/events.proto
src/record/events.pb-c.h: src/record/events.pb-c.c
BUILT_SOURCES += src/record/events.pb-c.h
CLEANFILES += \
	src/record/events.pb-c.c \
	src/record/events.pb-c.h

# Every make looks up the commit and rewrites the file only if the commit has changed. If git fails, for example because
# root installs from the checkout of another user, the file is kept.
src/base/version.$(OBJEXT): version_commit.h
version_commit.h: FORCE
	@if commit=`cd $(srcdir) && { cat .commit 2>/dev/null || test ! -e .git || \
		git describe --always --dirty --exclude='*' 2>/dev/null; }` || test ! -e $@; then \
	line="#define VERSION_COMMIT \"$$commit\""; \
	test "$$line" = "`cat $@ 2>/dev/null`" || echo "$$line" >$@; fi
FORCE:
dist-hook:
	$(SED) 's/.*"\(.*\)"/\1/' version_commit.h >$(distdir)/.commit
CLEANFILES += version_commit.h
