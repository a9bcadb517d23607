# SPDX-License-Identifier: BSD-3-Clause
# Recipes for packages, and the module file
EXTRA_DIST += \
	packaging/build_deb.sh \
	packaging/check.sh \
	packaging/conda \
	packaging/debian \
	packaging/easybuild \
	packaging/modulefile.in \
	packaging/spack

modulefiledir = $(pkgdatadir)/modulefiles/vittrain
nodist_modulefile_DATA = packaging/modulefile/$(VERSION)
CLEANFILES += $(nodist_modulefile_DATA)
packaging/modulefile/$(VERSION): $(srcdir)/packaging/modulefile.in
	$(AM_V_GEN)$(MKDIR_P) $(@D) && sed -e 's|[@]VERSION@|$(VERSION)|' -e 's|[@]bindir@|$(bindir)|' \
		-e 's|[@]pkgdatadir@|$(pkgdatadir)|' $(srcdir)/packaging/modulefile.in >$@
