# SPDX-License-Identifier: BSD-3-Clause
# Recipes for packages, the manual page, and the module file
dist_man1_MANS = packaging/vittrain.1
EXTRA_DIST += \
	packaging/build_deb.sh \
	packaging/check.sh \
	packaging/conda \
	packaging/debian \
	packaging/easybuild \
	packaging/modulefile.in \
	packaging/spack

# Written by make install, whose prefix may differ from that of configure.
modulefile = $(DESTDIR)$(pkgdatadir)/modulefiles/vittrain/$(VERSION)
install-data-local:
	$(MKDIR_P) "`dirname '$(modulefile)'`"
	$(SED) -e 's|[@]VERSION@|$(VERSION)|' -e 's|[@]bindir@|$(bindir)|' -e 's|[@]pkgdatadir@|$(pkgdatadir)|' \
		$(srcdir)/packaging/modulefile.in >'$(modulefile)'
	chmod 644 '$(modulefile)'
uninstall-local:
	rm -f '$(modulefile)'
