# SPDX-License-Identifier: BSD-3-Clause
libvittrain_a_SOURCES += \
	src/core/allocate.c \
	src/core/allocate.h \
	src/core/arena.c \
	src/core/arena.h \
	src/core/memory.c \
	src/core/memory.h \
	src/core/clock.c \
	src/core/clock.h \
	src/core/columns.c \
	src/core/columns.h \
	src/core/crc32c.c \
	src/core/crc32c.h \
	src/core/file.c \
	src/core/file.h \
	src/core/error.c \
	src/core/error.h \
	src/core/folder.c \
	src/core/folder.h \
	src/core/hash.h \
	src/core/hdf5_child.c \
	src/core/hdf5_chunks.c \
	src/core/hdf5_description.c \
	src/core/hdf5_file.c \
	src/core/hdf5_file.h \
	src/core/hdf5_reader.c \
	src/core/hdf5_reader.h \
	src/core/integer.h \
	src/core/launcher.c \
	src/core/launcher.h \
	src/core/log.c \
	src/core/log.h \
	src/core/open_file.c \
	src/core/open_file.h \
	src/core/random.c \
	src/core/random.h \
	src/core/sensors.c \
	src/core/sensors.h \
	src/core/shared_function.h \
	src/core/status.c \
	src/core/status.h \
	src/core/text.c \
	src/core/text.h \
	src/core/thread.c \
	src/core/thread.h \
	src/core/torch_random.c \
	src/core/torch_random.h \
	src/core/tree.c \
	src/core/tree.h \
	src/core/json_value.c \
	src/core/json_value.h \
	src/core/vectorised.h \
	src/core/version.c \
	src/core/version.h

# Every make looks up the commit and rewrites the file only if the commit has changed. If git fails, for example because
# root installs from the checkout of another user, the file is kept.
src/core/version.$(OBJEXT): version_commit.h
version_commit.h: FORCE
	@if commit=`cd $(srcdir) && { cat .commit 2>/dev/null || test ! -e .git || \
		git describe --always --dirty --exclude='*' 2>/dev/null; }` || test ! -e $@; then \
	line="#define VERSION_COMMIT \"$$commit\""; \
	test "$$line" = "`cat $@ 2>/dev/null`" || echo "$$line" >$@; fi
FORCE:
dist-hook:
	$(SED) 's/.*"\(.*\)"/\1/' version_commit.h >$(distdir)/.commit
CLEANFILES += version_commit.h
