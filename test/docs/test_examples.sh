#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The scripts of docs/examples that write data: the physics of turbulence.py, the classes of cells.py. Needs numpy and h5py.
. "$TEST_SOURCE/test/support/program.sh"

python=${PYTHON:-python3} examples=$TEST_SOURCE/docs/examples
"$python" -c 'import h5py, numpy' 2>/dev/null || skip_all "needs Python's h5py and numpy"
"$python" "$examples/turbulence.py" flow --size=32 --runs=2 --held-out=1 --times=9 --viscosity=0.004 >flow.log 2>&1 &&
    "$python" "$TEST_SOURCE/test/python/check_turbulence.py" flow/val/run00.nc 0.004 >>flow.log 2>&1 && bad= || bad="exit status $?"
result 'the flow has no divergence and loses energy at the rate of the viscosity' "$bad" flow.log
run 1 describe data describe flow/val/run00.nc
result 'data describe reads the NetCDF file' "$(ended; has describe.log '/vorticity  *float32 \[9, 32, 32\]')" describe.log

"$python" "$examples/cells.py" cells.h5 --images=10 >cells.log 2>&1 && bad= || bad="exit status $?"
result 'the cells have a threshold as a baseline' "$bad$(has cells.log 'IoU background 0.[0-9]* cell 0.[0-9]* border 0.[0-9]* mean')" cells.log
