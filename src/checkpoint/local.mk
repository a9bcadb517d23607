# SPDX-License-Identifier: BSD-3-Clause
# checkpoint: HDF5 checkpoints, safetensors, run folder
libvittrain_a_SOURCES += \
	src/checkpoint/checkpoint.h \
	src/checkpoint/checkpoint_file.c \
	src/checkpoint/checkpoint_file.h \
	src/checkpoint/checkpoint_folder.c \
	src/checkpoint/checkpoint_hdf5.c \
	src/checkpoint/checkpoint_name.h \
	src/checkpoint/checkpoint_read.c \
	src/checkpoint/checkpoint_writer.c \
	src/checkpoint/memory_checkpoint.c \
	src/checkpoint/memory_checkpoint.h \
	src/checkpoint/memory_find.c \
	src/checkpoint/memory_folder.c \
	src/checkpoint/model_metadata.c \
	src/checkpoint/model_metadata.h \
	src/checkpoint/run_folder.c \
	src/checkpoint/run_folder.h \
	src/checkpoint/safetensors.h \
	src/checkpoint/safetensors_header.c \
	src/checkpoint/safetensors_read.c \
	src/checkpoint/safetensors_write.c \
	src/checkpoint/weights_file.c \
	src/checkpoint/weights_file.h
