# SPDX-License-Identifier: BSD-3-Clause
# device: the table of operations and its CPU implementation
libvittrain_a_SOURCES += $(device_sources)

# Vectorised loops, compiled once for each level of the instruction set: -DKERNELS=LEVEL names the
# copy (src/device/cpu*.c picks one at run time). Only files src/device/kernels_*.c.
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
libtiles_emulated_a_SOURCES = $(tile_sources) src/device/tiles/emulation.c
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
