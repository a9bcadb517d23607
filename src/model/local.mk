# SPDX-License-Identifier: BSD-3-Clause
# model: the models and their registry
libvittrain_a_SOURCES += \
	src/model/cnn.c \
	src/model/convnet.c \
	src/model/convnet.h \
	src/model/convnet_pass.c \
	src/model/model.c \
	src/model/model.h \
	src/model/resnet.c \
	src/model/vit.c \
	src/model/vit.h \
	src/model/vit_models.c \
	src/model/vit_pass.c
