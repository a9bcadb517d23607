# data: data sets, sampler, augmentation, loader
libvittrain_a_SOURCES += \
	src/data/augment.c \
	src/data/augment.h \
	src/data/cifar10.c \
	src/data/colour.c \
	src/data/colour.h \
	src/data/crop.c \
	src/data/crop.h \
	src/data/dataset.c \
	src/data/dataset.h \
	src/data/directory.c \
	src/data/directory.h \
	src/data/image_file.c \
	src/data/image_file.h \
	src/data/image_folder.c \
	src/data/image_jpeg.c \
	src/data/image_png.c \
	src/data/listing.c \
	src/data/listing.h \
	src/data/loader.c \
	src/data/loader.h \
	src/data/mix.c \
	src/data/mix.h \
	src/data/packed.c \
	src/data/packed.h \
	src/data/packed_file.c \
	src/data/packed_write.c \
	src/data/policy.c \
	src/data/policy.h \
	src/data/record_check.c \
	src/data/record_check.h \
	src/data/sampler.c \
	src/data/sampler.h \
	src/data/split.c \
	src/data/split.h \
	src/data/synthetic.c
