# SPDX-License-Identifier: BSD-3-Clause
# Scripts, which read documented files only
nobase_dist_pkgdata_SCRIPTS = \
	tools/export.py \
	tools/report.py
