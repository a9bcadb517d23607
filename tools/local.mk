# SPDX-License-Identifier: BSD-3-Clause
# Scripts that are no part of the program, installed in share/vittrain/tools
nobase_dist_pkgdata_SCRIPTS = \
	tools/export.py \
	tools/fetch.sh \
	tools/report.py \
	tools/report_charts.py \
	tools/report_run.py \
	tools/report_tables.py \
	tools/report_values.py \
	tools/sweep.py
nobase_dist_pkgdata_DATA += tools/report.css
