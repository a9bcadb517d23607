# checkpoint: HDF5 checkpoints, safetensors, run folder
libvittrain_a_SOURCES += \
	src/checkpoint/checkpoint.c \
	src/checkpoint/checkpoint.h \
	src/checkpoint/checkpoint_file.h \
	src/checkpoint/checkpoint_file_create.c \
	src/checkpoint/checkpoint_file_read.c \
	src/checkpoint/checkpoint_format.c \
	src/checkpoint/checkpoint_format.h \
	src/checkpoint/checkpoint_load.h \
	src/checkpoint/checkpoint_probe.c \
	src/checkpoint/checkpoint_read.c \
	src/checkpoint/checkpoint_write.c \
	src/checkpoint/checkpoint_writer.c \
	src/checkpoint/checkpoint_writer.h \
	src/checkpoint/checkpoint_writing.h \
	src/checkpoint/convert.c \
	src/checkpoint/convert.h \
	src/checkpoint/position_resize.c \
	src/checkpoint/position_resize.h \
	src/checkpoint/run_folder.c \
	src/checkpoint/run_folder.h \
	src/checkpoint/safetensors.h \
	src/checkpoint/safetensors_header.c \
	src/checkpoint/safetensors_header.h \
	src/checkpoint/safetensors_input.c \
	src/checkpoint/safetensors_output.c \
	src/checkpoint/safetensors_read.c \
	src/checkpoint/safetensors_stream.h \
	src/checkpoint/safetensors_write.c \
	src/checkpoint/vectors.c \
	src/checkpoint/vectors.h
