#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# Selection of cuDNN's engines for convolutions, with the real library (cudnn_engines.c).

if [ ! -e "$TEST_BUILD/test/cuda/cudnn_engines" ]; then
    echo '1..0 # SKIP cuDNN is not installed'
    exit 0
fi
exec "$TEST_BUILD/test/cuda/cudnn_engines"
