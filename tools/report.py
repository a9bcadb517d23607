#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Placeholder."""
import sys

sys.exit("report.py: not available")
