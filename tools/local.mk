# SPDX-License-Identifier: BSD-3-Clause
# Scripts for users, installed beside jobs/
nobase_dist_pkgdata_SCRIPTS = tools/sweep.py
