# store: object stores (S3)
libvittrain_a_SOURCES += \
	src/store/credentials.c \
	src/store/credentials.h \
	src/store/download.c \
	src/store/download.h \
	src/store/judge.c \
	src/store/judge.h \
	src/store/object.c \
	src/store/object.h \
	src/store/request.c \
	src/store/request.h \
	src/store/role.c \
	src/store/run_upload.c \
	src/store/run_upload.h \
	src/store/sender.c \
	src/store/sender.h \
	src/store/sign.c \
	src/store/sign.h \
	src/store/state.c \
	src/store/state.h \
	src/store/store.c \
	src/store/store.h \
	src/store/upload.c \
	src/store/upload.h \
	src/store/xml.c \
	src/store/xml.h
