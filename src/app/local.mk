# SPDX-License-Identifier: BSD-3-Clause
# app: the list of commands, help
libvittrain_a_SOURCES += \
	src/app/app.c \
	src/app/app.h \
	src/app/help.c
# The manual page as strings of C.
src/app/help.$(OBJEXT): src/app/manual_text.inc
src/app/manual_text.inc: $(srcdir)/src/app/vittrain.mdoc
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(SED) 's/[\\"]/\\&/g; s/.*/"&\\n"/' $(srcdir)/src/app/vittrain.mdoc >$@.new && mv -f $@.new $@
CLEANFILES += src/app/manual_text.inc
EXTRA_DIST += src/app/vittrain.mdoc
