# SPDX-License-Identifier: BSD-3-Clause
# device: the table of operations and its CPU implementation
libvittrain_a_SOURCES += \
	src/device/choices.c \
	src/device/choices.h \
	src/device/count.c \
	src/device/count.h \
	src/device/cpu.c \
	src/device/cpu.h \
	src/device/cpu_attention.c \
	src/device/cpu_batch_norm.c \
	src/device/cpu_convolution.c \
	src/device/cpu_convolution_direct.c \
	src/device/cpu_convolution_implicit.c \
	src/device/cpu_convolution_implicit.h \
	src/device/cpu_convolution_plan.c \
	src/device/cpu_convolution_plan.h \
	src/device/cpu_dropout.c \
	src/device/cpu_image.c \
	src/device/cpu_glu.c \
	src/device/cpu_linear.c \
	src/device/cpu_linear.h \
	src/device/cpu_linear_grains.c \
	src/device/cpu_loss.c \
	src/device/cpu_rotary.c \
	src/device/cpu_mix.c \
	src/device/cpu_norm.c \
	src/device/cpu_onednn.h \
	src/device/cpu_pool.c \
	src/device/cpu_product.c \
	src/device/cpu_product.h \
	src/device/cpu_product_choice.c \
	src/device/cpu_product_choice.h \
	src/device/cpu_product_tiles.c \
	src/device/cpu_product_tiles.h \
	src/device/cpu_scale.c \
	src/device/cpu_tokens.c \
	src/device/cpu_update.c \
	src/device/device.c \
	src/device/device.h \
	src/device/flip.c \
	src/device/flip.h \
	src/device/grains.c \
	src/device/grains.h \
	src/device/image.c \
	src/device/image.h \
	src/device/operations.h \
	src/device/profile.c \
	src/device/profile.h \
	src/device/tree_sum.h

# Vectorised loops, compiled once for each level of the instruction set: -DKERNELS=LEVEL names the
# copy (src/device/cpu*.c picks one at run time). Only files src/device/kernels_*.c.
kernel_sources = \
	src/device/kernels.h \
	src/device/kernels_attention.c \
	src/device/kernels_batch_norm.c \
	src/device/kernels_colour.c \
	src/device/kernels_convolution.c \
	src/device/kernels_elements.c \
	src/device/kernels_image.c \
	src/device/kernels_implicit.c \
	src/device/kernels_linear.c \
	src/device/kernels_loss.c \
	src/device/kernels_norm.c \
	src/device/kernels_pool.c \
	src/device/kernels_random.c \
	src/device/kernels_table.c \
	src/device/kernels_update.c \
	src/device/gelu_fit.h \
	src/device/exact_sum.h \
	src/device/update_rule.h \
	src/device/vector.h
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
tile_sources = \
	src/device/tile_kernels.h \
	src/device/tiles.h \
	src/device/tiles_attention.c \
	src/device/tiles_convolution.c \
	src/device/tiles_product.c \
	src/device/tiles_table.c
kernel_libraries += libtiles_emulated.a
libvittrain_a_LIBADD += $(libtiles_emulated_a_OBJECTS)
libtiles_emulated_a_SOURCES = $(tile_sources) src/device/tile_emulation.c
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
