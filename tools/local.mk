# SPDX-License-Identifier: BSD-3-Clause
# Scripts that are no part of the program, installed in share/vittrain/tools
nobase_dist_pkgdata_SCRIPTS = \
	tools/export.py \
	tools/fetch.sh \
	tools/report.py \
	tools/sweep.py
